//! Places reserved in advance.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::controller::BackpressureController;
use crate::core::Queued;
use crate::error::{PushError, RefuseReason, ReserveError};
use crate::gate::{Key, Wait};

/// A reserved place: sending an item by it neither waits nor fails (I4), unless there is a
/// [weigher](crate::Builder::weigher) and the item is heavier than the permit.
///
/// It is a handle of its own and keeps the intake open. Dropping it gives the place back, to the oldest producer that waits.
#[must_use = "a permit that is dropped gives its place back"]
pub struct Permit<T> {
    controller: BackpressureController<T>,
    /// What it holds by weight; 0 without a weigher.
    size: u64,
    is_spent: bool,
}

impl<T> Permit<T> {
    /// Takes over one reserved place of this size.
    pub(crate) fn new(controller: BackpressureController<T>, size: u64) -> Self {
        Self { controller, size, is_spent: false }
    }

    /// Stores an item in the place. After the intake was shut it is delivered all the same; after a drain has ended at its
    /// deadline it goes to `on_loss` as abandoned.
    ///
    /// With a [weigher](crate::Builder::weigher) an item that is heavier than the permit is refused: it goes to `on_loss` as
    /// [`Refused`](crate::LossReason::Refused), too large. [`try_send`](Self::try_send) gives it back instead. What the item
    /// weighs less than the permit is free at once.
    pub fn send(mut self, item: T) {
        self.is_spent = true;
        let core = self.controller.core();
        if let Err(item) = core.send(item, self.size) {
            core.lose_too_heavy(item);
        }
    }

    /// Like [`send`](Self::send), for items that may be heavier than the permit.
    ///
    /// # Errors
    ///
    /// `TooLarge` with the item. The place is given back. Without a weigher there is no error.
    pub fn try_send(mut self, item: T) -> Result<(), PushError<T>> {
        self.is_spent = true;
        let core = self.controller.core();
        core.send(item, self.size).map_err(|item| core.refuse(RefuseReason::TooLarge, item))
    }

    /// What an item sent by it may weigh at most; 0 without a weigher, where it means nothing.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.size
    }

    /// Gives the place back, as dropping does.
    pub fn release(self) {}
}

impl<T> Drop for Permit<T> {
    fn drop(&mut self) {
        if !self.is_spent {
            self.controller.core().release(1, self.size);
        }
    }
}

impl<T> fmt::Debug for Permit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// Several reserved places, as an iterator of permits. Dropping it gives the rest back.
#[must_use = "permits that are dropped give their places back"]
pub struct Permits<T> {
    controller: BackpressureController<T>,
    left: usize,
    /// Of each, by weight.
    size: u64,
}

impl<T> Permits<T> {
    /// Gives the rest back, as dropping does.
    pub fn release(self) {}
}

impl<T> Iterator for Permits<T> {
    type Item = Permit<T>;

    fn next(&mut self) -> Option<Permit<T>> {
        self.left = self.left.checked_sub(1)?;
        Some(Permit::new(self.controller.clone(), self.size))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Permits<T> {}

impl<T> Drop for Permits<T> {
    fn drop(&mut self) {
        if self.left > 0 {
            let left = self.left as u64;
            self.controller.core().release(left, left * self.size);
        }
    }
}

impl<T> fmt::Debug for Permits<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("left", &self.left).finish_non_exhaustive()
    }
}

/// The future of [`reserve_many`](BackpressureController::reserve_many).
#[must_use = "futures do nothing unless polled"]
pub struct ReserveMany<'a, T> {
    controller: &'a BackpressureController<T>,
    wanted: usize,
    /// Of each place, by weight.
    size: u64,
    waiting: Option<Key>,
}

impl<'a, T> ReserveMany<'a, T> {
    pub(crate) fn new(controller: &'a BackpressureController<T>, wanted: usize, size: u64) -> Self {
        Self { controller, wanted, size, waiting: None }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReserveError>> {
        let core = self.controller.core();
        let (asked, most) = (self.wanted as u64, core.most_places(self.size));
        if let Some(limits) = core.bounds().filter(|limits| self.size > limits.item) {
            return Poll::Ready(Err(ReserveError::TooLarge { asked: self.size, most: limits.item }));
        }
        if asked > most {
            return Poll::Ready(Err(self.too_many(most)));
        }
        if asked == 0 || core.reserve(asked, self.size) {
            return Poll::Ready(Ok(()));
        }
        let budget = ready!(tokio::task::coop::poll_proceed(cx));
        budget.made_progress();
        if core.is_closed() {
            return Poll::Ready(Err(ReserveError::Closed));
        }
        if core.is_inside() {
            return Poll::Ready(Err(ReserveError::WouldDeadlock));
        }
        match core.enqueue_reservation(asked, self.size, cx.waker().clone()) {
            Err(most) => Poll::Ready(Err(self.too_many(most))),
            Ok(Queued::Served) => Poll::Ready(Ok(())),
            Ok(Queued::Closed(_)) => Poll::Ready(Err(ReserveError::Closed)),
            Ok(Queued::Waiting(key)) => {
                self.waiting = Some(key);
                Poll::Pending
            }
        }
    }
}

impl<T> ReserveMany<'_, T> {
    fn too_many(&self, capacity: u64) -> ReserveError {
        ReserveError::TooMany { asked: self.wanted, capacity: capacity as usize }
    }
}

impl<T> Future for ReserveMany<'_, T> {
    type Output = Result<Permits<T>, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.waiting {
            None => ready!(self.start(cx))?,
            Some(key) => match self.controller.core().poll_waiter(key, cx.waker().clone()) {
                Wait::Queued => return Poll::Pending,
                Wait::Served(_) => self.waiting = None,
                Wait::Shut(_) | Wait::Left(_) => {
                    self.waiting = None;
                    return Poll::Ready(Err(ReserveError::Closed));
                }
                Wait::Unfit { most } => {
                    self.waiting = None;
                    return Poll::Ready(Err(self.too_many(most)));
                }
            },
        }
        Poll::Ready(Ok(Permits { controller: self.controller.clone(), left: self.wanted, size: self.size }))
    }
}

impl<T> Drop for ReserveMany<'_, T> {
    fn drop(&mut self) {
        if let Some(key) = self.waiting {
            self.controller.core().abandon_wait(key);
        }
    }
}

impl<T> fmt::Debug for ReserveMany<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReserveMany").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// The future of [`reserve`](BackpressureController::reserve).
#[must_use = "futures do nothing unless polled"]
pub struct Reserve<'a, T> {
    one: ReserveMany<'a, T>,
}

impl<'a, T> Reserve<'a, T> {
    pub(crate) fn new(controller: &'a BackpressureController<T>, size: u64) -> Self {
        Self { one: ReserveMany::new(controller, 1, size) }
    }
}

impl<T> Future for Reserve<'_, T> {
    type Output = Result<Permit<T>, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut permits = ready!(Pin::new(&mut self.one).poll(cx))?;
        Poll::Ready(permits.next().ok_or(ReserveError::Full))
    }
}

impl<T> fmt::Debug for Reserve<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserve")
    }
}
