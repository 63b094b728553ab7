//! Whether a controller does what it is for, and if not, why: a pure judgement of a few figures and times.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::Losses;
use crate::state::State;
use crate::time::Tick;

/// How a controller is, and why: for health checks, and for those who are woken by them.
///
/// Nothing is measured for it beforehand: it is judged when it is asked for. A reason that was found once counts for 10 s
/// after it was last seen to hold, so that a check does not flap; `Draining`, `Ended` and `FlusherGone` come and go at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The worst that any of the reasons makes of it, the recent ones included.
    pub status: HealthStatus,
    /// All that is wrong.
    pub reasons: Vec<HealthReason>,
    /// What was wrong within the last 10 s and is so no more, as it was last seen.
    pub recent: Vec<HealthReason>,
}

/// How a controller is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthStatus {
    /// It takes items and delivers them.
    #[default]
    Healthy,
    /// It works, but somebody should have a look.
    Degraded,
    /// It does not deliver.
    Unhealthy,
}

/// What is wrong with a controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HealthReason {
    /// A batch is at its fifth attempt, or a later one. Degraded.
    Retrying {
        /// How often it was sent.
        attempts: u32,
        /// Items of such batches.
        items: u64,
        /// What the sink said last.
        error: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// A call of the sink has been under way for more than 10 s, whether it still has its batch or not; in pull mode, a batch has
    /// been out for that long. Degraded.
    SinkHangs {
        /// For so long.
        since: Duration,
    },
    /// A producer has waited for room for more than 1 s. Degraded.
    BlockedProducers {
        /// Producers that wait.
        producers: u64,
        /// How long the first of them has waited.
        longest: Duration,
    },
    /// Accepted items were lost in the last 10 s, other than by `purge`. Degraded.
    Losing {
        /// How many, since the first of them; those of `purge` are not among them.
        lost: Losses,
        /// How long ago that was noticed. Losses that are more than 10 s apart do not belong together.
        since: Duration,
    },
    /// The buffer is Critical or Blocked, and has been in that state for more than 5 s. Degraded.
    Full {
        /// Which of them.
        state: State,
        /// For so long.
        since: Duration,
    },
    /// The sink has asked to be left alone for more than 10 s, and items wait for it. Degraded.
    Throttled {
        /// For so long still. `Duration::MAX` is for ever.
        left: Duration,
        /// Items that wait, in the buffer or to be sent again.
        items: u64,
        /// What the sink said last.
        error: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// It was paused by [`pause`](crate::BackpressureController::pause) for more than 10 s, and items wait. Degraded.
    Paused {
        /// For so long.
        since: Duration,
        /// Items in the buffer.
        items: u64,
    },
    /// Something is outstanding, the sink has nothing, and the flusher has not looked for more than 5 s: nobody drives it,
    /// or its thread is blocked. Unhealthy.
    FlusherStalled {
        /// For so long.
        since: Duration,
    },
    /// The flusher has ended though nobody had shut the intake: it was dropped, or its runtime went down. Unhealthy.
    FlusherGone,
    /// The intake is shut, and what is inside is still being delivered. Degraded.
    Draining,
    /// It was shut and has ended. Unhealthy.
    Ended,
}

impl Health {
    /// Nothing is wrong.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.status == HealthStatus::Healthy
    }

    pub(crate) fn new(causes: &Causes, error: Option<&Arc<dyn Error + Send + Sync>>) -> Self {
        let [reasons, recent] = [&causes.now, &causes.recent]
            .map(|causes| causes.iter().map(|cause| cause.reason(error)).collect::<Vec<_>>());
        let status = reasons.iter().chain(&recent).map(HealthReason::status).max().unwrap_or_default();
        Self { status, reasons, recent }
    }
}

impl HealthReason {
    /// What it makes of the controller.
    #[must_use]
    pub const fn status(&self) -> HealthStatus {
        match self {
            Self::FlusherStalled { .. } | Self::FlusherGone | Self::Ended => HealthStatus::Unhealthy,
            _ => HealthStatus::Degraded,
        }
    }
}

impl HealthStatus {
    /// The name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        for (i, reason) in self.reasons.iter().enumerate() {
            write!(f, "{} {reason}", if i == 0 { ":" } else { ";" })?;
        }
        for (i, reason) in self.recent.iter().enumerate() {
            write!(f, "{} {reason}", if i == 0 { "; over by now:" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for HealthReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::as_secs_f64;
        match self {
            Self::Retrying { attempts, items, error } => {
                write!(f, "{items} items wait for the sink, sent {attempts} times")?;
                last(f, error.as_ref())
            }
            Self::SinkHangs { since } => write!(f, "the sink has not answered for {:.1} s", seconds(since)),
            Self::BlockedProducers { producers, longest } => {
                write!(f, "{producers} producers wait for room, the first for {:.1} s", seconds(longest))
            }
            Self::Losing { lost, since } => {
                write!(f, "{} items lost, first seen {:.1} s ago", lost.total(), seconds(since))?;
                let some = lost.by_reason().into_iter().filter(|(_, n)| *n > 0);
                some.enumerate()
                    .try_for_each(|(i, (reason, n))| write!(f, "{} {n} {reason}", if i == 0 { ":" } else { "," }))
            }
            Self::Full { state, since } => write!(f, "the buffer has been {state} for {:.1} s", seconds(since)),
            Self::Throttled { left, items, error } => {
                write!(f, "{items} items wait, the sink is to be left alone ")?;
                if *left == Duration::MAX {
                    f.write_str("for ever")
                } else {
                    write!(f, "for another {:.1} s", seconds(left))
                }?;
                last(f, error.as_ref())
            }
            Self::Paused { since, items } => write!(f, "{items} items wait, paused for {:.1} s", seconds(since)),
            Self::FlusherStalled { since } => write!(f, "the flusher has not run for {:.1} s", seconds(since)),
            Self::FlusherGone => f.write_str("the flusher is gone, though the intake was open"),
            Self::Draining => f.write_str("the intake is shut, what is inside is being delivered"),
            Self::Ended => f.write_str("it has ended"),
        }
    }
}

fn last(f: &mut fmt::Formatter<'_>, error: Option<&Arc<dyn Error + Send + Sync>>) -> fmt::Result {
    error.map_or(Ok(()), |error| write!(f, ", last error: {error}"))
}

/// The batch of this attempt, or a later one, is in trouble.
pub(crate) const FIFTH: u32 = 5;
/// Far beyond what a store takes for a batch, and a third of the default flush timeout.
const HANGS: Duration = Duration::from_secs(10);
const BLOCKED: Duration = Duration::from_secs(1);
/// As long as the flusher may stay silent five times over, while something is outstanding.
const STALLED: Duration = Duration::from_secs(5);
/// Long beside a burst.
const FULL: Duration = Duration::from_secs(5);
/// A pause of the sink that lasts, or one by hand that was forgotten.
const PAUSED: Duration = Duration::from_secs(10);
/// How long a reason stays when it holds no more.
const HOLD: Duration = Duration::from_secs(10);

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) now: Tick,
    /// The most attempts of a batch that is not settled, and the items of all with five or more.
    pub(crate) attempts: u32,
    pub(crate) retrying: u64,
    /// When the longest of the calls that are under way began.
    pub(crate) call_since: Option<Tick>,
    pub(crate) producers: u64,
    pub(crate) oldest_wait: Option<Tick>,
    pub(crate) losses: Losses,
    pub(crate) state: State,
    pub(crate) state_since: Tick,
    /// Since when the sink is to be left alone, and for how long still.
    pub(crate) pause: Option<(Tick, Duration)>,
    /// Since when it is paused by hand, unless the end is near, which does not wait for that.
    pub(crate) paused_since: Option<Tick>,
    pub(crate) buffered: u64,
    /// Items of batches that wait to be sent, mostly again.
    pub(crate) again: u64,
    /// The oldest item that is not settled came no earlier.
    pub(crate) oldest_item: Option<Tick>,
    /// When the flusher looked last.
    pub(crate) looked: Option<Tick>,
    pub(crate) phase: LifePhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifePhase {
    Open,
    Draining,
    Ended,
    /// Ended though nobody had shut the intake.
    Gone,
}

/// What is wrong, and what was so of late.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Causes {
    pub(crate) now: Vec<Cause>,
    pub(crate) recent: Vec<Cause>,
}

impl Causes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cause> {
        self.now.iter().chain(&self.recent)
    }
}

/// A [`HealthReason`] without what is the user's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cause {
    Retrying(u32, u64),
    SinkHangs(Duration),
    Blocked(u64, Duration),
    Losing(Losses, Duration),
    Full(State, Duration),
    Throttled(Duration, u64),
    Paused(Duration, u64),
    Stalled(Duration),
    Gone,
    Draining,
    Ended,
}

impl Cause {
    fn reason(self, error: Option<&Arc<dyn Error + Send + Sync>>) -> HealthReason {
        match self {
            Self::Retrying(attempts, items) => HealthReason::Retrying { attempts, items, error: error.cloned() },
            Self::SinkHangs(since) => HealthReason::SinkHangs { since },
            Self::Blocked(producers, longest) => HealthReason::BlockedProducers { producers, longest },
            Self::Losing(lost, since) => HealthReason::Losing { lost, since },
            Self::Full(state, since) => HealthReason::Full { state, since },
            Self::Throttled(left, items) => HealthReason::Throttled { left, items, error: error.cloned() },
            Self::Paused(since, items) => HealthReason::Paused { since, items },
            Self::Stalled(since) => HealthReason::FlusherStalled { since },
            Self::Gone => HealthReason::FlusherGone,
            Self::Draining => HealthReason::Draining,
            Self::Ended => HealthReason::Ended,
        }
    }
}

/// What was found before, so that nothing flaps.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Each cause that was found, and when it was last seen to hold.
    raised: [Option<(Cause, Tick)>; 8],
    losses: LossWatch,
}

/// When items were lost: noted by whoever looks, so that an eviction reads no clock.
#[derive(Clone, Copy, Debug, Default)]
struct LossWatch {
    seen: Losses,
    last: Option<Tick>,
    /// What had been lost before the present losses began, and when they were first noticed.
    before: Losses,
    began: Tick,
}

impl LossWatch {
    fn cause(&self, view: &View) -> Cause {
        let lost = Losses { purged: 0, ..view.losses.since(&self.before) };
        Cause::Losing(lost, view.now.since(self.began))
    }
}

impl Memory {
    /// Notes losses; to be called about once a second while there can be any.
    pub(crate) fn note_losses(&mut self, now: Tick, losses: Losses) {
        let watch = &mut self.losses;
        if losses.unasked() > watch.seen.unasked() {
            if watch.last.is_none_or(|last| now.since(last) >= HOLD) {
                (watch.before, watch.began) = (watch.seen, now);
            }
            watch.last = Some(now);
        }
        watch.seen = losses;
    }

    pub(crate) fn judge(&mut self, view: &View) -> Causes {
        self.note_losses(view.now, view.losses);
        let over =
            |since: Option<Tick>, limit| since.map(|since| view.now.since(since)).filter(|waited| *waited > limit);
        let is_full = matches!(view.state, State::Critical | State::Blocked);
        let waiting = view.buffered + view.again;
        let long_pause = view
            .pause
            .filter(|(since, left)| view.now.since(*since).saturating_add(*left) > PAUSED)
            .filter(|_| waiting > 0);
        let paused_since = view.paused_since.filter(|_| view.buffered > 0);
        let is_idle = view.oldest_item.is_none() || view.call_since.is_some();
        let silent_since = if is_idle { None } else { view.oldest_item.max(view.looked) };
        let is_losing = self.losses.last.is_some_and(|last| view.now.since(last) < HOLD);
        let found = [
            (view.attempts >= FIFTH).then_some(Cause::Retrying(view.attempts, view.retrying)),
            over(view.call_since, HANGS).map(Cause::SinkHangs),
            over(view.oldest_wait, BLOCKED).map(|longest| Cause::Blocked(view.producers, longest)),
            is_losing.then(|| self.losses.cause(view)),
            over(is_full.then_some(view.state_since), FULL).map(|since| Cause::Full(view.state, since)),
            long_pause.map(|(_, left)| Cause::Throttled(left, waiting)),
            over(paused_since, PAUSED).map(|since| Cause::Paused(since, view.buffered)),
            over(silent_since, STALLED).map(Cause::Stalled),
        ];
        let last = match view.phase {
            LifePhase::Open => None,
            LifePhase::Draining => Some(Cause::Draining),
            LifePhase::Ended => return Causes { now: vec![Cause::Ended], recent: Vec::new() },
            LifePhase::Gone => return Causes { now: vec![Cause::Gone], recent: Vec::new() },
        };
        let mut causes = Causes::default();
        for (raised, found) in self.raised.iter_mut().zip(found) {
            if let Some(cause) = found {
                *raised = Some((cause, view.now));
                causes.now.push(cause);
            } else {
                // Losses were held already, by the time of the last one.
                *raised =
                    raised.filter(|(cause, seen)| !matches!(cause, Cause::Losing(..)) && view.now.since(*seen) < HOLD);
                causes.recent.extend(raised.map(|(cause, _)| cause));
            }
        }
        causes.now.extend(last);
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    fn view(millis: u64) -> View {
        View {
            now: at(millis),
            attempts: 1,
            retrying: 0,
            call_since: None,
            producers: 0,
            oldest_wait: None,
            losses: Losses::default(),
            state: State::Normal,
            state_since: at(0),
            pause: None,
            paused_since: None,
            buffered: 0,
            again: 0,
            oldest_item: None,
            looked: Some(at(millis)),
            phase: LifePhase::Open,
        }
    }

    #[test]
    fn each_reason_comes_when_its_condition_holds_and_not_before() {
        let cause = |view: View| {
            let Causes { now, recent } = Memory::default().judge(&view);
            assert_eq!(recent, []);
            now
        };
        let calm = view(20_000);
        assert_eq!(cause(calm), []);
        assert_eq!(cause(View { attempts: 4, ..calm }), []);
        assert_eq!(cause(View { attempts: 5, retrying: 7, ..calm }), [Cause::Retrying(5, 7)]);
        assert_eq!(cause(View { call_since: Some(at(10_000)), ..calm }), []);
        let hung = View { call_since: Some(at(9_999)), ..calm };
        assert_eq!(cause(hung), [Cause::SinkHangs(Duration::from_millis(10_001))]);
        assert_eq!(cause(View { producers: 2, oldest_wait: Some(at(19_000)), ..calm }), []);
        let blocked = View { producers: 2, oldest_wait: Some(at(18_000)), ..calm };
        assert_eq!(cause(blocked), [Cause::Blocked(2, Duration::from_secs(2))]);
        assert_eq!(cause(View { state: State::Elevated, ..calm }), []);
        assert_eq!(cause(View { state: State::Critical, state_since: at(15_000), ..calm }), []);
        let full = View { state: State::Blocked, state_since: at(14_000), ..calm };
        assert_eq!(cause(full), [Cause::Full(State::Blocked, Duration::from_secs(6))]);
        let ten = Duration::from_secs(10);
        let throttled = View { pause: Some((calm.now, ten)), buffered: 3, again: 4, ..calm };
        assert_eq!(cause(throttled), []);
        let throttled = View { pause: Some((at(19_999), ten)), ..throttled };
        assert_eq!(cause(throttled), [Cause::Throttled(ten, 7)]);
        assert_eq!(cause(View { pause: Some((at(19_999), Duration::MAX)), ..throttled }).len(), 1);
        assert_eq!(cause(View { buffered: 0, again: 0, ..throttled }), [], "nothing waits");
        let paused = View { paused_since: Some(at(5_000)), again: 4, ..calm };
        assert_eq!(cause(paused), [], "what is sent again does not wait for it");
        assert_eq!(cause(View { paused_since: Some(at(10_000)), buffered: 3, ..paused }), []);
        assert_eq!(cause(View { buffered: 3, ..paused }), [Cause::Paused(3 * ten / 2, 3)]);
        let silent = View { oldest_item: Some(at(1_000)), looked: Some(at(2_000)), ..calm };
        assert_eq!(cause(silent), [Cause::Stalled(Duration::from_secs(18))]);
        assert_eq!(cause(View { oldest_item: Some(at(19_000)), ..silent }), [], "an idle flusher need not look");
        assert_eq!(cause(View { call_since: Some(at(15_000)), ..silent }), [], "it waits for the sink");
        assert_eq!(cause(View { phase: LifePhase::Draining, ..calm }), [Cause::Draining]);
        assert_eq!(cause(View { phase: LifePhase::Gone, ..silent }), [Cause::Gone]);
        assert_eq!(cause(View { phase: LifePhase::Ended, ..silent }), [Cause::Ended]);
    }

    #[test]
    fn a_reason_stays_for_ten_seconds_after_it_was_last_seen() {
        let mut memory = Memory::default();
        let retrying = |attempts| vec![Cause::Retrying(attempts, 0)];
        let now = |attempts| Causes { now: retrying(attempts), recent: vec![] };
        assert_eq!(memory.judge(&View { attempts: 5, ..view(1_000) }), now(5));
        assert_eq!(
            memory.judge(&view(1_000)),
            Causes { now: vec![], recent: retrying(5) },
            "on a clock that stands still"
        );
        assert_eq!(memory.judge(&view(10_999)), Causes { now: vec![], recent: retrying(5) });
        assert_eq!(memory.judge(&view(11_000)), Causes::default());
        assert_eq!(memory.judge(&View { attempts: 5, ..view(12_000) }), now(5));
        assert_eq!(memory.judge(&View { attempts: 6, ..view(20_000) }), now(6));
        let last = Causes { now: vec![], recent: retrying(6) };
        assert_eq!(memory.judge(&view(29_999)), last, "as it was last seen");
    }

    #[test]
    fn losses_are_told_since_they_began_and_purges_are_none() {
        let lost = |evicted, purged| Losses { evicted, purged, ..Losses::default() };
        let mut memory = Memory::default();
        let judge = |memory: &mut Memory, millis, losses| memory.judge(&View { losses, ..view(millis) }).now;
        assert_eq!(judge(&mut memory, 0, lost(0, 5)), []);
        let losing = |evicted, millis| [Cause::Losing(lost(evicted, 0), Duration::from_millis(millis))];
        assert_eq!(judge(&mut memory, 1_000, lost(3, 5)), losing(3, 0));
        memory.note_losses(at(9_000), lost(4, 6));
        assert_eq!(judge(&mut memory, 18_999, lost(4, 7)), losing(4, 17_999));
        assert_eq!(judge(&mut memory, 19_000, lost(4, 8)), []);
        assert_eq!(judge(&mut memory, 60_000, lost(5, 9)), losing(1, 0));
    }

    #[test]
    fn an_operator_can_read_it() {
        let error: Arc<dyn Error + Send + Sync> = Arc::from(crate::error::BoxError::from("connection refused"));
        let lost = Losses { evicted: 3, failed: 1, ..Losses::default() };
        let causes = [
            Cause::Retrying(7, 500),
            Cause::Losing(lost, Duration::from_secs(42)),
            Cause::Stalled(Duration::from_millis(5_250)),
        ];
        let causes = Causes { now: causes.to_vec(), recent: vec![Cause::Full(State::Blocked, Duration::from_secs(8))] };
        let health = Health::new(&causes, Some(&error));
        assert_eq!(
            health.to_string(),
            "unhealthy: 500 items wait for the sink, sent 7 times, last error: connection refused; 4 items lost, first seen 42.0 s ago: 1 failed, \
             3 evicted; the flusher has not run for 5.2 s; over by now: the buffer has been blocked for 8.0 s"
        );
        let healthy = Health::new(&Causes::default(), None);
        assert_eq!((healthy.to_string(), healthy.is_healthy()), ("healthy".to_owned(), true));
    }
}
