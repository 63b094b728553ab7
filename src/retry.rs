//! The one schedule of attempts: exponential backoff with equal jitter.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BuildError;
use crate::panics::catch;
use crate::splitmix::{STEP, mix};
use crate::time::Tick;

/// When a failed batch is sent again, and when to give up.
///
/// The wait before attempt n + 1 is `d = min(cap, base * factor^(n-1))`, with jitter a random one in `[d/2, d]` ("equal
/// jitter", M. Brooker, *Exponential Backoff and Jitter*, 2015), at least what a throttling sink asked for. State is kept
/// for each batch.
///
/// Default: from 50 ms, doubling, to 10 s, with jitter, for as long as it takes: the buffer is the bound.
#[derive(Clone)]
pub struct Retry {
    schedule: Schedule,
    seed: Option<u64>,
    max_attempts: Option<u32>,
    give_up_after: Option<Duration>,
}

#[derive(Clone)]
enum Schedule {
    Exponential { base: Duration, cap: Duration, factor: f64, jitter: bool },
    Custom(Factory),
}

type Factory = Arc<dyn Fn() -> Waits + Send + Sync>;

/// The waits of one batch.
type Waits = Box<dyn Iterator<Item = Duration> + Send>;

impl Default for Retry {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(50), Duration::from_secs(10))
    }
}

impl Retry {
    /// Doubling waits from `base` to `cap`, both from 0 to `Duration::MAX`, with jitter, for ever.
    #[must_use]
    pub const fn exponential(base: Duration, cap: Duration) -> Self {
        let schedule = Schedule::Exponential { base, cap, factor: 2.0, jitter: true };
        Self { schedule, seed: None, max_attempts: None, give_up_after: None }
    }

    /// The waits of each batch come from an iterator of its own; where it ends, the batch has failed.
    ///
    /// It runs in the flusher, outside locks. A panic in it ends the schedule of that batch.
    #[must_use]
    pub fn schedule<F, I>(schedule: F) -> Self
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: IntoIterator<Item = Duration>,
        I::IntoIter: Send + 'static,
    {
        let waits = move || Box::new(schedule().into_iter()) as Waits;
        Self { schedule: Schedule::Custom(Arc::new(waits)), seed: None, max_attempts: None, give_up_after: None }
    }

    /// Each batch is sent once: any error is final.
    #[must_use]
    pub const fn never() -> Self {
        Self::exponential(Duration::ZERO, Duration::ZERO).max_attempts(1)
    }

    /// By how much each wait is longer than the last: a finite number of at least 1. Default 2.
    #[must_use]
    pub const fn factor(mut self, by: f64) -> Self {
        if let Schedule::Exponential { factor, .. } = &mut self.schedule {
            *factor = by;
        }
        self
    }

    /// The exact waits, without the random part. Many clients would then come back at the same moment.
    #[must_use]
    pub const fn without_jitter(mut self) -> Self {
        if let Schedule::Exponential { jitter, .. } = &mut self.schedule {
            *jitter = false;
        }
        self
    }

    /// Seeds the jitter, for a schedule that can be told in advance, and the pauses after a throttling for which the sink has
    /// named no length. By default each controller has a seed of its own.
    #[must_use]
    pub const fn jitter_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The most attempts of a batch, the first included; at least 1. Default: no limit.
    #[must_use]
    pub const fn max_attempts(mut self, most: u32) -> Self {
        self.max_attempts = Some(most);
        self
    }

    /// A batch has failed for good when its next attempt would start later than this after its first one. Default: never.
    #[must_use]
    pub const fn give_up_after(mut self, limit: Duration) -> Self {
        self.give_up_after = Some(limit);
        self
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.max_attempts == Some(0) {
            return Err(BuildError::RetryAttemptsZero);
        }
        match self.schedule {
            Schedule::Exponential { factor, .. } if !(factor.is_finite() && factor >= 1.0) => {
                Err(BuildError::RetryFactor(factor))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn jitter(&self, default_seed: u64) -> Jitter {
        Jitter(self.seed_or(default_seed))
    }

    /// What pauses are drawn from.
    pub(crate) fn seed_or(&self, default_seed: u64) -> u64 {
        self.seed.unwrap_or(default_seed)
    }

    /// When the attempt after a failed one may start; `None` is the final verdict.
    ///
    /// `asked` is the least pause that the sink asked for. Runs user code if the schedule is custom.
    pub(crate) fn next(&self, tries: &mut Tries, now: Tick, asked: Duration, jitter: &mut Jitter) -> Option<Due> {
        tries.failed += 1;
        if self.max_attempts.is_some_and(|most| tries.failed >= most) {
            return None;
        }
        let wait = match &self.schedule {
            Schedule::Exponential { base, cap, factor, jitter: jittered } => {
                let wait = exponential(*base, *cap, *factor, tries.failed);
                if *jittered { jitter.equal(wait) } else { wait }
            }
            Schedule::Custom(schedule) => tries.waits(schedule).next()?,
        };
        let at = now.after(wait.max(asked));
        let limit = self.give_up_after.and_then(|limit| tries.first?.after(limit));
        match (at, limit) {
            (Some(at), Some(limit)) if at > limit => None,
            (None, Some(_)) => None,
            (at, _) => Some(Due(at)),
        }
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Retry");
        match &self.schedule {
            Schedule::Exponential { base, cap, factor, jitter } => {
                f.field("base", base).field("cap", cap).field("factor", factor).field("jitter", jitter)
            }
            Schedule::Custom(_) => f.field("schedule", &"custom"),
        };
        f.field("max_attempts", &self.max_attempts).field("give_up_after", &self.give_up_after).finish()
    }
}

/// The moment of the next attempt; `None` is never, so the batch waits for drain's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due(pub(crate) Option<Tick>);

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Some(one), Some(other)) => one.cmp(&other),
            // Never comes last.
            (one, other) => one.is_none().cmp(&other.is_none()),
        }
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a schedule remembers of one batch.
#[derive(Default)]
pub(crate) struct Tries {
    failed: u32,
    /// When the first attempt started.
    first: Option<Tick>,
    waits: Option<Box<(Factory, Waits)>>,
}

impl Tries {
    pub(crate) fn start(&mut self, now: Tick) {
        self.first.get_or_insert(now);
    }

    /// Goes on after as many failures as there were before this one; anew if it is another schedule than before.
    fn waits(&mut self, schedule: &Factory) -> &mut Waits {
        let before = self.failed as usize - 1;
        if self.waits.as_ref().is_some_and(|waits| !Arc::ptr_eq(&waits.0, schedule)) {
            // Its destructor is the user's, and says nothing of the new one.
            catch(|| drop(self.waits.take()));
        }
        let (_, waits) = &mut **self.waits.get_or_insert_with(|| {
            let mut waits = schedule();
            // A part that was cut off a batch has a schedule of its own.
            (0..before).try_for_each(|_| waits.next().map(drop));
            Box::new((Arc::clone(schedule), waits))
        });
        waits
    }

    /// Of a part that was cut off: it goes on where the whole one stands.
    pub(crate) const fn of_a_part(&self) -> Self {
        Self { failed: self.failed, first: self.first, waits: None }
    }
}

impl Drop for Tries {
    fn drop(&mut self) {
        // A custom schedule is the user's.
        if let Some(waits) = self.waits.take() {
            catch(|| drop(waits));
        }
    }
}

impl fmt::Debug for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tries").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// `min(cap, base * factor^(failed - 1))`: never wraps, whatever the count.
fn exponential(base: Duration, cap: Duration, factor: f64, failed: u32) -> Duration {
    let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
    let seconds = base.as_secs_f64() * factor.powi(exponent);
    // Infinity and NaN (0 * infinity) are beyond every cap, but a base of 0 stays 0.
    match Duration::try_from_secs_f64(seconds) {
        _ if base.is_zero() => Duration::ZERO,
        Ok(wait) => wait.min(cap),
        Err(_) => cap,
    }
}

/// The random part of the waits: splitmix64 (Steele, Lea, Flood, 2014).
#[derive(Debug)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    pub(crate) fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }

    /// In `0.0 .. 1.0`: 53 random bits, the most that a share can hold.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Between half and all of `wait`.
    fn equal(&mut self, wait: Duration) -> Duration {
        let half = wait / 2;
        let rest = (wait - half).as_secs_f64() * self.share();
        let rest = Duration::try_from_secs_f64(rest).unwrap_or(Duration::ZERO);
        half.saturating_add(rest).min(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn waits(retry: &Retry, n: usize) -> Vec<Duration> {
        let (mut tries, mut jitter) = (Tries::default(), retry.jitter(1));
        let start = Tick::default();
        tries.start(start);
        let wait = |_| Some(retry.next(&mut tries, start, Duration::ZERO, &mut jitter)?.0?.since(start));
        (0..n).map_while(wait).collect()
    }

    #[test]
    fn s_p03_waits_never_wrap() {
        for cap in [Duration::MAX, 10 * SEC] {
            let retry = Retry::exponential(Duration::from_millis(100), cap).without_jitter();
            let (mut tries, mut jitter) = (Tries::default(), retry.jitter(1));
            let mut last = Duration::ZERO;
            for attempt in 1..=10_000 {
                let due = retry.next(&mut tries, Tick::default(), Duration::ZERO, &mut jitter);
                let wait = due.expect("no limit is set").0.map_or(Duration::MAX, |at| at.since(Tick::default()));
                assert!(wait >= last && wait <= cap, "attempt {attempt}: {wait:?} after {last:?}");
                last = wait;
            }
            assert_eq!(last, cap);
        }
    }

    #[test]
    fn jitter_stays_between_half_and_all_and_repeats_with_its_seed() {
        let plain = waits(&Retry::exponential(SEC, 60 * SEC).without_jitter(), 100);
        let one = waits(&Retry::exponential(SEC, 60 * SEC).jitter_seed(7), 100);
        assert!(one.iter().zip(&plain).all(|(wait, d)| *wait >= *d / 2 && wait <= d));
        assert_eq!(one, waits(&Retry::exponential(SEC, 60 * SEC).jitter_seed(7), 100));
        assert_ne!(one, waits(&Retry::exponential(SEC, 60 * SEC).jitter_seed(8), 100));
        assert!(Jitter(1).equal(Duration::MAX) >= Duration::MAX / 2);
    }

    #[test]
    fn limits_make_a_final_verdict() {
        assert_eq!(waits(&Retry::default().max_attempts(5), 99).len(), 4);
        assert_eq!(waits(&Retry::never(), 99).len(), 0);
        assert_eq!(waits(&Retry::schedule(|| [SEC, 3 * SEC]), 99), [SEC, 3 * SEC]);
        let retry = Retry::exponential(SEC, 60 * SEC).without_jitter().give_up_after(5 * SEC);
        assert_eq!(waits(&retry, 99), [SEC, 2 * SEC, 4 * SEC]);
    }

    #[test]
    fn a_throttling_sink_is_heard() {
        let retry = Retry::exponential(SEC, SEC).without_jitter();
        let due = retry.next(&mut Tries::default(), Tick::default(), 9 * SEC, &mut Jitter(1));
        assert_eq!(due, Some(Due(Tick::default().after(9 * SEC))));
    }

    #[test]
    fn wrong_settings_are_found() {
        for factor in [0.5, f64::NAN, f64::INFINITY, -1.0] {
            assert!(Retry::default().factor(factor).check().is_err(), "{factor}");
        }
        assert!(Retry::default().max_attempts(0).check().is_err());
        assert!(Retry::default().check().is_ok());
    }
}
