//! How many calls of the sink may begin in a second: no limit until the sink asks for less.
//!
//! Then it starts below what was delivered of late, and comes back by a cubic that is slow near the rate at which the sink
//! objected and fast beyond it (S. Ha, I. Rhee, L. Xu, *CUBIC*, 2008), until it is so far beyond that it means nothing.

use std::time::Duration;

use crate::retry::Jitter;
use crate::time::Tick;

#[derive(Debug)]
pub(super) struct Throttle {
    /// `None` is no limit.
    pace: Option<Pace>,
    /// When the sink asked last.
    last: Option<Tick>,
    /// Calls in a row that were throttled.
    run: u32,
    /// When a call went well last.
    good: Option<Tick>,
    /// The seconds between the last calls that went well; the next to be overwritten, and how many there are.
    gaps: [f32; GAPS],
    next: u8,
    known: u8,
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Calls a second, now.
    rate: f64,
    /// At which the sink objected.
    peak: f64,
    since: Tick,
}

/// What one answer of this kind has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Throttled {
    /// How long nothing is sent.
    pub(super) pause: Duration,
    /// The rate was set anew: the answers to calls that were under way then are the same event.
    pub(super) is_first: bool,
    /// It is not the number of calls that the sink minds: the batch is to be halved.
    pub(super) is_too_large: bool,
}

const GAPS: usize = 15;
/// The share of the rate at which the sink objected, to begin with.
const BACK: f64 = 0.85;
/// The seconds until the rate is there again.
const RECOVERY: f64 = 8.0;
/// So many times that rate is no limit any more.
const FREE: f64 = 4.0;
/// So many in a row, and the batch is halved.
const TOO_LARGE: u32 = 3;
/// One call in 10 s: a rate of zero would never be heard of again.
const LEAST_RATE: f64 = 0.1;
/// No gap counts for more, in seconds: the sink was idle.
const LONGEST_GAP: f32 = 1.0;
/// Answers within this time, in seconds, at least, are the same event.
const LEAST_ROUND: f64 = 0.02;

impl Throttle {
    pub(super) const fn new() -> Self {
        Self { pace: None, last: None, run: 0, good: None, gaps: [0.0; GAPS], next: 0, known: 0 }
    }

    /// Calls a second; `None` is no limit.
    pub(super) fn rate(&self) -> Option<f64> {
        self.pace.map(|pace| pace.rate)
    }

    /// The time between the beginnings of two calls.
    pub(super) fn gap(&self) -> Option<Duration> {
        self.rate().map(|rate| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
    }

    pub(super) fn succeeded(&mut self, now: Tick) {
        self.run = 0;
        if let Some(last) = self.good.replace(now) {
            // What was not asked for says nothing of what could have been had.
            self.gaps[usize::from(self.next)] = now.since(last).as_secs_f32().min(LONGEST_GAP);
            self.next = (self.next + 1) % GAPS as u8;
            self.known = (self.known + 1).min(GAPS as u8);
        }
        let Some(pace) = &mut self.pace else { return };
        let times = now.since(pace.since).as_secs_f64() / RECOVERY;
        pace.rate = pace.peak * (1.0 + (1.0 - BACK) * (times - 1.0).powi(3));
        if pace.rate > FREE * pace.peak {
            self.pace = None;
        }
    }

    /// The sink asked for a pause of at least `asked`. `latency` is the usual one of a call, in seconds.
    pub(super) fn throttled(
        &mut self,
        now: Tick,
        asked: Duration,
        latency: Option<f64>,
        max_interval: Duration,
        jitter: &mut Jitter,
    ) -> Throttled {
        self.run = self.run.saturating_add(1);
        let round = latency.unwrap_or(0.05).max(LEAST_ROUND);
        let is_first = self.last.is_none_or(|last| now.since(last).as_secs_f64() > round);
        let rate = match self.pace {
            Some(pace) if !is_first => pace.rate,
            pace => self.set(now, self.objected(now, pace)),
        };
        self.last = Some(now);
        let wait = 2.0_f64.powi(self.run.saturating_sub(1).min(6) as i32) / rate * (0.5 + 0.5 * jitter.share());
        let wait = Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX);
        Throttled { pause: wait.min(max_interval).max(asked), is_first, is_too_large: self.run >= TOO_LARGE }
    }

    /// The rate that was too high.
    fn objected(&self, now: Tick, pace: Option<Pace>) -> f64 {
        let delivered = self.delivered(now);
        match (pace, delivered) {
            (None, delivered) => delivered.unwrap_or(1.0),
            (Some(pace), Some(delivered)) if self.run > 1 => pace.rate.min(delivered),
            (Some(pace), _) => pace.rate,
        }
    }

    /// Returns the new rate.
    fn set(&mut self, now: Tick, objected: f64) -> f64 {
        let peak = objected.max(LEAST_RATE);
        let rate = BACK * peak;
        self.pace = Some(Pace { rate, peak, since: now });
        rate
    }

    /// Calls a second that went well of late.
    fn delivered(&self, now: Tick) -> Option<f64> {
        if self.known == 0 {
            return None;
        }
        let gaps: f32 = self.gaps.iter().take(usize::from(self.known)).sum();
        let span = f64::from(gaps) + now.since(self.good?).as_secs_f64();
        Some(f64::from(self.known) / span.max(1e-3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    /// After calls that went well, one each `gap` milliseconds, until `end`.
    fn after_calls(gap: u64, end: u64) -> Throttle {
        let mut throttle = Throttle::new();
        (0..=end / gap).for_each(|i| throttle.succeeded(at(i * gap)));
        throttle
    }

    fn throttled(throttle: &mut Throttle, millis: u64, asked: Duration) -> Throttled {
        throttle.throttled(at(millis), asked, Some(0.05), SEC, &mut Jitter(1))
    }

    #[test]
    fn it_starts_below_what_was_delivered() {
        let mut throttle = after_calls(50, 1000);
        assert_eq!(throttle.rate(), None);
        assert!(throttled(&mut throttle, 1000, Duration::ZERO).is_first);
        let rate = throttle.rate().unwrap();
        assert!((rate - 0.85 * 20.0).abs() < 1e-4, "{rate}");
        assert_eq!(throttle.gap(), Some(Duration::from_secs_f64(1.0 / rate)));
    }

    #[test]
    fn one_round_counts_once() {
        let mut throttle = after_calls(50, 1000);
        throttled(&mut throttle, 1000, Duration::ZERO);
        let rate = throttle.rate();
        for millis in [1001, 1010, 1040] {
            assert!(!throttled(&mut throttle, millis, Duration::ZERO).is_first);
        }
        assert_eq!(throttle.rate(), rate);
        assert!(throttled(&mut throttle, 1200, Duration::ZERO).is_first);
        assert!(throttle.rate() < rate);
    }

    #[test]
    fn it_pauses_as_long_as_the_sink_asked_and_no_longer_than_that_or_the_interval() {
        let mut throttle = Throttle::new();
        for asked in [Duration::ZERO, 3 * SEC, Duration::MAX] {
            let pause = throttled(&mut throttle, 1000, asked).pause;
            assert!(pause >= asked && pause <= asked.max(SEC), "{pause:?} for {asked:?}");
        }
    }

    #[test]
    fn three_in_a_row_are_about_the_size() {
        let mut throttle = after_calls(50, 1000);
        let large = |throttle: &mut Throttle| throttled(throttle, 1000, Duration::ZERO).is_too_large;
        assert!(!large(&mut throttle) && !large(&mut throttle) && large(&mut throttle));
        throttle.succeeded(at(1001));
        assert!(!large(&mut throttle));
    }

    #[test]
    fn the_rate_comes_back_slowly_near_the_old_one_and_then_goes() {
        let mut throttle = after_calls(50, 1000);
        throttled(&mut throttle, 1000, Duration::ZERO);
        let mut rates = vec![throttle.rate().unwrap()];
        for i in 1..400 {
            throttle.succeeded(at(1000 + i * 100));
            let Some(rate) = throttle.rate() else { break };
            rates.push(rate);
        }
        assert!(rates.is_sorted());
        assert!((rates[80] - 20.0).abs() < 0.01, "after 8 s: {}", rates[80]);
        assert!(rates[100] < 20.5, "two seconds later: {}", rates[100]);
        assert_eq!(throttle.rate(), None);
    }

    #[test]
    fn a_rate_never_becomes_nothing() {
        let mut throttle = Throttle::new();
        for i in 0..10_000 {
            throttled(&mut throttle, 1000 + i * 1000, Duration::ZERO);
            let rate = throttle.rate().unwrap();
            assert!(rate >= BACK * LEAST_RATE && rate.is_finite());
        }
    }
}
