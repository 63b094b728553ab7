//! When a refused producer should come back: the next moment at which the sink has made room for it.
//!
//! Virtual slots, as of the generic cell rate algorithm (ITU-T I.371): each refusal books the next places that the sink will
//! have made free, so that a crowd comes back at exactly the rate at which the sink drains, instead of all at once.

use std::time::Duration;

use crate::splitmix::mix;
use crate::time::Tick;

/// Sooner nobody need come: a round trip, and far below what a person notices.
const SHORTEST: Duration = Duration::from_millis(50);
/// Later nobody need come: by then all may be different.
const LONGEST: Duration = Duration::from_secs(60);
/// As long as nothing is known of the sink.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What a refusal is answered by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) now: Tick,
    /// For so many items.
    pub(crate) items: u64,
    /// How many places must come free before there are so many below the high mark.
    pub(crate) excess: f64,
    /// Items that the sink settles in a second; `None` if that was never measured.
    pub(crate) rate: Option<f64>,
    /// The sink is not called before.
    pub(crate) hold: Tick,
}

impl Refusal {
    /// The booked slot that follows `last`, in nanoseconds. No two are the same.
    pub(crate) fn book(&self, last: u64) -> u64 {
        let wait = |items: f64| nanos(self.rate.map_or(0.0, |rate| items / rate));
        let base = if self.rate.is_none() { nanos(UNKNOWN.as_secs_f64()) } else { wait(self.excess.max(0.0)) };
        let base = self.now.nanos().saturating_add(base).max(self.hold.nanos());
        let slot = last.max(base).saturating_add(wait(self.items as f64));
        // What is booked beyond the horizon is forgotten: nobody waits for it.
        let horizon = self.now.nanos().saturating_add(nanos(LONGEST.as_secs_f64()));
        slot.min(horizon).max(last.saturating_add(1))
    }

    /// How long to wait for the slot, give or take 5 %: clocks and networks would round a crowd together again.
    pub(crate) fn wait(&self, slot: u64, seed: u64) -> Duration {
        let wait = Tick::from_nanos(slot).since(self.now).clamp(SHORTEST, LONGEST);
        wait.mul_f64(0.95 + 0.1 * unit(mix(seed ^ slot)))
    }
}

/// A wait in whole seconds, as the HTTP header `Retry-After` has it: rounded up or down at random, so that the mean is kept.
///
/// Rounding each wait up or down would bring a crowd that was spread over a second back at the same moment: 1.2 s becomes 1
/// four times out of five, and 2 once. 0 is a value that the header knows, and means at once.
///
/// The chance comes from the nanoseconds of `wait`: the same wait is always rounded in the same way, and the waits of
/// [`retry_after`](crate::BackpressureController::retry_after) all differ.
///
/// # Examples
///
/// ```
/// # use backpressure::{BackpressureController, Batch, retry_after_secs};
/// # let (events, _flusher) = BackpressureController::builder(1).build(|_: Batch<u32>| async { Ok(()) })?;
/// # events.try_push(1).unwrap();
/// if events.try_push(2).is_err() {
///     let header = ("retry-after", retry_after_secs(events.retry_after()).to_string());
/// #   assert!(header.1 == "0" || header.1 == "1" || header.1 == "2");
/// }
/// # Ok::<(), backpressure::BuildError>(())
/// ```
#[must_use]
pub fn retry_after_secs(wait: Duration) -> u64 {
    let chance = unit(mix(wait.as_nanos() as u64));
    let is_up = chance < f64::from(wait.subsec_nanos()) / 1e9;
    wait.as_secs().saturating_add(u64::from(is_up))
}

/// A random number in `0.0 .. 1.0`.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// At most about an hour: far beyond the longest wait, and far from an overflow.
fn nanos(seconds: f64) -> u64 {
    (seconds.min(3_600.0) * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tick = Tick::at(Duration::from_secs(100));

    fn refusal() -> Refusal {
        Refusal { now: NOW, items: 1, excess: 200.0, rate: Some(100.0), hold: Tick::default() }
    }

    /// The slots of a crowd, in milliseconds from now.
    fn crowd(refusal: Refusal, size: usize) -> Vec<u64> {
        let mut last = 0;
        let mut next = || {
            last = refusal.book(last);
            (last - NOW.nanos()) / 1_000_000
        };
        (0..size).map(|_| next()).collect()
    }

    #[test]
    fn a_crowd_comes_back_at_the_rate_of_the_sink() {
        assert_eq!(crowd(refusal(), 4), [2_010, 2_020, 2_030, 2_040]);
        assert_eq!(crowd(Refusal { items: 50, ..refusal() }, 3), [2_500, 3_000, 3_500]);
        assert_eq!(crowd(Refusal { excess: -7.0, ..refusal() }, 2), [10, 20], "there is room");
    }

    #[test]
    fn a_sink_that_is_held_is_waited_for() {
        let hold = NOW.after(Duration::from_secs(9)).unwrap();
        assert_eq!(crowd(Refusal { hold, ..refusal() }, 2), [9_010, 9_020]);
        assert_eq!(crowd(Refusal { hold, rate: None, ..refusal() }, 1), [9_000]);
        assert_eq!(crowd(Refusal { rate: None, ..refusal() }, 1), [1_000]);
    }

    #[test]
    fn nothing_is_booked_beyond_the_horizon() {
        let slow = Refusal { rate: Some(0.001), ..refusal() };
        assert_eq!(crowd(slow, 3), [60_000; 3]);
        assert!((57.0..=63.0).contains(&slow.wait(u64::MAX, 7).as_secs_f64()));
        let (first, never) = (slow.book(0), Refusal { hold: Tick::from_nanos(u64::MAX), ..slow });
        assert_eq!([slow.book(first), never.book(first)], [first + 1; 2], "two slots are never the same");
    }

    #[test]
    fn waits_keep_to_their_range_and_differ() {
        let waits: Vec<_> = (0..1_000).map(|i| refusal().wait(NOW.nanos() + i, 7).as_secs_f64()).collect();
        assert!(waits.iter().all(|wait| (0.0475..=0.0525).contains(wait)));
        assert!(waits.windows(2).all(|pair| pair[0] != pair[1]));
        let mean = waits.iter().sum::<f64>() / 1_000.0;
        assert!((mean - 0.05).abs() < 0.000_1, "{mean}");
    }

    #[test]
    fn rounding_keeps_the_mean() {
        for (millis, low) in [(1_200, 1), (50, 0), (59_900, 59)] {
            let waits = (0..10_000).map(|i| Duration::from_millis(millis) + Duration::from_nanos(i));
            let rounded: Vec<_> = waits.map(retry_after_secs).collect();
            assert!(rounded.iter().all(|secs| *secs == low || *secs == low + 1));
            let mean = rounded.iter().sum::<u64>() as f64 / 10_000.0;
            assert!((mean - millis as f64 / 1e3).abs() < 0.02, "{millis}: {mean}");
        }
        assert_eq!([0, 1, 7].map(|secs| retry_after_secs(Duration::from_secs(secs))), [0, 1, 7]);
        assert_eq!(retry_after_secs(Duration::MAX), u64::MAX);
    }
}
