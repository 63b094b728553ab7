//! The pushes that may wait.

mod all;
mod blocking;
mod offer;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

pub use self::all::PushAll;
pub(crate) use self::blocking::push_blocking;
pub(crate) use self::offer::Offer;
use self::offer::verdict;
use crate::core::Core;
use crate::error::PushError;
use crate::receipt::{Delivery, Receipt};

pin_project! {
    /// The future of [`push`](crate::BackpressureController::push) and
    /// [`push_timeout`](crate::BackpressureController::push_timeout).
    #[must_use = "futures do nothing unless polled"]
    pub struct Push<'a, T> {
        core: &'a Core<T>,
        #[pin]
        offer: Offer<T>,
    }

    impl<T> PinnedDrop for Push<'_, T> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            this.offer.cancel(this.core);
        }
    }
}

impl<'a, T> Push<'a, T> {
    pub(crate) fn new(core: &'a Core<T>, item: T, limit: Option<Duration>) -> Self {
        Self { core, offer: Offer::new(item, limit) }
    }
}

impl<T> Future for Push<'_, T> {
    type Output = Result<(), PushError<T>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.offer.poll(this.core, cx)
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
        let push = Push { core, offer: Offer::tracked(item, receipt) };
        Self { push, delivery: Some(delivery) }
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
        f.debug_struct("Push").field("limit", &self.offer.limit()).finish_non_exhaustive()
    }
}
