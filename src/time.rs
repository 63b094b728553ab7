//! Time: the only file that asks a clock.
//!
//! Everything above works with [`Tick`]s, so that policy is a function of its arguments and tests run on tokio's paused
//! clock. All durations from zero to `Duration::MAX` work; a deadline that cannot be represented is never.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::panics::catch;

/// A moment, as time since the [`Clock`] began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tick(Duration);

impl Tick {
    /// `None` means never.
    pub(crate) fn after(self, wait: Duration) -> Option<Self> {
        self.0.checked_add(wait).map(Self)
    }

    /// Zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    #[cfg(test)]
    pub(crate) const fn at(since_start: Duration) -> Self {
        Self(since_start)
    }
}

/// The monotonic clock of one controller: tokio's, so that a paused runtime pauses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn now(&self) -> Tick {
        Tick(Instant::now().saturating_duration_since(self.origin))
    }

    /// `None` if the moment cannot be represented: never.
    fn instant(&self, tick: Tick) -> Option<Instant> {
        self.origin.checked_add(tick.0)
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
        at: Option<Tick>,
    }
}

impl Timer {
    pub(crate) const fn new() -> Self {
        Self { sleep: None, at: None }
    }

    /// Sets the moment, `None` for never. Keeps the registration if it is the same moment.
    pub(crate) fn arm(self: Pin<&mut Self>, clock: &Clock, at: Option<Tick>) -> Result<(), NoTimer> {
        let mut this = self.project();
        if *this.at == at && this.sleep.is_some() == at.is_some() {
            return Ok(());
        }
        *this.at = at;
        let sleep = match at.and_then(|at| clock.instant(at)) {
            Some(at) => {
                // Also a panic that is caught comes to the panic hook, and so to stderr: ask what can be asked.
                Handle::try_current().map_err(|_| NoTimer)?;
                // A runtime without time makes `sleep_until` panic, and there is no question that tells it beforehand.
                Some(catch(|| tokio::time::sleep_until(at)).ok_or(NoTimer)?)
            }
            None => None,
        };
        this.sleep.set(sleep);
        Ok(())
    }

    /// Ready at the moment that was set; pending for ever if none was.
    #[allow(clippy::disallowed_methods, reason = "the one place that asks for the time")]
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), NoTimer>> {
        let mut this = self.project();
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

/// Parks the calling thread, for blocking producers; `None` waits for ever. May return early.
pub(crate) fn park_thread(wait: Option<Duration>) {
    match wait {
        Some(wait) => std::thread::park_timeout(wait),
        None => std::thread::park(),
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
