//! What the pace has decided of late, and why.

use std::fmt;

use super::Standing;
use crate::time::Tick;

/// The last decisions are kept, in so many.
const KEPT: usize = 32;

/// Why the pace has changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionReason {
    /// Full batches came back faster than the target: the batch grows.
    Grow,
    /// Calls took longer than the target: the batch shrinks.
    Shrink,
    /// The batch was halved and the calls seem no faster: the larger batch is measured again.
    ConfirmShrink,
    /// The smaller batch was faster after all, and is taken again.
    ShrinkPaid,
    /// A smaller batch is no faster, so the target cannot be met: the batch doubles, to spread the cost of a call.
    Amortise,
    /// The target cannot be met: the batch stays where doubling it no longer paid.
    HoldUnreachable,
    /// Another number of calls at once is tried.
    SlotsProbe,
    /// It brought enough, and is kept.
    SlotsKept,
    /// It did not, and is taken back.
    SlotsReverted,
    /// The sink refused a batch as too large: batches stay below that.
    TooLarge,
    /// The sink asked for less.
    Throttled,
    /// Calls ran into the flush timeout.
    TimedOut,
    /// Calls failed.
    Failed,
    /// A call went well after the sink had been given up.
    Recovered,
}

impl DecisionReason {
    /// The name in snake case, as in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Shrink => "shrink",
            Self::ConfirmShrink => "confirm_shrink",
            Self::ShrinkPaid => "shrink_paid",
            Self::Amortise => "amortise",
            Self::HoldUnreachable => "hold_unreachable",
            Self::SlotsProbe => "slots_probe",
            Self::SlotsKept => "slots_kept",
            Self::SlotsReverted => "slots_reverted",
            Self::TooLarge => "too_large",
            Self::Throttled => "throttled",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Recovered => "recovered",
        }
    }
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One decision, and where it has led.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    pub(crate) at: Tick,
    /// Why.
    pub reason: DecisionReason,
    /// The most items of a batch from then on.
    pub batch: u64,
    /// The most calls of the sink at once from then on.
    pub slots: u64,
    /// The most calls a second from then on; `None` as long as the sink has not throttled.
    pub rate: Option<f64>,
}

impl Decision {
    /// The same, at another time.
    fn repeats(&self, earlier: &Self) -> bool {
        *self == Self { at: self.at, ..*earlier }
    }
}

/// A decision, and how often it was made in a row: an outage repeats one for as long as it lasts, and is not to push out what
/// was decided before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The last of them.
    pub(crate) decision: Decision,
    pub(crate) first: Tick,
    pub(crate) times: u64,
}

/// The last decisions, oldest first, and where the pace stands. Its memory is fixed.
#[derive(Debug)]
pub(crate) struct Log {
    entries: [Option<Entry>; KEPT],
    next: usize,
    /// How many there were in all.
    count: u64,
    standing: Standing,
}

impl Log {
    pub(crate) const fn new() -> Self {
        Self { entries: [None; KEPT], next: 0, count: 0, standing: Standing::NONE }
    }

    pub(crate) fn note(&mut self, decision: Decision) {
        self.count += 1;
        if let Some(last) = self.entries[self.latest()].as_mut().filter(|last| decision.repeats(&last.decision)) {
            *last = Entry { decision, first: last.first, times: last.times + 1 };
            return;
        }
        self.entries[self.next] = Some(Entry { decision, first: decision.at, times: 1 });
        self.next = (self.next + 1) % KEPT;
    }

    /// Where the pace stands now.
    pub(crate) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
    }

    pub(crate) const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Oldest first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let (late, early) = self.entries.split_at(self.next);
        early.iter().chain(late).copied().flatten()
    }

    /// The latest.
    pub(crate) fn last(&self) -> Option<Decision> {
        self.entries[self.latest()].map(|entry| entry.decision)
    }

    const fn latest(&self) -> usize {
        (self.next + KEPT - 1) % KEPT
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_decisions_are_kept_in_order_and_all_are_counted() {
        let mut log = Log::new();
        assert_eq!((log.entries().count(), log.count(), log.last()), (0, 0, None));
        for batch in 1..=100 {
            let at = Tick::default();
            log.note(Decision { at, reason: DecisionReason::Grow, batch, slots: 1, rate: None });
            assert_eq!(log.last().map(|last| last.batch), Some(batch));
        }
        let kept: Vec<_> = log.entries().map(|entry| entry.decision.batch).collect();
        assert_eq!((kept, log.count()), ((100 - KEPT as u64 + 1..=100).collect(), 100));
    }

    #[test]
    fn what_is_decided_again_takes_no_place_of_another() {
        let mut log = Log::new();
        let decided = |seconds, reason, batch| Decision {
            at: Tick::at(Duration::from_secs(seconds)),
            reason,
            batch,
            slots: 1,
            rate: None,
        };
        log.note(decided(1, DecisionReason::Grow, 200));
        (2..=1_000).for_each(|at| log.note(decided(at, DecisionReason::Failed, 200)));
        log.note(decided(1_001, DecisionReason::TimedOut, 100));
        log.note(decided(1_002, DecisionReason::Failed, 100));
        log.note(decided(1_003, DecisionReason::Failed, 50));
        log.note(Decision { rate: Some(2.0), ..decided(1_004, DecisionReason::Failed, 50) });
        let told: Vec<_> =
            log.entries().map(|entry| (entry.decision.reason, entry.decision.batch, entry.times)).collect();
        let expected = [
            (DecisionReason::Grow, 200, 1),
            (DecisionReason::Failed, 200, 999),
            (DecisionReason::TimedOut, 100, 1),
            (DecisionReason::Failed, 100, 1),
            (DecisionReason::Failed, 50, 1),
            (DecisionReason::Failed, 50, 1),
        ];
        assert_eq!((told, log.count()), (expected.to_vec(), 1_004));
        let outage = log.entries().nth(1).expect("there are six");
        assert_eq!(
            (outage.first, outage.decision.at),
            (decided(2, DecisionReason::Failed, 200).at, Tick::at(Duration::from_secs(1_000)))
        );
    }
}
