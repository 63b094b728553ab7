//! When the flusher takes a batch, how many items, and how many batches at once: a pure policy.

mod adaptive;
mod fixed;
mod log;

use std::fmt;
use std::time::Duration;

pub(crate) use self::adaptive::Adaptive;
pub(crate) use self::fixed::Fixed;
pub use self::log::{Decision, DecisionReason};
pub(crate) use self::log::{Entry, Log};
use crate::time::Tick;

/// Decides when a batch leaves, and how many at once. `now` and a view come in, a plan goes out.
pub(crate) trait Pace: Send {
    /// What to do next. Asked again whenever something has changed, as long as a slot is free and the sink has asked for no
    /// pause.
    fn plan(&mut self, now: Tick, view: &View) -> Plan;

    /// A call of the sink begins, with so many items. What it answers comes back with the sample of that call.
    fn started(&mut self, now: Tick, items: u64) -> Ticket {
        let _ = (now, items);
        Ticket::default()
    }

    /// A call of the sink has ended. What is decided because of it is told to `log`.
    fn ended(&mut self, now: Tick, sample: &Sample, log: &mut Log) {
        let _ = (now, sample, log);
    }

    /// Where it stands.
    fn standing(&self) -> Standing {
        Standing::NONE
    }
}

/// Where a pace stands, for those who watch; `None` is what was set, no limit, or not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Standing {
    /// The most items of a batch.
    pub(crate) batch: Option<u64>,
    /// The most calls at once.
    pub(crate) slots: Option<u64>,
    /// The most calls a second.
    pub(crate) rate: Option<f64>,
    /// How long a call takes, on average.
    pub(crate) latency: Option<Duration>,
    /// Items that the sink takes a second.
    pub(crate) drain_rate: Option<f64>,
    /// No batch is small enough for the target latency.
    pub(crate) is_target_unreachable: bool,
    /// The sink was given up: one call at a time asks whether it is back.
    pub(crate) is_down: bool,
}

impl Standing {
    /// All as it was set.
    pub(crate) const NONE: Self = Self {
        batch: None,
        slots: None,
        rate: None,
        latency: None,
        drain_rate: None,
        is_target_unreachable: false,
        is_down: false,
    };
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
    /// So many of the items that are buffered go into one batch by their weight; at least 1.
    pub(crate) fits: u64,
    /// How long a partial batch may wait, from its oldest item: for the pace that does not adapt.
    pub(crate) linger: Duration,
    /// What to adapt to; `None` has an adaptive pace be as the fixed one.
    pub(crate) aim: Option<Aim>,
    /// Calls of the sink that are under way, with those whose batch the sink has kept.
    pub(crate) calls: u64,
    /// The most calls at once: the slots; at least 1.
    pub(crate) slots: u64,
    /// The first of the batches that are to be sent again.
    pub(crate) again: Option<Again>,
}

/// What an adaptive pace adapts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// Of one call of the sink, at p95.
    pub(crate) target_latency: Duration,
    /// Partial batches for an idle sink begin no closer to one another.
    pub(crate) min_interval: Duration,
    /// A partial batch waits no longer, from its oldest item, unless nothing may be sent.
    pub(crate) max_interval: Duration,
}

/// A batch that is to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) items: u64,
    /// When its schedule has it sent; `None` is never.
    pub(crate) due: Option<Tick>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Take a batch of up to `most` items.
    Take { most: u64, reason: FlushReason },
    /// Send the first of the batches that are to be sent again; what is above `most` items is cut off and stays first.
    Resend { most: u64 },
    /// Sleep until so many items are buffered, or until the moment, or until something else happens. With `items: None`
    /// nothing may be sent before, whatever is buffered.
    Sleep { items: Option<u64>, until: Option<Tick> },
}

/// What a pace wants to know again when a call has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The number of the call.
    pub(crate) seq: u64,
    /// It took a full batch.
    pub(crate) is_full: bool,
}

/// How a call of the sink went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) ticket: Ticket,
    /// Items of the batch as it was sent.
    pub(crate) items: u64,
    /// How long the call took.
    pub(crate) latency: Duration,
    pub(crate) outcome: Outcome,
    /// Items that are buffered now.
    pub(crate) buffered: u64,
    /// Calls still under way.
    pub(crate) calls: u64,
}

/// How a call ended, as far as a pace goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// The sink asked for less, and perhaps for a pause of this length (zero: it named none).
    Throttled(Duration),
    /// An error or a panic. The gate stays shut until the moment that the retry schedule gives; `None` is never.
    Failed {
        until: Option<Tick>,
    },
    /// The same, after the flush timeout.
    TimedOut {
        until: Option<Tick>,
    },
    /// The batch had more than the sink takes, or an item of it was.
    TooLarge,
    /// It says nothing of the sink: a poisoned batch, a drain that is over.
    Void,
}

/// Why a batch left the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// A full batch was there.
    Full,
    /// The oldest item had waited for the linger: the one that was set, or, if the pace adapts, as long as a call usually takes.
    Linger,
    /// There was no room, or producers waited for it.
    Room,
    /// Somebody called `flush`.
    Flush,
    /// The intake is shut.
    Drain,
    /// The sink, or a slot of it, was idle. Only a pace that adapts sends a batch for that.
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
