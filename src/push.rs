//! The pushes that may wait.

mod all;
mod blocking;

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::coop;

pub use self::all::PushAll;
pub(crate) use self::blocking::push_blocking;
use crate::core::{Admitted, Core, Queued};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Key, Parked, Wait};
use crate::receipt::{Delivery, Receipt};
use crate::time::{Tick, Timer};

pin_project! {
    /// The future of [`push`](crate::BackpressureController::push) and
    /// [`push_timeout`](crate::BackpressureController::push_timeout).
    #[must_use = "futures do nothing unless polled"]
    pub struct Push<'a, T> {
        core: &'a Core<T>,
        stage: Stage<T>,
        limit: Option<Duration>,
        deadline: Option<Tick>,
        #[pin]
        timer: Timer,
    }

    impl<T> PinnedDrop for Push<'_, T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            match mem::replace(this.stage, Stage::Done) {
                Stage::Waiting(key) => this.core.abandon_wait(key),
                Stage::Deferred(item, _) => {
                    this.core.count_cancelled(1);
                    this.core.drop_items([item]);
                }
                Stage::Offer(_) | Stage::Tracked(..) | Stage::Done => {}
            }
        }
    }
}

enum Stage<T> {
    /// Not offered yet.
    Offer(T),
    /// The same, of somebody who wants to know what becomes of it.
    Tracked(T, Receipt),
    /// Offered, and put off: it found no room, and the task had no budget to see what becomes of it.
    Deferred(T, Option<Receipt>),
    Waiting(Key),
    Done,
}

impl<'a, T> Push<'a, T> {
    pub(crate) fn new(core: &'a Core<T>, item: T, limit: Option<Duration>) -> Self {
        Self { core, stage: Stage::Offer(item), limit, deadline: None, timer: Timer::new() }
    }

    fn tracked(core: &'a Core<T>, item: T, receipt: Receipt) -> Self {
        let stage = Stage::Tracked(item, receipt);
        Self { core, stage, limit: None, deadline: None, timer: Timer::new() }
    }

    #[cold]
    fn poll_again(
        self: Pin<&mut Self>,
        item: T,
        receipt: Option<Receipt>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        match self.core.offer(item, receipt) {
            Ok(()) => Poll::Ready(Ok(())),
            Err((item, receipt)) => self.poll_slow(item, receipt, cx),
        }
    }

    #[cold]
    fn poll_slow(
        mut self: Pin<&mut Self>,
        item: T,
        receipt: Option<Receipt>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        // A loop of pushes that find no room must leave the flusher its turn on the same thread.
        let Poll::Ready(budget) = coop::poll_proceed(cx) else {
            *self.as_mut().project().stage = Stage::Deferred(item, receipt);
            return Poll::Pending;
        };
        budget.made_progress();
        let this = self.project();
        let core = *this.core;
        let (item, receipt, limit) = match core.admit(item, receipt) {
            Admitted::Stored => return Poll::Ready(Ok(())),
            Admitted::Refused(error) => return Poll::Ready(Err(error)),
            Admitted::Wait(item, receipt, limit) => (item, receipt, shorter(limit, *this.limit)),
        };
        if let Some(reason) = core.forbids_wait(limit) {
            return Poll::Ready(Err(core.refuse(reason, item)));
        }
        *this.deadline = limit.and_then(|limit| core.now().after(limit));
        match core.enqueue(Parked::single(item, receipt), cx.waker().clone()) {
            Queued::Served => return Poll::Ready(Ok(())),
            Queued::Closed(parked) => {
                let refused = parked.into_single().map(|item| core.refuse(RefuseReason::Closed, item));
                return Poll::Ready(refused.map_or(Ok(()), Err));
            }
            Queued::Waiting(key) => *this.stage = Stage::Waiting(key),
        }
        poll_deadline(core, this.stage, *this.deadline, this.timer, cx)
    }

    #[cold]
    fn poll_waiting(self: Pin<&mut Self>, key: Key, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        let this = self.project();
        match this.core.poll_waiter(key, cx.waker().clone()) {
            Wait::Queued => poll_deadline(this.core, this.stage, *this.deadline, this.timer, cx),
            over => {
                *this.stage = Stage::Done;
                Poll::Ready(verdict(over, RefuseReason::Closed))
            }
        }
    }
}

impl<T> Future for Push<'_, T> {
    type Output = Result<(), PushError<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.as_mut().project();
        if let Stage::Waiting(key) = *this.stage {
            return self.poll_waiting(key, cx);
        }
        match mem::replace(this.stage, Stage::Done) {
            Stage::Offer(item) => match this.core.push(item) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(item) => self.poll_slow(item, None, cx),
            },
            Stage::Tracked(item, receipt) => self.poll_again(item, Some(receipt), cx),
            Stage::Deferred(item, receipt) => self.poll_again(item, receipt, cx),
            Stage::Waiting(_) | Stage::Done => Poll::Pending,
        }
    }
}

pin_project! {
    /// The future of [`push_tracked`](crate::BackpressureController::push_tracked).
    #[must_use = "futures do nothing unless polled"]
    pub struct PushTracked<'a, T> {
        #[pin]
        push: Push<'a, T>,
        delivery: Option<Delivery<T>>,
    }
}

impl<'a, T> PushTracked<'a, T> {
    pub(crate) fn new(core: &'a Core<T>, item: T) -> Self {
        let (receipt, delivery) = Receipt::new();
        Self { push: Push::tracked(core, item, receipt), delivery: Some(delivery) }
    }
}

impl<T> Future for PushTracked<'_, T> {
    type Output = Result<Delivery<T>, PushError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        ready!(this.push.poll(cx))?;
        // Polled again after it was ready, a push stays pending.
        this.delivery.take().map_or(Poll::Pending, |delivery| Poll::Ready(Ok(delivery)))
    }
}

impl<T> fmt::Debug for PushTracked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushTracked")
    }
}

impl<T> fmt::Debug for Push<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A queued push waits for its deadline, too. On the way out it is accepted if its item was moved meanwhile.
fn poll_deadline<T>(
    core: &Core<T>,
    stage: &mut Stage<T>,
    deadline: Option<Tick>,
    mut timer: Pin<&mut Timer>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), PushError<T>>> {
    let Stage::Waiting(key) = *stage else { return Poll::Pending };
    let reason = match timer.as_mut().arm(core.clock(), deadline) {
        Ok(()) if ready!(timer.poll(cx)).is_ok() => RefuseReason::TimedOut,
        _ => RefuseReason::NoTimer,
    };
    *stage = Stage::Done;
    Poll::Ready(verdict(core.leave(key, Some(reason)), reason))
}

/// What a wait that is over says of its item. One that was shut out was counted as closed; `reason` is why it went
/// otherwise.
fn verdict<T>(wait: Wait<T>, reason: RefuseReason) -> Result<(), PushError<T>> {
    match wait {
        Wait::Shut(parked) => parked.into_single().map_or(Ok(()), |item| Err(PushError::new(reason, item))),
        Wait::Served(_) | Wait::Queued | Wait::Unfit { .. } => Ok(()),
    }
}

/// The shorter of two limits, `None` being for ever.
fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (limit, None) | (None, limit) => limit,
    }
}
