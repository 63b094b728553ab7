//! The accounts: what became of every item.
//!
//! Outcomes are counted under the head lock, in the step that moves the item; accepted, buffered and in flight are read
//! from the ring's positions and counted nowhere else, so that [`Snapshot::audit`] compares two independent figures (I1).

mod weights;

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use self::weights::Sums;
pub use self::weights::Weights;
use crate::error::{AuditError, LossReason, RefuseReason};
use crate::receipt::Fate;
use crate::state::{State, Transitions};
use crate::sync::{CachePadded, Fault, STRIPES, fault, stripe};

/// What became of an accepted item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Failed,
    Evicted,
    Expired,
    Purged,
    Abandoned,
}

impl Outcome {
    const COUNT: usize = Self::Abandoned as usize + 1;

    /// What a receipt tells of it.
    pub(crate) fn fate(self, error: Option<&Arc<dyn Error + Send + Sync>>) -> Fate {
        let reason = match self {
            Self::Delivered => return Fate::Delivered,
            Self::Failed => LossReason::Failed,
            Self::Evicted => LossReason::Evicted,
            Self::Expired => LossReason::Expired,
            Self::Purged => LossReason::Purged,
            Self::Abandoned => LossReason::Abandoned,
        };
        Fate::Lost { reason, error: error.cloned() }
    }
}

/// Items by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) delivered: u64,
    pub(crate) lost: Losses,
}

impl Tally {
    fn add(&mut self, outcome: Outcome, n: u64) {
        let lost = &mut self.lost;
        let figure = match outcome {
            Outcome::Delivered => &mut self.delivered,
            Outcome::Failed => &mut lost.failed,
            Outcome::Evicted => &mut lost.evicted,
            Outcome::Expired => &mut lost.expired,
            Outcome::Purged => &mut lost.purged,
            Outcome::Abandoned => &mut lost.abandoned,
        };
        *figure += n;
    }
}

/// Items lost, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// The final verdict of the sink or of the retry policy.
    pub failed: u64,
    /// Displaced by newer items.
    pub evicted: u64,
    /// Too old.
    pub expired: u64,
    /// Removed by `purge`.
    pub purged: u64,
    /// Left behind at drain's deadline, or when the flusher died.
    pub abandoned: u64,
}

impl Losses {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.failed + self.evicted + self.expired + self.purged + self.abandoned
    }

    /// Those that nobody has asked for: all but the purged ones.
    pub(crate) const fn unasked(&self) -> u64 {
        self.total() - self.purged
    }

    /// All of them, by reason.
    pub(crate) const fn by_reason(&self) -> [(LossReason, u64); 5] {
        [
            (LossReason::Failed, self.failed),
            (LossReason::Evicted, self.evicted),
            (LossReason::Expired, self.expired),
            (LossReason::Purged, self.purged),
            (LossReason::Abandoned, self.abandoned),
        ]
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            failed: self.failed - earlier.failed,
            evicted: self.evicted - earlier.evicted,
            expired: self.expired - earlier.expired,
            purged: self.purged - earlier.purged,
            abandoned: self.abandoned - earlier.abandoned,
        }
    }
}

/// Calls of the sink, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flushes {
    /// Answered `Ok(())`.
    pub ok: u64,
    /// Answered an error that is worth another try.
    pub retry: u64,
    /// Asked for a pause.
    pub throttled: u64,
    /// Refused the batch as too large.
    pub too_large: u64,
    /// Failed for good.
    pub permanent: u64,
    /// Panicked.
    pub panicked: u64,
    /// Cut off by the flush timeout.
    pub timed_out: u64,
    /// Cut off by drain's deadline, or because the flusher was dropped.
    pub cancelled: u64,
}

impl Flushes {
    /// All calls that have ended.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.ok
            + self.retry
            + self.throttled
            + self.too_large
            + self.permanent
            + self.panicked
            + self.timed_out
            + self.cancelled
    }
}

/// The accounts that the head lock guards.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) total: Tally,
    /// The same by size, with a weigher.
    pub(crate) sizes: Sums,
    pub(crate) cancelled: u64,
    pub(crate) retried: u64,
    pub(crate) flushes: Flushes,
    pub(crate) peak_depth: u64,
    /// Items that gave their place, not only their room, to a newer one.
    pub(crate) displaced: u64,
    /// The losses that a batch has already told its sink of.
    told: Losses,
    barriers: Vec<Barrier>,
    next_barrier: u64,
}

/// Somebody waits until everything before a position is settled.
#[derive(Debug)]
struct Barrier {
    id: u64,
    /// The first position that it does not cover.
    end: u64,
    /// Covered positions that are not settled.
    outstanding: u64,
    tally: Tally,
    waker: Option<Waker>,
}

impl Ledger {
    /// Counts the items at `positions`, and returns the wakers of the barriers that this completes.
    pub(crate) fn settle(&mut self, positions: Range<u64>, outcome: Outcome, wakers: &mut Vec<Waker>) {
        self.total.add(outcome, positions.end - positions.start);
        for barrier in &mut self.barriers {
            let covered = barrier.end.min(positions.end).saturating_sub(positions.start);
            barrier.tally.add(outcome, covered);
            barrier.outstanding -= covered;
            if fault(Fault::BarrierByPosition) && positions.end >= barrier.end {
                barrier.outstanding = 0;
            }
            if barrier.outstanding == 0 {
                wakers.extend(barrier.waker.take());
            }
        }
    }

    /// How many wait for items to be settled.
    pub(crate) fn barriers(&self) -> usize {
        self.barriers.len()
    }

    /// Counts the youngest item, at `position`, as evicted, and a newer one as accepted in its place; returns the wakers of
    /// the barriers that this completes. The newer one came after them.
    pub(crate) fn displace(&mut self, position: u64, wakers: &mut Vec<Waker>) {
        self.displaced += 1;
        self.settle(position..position + 1, Outcome::Evicted, wakers);
        for barrier in &mut self.barriers {
            barrier.end = barrier.end.min(position);
        }
    }

    /// The losses since the last call.
    pub(crate) fn untold(&mut self) -> Losses {
        let losses = self.total.lost.since(&self.told);
        self.told = self.total.lost;
        losses
    }

    /// A barrier behind the position `end`, of which `outstanding` items are not settled.
    pub(crate) fn open_barrier(&mut self, end: u64, outstanding: u64) -> u64 {
        let id = self.next_barrier;
        self.next_barrier += 1;
        self.barriers.push(Barrier { id, end, outstanding, tally: Tally::default(), waker: None });
        id
    }

    /// What the barrier has counted, and how many of the items that it covers are not settled. As long as there are any, it
    /// keeps `waker`; what is not kept comes back, to be dropped outside the lock.
    pub(crate) fn poll_barrier(&mut self, id: u64, waker: Waker) -> (Tally, u64, Option<Waker>) {
        let Some(barrier) = self.barriers.iter_mut().find(|barrier| barrier.id == id) else {
            return (Tally::default(), 0, Some(waker));
        };
        let stale = if barrier.outstanding == 0 { Some(waker) } else { barrier.waker.replace(waker) };
        (barrier.tally, barrier.outstanding, stale)
    }

    /// Forgets a barrier; returns its waker, to be dropped outside the lock.
    pub(crate) fn close_barrier(&mut self, id: u64) -> Option<Waker> {
        let index = self.barriers.iter().position(|barrier| barrier.id == id)?;
        self.barriers.swap_remove(index).waker
    }

    /// The last position that a barrier waits for.
    pub(crate) fn barrier_end(&self) -> Option<u64> {
        self.barriers.iter().filter(|barrier| barrier.outstanding > 0).map(|barrier| barrier.end).max()
    }
}

/// Refused items, by reason: striped over 16 groups of threads, so that a refused push rarely writes what others write.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    stripes: [CachePadded<[AtomicU64; RefuseReason::COUNT]>; STRIPES],
}

impl Refusals {
    #[inline]
    pub(crate) fn add(&self, reason: RefuseReason, n: u64) {
        // Ordering: Relaxed, a statistic; the offers are derived from it, so it cannot contradict them.
        self.stripes[stripe()][reason as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Refused {
        let sum = |reason: RefuseReason| {
            // Ordering: Relaxed, as above.
            self.stripes.iter().map(|stripe| stripe[reason as usize].load(Ordering::Relaxed)).sum()
        };
        Refused {
            full: sum(RefuseReason::Full),
            timed_out: sum(RefuseReason::TimedOut),
            closed: sum(RefuseReason::Closed),
            sampled: sum(RefuseReason::Sampled),
            too_large: sum(RefuseReason::TooLarge),
            would_deadlock: sum(RefuseReason::WouldDeadlock),
            no_timer: sum(RefuseReason::NoTimer),
        }
    }
}

/// Items given back to their producers, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// No room, and the strategy does not wait.
    pub full: u64,
    /// No room in time.
    pub timed_out: u64,
    /// The intake was shut.
    pub closed: u64,
    /// Left out by sampling.
    pub sampled: u64,
    /// Heavier than an item may be, or than its permit.
    pub too_large: u64,
    /// The sink would have waited for itself.
    pub would_deadlock: u64,
    /// A wait with a time limit where tokio has no timer.
    pub no_timer: u64,
}

impl Refused {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.full + self.timed_out + self.closed + self.sampled + self.too_large + self.would_deadlock + self.no_timer
    }

    /// All of them, by reason.
    pub(crate) const fn by_reason(&self) -> [(RefuseReason, u64); RefuseReason::COUNT] {
        [
            (RefuseReason::Full, self.full),
            (RefuseReason::TimedOut, self.timed_out),
            (RefuseReason::Closed, self.closed),
            (RefuseReason::Sampled, self.sampled),
            (RefuseReason::TooLarge, self.too_large),
            (RefuseReason::WouldDeadlock, self.would_deadlock),
            (RefuseReason::NoTimer, self.no_timer),
        ]
    }
}

/// All figures of one controller at one instant, in items since it was built; with a weigher in [weight](Weights), too.
///
/// Two identities hold in every snapshot, also in the middle of a storm (I1):
///
/// ```text
/// offered  = accepted + refused + cancelled + waiting
/// accepted = delivered + failed + evicted + expired + purged + abandoned + buffered + in_flight
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Pushes that arrived; derived from the four figures below.
    pub offered: u64,
    /// Taken in by the buffer; read from the ring's position.
    pub accepted: u64,
    /// Given back, by reason.
    pub refused: Refused,
    /// Given up by their producers while they waited.
    pub cancelled: u64,
    /// Items of producers that wait for room.
    pub waiting: u64,
    /// Delivered to the sink.
    pub delivered: u64,
    /// The final verdict of the sink or of the retry policy.
    pub failed: u64,
    /// Displaced by newer items.
    pub evicted: u64,
    /// Too old.
    pub expired: u64,
    /// Removed by `purge`.
    pub purged: u64,
    /// Left behind at drain's deadline, or when the flusher died.
    pub abandoned: u64,
    /// In the buffer; read from the ring's positions.
    pub buffered: u64,
    /// Taken and not settled, batches that wait for a retry included; read from the ring's positions.
    pub in_flight: u64,
    /// Places that permits hold.
    pub reserved: u64,
    /// Reserved + buffered + in flight.
    pub depth: u64,
    /// The present capacity: what `depth` may be, unless there was more inside when the capacity was made smaller.
    pub capacity: u64,
    /// The capacity it was built with, and the most that `depth` ever is.
    pub max_capacity: u64,
    /// The most that `depth` was since the build.
    pub peak_depth: u64,
    /// Producers that wait for room: pushes and reservations.
    pub waiting_producers: u64,
    /// The strategy keeps one item in so many just now: 1 unless it is [`Strategy::Sample`](crate::Strategy::Sample).
    pub sample_rate: u32,
    /// Items sent to the sink again.
    pub retried: u64,
    /// Items of batches that wait for another attempt; part of `in_flight`.
    pub retry_waiting: u64,
    /// Calls of the sink.
    pub flushes: Flushes,
    /// The most items of a batch at present.
    pub batch_limit: u64,
    /// The most calls of the sink at once at present.
    pub concurrency_limit: u64,
    /// The figures by weight, with a weigher.
    pub weights: Option<Weights>,
    /// Panics of hooks, recorders, subscribers and of items' `Drop` that were caught; the sink's are in `flushes`.
    pub panics: u64,
    /// The state of the buffer.
    pub state: State,
    /// How often each state followed each other one.
    pub transitions: Transitions,
}

impl Snapshot {
    /// Items lost, by reason.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        Losses {
            failed: self.failed,
            evicted: self.evicted,
            expired: self.expired,
            purged: self.purged,
            abandoned: self.abandoned,
        }
    }

    /// Compares the outcome counters with the ring's positions, and the figures with their bounds.
    ///
    /// # Errors
    ///
    /// The first identity that does not hold. That would be a bug of this crate.
    pub fn audit(&self) -> Result<(), AuditError> {
        let settled = self.delivered + self.losses().total();
        let check = |identity, left: u64, right: u64| {
            if left == right { Ok(()) } else { Err(AuditError { identity, left: left.into(), right: right.into() }) }
        };
        check(
            "offered = accepted + refused + cancelled + waiting",
            self.offered,
            self.accepted + self.refused.total() + self.cancelled + self.waiting,
        )?;
        check(
            "accepted = delivered + failed + evicted + expired + purged + abandoned + buffered + in_flight",
            self.accepted,
            settled + self.buffered + self.in_flight,
        )?;
        check("depth = reserved + buffered + in_flight", self.depth, self.reserved + self.buffered + self.in_flight)?;
        check("peak_depth <= max_capacity", self.peak_depth, self.peak_depth.min(self.max_capacity))?;
        check("capacity <= max_capacity", self.capacity, self.capacity.min(self.max_capacity))?;
        check("retry_waiting <= in_flight", self.retry_waiting, self.retry_waiting.min(self.in_flight))?;
        self.weights.as_ref().map_or(Ok(()), Weights::audit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_counts_only_what_it_covers() {
        let mut ledger = Ledger::default();
        let mut wakers = Vec::new();
        let id = ledger.open_barrier(10, 10);
        ledger.settle(5..15, Outcome::Delivered, &mut wakers);
        assert_eq!(ledger.poll_barrier(id, Waker::noop().clone()).1, 5);
        assert!(wakers.is_empty());
        ledger.settle(20..30, Outcome::Evicted, &mut wakers);
        ledger.settle(0..5, Outcome::Failed, &mut wakers);
        assert_eq!(wakers.len(), 1);
        let (tally, outstanding, _) = ledger.poll_barrier(id, Waker::noop().clone());
        assert_eq!(outstanding, 0);
        assert_eq!((tally.delivered, tally.lost.failed, tally.lost.evicted), (5, 5, 0));
        assert_eq!((ledger.total.delivered, ledger.total.lost.total()), (10, 15));
    }

    #[test]
    fn a_barrier_that_is_complete_or_closed_holds_nothing_up() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.barrier_end(), None);
        let (near, far) = (ledger.open_barrier(5, 5), ledger.open_barrier(9, 9));
        assert_ne!(near, far);
        assert_eq!(ledger.barrier_end(), Some(9));
        assert!(ledger.poll_barrier(far, Waker::noop().clone()).2.is_none(), "it is kept");
        assert!(ledger.close_barrier(near).is_none() && ledger.close_barrier(near).is_none());
        assert!(ledger.close_barrier(far).is_some(), "it comes back");
        assert_eq!((ledger.barrier_end(), ledger.poll_barrier(far, Waker::noop().clone()).1), (None, 0));
        let last = ledger.open_barrier(9, 9);
        ledger.settle(0..9, Outcome::Delivered, &mut Vec::new());
        assert_eq!(ledger.barrier_end(), None);
        let (tally, outstanding, stale) = ledger.poll_barrier(last, Waker::noop().clone());
        assert_eq!((tally.delivered, outstanding, stale.is_some()), (9, 0, true));
    }

    #[test]
    fn what_displaces_the_youngest_is_behind_every_barrier() {
        let mut ledger = Ledger::default();
        let mut wakers = Vec::new();
        let id = ledger.open_barrier(7, 3);
        assert!(ledger.poll_barrier(id, Waker::noop().clone()).2.is_none());
        ledger.displace(6, &mut wakers);
        assert_eq!((ledger.displaced, ledger.total.lost.evicted, ledger.barrier_end()), (1, 1, Some(6)));
        ledger.settle(6..7, Outcome::Delivered, &mut wakers);
        assert!(wakers.is_empty());
        assert_eq!(ledger.poll_barrier(id, Waker::noop().clone()).1, 2);
        ledger.settle(4..6, Outcome::Delivered, &mut wakers);
        assert_eq!(wakers.len(), 1);
        ledger.displace(9, &mut wakers);
        assert_eq!((ledger.displaced, ledger.total.lost.evicted), (2, 2));
    }

    #[test]
    fn sums_count_each_figure_once() {
        let lost = Losses { failed: 1, evicted: 10, expired: 100, purged: 1_000, abandoned: 10_000 };
        assert_eq!(lost.total(), 11_111);
        let more = Losses { failed: 3, evicted: 30, expired: 300, purged: 3_000, abandoned: 30_000 };
        let since = Losses { failed: 2, evicted: 20, expired: 200, purged: 2_000, abandoned: 20_000 };
        assert_eq!(more.since(&lost), since);
        let flushes = Flushes {
            ok: 1,
            retry: 10,
            throttled: 100,
            too_large: 1_000,
            permanent: 10_000,
            panicked: 100_000,
            timed_out: 1_000_000,
            cancelled: 10_000_000,
        };
        assert_eq!(flushes.total(), 11_111_111);
        let refused = Refused {
            full: 1,
            timed_out: 10,
            closed: 100,
            sampled: 1_000,
            too_large: 10_000,
            would_deadlock: 100_000,
            no_timer: 1_000_000,
        };
        assert_eq!(refused.total(), 1_111_111);
    }

    #[test]
    fn an_audit_sees_each_identity_broken() {
        let right = Snapshot {
            offered: 11,
            accepted: 7,
            refused: Refused { full: 1, ..Refused::default() },
            cancelled: 1,
            waiting: 2,
            delivered: 3,
            failed: 1,
            buffered: 2,
            in_flight: 1,
            reserved: 1,
            depth: 4,
            peak_depth: 4,
            capacity: 4,
            max_capacity: 5,
            ..Snapshot::default()
        };
        assert_eq!(right.audit(), Ok(()));
        let breaks: [fn(&mut Snapshot); 6] = [
            |s| s.offered += 1,
            |s| s.delivered += 1,
            |s| s.depth += 1,
            |s| s.peak_depth = 6,
            |s| s.capacity = 6,
            |s| s.retry_waiting = 2,
        ];
        for (i, wrong) in breaks.into_iter().enumerate() {
            let mut snapshot = right.clone();
            wrong(&mut snapshot);
            assert!(snapshot.audit().is_err(), "break {i}");
        }
        let wrong = Snapshot { depth: 5, ..right }.audit().map_err(|error| error.to_string());
        assert_eq!(wrong, Err("depth = reserved + buffered + in_flight: 5 against 4".to_owned()));
    }

    #[test]
    fn losses_are_told_once() {
        let mut ledger = Ledger::default();
        ledger.settle(0..3, Outcome::Evicted, &mut Vec::new());
        assert_eq!(ledger.untold().evicted, 3);
        assert_eq!(ledger.untold().total(), 0);
    }

    #[test]
    fn refusals_are_summed_over_threads() {
        let refusals = Refusals::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| refusals.add(RefuseReason::Full, 5));
            }
        });
        assert_eq!(refusals.get().full, 100);
        assert_eq!(refusals.get().total(), 100);
    }
}
