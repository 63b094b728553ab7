//! Whether anything may be sent: shut after a failure, until the moment that the schedule of attempts gives.
//!
//! Failures count once for a round: the answers to calls that were under way when the first one failed are the same event. (What
//! the batch takes for old is not enough: it changes so often in a brown-out that time-outs would hardly ever count.)
//! After three rounds the sink is taken to be down: one call at a time asks whether it is back. The gate discards nothing.

use crate::time::Tick;

#[derive(Debug)]
pub(super) struct Gate {
    shut: Shut,
    /// Rounds of failures since the last success.
    failures: u8,
    /// Calls up to this number were under way when the last round began.
    round: u64,
    is_down: bool,
    /// Batches that are sent again are cut to the size of the day.
    is_cutting: bool,
}

/// Until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shut {
    Until(Tick),
    Always,
}

/// So many rounds of failures, and the sink is down.
const DOWN: u8 = 3;

impl Gate {
    pub(super) fn new() -> Self {
        Self { shut: Shut::Until(Tick::default()), failures: 0, round: 0, is_down: false, is_cutting: false }
    }

    /// When it opens; `Some(None)` is never.
    pub(super) fn opens(&self, now: Tick) -> Option<Option<Tick>> {
        match self.shut {
            Shut::Until(at) if at <= now => None,
            Shut::Until(at) => Some(Some(at)),
            Shut::Always => Some(None),
        }
    }

    /// Shut until then at least; `None` is for good.
    pub(super) fn hold(&mut self, until: Option<Tick>) {
        self.shut = self.shut.max(until.map_or(Shut::Always, Shut::Until));
    }

    /// The most calls at once.
    pub(super) const fn most(&self, slots: u64) -> u64 {
        if self.is_down { 1 } else { slots }
    }

    pub(super) const fn is_down(&self) -> bool {
        self.is_down
    }

    pub(super) const fn is_cutting(&self) -> bool {
        self.is_cutting
    }

    /// The batches that are sent again from now on have the size of the day, until there are none.
    pub(super) const fn cut(&mut self, is_cutting: bool) {
        self.is_cutting = is_cutting;
    }

    /// The call of this number has failed; `last` is the last one that has begun. Whether that begins a round.
    pub(super) fn failed(&mut self, seq: u64, last: u64) -> bool {
        if seq <= self.round {
            return false;
        }
        self.round = last;
        self.failures = self.failures.saturating_add(1);
        self.is_down = self.failures >= DOWN;
        true
    }

    /// Whether it was down.
    pub(super) fn succeeded(&mut self) -> bool {
        self.failures = 0;
        std::mem::take(&mut self.is_down)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    #[test]
    fn it_is_shut_until_the_latest_moment_that_it_was_told() {
        let mut gate = Gate::new();
        assert_eq!(gate.opens(at(0)), None);
        gate.hold(Some(at(20)));
        gate.hold(Some(at(10)));
        assert_eq!(gate.opens(at(19)), Some(Some(at(20))));
        assert_eq!(gate.opens(at(20)), None);
        gate.hold(None);
        gate.hold(Some(at(30)));
        assert_eq!(gate.opens(at(u64::MAX)), Some(None));
    }

    #[test]
    fn three_rounds_leave_one_call_until_the_first_success() {
        let mut gate = Gate::new();
        (1..3).for_each(|seq| assert!(gate.failed(seq, seq)));
        assert_eq!(gate.most(8), 8);
        assert!(gate.failed(3, 9) && !gate.failed(9, 12));
        assert_eq!(gate.most(8), 1);
        assert!(gate.succeeded());
        assert_eq!(gate.most(8), 8);
        gate.failed(10, 12);
        assert!(!gate.succeeded());
    }
}
