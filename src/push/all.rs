//! Pushing many items at once.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::core::{Admitted, Core, Queued};
use crate::error::{PushAllError, PushError, RefuseReason};
use crate::gate::{Key, Parked, Tag, Wait};
use crate::panics::catch;
use crate::time::{Tick, Timer};

/// How many items are pulled before their places are claimed: a claim costs 1/64 of a swap for each.
const CHUNK: usize = 64;

pin_project! {
    /// The future of [`push_all`](crate::BackpressureController::push_all).
    #[must_use = "futures do nothing unless polled"]
    pub struct PushAll<'a, T, I>
    where
        I: Iterator<Item = T>,
    {
        core: &'a Core<T>,
        iter: Option<I>,
        // Pulled and not accepted; empty while they are parked.
        chunk: Vec<T>,
        // How heavy each is; empty without a weigher.
        sizes: Vec<u64>,
        // Pulled after the chunk, and too heavy: the last one to be offered.
        heavy: Option<T>,
        parked: Option<(Key, usize)>,
        accepted: usize,
        is_exhausted: bool,
        panic: Option<Box<dyn Any + Send>>,
        deadline: Option<Tick>,
        #[pin]
        timer: Timer,
    }

    impl<T, I: Iterator<Item = T>> PinnedDrop for PushAll<'_, T, I> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some((key, _)) = this.parked.take() {
                this.core.abandon_wait(key);
            }
            if this.chunk.is_empty() && this.heavy.is_none() {
                return;
            }
            let mut pulled = mem::take(this.chunk);
            pulled.extend(this.heavy.take());
            this.core.count_cancelled(pulled.len());
            this.core.drop_items(pulled);
        }
    }
}

type Outcome<I> = Result<usize, PushAllError<I>>;

impl<'a, T, I: Iterator<Item = T>> PushAll<'a, T, I> {
    pub(crate) fn new(core: &'a Core<T>, iter: I) -> Self {
        Self {
            core,
            iter: Some(iter),
            chunk: Vec::new(),
            sizes: Vec::new(),
            heavy: None,
            parked: None,
            accepted: 0,
            is_exhausted: false,
            panic: None,
            deadline: None,
            timer: Timer::new(),
        }
    }

    /// Fills the chunk. A panic of the iterator is kept until what it gave before is pushed (I9).
    fn pull(self: Pin<&mut Self>) {
        let this = self.project();
        let Some(iter) = this.iter else { return };
        if *this.is_exhausted || this.panic.is_some() {
            return;
        }
        if this.chunk.capacity() == 0 {
            // A wrong hint costs memory, not items.
            let (_, most) = catch(|| iter.size_hint()).unwrap_or((0, None));
            this.chunk.reserve_exact(most.unwrap_or(CHUNK).min(CHUNK));
        }
        let missing = CHUNK - this.chunk.len();
        let core = *this.core;
        let pulled = catch_unwind(AssertUnwindSafe(|| {
            if !core.is_weighed() {
                this.chunk.extend(iter.take(missing));
                return this.chunk.len() < CHUNK;
            }
            while this.chunk.len() < CHUNK {
                let Some(item) = iter.next() else { return true };
                let size = core.weigh(&item);
                if core.is_above_item_limit(size) {
                    // It is not to delay its neighbours, nor to wait with them.
                    *this.heavy = Some(item);
                    return false;
                }
                this.sizes.push(size);
                this.chunk.push(item);
            }
            false
        }));
        match pulled {
            Ok(is_exhausted) => *this.is_exhausted = is_exhausted,
            Err(panic) => *this.panic = Some(panic),
        }
    }

    /// The chunk found no room: the strategy decides about its first item, and if it waits, all of it is parked.
    fn poll_full(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), RefuseReason>> {
        ready!(coop::poll_proceed(cx)).made_progress();
        let this = self.as_mut().project();
        let core = *this.core;
        let first = this.chunk.remove(0);
        let size = if this.sizes.is_empty() { 0 } else { this.sizes.remove(0) };
        let (first, limit) = match core.admit(first, Tag::of_size(size)) {
            Admitted::Stored => {
                *this.accepted += 1;
                return Poll::Ready(Ok(()));
            }
            // A sample is no reason to stop.
            Admitted::Refused(PushError::Sampled(item)) => {
                core.lose_refused(item, RefuseReason::Sampled);
                return Poll::Ready(Ok(()));
            }
            Admitted::Refused(error) => return Poll::Ready(Err(give_back(core, this.chunk, error))),
            Admitted::Wait(item, _, limit) => (item, limit),
        };
        this.chunk.insert(0, first);
        if core.is_weighed() {
            this.sizes.insert(0, size);
        }
        if let Some(reason) = core.forbids_wait(limit) {
            core.count_refused(reason, this.chunk.len());
            return Poll::Ready(Err(reason));
        }
        *this.deadline = limit.and_then(|limit| core.now().after(limit));
        let count = this.chunk.len();
        let parked = Parked::Many(mem::take(this.chunk).into(), mem::take(this.sizes).into());
        match core.enqueue(parked, cx.waker().clone()) {
            Queued::Served => *this.accepted += count,
            Queued::Waiting(key) => *this.parked = Some((key, count)),
            Queued::Closed(parked) => {
                let rest = rest_of(parked);
                *this.accepted += count - rest.len();
                core.count_refused(RefuseReason::Closed, rest.len());
                *this.chunk = rest;
                return Poll::Ready(Err(RefuseReason::Closed));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The chunk is parked: it is handed over, shut out, or its time is over.
    fn poll_parked(
        self: Pin<&mut Self>,
        key: Key,
        count: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), RefuseReason>> {
        let mut this = self.project();
        let core = *this.core;
        let (wait, reason) = match core.poll_waiter(key, cx.waker().clone()) {
            Wait::Queued => {
                let reason = match this.timer.as_mut().arm(core.clock(), *this.deadline) {
                    Ok(()) if ready!(this.timer.poll(cx)).is_ok() => RefuseReason::TimedOut,
                    _ => RefuseReason::NoTimer,
                };
                (core.leave(key, Some(reason)), reason)
            }
            over => (over, RefuseReason::Closed),
        };
        *this.parked = None;
        let (parked, reason) = match wait {
            Wait::Shut(parked) => (parked, RefuseReason::Closed),
            Wait::Served(parked) | Wait::Left(parked) => (parked, reason),
            Wait::Queued | Wait::Unfit { .. } => return Poll::Pending,
        };
        *this.chunk = rest_of(parked);
        *this.accepted += count - this.chunk.len();
        Poll::Ready(if this.chunk.is_empty() { Ok(()) } else { Err(reason) })
    }

    /// All before it are in: an item that is too heavy is refused at once.
    fn end_heavy(mut self: Pin<&mut Self>, item: T) -> Poll<Outcome<I>> {
        let this = self.as_mut().project();
        let reason = if this.core.is_closed() { RefuseReason::Closed } else { RefuseReason::TooLarge };
        *this.heavy = Some(item);
        self.end(Some(reason))
    }

    /// Everything is in, or the panic of the iterator goes on.
    fn end(self: Pin<&mut Self>, refused: Option<RefuseReason>) -> Poll<Outcome<I>> {
        let this = self.project();
        if let Some(panic) = this.panic.take() {
            // Refused items, if any, were counted; their owner is unwinding.
            this.core.drop_items(mem::take(this.chunk));
            resume_unwind(panic);
        }
        let iter = this.iter.take().filter(|_| !*this.is_exhausted);
        let Some(reason) = refused else { return Poll::Ready(Ok(*this.accepted)) };
        let mut pulled = mem::take(this.chunk);
        if let Some(item) = this.heavy.take() {
            this.core.count_refused(reason, 1);
            pulled.push(item);
        }
        Poll::Ready(Err(PushAllError { reason, accepted: *this.accepted, pulled, iter }))
    }
}

impl<T, I: Iterator<Item = T>> Future for PushAll<'_, T, I> {
    type Output = Outcome<I>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<I>> {
        loop {
            let step = if let Some((key, count)) = self.parked {
                ready!(self.as_mut().poll_parked(key, count, cx))
            } else if self.chunk.is_empty() {
                if let Some(item) = self.as_mut().project().heavy.take() {
                    return self.end_heavy(item);
                }
                if self.is_exhausted || self.panic.is_some() || self.iter.is_none() {
                    return self.end(None);
                }
                self.as_mut().pull();
                Ok(())
            } else {
                let this = self.as_mut().project();
                let before = this.chunk.len();
                if this.core.is_weighed() {
                    this.core.offer_many_sized(this.chunk, this.sizes);
                } else {
                    this.core.offer_many(this.chunk);
                }
                *this.accepted += before - this.chunk.len();
                if this.chunk.is_empty() { Ok(()) } else { ready!(self.as_mut().poll_full(cx)) }
            };
            if let Err(reason) = step {
                return self.end(Some(reason));
            }
        }
    }
}

impl<T, I: Iterator<Item = T>> fmt::Debug for PushAll<'_, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushAll").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}

/// Puts a refused first item back, and counts the others with it.
fn give_back<T>(core: &Core<T>, chunk: &mut Vec<T>, error: PushError<T>) -> RefuseReason {
    let reason = error.reason();
    core.count_refused(reason, chunk.len());
    chunk.insert(0, error.into_inner());
    reason
}

fn rest_of<T>(parked: Parked<T>) -> Vec<T> {
    match parked {
        Parked::Many(items, _) => items.into(),
        Parked::One(item) => item.into_iter().map(|(item, _)| item).collect(),
        Parked::Permits { .. } => Vec::new(),
    }
}
