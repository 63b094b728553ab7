//! What `flush` and `drain` tell.

use std::fmt;

use crate::ledger::{Snapshot, Tally};

/// What became of everything that had been accepted when `flush` was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a flush can end without delivering"]
pub struct FlushReport {
    /// Delivered to the sink.
    pub delivered: u64,
    /// The final verdict of the sink or of the retry policy.
    pub failed: u64,
    /// Displaced by newer items meanwhile.
    pub evicted: u64,
    /// Too old.
    pub expired: u64,
    /// Removed by `purge` meanwhile.
    pub purged: u64,
    /// Left behind, because a drain or the flusher ended meanwhile.
    pub abandoned: u64,
    /// Not waited for, because the sink itself asked, and would have waited for itself. Zero for everybody else.
    pub unsettled: u64,
}

impl FlushReport {
    /// All items that the flush covered.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.delivered + self.failed + self.evicted + self.expired + self.purged + self.abandoned + self.unsettled
    }

    /// Whether every item that the flush covered was delivered.
    #[must_use]
    pub const fn all_delivered(&self) -> bool {
        self.total() == self.delivered
    }

    pub(crate) fn new(tally: Tally, unsettled: u64) -> Self {
        Self {
            unsettled,
            delivered: tally.delivered,
            failed: tally.lost.failed,
            evicted: tally.lost.evicted,
            expired: tally.lost.expired,
            purged: tally.lost.purged,
            abandoned: tally.lost.abandoned,
        }
    }
}

impl fmt::Display for FlushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delivered, failed, evicted, expired, purged, abandoned, unsettled } = self;
        write!(f, "delivered {delivered}, failed {failed}, evicted {evicted}, expired {expired}, purged {purged}, ")?;
        write!(f, "abandoned {abandoned}")?;
        if *unsettled > 0 { write!(f, ", not waited for {unsettled}") } else { Ok(()) }
    }
}

/// How a controller ended.
#[non_exhaustive]
#[must_use = "the leftovers are in it"]
pub struct DrainReport<T> {
    /// The figures of the controller's whole life. `abandoned` includes the leftovers and what was not returned.
    pub totals: Snapshot,
    /// The items that could not be delivered before the deadline, oldest first. They go to the first caller of `drain`
    /// that is still there; for the others this is empty.
    pub leftovers: Vec<T>,
    /// Items that a batch guard still held somewhere else at the deadline.
    pub not_returned: u64,
    /// Places that permits still held at the deadline. An item that is sent by one of them afterwards goes to `on_loss`.
    pub permits_out: u64,
}

impl<T> DrainReport<T> {
    /// Items delivered in the controller's life.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.totals.delivered
    }

    /// Items that have failed for good.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.totals.failed
    }

    /// Items displaced by newer ones.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.totals.evicted
    }

    /// Items that became too old.
    #[must_use]
    pub const fn expired(&self) -> u64 {
        self.totals.expired
    }

    /// Items removed by `purge`.
    #[must_use]
    pub const fn purged(&self) -> u64 {
        self.totals.purged
    }

    /// Items left behind: the leftovers, and what was not returned.
    #[must_use]
    pub const fn abandoned(&self) -> u64 {
        self.totals.abandoned
    }

    /// Nothing was abandoned and no permit was out. Items that failed or were evicted before do not count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.totals.abandoned == 0 && self.permits_out == 0
    }
}

impl<T> fmt::Debug for DrainReport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainReport")
            .field("totals", &self.totals)
            .field("leftovers", &self.leftovers.len())
            .field("not_returned", &self.not_returned)
            .field("permits_out", &self.permits_out)
            .finish()
    }
}

impl<T> fmt::Display for DrainReport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        write!(f, "delivered {}, failed {}, evicted {}, expired {}, ", t.delivered, t.failed, t.evicted, t.expired)?;
        write!(f, "purged {}, abandoned {}, refused {}, ", t.purged, t.abandoned, t.refused.total())?;
        write!(f, "cancelled {}", t.cancelled)?;
        if self.not_returned > 0 {
            write!(f, ", not returned {}", self.not_returned)?;
        }
        if self.permits_out > 0 { write!(f, ", permits out {}", self.permits_out) } else { Ok(()) }
    }
}
