//! A stream in: its items are pushed, one after the other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tokio::task::coop;

use crate::controller::BackpressureController;
use crate::error::RefuseReason;
use crate::push::Offer;

/// Sends streams into a controller.
///
/// # Examples
///
/// ```
/// use backpressure::{BackpressureController, BackpressureStreamExt as _, Batch};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let numbers = BackpressureController::builder(100)
///     .on_loss(|loss| eprintln!("{:?}: {}", loss.item, loss.reason))
///     .spawn(|batch: Batch<u32>| async move { Ok(println!("{:?}", &*batch)) })?;
/// let forwarded = futures::stream::iter(0..1000).backpressured(&numbers).await;
/// assert_eq!((forwarded.accepted, forwarded.refused), (1000, 0));
/// # drop(numbers.drain(std::time::Duration::from_secs(5)).await);
/// # Ok(())
/// # }
/// ```
pub trait BackpressureStreamExt: Stream {
    /// Pushes the items of the stream, one after the other, each as [`push`](BackpressureController::push) does: while
    /// there is no room and the strategy waits, nothing is pulled. To be awaited or spawned; it holds a handle of the
    /// controller until it ends.
    ///
    /// It ends with the stream, or when the intake is shut, which it sees at the next item.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the stream. An item that was pulled and waits for room is dropped with it and counts as
    /// `cancelled`, unless it has been moved into the buffer meanwhile.
    ///
    /// # Accounting
    ///
    /// An item that is refused counts as refused, and goes to [`on_loss`](crate::Builder::on_loss) as
    /// [`Refused`](crate::LossReason::Refused) with the reason, since no caller is there to take it back.
    fn backpressured(self, controller: &BackpressureController<Self::Item>) -> Forward<Self>
    where
        Self: Sized,
    {
        Forward {
            stream: self,
            offer: Offer::none(),
            controller: Some(controller.clone()),
            so_far: Forwarded::default(),
        }
    }
}

impl<S: Stream + ?Sized> BackpressureStreamExt for S {}

/// What became of the items of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarded {
    /// Items that the buffer took in.
    pub accepted: u64,
    /// Items that went to `on_loss`, because they were refused.
    pub refused: u64,
    /// It ended because the intake was shut, and not with the stream.
    pub is_cut_off: bool,
}

pin_project! {
    /// The future of [`backpressured`](BackpressureStreamExt::backpressured).
    #[must_use = "futures do nothing unless polled"]
    pub struct Forward<S: Stream> {
        #[pin]
        stream: S,
        #[pin]
        offer: Offer<S::Item>,
        // `None` once it has ended.
        controller: Option<BackpressureController<S::Item>>,
        so_far: Forwarded,
    }

    impl<S: Stream> PinnedDrop for Forward<S> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(controller) = this.controller {
                this.offer.cancel(controller.core());
            }
        }
    }
}

impl<S: Stream> Future for Forward<S> {
    type Output = Forwarded;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Forwarded> {
        let mut this = self.project();
        loop {
            let Some(controller) = this.controller else { return Poll::Pending };
            let core = controller.core();
            if !this.offer.is_none() {
                match ready!(this.offer.as_mut().poll(core, cx)) {
                    Ok(()) => this.so_far.accepted += 1,
                    Err(error) => {
                        let reason = error.reason();
                        core.lose_refused(error.into_inner(), reason);
                        this.so_far.refused += 1;
                        this.so_far.is_cut_off = reason == RefuseReason::Closed;
                    }
                }
            }
            // What is pulled now would only be refused.
            this.so_far.is_cut_off |= core.is_closed();
            if !this.so_far.is_cut_off {
                // A stream that is always ready, and a buffer that has room, must not keep the thread from everyone else.
                let budget = ready!(coop::poll_proceed(cx));
                if let Some(item) = ready!(this.stream.as_mut().poll_next(cx)) {
                    budget.made_progress();
                    this.offer.as_mut().start(item);
                    continue;
                }
            }
            *this.controller = None;
            return Poll::Ready(*this.so_far);
        }
    }
}

impl<S: Stream> fmt::Debug for Forward<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("so_far", &self.so_far).finish_non_exhaustive()
    }
}
