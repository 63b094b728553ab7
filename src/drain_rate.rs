//! How fast the sink makes room, measured while it has all it can take.

use std::time::Duration;

use crate::time::Tick;

/// No window is shorter, in nanoseconds: many batches of a fast sink.
const SHORTEST: u64 = 1_000_000_000;
/// A window has so many calls of a slow sink.
const CALLS: u64 = 4;
/// The weight of a new call in the average, as a shift: about the last eight count.
const WEIGHT: u32 = 3;

/// Items a second, and how long a call takes.
#[derive(Debug, Default)]
pub(crate) struct DrainRate {
    /// The average of the calls that went well, in nanoseconds.
    latency: Option<u64>,
    /// Since when the sink is busy, and how many items it has settled since.
    window: Option<(Tick, u64)>,
    measured: Option<f64>,
    /// By single calls, as long as nothing better is known.
    rough: Option<f64>,
}

impl DrainRate {
    /// The sink waits for items: what it takes now is what comes, and says nothing of what it could take.
    pub(crate) fn rest(&mut self) {
        self.window = None;
    }

    /// A call that took so long has gone well, and has settled so many items. Whether a window is over by it.
    pub(crate) fn note_answer(&mut self, now: Tick, took: Duration, items: u64) -> bool {
        let took = nanos(took);
        // In nanoseconds and shifts: it is done for each call of the sink.
        self.latency = Some(self.latency.map_or(took, |average| average - (average >> WEIGHT) + (took >> WEIGHT)));
        if self.measured.is_none() && took > 0 && items > 0 {
            let rate = items as f64 * 1e9 / took as f64;
            let share = f64::from(1_u32 << WEIGHT);
            self.rough = Some(self.rough.map_or(rate, |average| average + (rate - average) / share));
        }
        let Some((since, before)) = self.window else {
            self.window = Some((now, 0));
            return false;
        };
        let (window, settled) = (now.since(since), before + items);
        if nanos(window) < (self.latency.unwrap_or(0).saturating_mul(CALLS)).max(SHORTEST) {
            self.window = Some((since, settled));
            return false;
        }
        self.window = Some((now, 0));
        if settled > 0 {
            self.measured = Some(settled as f64 / window.as_secs_f64());
        }
        settled > 0
    }

    /// So many items have failed for good: that makes room, too.
    pub(crate) fn note_failed(&mut self, items: u64) {
        if let Some((_, settled)) = &mut self.window {
            *settled += items;
        }
    }

    /// How long a call takes, on average.
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.latency.map(Duration::from_nanos)
    }

    /// Items a second, above 0: as measured last, or else by single calls.
    pub(crate) fn get(&self) -> Option<f64> {
        self.measured.or(self.rough)
    }
}

/// Good for 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Calls of 100 ms for 50 items, one after the other.
    fn busy(rate: &mut DrainRate, from: u64, calls: u64) {
        for i in 1..=calls {
            rate.note_answer(Tick::at(ms(from + 100 * i)), ms(100), 50);
        }
    }

    #[test]
    fn a_busy_sink_is_measured_in_windows() {
        let mut rate = DrainRate::default();
        assert_eq!((rate.get(), rate.latency()), (None, None));
        busy(&mut rate, 0, 1);
        assert_eq!((rate.measured, rate.get()), (None, Some(500.0)), "a first idea");
        busy(&mut rate, 100, 10);
        assert_eq!((rate.measured, rate.latency()), (Some(500.0), Some(ms(100))));
        // Two calls at once: the calls take as long, and there are twice as many.
        for i in 1..=20 {
            assert_eq!(rate.note_answer(Tick::at(ms(1_100 + 50 * i)), ms(100), 50), i == 20);
        }
        assert_eq!(rate.get(), Some(1_000.0));
    }

    #[test]
    fn an_idle_sink_is_not_measured_and_the_last_figure_stays() {
        let mut rate = DrainRate::default();
        busy(&mut rate, 0, 11);
        for second in 2..60 {
            rate.note_answer(Tick::at(Duration::from_secs(second)), ms(1), 1);
            rate.rest();
        }
        assert_eq!(rate.get(), Some(500.0));
    }

    #[test]
    fn what_fails_for_good_makes_room() {
        let mut rate = DrainRate::default();
        rate.note_failed(99);
        busy(&mut rate, 0, 6);
        rate.note_failed(500);
        busy(&mut rate, 600, 5);
        assert_eq!(rate.get(), Some(1_000.0));
    }

    #[test]
    fn a_slow_sink_has_four_calls_in_a_window() {
        let mut rate = DrainRate::default();
        let answers = (1..=5).map(|i| {
            rate.note_answer(Tick::at(Duration::from_secs(2 * i)), Duration::from_secs(2), 10);
            rate.measured
        });
        assert_eq!(answers.collect::<Vec<_>>(), [None, None, None, None, Some(5.0)]);
    }

    #[test]
    fn nothing_settled_is_no_rate() {
        let mut rate = DrainRate::default();
        assert!((0..99).all(|i| !rate.note_answer(Tick::at(ms(100 * i)), Duration::ZERO, 0)));
        assert_eq!(rate.get(), None);
    }
}
