//! When the flusher takes a batch, and how many items: a pure policy.

mod fixed;

use std::fmt;
use std::time::Duration;

pub(crate) use self::fixed::Fixed;
use crate::time::Tick;

/// Decides when a batch leaves. `now` and a view come in, a plan goes out.
pub(crate) trait Pace: Send {
    fn plan(&mut self, now: Tick, view: &View) -> Plan;
}

/// What a pace sees of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Items that can be taken.
    pub(crate) buffered: u64,
    /// The most items that may be inside at present; no batch is larger.
    pub(crate) capacity: u64,
    /// The oldest of them came no earlier than this.
    pub(crate) oldest: Option<Tick>,
    /// There is no room, or producers wait for it.
    pub(crate) is_tight: bool,
    /// Somebody waits in `flush` for an item that is still buffered.
    pub(crate) is_flushing: bool,
    /// The intake is shut.
    pub(crate) is_closed: bool,
    /// Only `flush` and `drain` may take.
    pub(crate) is_paused: bool,
    /// The most items of a batch; at least 1.
    pub(crate) max_batch: u64,
    /// How long a partial batch may wait, from its oldest item.
    pub(crate) linger: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Take a batch of up to `most` items.
    Take { most: u64, reason: FlushReason },
    /// Sleep until so many items are buffered, or until the moment, or until something else happens.
    Sleep { items: Option<u64>, until: Option<Tick> },
}

/// Why a batch left the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// A full batch was there.
    Full,
    /// The oldest item had waited for the linger.
    Linger,
    /// There was no room, or producers waited for it.
    Room,
    /// Somebody called `flush`.
    Flush,
    /// The intake is shut.
    Drain,
    /// The sink was idle.
    Idle,
}

impl FlushReason {
    /// All reasons.
    pub(crate) const ALL: [Self; 6] = [Self::Full, Self::Linger, Self::Room, Self::Flush, Self::Drain, Self::Idle];

    /// The name in lower case, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Linger => "linger",
            Self::Room => "room",
            Self::Flush => "flush",
            Self::Drain => "drain",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for FlushReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
