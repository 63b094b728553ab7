//! One offer and its wait for room, whoever it belongs to: a future, a stream that is forwarded, a sink.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::core::{Admitted, Core, Queued};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Key, Late, Means, Miss, Parked, Tag, Wait};
use crate::receipt::Receipt;
use crate::time::{Tick, Timer, sooner};

pin_project! {
    /// An item on its way in. Its owner must [`cancel`](Self::cancel) it before it is dropped.
    pub(crate) struct Offer<T> {
        // Not offered yet, and nobody wants to know what becomes of it. Apart from the stages: a push that finds room moves
        // this alone, in 65 instructions; out of an enum of all stages it took 108, and the load waited for two stores.
        fresh: Option<T>,
        limit: Option<Duration>,
        #[pin]
        later: Option<Later<T>>,
    }
}

pin_project! {
    /// An item that is not in at once.
    struct Later<T> {
        stage: Stage<T>,
        deadline: Option<Tick>,
        #[pin]
        timer: Timer,
    }
}

enum Stage<T> {
    /// Not offered yet, by somebody who wants to know what becomes of it.
    Tracked(T, Receipt),
    /// Offered, and put off: it found no room, and the task had no budget to see what becomes of it.
    Deferred(T, u64, Option<Receipt>),
    /// Offered, and the strategy waits, with this time limit.
    #[cfg_attr(not(feature = "sink"), allow(dead_code, reason = "only a sink keeps items"))]
    Willing(T, u64, Option<Duration>),
    Waiting(Key),
    /// On its way to another one.
    Moving,
}

impl<T> Later<T> {
    const fn at(stage: Stage<T>) -> Self {
        Self { stage, deadline: None, timer: Timer::new() }
    }
}

impl<T> Offer<T> {
    /// Nothing on its way.
    pub(crate) const fn none() -> Self {
        Self { fresh: None, limit: None, later: None }
    }

    #[inline]
    pub(super) const fn new(item: T, limit: Option<Duration>) -> Self {
        Self { fresh: Some(item), limit, later: None }
    }

    pub(super) const fn tracked(item: T, receipt: Receipt) -> Self {
        Self { fresh: None, limit: None, later: Some(Later::at(Stage::Tracked(item, receipt))) }
    }

    /// The same place for the next item; nothing is on its way.
    pub(crate) fn start(self: Pin<&mut Self>, item: T) {
        *self.project().fresh = Some(item);
    }

    /// The same place for an item that was offered, found no room and is to wait.
    #[cfg_attr(not(feature = "sink"), allow(dead_code, reason = "only a sink keeps items"))]
    pub(crate) fn keep(self: Pin<&mut Self>, item: T, size: u64, limit: Option<Duration>) {
        self.put(Stage::Willing(item, size, limit));
    }

    pub(super) const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.fresh.is_none() && self.later.is_none()
    }

    /// Offers the item, and waits for room as the strategy has it. Pending for ever if nothing is on its way.
    #[inline(always)]
    pub(crate) fn poll(
        mut self: Pin<&mut Self>,
        core: &Core<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        match self.as_mut().project().fresh.take() {
            // An eviction costs its task a turn: else one that evicts all the time would keep the sink off its thread.
            Some(item) => match core.claim(|| Means::Room) {
                Ok(place) => {
                    core.fill(place, item);
                    Poll::Ready(Ok(()))
                }
                Err(Miss::Denied) => self.poll_first(core, item, None, cx),
                Err(Miss::Late(late)) => self.poll_late(core, item, late, cx),
            },
            None => self.poll_on(core, cx),
        }
    }

    #[cold]
    fn poll_on(mut self: Pin<&mut Self>, core: &Core<T>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        let Some(later) = self.as_mut().project().later.as_pin_mut() else { return Poll::Pending };
        let stage = later.project().stage;
        if let Stage::Waiting(key) = *stage {
            return self.poll_waiting(core, key, cx);
        }
        let stage = mem::replace(stage, Stage::Moving);
        self.as_mut().project().later.set(None);
        match stage {
            Stage::Tracked(item, receipt) if core.is_weighed() => self.poll_first(core, item, Some(receipt), cx),
            Stage::Tracked(item, receipt) => self.poll_again(core, item, Tag::new(0, Some(receipt)), cx),
            Stage::Deferred(item, size, receipt) => self.poll_again(core, item, Tag::new(size, receipt), cx),
            Stage::Willing(item, size, limit) => self.wait(core, item, Tag::of_size(size), limit, cx),
            Stage::Waiting(_) | Stage::Moving => Poll::Pending,
        }
    }

    /// Gives up: what was offered and is not in counts as cancelled, and is dropped.
    #[inline]
    pub(crate) fn cancel(self: Pin<&mut Self>, core: &Core<T>) {
        if self.later.is_some() {
            self.cancel_slow(core);
        }
    }

    #[cold]
    fn cancel_slow(self: Pin<&mut Self>, core: &Core<T>) {
        let mut later = self.project().later;
        let Some(stage) = later.as_mut().as_pin_mut().map(|later| mem::replace(later.project().stage, Stage::Moving))
        else {
            return;
        };
        later.set(None);
        match stage {
            Stage::Waiting(key) => core.abandon_wait(key),
            Stage::Deferred(item, ..) | Stage::Willing(item, ..) => {
                core.count_cancelled(1);
                core.drop_items([item]);
            }
            Stage::Tracked(..) | Stage::Moving => {}
        }
    }

    fn put(self: Pin<&mut Self>, stage: Stage<T>) {
        self.project().later.set(Some(Later::at(stage)));
    }

    #[cold]
    fn poll_late(
        self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        late: Late,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        if let Err(item) = core.store_late(item, late, Means::Room) {
            self.poll_first(core, item, None, cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    /// What a push with a weigher begins with, and one that found no room at once goes on with.
    #[inline(never)]
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
        self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        tag: Tag,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        // A loop of pushes that find no room must leave the flusher its turn on the same thread.
        let Poll::Ready(budget) = coop::poll_proceed(cx) else {
            self.put(Stage::Deferred(item, tag.size, tag.receipt));
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
        mut self: Pin<&mut Self>,
        core: &Core<T>,
        item: T,
        tag: Tag,
        limit: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        let limit = sooner(limit, self.limit);
        if let Some(reason) = core.forbids_wait(limit) {
            return Poll::Ready(Err(core.refuse(reason, item)));
        }
        let deadline = limit.and_then(|limit| core.now().after(limit));
        match core.enqueue(Parked::single(item, tag), cx.waker().clone()) {
            Queued::Served => Poll::Ready(Ok(())),
            Queued::Closed(parked) => {
                let refused = parked.into_single().map(|item| core.refuse(RefuseReason::Closed, item));
                Poll::Ready(refused.map_or(Ok(()), Err))
            }
            Queued::Waiting(key) => {
                self.as_mut().project().later.set(Some(Later { deadline, ..Later::at(Stage::Waiting(key)) }));
                self.poll_deadline(core, key, cx)
            }
        }
    }

    #[cold]
    fn poll_waiting(
        self: Pin<&mut Self>,
        core: &Core<T>,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        match core.poll_waiter(key, cx.waker().clone()) {
            Wait::Queued => self.poll_deadline(core, key, cx),
            over => {
                // With its timer: the place may be used again, and no timer of this item may wake its owner then.
                self.project().later.set(None);
                Poll::Ready(verdict(over, RefuseReason::Closed))
            }
        }
    }

    /// A queued push waits for its deadline, too. On the way out it is accepted if its item was moved meanwhile.
    fn poll_deadline(
        self: Pin<&mut Self>,
        core: &Core<T>,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PushError<T>>> {
        let mut place = self.project().later;
        let Some(later) = place.as_mut().as_pin_mut() else { return Poll::Pending };
        let later = later.project();
        let mut timer = later.timer;
        let reason = match timer.as_mut().arm(core.clock(), *later.deadline) {
            Ok(()) if ready!(timer.poll(cx)).is_ok() => RefuseReason::TimedOut,
            _ => RefuseReason::NoTimer,
        };
        place.set(None);
        Poll::Ready(verdict(core.leave(key, Some(reason)), reason))
    }
}

/// What a wait that is over says of its item, by the reason for which it was counted: `reason` is why it has left, if it has.
pub(super) fn verdict<T>(wait: Wait<T>, reason: RefuseReason) -> Result<(), PushError<T>> {
    let (parked, reason) = match wait {
        Wait::Shut(parked) => (parked, RefuseReason::Closed),
        Wait::Left(parked) => (parked, reason),
        Wait::Served(_) | Wait::Queued | Wait::Unfit { .. } => return Ok(()),
    };
    parked.into_single().map_or(Ok(()), |item| Err(PushError::new(reason, item)))
}
