//! crossbeam's `ArrayQueue`: no waiting, and a push that displaces the oldest item.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue as Inner;

use crate::peer::{BATCH, Drain, Evicting, Peer, Queue, TryPush};

#[derive(Debug)]
pub(crate) struct ArrayQueue<T>(Arc<Inner<T>>);

impl<T> Clone for ArrayQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Peer for ArrayQueue<T> {
    const NAME: &'static str = "crossbeam ArrayQueue";
}

impl<T: Send + 'static> Queue<T> for ArrayQueue<T> {
    type Sender = Self;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let queue = Arc::new(Inner::new(capacity));
        (Self(Arc::clone(&queue)), Batched { queue, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Send + 'static> TryPush<T> for ArrayQueue<T> {
    type Refusal = T;

    fn try_push(&mut self, item: T) -> Result<(), T> {
        self.0.push(item)
    }

    fn item(refusal: T) -> T {
        refusal
    }
}

/// The queue with the memory for a batch.
#[derive(Debug)]
pub(crate) struct Batched<T> {
    queue: Arc<Inner<T>>,
    batch: Vec<T>,
}

impl<T: Send + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        self.batch.extend(std::iter::from_fn(|| self.queue.pop()).take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Evicting<T> for ArrayQueue<T> {
    fn bounded(capacity: usize) -> Self {
        Self(Arc::new(Inner::new(capacity)))
    }

    fn push(&self, item: T) {
        drop(self.0.force_push(item));
    }
}
