//! One offer and its wait for room, whoever it belongs to: a future, a stream that is forwarded, a sink.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::coop;

use super::shorter;
use crate::core::{Admitted, Core, Queued};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Key, Parked, Tag, Wait};
use crate::receipt::Receipt;
use crate::time::{Tick, Timer};

pin_project! {
    /// An item on its way in. Its owner must [`cancel`](Self::cancel) it before it is dropped.
    pub(crate) struct Offer<T> {
        stage: Stage<T>,
        limit: Option<Duration>,
        deadline: Option<Tick>,
        #[pin]
        timer: Timer,
    }
}

enum Stage<T> {
    /// Not offered yet.
    Offer(T),
    /// The same, of somebody who wants to know what becomes of it.
    Tracked(T, Receipt),
    /// Offered, and put off: it found no room, and the task had no budget to see what becomes of it.
    Deferred(T, u64, Option<Receipt>),
    /// Offered, and the strategy waits, with this time limit.
    #[cfg_attr(not(feature = "sink"), allow(dead_code, reason = "only a sink keeps items"))]
    Willing(T, u64, Option<Duration>),
    Waiting(Key),
    Done,
}

impl<T> Offer<T> {
    /// Nothing on its way.
    pub(crate) const fn none() -> Self {
        Self::at(Stage::Done, None)
    }

    pub(super) const fn new(item: T, limit: Option<Duration>) -> Self {
        Self::at(Stage::Offer(item), limit)
    }

    pub(super) const fn tracked(item: T, receipt: Receipt) -> Self {
        Self::at(Stage::Tracked(item, receipt), None)
    }

    const fn at(stage: Stage<T>, limit: Option<Duration>) -> Self {
        Self { stage, limit, deadline: None, timer: Timer::new() }
    }

    /// The same place for the next item; nothing is on its way.
    pub(crate) fn start(self: Pin<&mut Self>, item: T) {
        let this = self.project();
        *this.stage = Stage::Offer(item);
        *this.deadline = None;
    }

    /// The same place for an item that was offered, found no room and is to wait.
    #[cfg_attr(not(feature = "sink"), allow(dead_code, reason = "only a sink keeps items"))]
    pub(crate) fn keep(self: Pin<&mut Self>, item: T, size: u64, limit: Option<Duration>) {
        *self.project().stage = Stage::Willing(item, size, limit);
    }

    pub(super) const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Offers the item, and waits for room as the strategy has it. Pending for ever if nothing is on its way.
    #[inline(always)]
    pub(crate) fn poll(
        mut self: Pin<&mut Self>,
        core: &Core<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        // What almost every push is comes first: 107 instructions a push, 189 with one match over all stages.
        let stage = self.as_mut().project().stage;
        if !matches!(stage, Stage::Offer(_)) {
            return self.poll_on(core, cx);
        }
        let Stage::Offer(item) = mem::replace(stage, Stage::Done) else { return Poll::Pending };
        match core.push(item) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(item) => self.poll_first(core, item, None, cx),
        }
    }

    #[cold]
    fn poll_on(mut self: Pin<&mut Self>, core: &Core<T>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        let stage = self.as_mut().project().stage;
        if let Stage::Waiting(key) = *stage {
            return self.poll_waiting(core, key, cx);
        }
        match mem::replace(stage, Stage::Done) {
            Stage::Offer(item) => self.poll_first(core, item, None, cx),
            Stage::Tracked(item, receipt) if core.is_weighed() => self.poll_first(core, item, Some(receipt), cx),
            Stage::Tracked(item, receipt) => self.poll_again(core, item, Tag::new(0, Some(receipt)), cx),
            Stage::Deferred(item, size, receipt) => self.poll_again(core, item, Tag::new(size, receipt), cx),
            Stage::Willing(item, size, limit) => self.wait(core, item, Tag::of_size(size), limit, cx),
            Stage::Waiting(_) | Stage::Done => Poll::Pending,
        }
    }

    /// Gives up: what was offered and is not in counts as cancelled, and is dropped.
    #[inline]
    pub(crate) fn cancel(self: Pin<&mut Self>, core: &Core<T>) {
        if !matches!(self.stage, Stage::Done) {
            self.cancel_slow(core);
        }
    }

    #[cold]
    fn cancel_slow(self: Pin<&mut Self>, core: &Core<T>) {
        match mem::replace(self.project().stage, Stage::Done) {
            Stage::Waiting(key) => core.abandon_wait(key),
            Stage::Deferred(item, ..) | Stage::Willing(item, ..) => {
                core.count_cancelled(1);
                core.drop_items([item]);
            }
            Stage::Offer(_) | Stage::Tracked(..) | Stage::Done => {}
        }
    }

    /// What a push with a weigher begins with, and one that found no room at once goes on with.
    fn poll_first(
        self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        receipt: Option<Receipt>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        match core.weigh_in(item, receipt) {
            Ok(()) => Poll::Ready(Ok(())),
            Err((item, tag)) => self.poll_slow(core, item, tag, cx),
        }
    }

    #[cold]
    fn poll_again(
        self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        tag: Tag,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        match core.offer(item, tag) {
            Ok(()) => Poll::Ready(Ok(())),
            Err((item, tag)) => self.poll_slow(core, item, tag, cx),
        }
    }

    #[cold]
    fn poll_slow(
        mut self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        tag: Tag,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        // A loop of pushes that find no room must leave the flusher its turn on the same thread.
        let Poll::Ready(budget) = coop::poll_proceed(cx) else {
            *self.as_mut().project().stage = Stage::Deferred(item, tag.size, tag.receipt);
            return Poll::Pending;
        };
        budget.made_progress();
        match core.admit(item, tag) {
            Admitted::Stored => Poll::Ready(Ok(())),
            Admitted::Refused(error) => Poll::Ready(Err(error)),
            Admitted::Wait(item, tag, limit) => self.wait(core, item, tag, limit, cx),
        }
    }

    #[cold]
    fn wait(
        self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        tag: Tag,
        limit: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        let this = self.project();
        let limit = shorter(limit, *this.limit);
        if let Some(reason) = core.forbids_wait(limit) {
            return Poll::Ready(Err(core.refuse(reason, item)));
        }
        *this.deadline = limit.and_then(|limit| core.now().after(limit));
        match core.enqueue(Parked::single(item, tag), cx.waker().clone()) {
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
    fn poll_waiting(
        self: Pin<&mut Self>,
        core: &Core<T>,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        let this = self.project();
        match core.poll_waiter(key, cx.waker().clone()) {
            Wait::Queued => poll_deadline(core, this.stage, *this.deadline, this.timer, cx),
            over => {
                *this.stage = Stage::Done;
                // The place may be used again, and no timer of this item may wake its owner then.
                let _ = this.timer.arm(core.clock(), None);
                Poll::Ready(verdict(over, RefuseReason::Closed))
            }
        }
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
pub(super) fn verdict<T>(wait: Wait<T>, reason: RefuseReason) -> Result<(), PushError<T>> {
    match wait {
        Wait::Shut(parked) => parked.into_single().map_or(Ok(()), |item| Err(PushError::new(reason, item))),
        Wait::Served(_) | Wait::Queued | Wait::Unfit { .. } => Ok(()),
    }
}
