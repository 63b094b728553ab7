//! Time: the only file that asks a clock.
//!
//! Everything above works with [`Tick`]s, so that policy is a function of its arguments and tests run on tokio's paused
//! clock, or on one that they move by hand. All durations from zero to `Duration::MAX` work; a deadline that cannot be represented is never.

#[cfg(feature = "test-util")]
mod manual;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

#[cfg(feature = "test-util")]
pub(crate) use self::manual::ManualTimer;
#[cfg(feature = "test-util")]
pub use self::manual::{ManualClock, ManualSleep};
#[cfg(not(feature = "test-util"))]
pub(crate) use self::none::{ManualClock, ManualTimer};
use crate::panics::catch;
use crate::sync::thread;

/// A moment, in nanoseconds since the [`Clock`] began: one word, good for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(u64);

impl Tick {
    /// `None` means never.
    #[inline]
    pub(crate) fn after(self, wait: Duration) -> Option<Self> {
        self.0.checked_add(nanos(wait)?).map(Self)
    }

    /// `None` if it would be before the clock began.
    #[inline]
    pub(crate) fn before(self, age: Duration) -> Option<Self> {
        self.0.checked_sub(nanos(age)?).map(Self)
    }

    /// Zero if `earlier` is later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn at(since_start: Duration) -> Self {
        match nanos(since_start) {
            Some(nanos) => Self(nanos),
            None => Self(u64::MAX),
        }
    }

    const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

/// `None` if it is longer than any clock runs.
#[inline]
const fn nanos(time: Duration) -> Option<u64> {
    match time.as_secs().checked_mul(1_000_000_000) {
        Some(nanos) => nanos.checked_add(time.subsec_nanos() as u64),
        None => None,
    }
}

/// The lesser of two, `None` being never.
#[inline(always)]
pub(crate) fn sooner<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    sooner_by(one, other, Ord::min)
}

/// The one of two that `least` says, `None` being never. Not a `flatten` over both: that takes some thirty instructions more,
/// six times a flush.
#[inline(always)]
pub(crate) fn sooner_by<T>(one: Option<T>, other: Option<T>, least: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(least(one, other)),
        (only, None) | (None, only) => only,
    }
}

/// How late the wheel of tokio's timers can be: it rounds up to whole milliseconds. A moment that is one, as most are on a
/// paused clock, is met, and so it is with this taken off. The driver, which sleeps for whole milliseconds from wherever
/// it is between two, may be so late once more.
const ROUNDING: Duration = Duration::from_nanos(999_999);

/// The monotonic clock of one controller.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// tokio's, so that a paused runtime pauses it.
    Tokio { origin: Instant },
    /// A test's. There is none without the feature, so that this variant costs nothing.
    #[cfg_attr(not(feature = "test-util"), allow(dead_code, reason = "there is no such clock"))]
    Manual(ManualClock),
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn start() -> Self {
        Self::Tokio { origin: Instant::now() }
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn now(&self) -> Tick {
        Tick::at(match self {
            Self::Tokio { origin } => Instant::now().saturating_duration_since(*origin),
            Self::Manual(clock) => clock.now(),
        })
    }

    /// Whether its timers work in a tokio runtime with time enabled only.
    pub(crate) const fn needs_runtime(&self) -> bool {
        matches!(self, Self::Tokio { .. })
    }

    /// How long to set a timer for, so that it fires around the end of `wait` rather than up to two milliseconds behind it: by so
    /// much less as the wheel may be late, or by half.
    pub(crate) fn within(&self, wait: Duration) -> Duration {
        match self {
            Self::Tokio { .. } => wait - ROUNDING.min(wait / 2),
            Self::Manual(_) => wait,
        }
    }

    /// A number that is the same in each run, for what is random otherwise, where a run is to be repeated.
    pub(crate) fn seed(&self) -> Option<u64> {
        match self {
            Self::Tokio { .. } => None,
            Self::Manual(clock) => Some(clock.seed()),
        }
    }

    /// A moment as Unix time, for those who read timestamps; the system's clock can step, so nothing is scheduled by it.
    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn unix(&self, tick: Tick) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.now().since(tick))
    }
}

/// No timer can be had: outside a tokio runtime, in one without time enabled, or in one that is going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoTimer;

/// Whether the current context has a timer.
pub(crate) fn check_timer() -> Result<(), NoTimer> {
    // tokio has no question for it, only a panic.
    catch(|| drop(tokio::time::sleep(Duration::ZERO))).ok_or(NoTimer)
}

pin_project! {
    /// A timer that allocates nothing and that stands in the runtime's wheel only while it is armed.
    #[derive(Debug, Default)]
    pub(crate) struct Timer {
        #[pin]
        sleep: Option<Sleep>,
        manual: Option<ManualTimer>,
        at: Option<Tick>,
    }
}

impl Timer {
    pub(crate) const fn new() -> Self {
        Self { sleep: None, manual: None, at: None }
    }

    /// Sets the moment, `None` for never. Keeps the registration if it is the same moment.
    pub(crate) fn arm(self: Pin<&mut Self>, clock: &Clock, at: Option<Tick>) -> Result<(), NoTimer> {
        let mut this = self.project();
        let is_set = this.sleep.is_some() || this.manual.is_some();
        if *this.at == at && is_set == at.is_some() {
            return Ok(());
        }
        *this.at = at;
        match clock {
            Clock::Tokio { origin } => {
                this.sleep.set(None);
                let sleep = at.map(|at| sleep_until(*origin, at)).transpose()?;
                this.sleep.set(sleep.flatten());
            }
            Clock::Manual(clock) => *this.manual = at.map(|at| clock.timer(at.since_start())),
        }
        Ok(())
    }

    /// Ready at the moment that was set; pending for ever if none was.
    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), NoTimer>> {
        let mut this = self.project();
        if let Some(timer) = this.manual {
            ready!(timer.poll(cx));
            *this.at = None;
            *this.manual = None;
            return Poll::Ready(Ok(()));
        }
        let Some(sleep) = this.sleep.as_mut().as_pin_mut() else { return Poll::Pending };
        // A runtime that goes down fires all timers, and they panic when they are polled.
        if sleep.is_elapsed() && Instant::now() < sleep.deadline() {
            return Poll::Ready(Err(NoTimer));
        }
        match catch(|| sleep.poll(cx)) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(())) => {}
            None => return Poll::Ready(Err(NoTimer)),
        }
        *this.at = None;
        this.sleep.set(None);
        Poll::Ready(Ok(()))
    }
}

/// `None` if the moment cannot be represented: never.
fn sleep_until(origin: Instant, at: Tick) -> Result<Option<Sleep>, NoTimer> {
    let Some(at) = origin.checked_add(at.since_start()) else { return Ok(None) };
    // Also a panic that is caught comes to the panic hook, and so to stderr: ask what can be asked.
    Handle::try_current().map_err(|_| NoTimer)?;
    // A runtime without time makes `sleep_until` panic, and there is no question that tells it beforehand.
    catch(|| tokio::time::sleep_until(at)).ok_or(NoTimer).map(Some)
}

/// Parks the calling thread, for blocking producers; `None` waits for ever. May return early.
pub(crate) fn park_thread(wait: Option<Duration>) {
    match wait {
        Some(wait) => thread::park_timeout(wait),
        None => thread::park(),
    }
}

/// A deadline of a blocked thread, on the machine's monotonic clock: a plain thread has no paused clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadDeadline(Option<std::time::Instant>);

impl ThreadDeadline {
    /// `None`, and a wait that cannot be represented, mean never.
    #[allow(clippy::disallowed_methods, reason = "the one file that asks for the time")]
    pub(crate) fn after(wait: Option<Duration>) -> Self {
        Self(wait.and_then(|wait| std::time::Instant::now().checked_add(wait)))
    }

    /// What is left; `None` for ever, zero when it has passed.
    #[allow(clippy::disallowed_methods, reason = "the one file that asks for the time")]
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(std::time::Instant::now()))
    }
}

/// What stands for the manual clock where there is none: no value of these types exists, and nothing of them is compiled.
#[cfg(not(feature = "test-util"))]
mod none {
    use std::task::{Context, Poll};
    use std::time::Duration;

    #[derive(Clone, Debug)]
    pub(crate) enum ManualClock {}

    impl ManualClock {
        pub(crate) fn now(&self) -> Duration {
            match *self {}
        }

        pub(crate) fn seed(&self) -> u64 {
            match *self {}
        }

        pub(crate) fn timer(&self, _: Duration) -> ManualTimer {
            match *self {}
        }
    }

    #[derive(Debug)]
    pub(crate) enum ManualTimer {}

    impl ManualTimer {
        pub(crate) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            match *self {}
        }
    }
}
