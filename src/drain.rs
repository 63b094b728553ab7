//! Waiting for the end.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::core::{Core, DrainId};
use crate::error::WouldDeadlock;
use crate::flush::check_thread;
use crate::report::DrainReport;
use crate::thread::block_until;
use crate::time::{ThreadDeadline, Tick, Timer};

/// How long after its deadline a drain waits for the flusher to hand over, before it ends the controller itself: the sink
/// may be blocking the flusher's thread, or nobody drives it.
const GRACE: Duration = Duration::from_millis(100);

pin_project! {
    /// The future of [`drain`](crate::BackpressureController::drain).
    #[must_use = "futures do nothing unless polled"]
    pub struct Drain<'a, T> {
        core: &'a Core<T>,
        limit: Duration,
        joined: Option<(DrainId, Option<Tick>)>,
        #[pin]
        timer: Timer,
    }

    impl<T> PinnedDrop for Drain<'_, T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some((id, _)) = *this.joined {
                this.core.leave_drain(id);
            }
        }
    }
}

impl<'a, T> Drain<'a, T> {
    pub(crate) fn new(core: &'a Core<T>, limit: Duration) -> Self {
        Self { core, limit, joined: None, timer: Timer::new() }
    }

    /// Shuts the intake, unless it has done so, and says who it is and when it ends the controller itself.
    fn join(self: Pin<&mut Self>) -> (DrainId, Option<Tick>) {
        let this = self.project();
        let (id, deadline) = *this.joined.get_or_insert_with(|| this.core.start_drain(*this.limit));
        (id, deadline.and_then(|deadline| deadline.after(GRACE)))
    }
}

impl<T> Future for Drain<'_, T> {
    type Output = DrainReport<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DrainReport<T>> {
        let (id, last) = self.as_mut().join();
        let mut this = self.project();
        let core = *this.core;
        if let Poll::Ready(report) = core.poll_drain(id, cx) {
            return Poll::Ready(report);
        }
        // Without a timer here the flusher's own has to do.
        if this.timer.as_mut().arm(core.clock(), last).is_err() || this.timer.poll(cx).is_pending() {
            return Poll::Pending;
        }
        core.finish();
        core.poll_drain(id, cx)
    }
}

impl<T> fmt::Debug for Drain<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A drain on a plain thread, which is parked meanwhile. Its deadline needs no timer of a runtime.
pub(crate) fn drain_blocking<T>(core: &Core<T>, limit: Duration) -> Result<DrainReport<T>, WouldDeadlock> {
    check_thread(core)?;
    let mut drain = pin!(Drain::new(core, limit));
    let (_, last) = drain.as_mut().join();
    let deadline = ThreadDeadline::after(last.map(|last| last.since(core.now())));
    loop {
        match block_until(drain.as_mut(), deadline) {
            Some(report) => return Ok(report),
            None => core.finish(),
        }
    }
}
