//! A sink out of a controller: for code that writes to `futures`' `Sink`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_sink::Sink;
use tokio::task::coop;

use crate::controller::BackpressureController;
use crate::core::{Admitted, Core};
use crate::error::{PushError, RefuseReason};
use crate::gate::Means;
use crate::push::Offer;

impl<T> BackpressureController<T> {
    /// A [`Sink`] that pushes into this controller, and a handle of its own. Needs the feature `sink`.
    ///
    /// `send` flushes each item, so it waits until that is settled: `feed` or `forward` many. A refusal is the sink's error,
    /// with which `forward` ends; [`backpressured`](crate::BackpressureStreamExt::backpressured) goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// use backpressure::{BackpressureController, Batch};
    /// use futures::{SinkExt as _, StreamExt as _, stream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let numbers = BackpressureController::builder(100)
    ///     .spawn(|batch: Batch<u32>| async move { Ok(println!("{:?}", &*batch)) })?;
    /// let mut sink = numbers.sink();
    /// sink.send(1).await?;
    /// assert_eq!(numbers.snapshot().delivered, 1);
    /// stream::iter(2..1000).map(Ok).forward(sink).await?;
    /// assert_eq!(numbers.snapshot().delivered, 999);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sink(&self) -> PushSink<T> {
        PushSink {
            controller: Some(self.clone()),
            own: Box::pin(Offer::none()),
            barrier: None,
            is_unsettled: false,
            owes_turn: false,
        }
    }
}

/// A controller as a [`Sink`]: what [`sink`](BackpressureController::sink) gives.
///
/// It is ready while it holds no item of its own. An item that is sent is pushed at once if there is room, or as a strategy
/// that does not wait decides; else the sink keeps it, one at most, and waits for room in its turn from the next poll on. It
/// never reserves a place: a sink that is ready and not used, or kept and not polled, stands in nobody's way.
///
/// - A flush is complete when all that this sink has sent is settled: delivered or told to `on_loss`. It waits as
///   [`flush`](BackpressureController::flush) does, for what others had pushed before, too.
/// - Closing flushes, and then gives up this sink's handle. The intake stays open for all others.
///
/// # Cancel safety
///
/// Dropping it drops the item that it keeps, if any, which counts as `cancelled`. What was accepted stays.
///
/// # Accounting
///
/// An item counts as offered when it is sent; one that the sink keeps, from the next poll on.
///
/// # Errors
///
/// [`PushError`] with the item: from `start_send` if it is refused at once (one that is sent after the sink was closed, or
/// while it keeps another one, too); from the next poll if the sink kept it and it was refused later.
#[must_use = "sinks do nothing unless polled"]
pub struct PushSink<T> {
    /// `None` once it was closed.
    controller: Option<BackpressureController<T>>,
    /// The item that it keeps.
    own: Pin<Box<Offer<T>>>,
    /// The flush that it waits for.
    barrier: Option<u64>,
    /// Something was sent since the last flush was complete.
    is_unsettled: bool,
    /// The last item found no room.
    owes_turn: bool,
}

impl<T> PushSink<T> {
    fn core(&self) -> Option<&Core<T>> {
        self.controller.as_ref().map(|controller| &**controller.core())
    }

    /// Waits until the item that it keeps is in.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        match &self.controller {
            Some(controller) if !self.own.is_none() => self.own.as_mut().poll(controller.core(), cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// A flush that was begun does not cover what is sent now.
    fn forget_barrier(&mut self) {
        if let (Some(id), Some(core)) = (self.barrier, self.core()) {
            core.close_barrier(id);
        }
        self.barrier = None;
    }
}

impl<T> Sink<T> for PushSink<T> {
    type Error = PushError<T>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        if self.owes_turn {
            // A loop of items that find no room must leave the flusher its turn on the same thread.
            ready!(coop::poll_proceed(cx)).made_progress();
            self.owes_turn = false;
        }
        self.poll_own(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: T) -> Result<(), PushError<T>> {
        let this = &mut *self;
        let Some(core) = this.core() else { return Err(PushError::Closed(item)) };
        if !this.own.is_none() {
            return Err(core.refuse(RefuseReason::Full, item));
        }
        if let Err((item, tag)) = core.push(item, || Means::Room) {
            let admitted = core.admit(item, tag);
            this.owes_turn = true;
            match admitted {
                Admitted::Stored => {}
                Admitted::Refused(error) => return Err(error),
                Admitted::Wait(item, tag, limit) => this.own.as_mut().keep(item, tag.size, limit),
            }
        }
        this.forget_barrier();
        this.is_unsettled = true;
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        let this = &mut *self;
        ready!(this.poll_own(cx))?;
        let Some(controller) = this.controller.as_ref().filter(|_| this.is_unsettled) else {
            return Poll::Ready(Ok(()));
        };
        let core = controller.core();
        let id = *this.barrier.get_or_insert_with(|| core.open_barrier());
        if core.poll_barrier(id, cx.waker().clone()).is_none() {
            return Poll::Pending;
        }
        this.forget_barrier();
        this.is_unsettled = false;
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<T>>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.controller = None;
        Poll::Ready(Ok(()))
    }
}

impl<T> Drop for PushSink<T> {
    fn drop(&mut self) {
        self.forget_barrier();
        if let Some(controller) = &self.controller {
            self.own.as_mut().cancel(controller.core());
        }
    }
}

impl<T> fmt::Debug for PushSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushSink")
            .field("keeps_an_item", &!self.own.is_none())
            .field("is_unsettled", &self.is_unsettled)
            .field("is_closed", &self.controller.is_none())
            .finish_non_exhaustive()
    }
}
