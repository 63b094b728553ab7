//! How long one waits for another thread to write what it has claimed.

use std::time::Duration;

use crate::sync::{Backoff, thread};
use crate::time::{Clock, Tick};

/// Spins, then gives its thread away: the other one may have lost its processor. Bounded, since the thread that waits may be
/// a worker of a runtime.
pub(super) struct Patience {
    backoff: Backoff,
    yields: u32,
    /// When it is over; by the first look at the clock.
    end: Option<Tick>,
    is_exhausted: bool,
}

impl Patience {
    /// More than a time slice of most schedulers.
    const LONGEST: Duration = Duration::from_millis(10);
    /// For clocks that stand still; a scheduler of models has no time slices.
    const MOST_YIELDS: u32 = if cfg!(any(backpressure_loom, backpressure_shuttle)) { 200 } else { 10_000 };

    pub(super) const fn new() -> Self {
        Self { backoff: Backoff::new(), yields: 0, end: None, is_exhausted: false }
    }

    pub(super) const fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    #[cold]
    pub(super) fn wait(&mut self, clock: &Clock) {
        if !self.backoff.is_exhausted() {
            return self.backoff.spin();
        }
        self.yields += 1;
        thread::yield_now();
        let now = clock.now();
        let end = *self.end.get_or_insert(now.after(Self::LONGEST).unwrap_or(now));
        self.is_exhausted = now >= end || self.yields >= Self::MOST_YIELDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_lost_its_processor_is_waited_for_and_not_for_ever() {
        let (clock, mut patience, mut turns) = (Clock::start(), Patience::new(), 0);
        let began = clock.now();
        while !patience.is_exhausted() {
            patience.wait(&clock);
            turns += 1;
        }
        assert!(began.after(Duration::from_millis(1)) <= Some(clock.now()), "longer than any spin");
        assert!(turns <= Patience::MOST_YIELDS + 100, "{turns}");
    }
}
