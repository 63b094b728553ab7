//! What becomes of one item, for whoever asked to be told.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::error::LossReason;

/// What became of an accepted item.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fate {
    /// The sink has it.
    Delivered,
    /// It is lost.
    Lost {
        /// Why.
        reason: LossReason,
        /// What the sink said, if it was the sink.
        error: Option<Arc<dyn Error + Send + Sync>>,
    },
}

impl Fate {
    /// Whether the sink has it.
    #[must_use]
    pub const fn is_delivered(&self) -> bool {
        matches!(self, Self::Delivered)
    }

    /// Why it is lost, if it is.
    #[must_use]
    pub const fn loss(&self) -> Option<LossReason> {
        match self {
            Self::Delivered => None,
            Self::Lost { reason, .. } => Some(*reason),
        }
    }
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered => f.write_str("Delivered"),
            Self::Lost { reason, error } => {
                f.debug_struct("Lost").field("reason", reason).field("error", error).finish()
            }
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered => f.write_str("delivered"),
            Self::Lost { reason, error: None } => write!(f, "lost: {reason}"),
            Self::Lost { reason, error: Some(error) } => write!(f, "lost: {reason}: {error}"),
        }
    }
}

/// Tells, exactly once, what became of an item that was pushed with
/// [`push_tracked`](crate::BackpressureController::push_tracked).
///
/// Dropping it changes nothing for the item.
///
/// # Cancel safety
///
/// Safe: an answer that was not returned is returned by the next poll.
#[must_use = "it does nothing unless polled"]
pub struct Delivery<T> {
    fate: oneshot::Receiver<Fate>,
    item: PhantomData<fn() -> T>,
}

impl<T> Future for Delivery<T> {
    type Output = Fate;

    /// # Panics
    ///
    /// If it is polled again after it has told.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Fate> {
        let told = ready!(Pin::new(&mut self.fate).poll(cx));
        // Nobody drops a receipt untold; if it ever were, the item would have been left behind.
        Poll::Ready(told.unwrap_or(Fate::Lost { reason: LossReason::Abandoned, error: None }))
    }
}

impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Delivery")
    }
}

/// The other end of a [`Delivery`]: travels with the item.
#[derive(Debug)]
pub(crate) struct Receipt(oneshot::Sender<Fate>);

impl Receipt {
    pub(crate) fn new<T>() -> (Self, Delivery<T>) {
        let (sender, fate) = oneshot::channel();
        (Self(sender), Delivery { fate, item: PhantomData })
    }

    /// Wakes whoever waits: not under a lock.
    pub(crate) fn tell(self, fate: Fate) {
        // Whoever has dropped the delivery does not want to know.
        let _ = self.0.send(fate);
    }
}
