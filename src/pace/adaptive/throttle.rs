//! How many calls of the sink may begin in a second: no limit until the sink asks for less.
//!
//! Then it starts below what was delivered of late, and comes back by a cubic that is slow near the rate at which the sink
//! objected and fast beyond it (S. Ha, I. Rhee, L. Xu, *CUBIC*, 2008), until it is so far beyond that it means nothing.

use std::time::Duration;

use super::Random;
use crate::time::Tick;

#[derive(Debug)]
pub(super) struct Throttle {
    /// `None` is no limit.
    pace: Option<Pace>,
    /// When the sink asked last.
    last: Option<Tick>,
    /// Calls in a row that were throttled.
    run: u32,
    /// When the last calls went well, in nanoseconds; the next to be overwritten, and how many there are.
    stamps: [u64; STAMPS],
    next: usize,
    known: usize,
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

const STAMPS: usize = 16;
/// The share of the rate at which the sink objected, to begin with.
const BACK: f64 = 0.85;
/// The seconds until the rate is there again.
const RECOVERY: f64 = 8.0;
/// So many times that rate is no limit any more.
const FREE: f64 = 4.0;
/// So many in a row, and the batch is halved.
const TOO_LARGE: u32 = 3;
/// One call in 100 s: a rate of zero would never be heard of again.
const LEAST_RATE: f64 = 0.01;
/// Answers within this time, in seconds, at least, are the same event.
const LEAST_ROUND: f64 = 0.02;

impl Throttle {
    pub(super) const fn new() -> Self {
        Self { pace: None, last: None, run: 0, stamps: [0; STAMPS], next: 0, known: 0 }
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
        self.stamps[self.next] = now.nanos();
        self.next = (self.next + 1) % STAMPS;
        self.known = (self.known + 1).min(STAMPS);
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
        random: &mut Random,
    ) -> Throttled {
        self.run = self.run.saturating_add(1);
        let round = latency.unwrap_or(0.05).max(LEAST_ROUND);
        let is_first = self.last.is_none_or(|last| now.since(last).as_secs_f64() > round);
        let rate = match self.pace {
            Some(pace) if !is_first => pace.rate,
            pace => self.set(now, self.objected(now, pace)),
        };
        self.last = Some(now);
        let wait = random.half_to_all(2.0_f64.powi(self.run.saturating_sub(1).min(6) as i32) / rate);
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
        if self.known < 2 {
            return None;
        }
        let oldest = if self.known < STAMPS { 0 } else { self.next };
        let span = now.since(Tick::from_nanos(self.stamps[oldest])).as_secs_f64();
        Some((self.known - 1) as f64 / span.max(1e-3))
    }
}
