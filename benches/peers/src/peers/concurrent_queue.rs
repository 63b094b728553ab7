//! concurrent-queue, on which async-channel stands.

use std::sync::Arc;

use concurrent_queue::{ConcurrentQueue as Inner, PushError};

use crate::peer::{BATCH, Drain, Evicting, Peer, Queue, TryPush};

#[derive(Debug)]
pub(crate) struct ConcurrentQueue<T>(Arc<Inner<T>>);

impl<T> Clone for ConcurrentQueue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Peer for ConcurrentQueue<T> {
    const NAME: &'static str = "concurrent-queue";
}

impl<T: Send + 'static> Queue<T> for ConcurrentQueue<T> {
    type Sender = Self;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let queue = Arc::new(Inner::bounded(capacity));
        (Self(Arc::clone(&queue)), Batched { queue, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Send + 'static> TryPush<T> for ConcurrentQueue<T> {
    type Refusal = PushError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        self.0.push(item)
    }

    fn item(refusal: Self::Refusal) -> T {
        refusal.into_inner()
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
        self.batch.extend(self.queue.try_iter().take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Evicting<T> for ConcurrentQueue<T> {
    fn bounded(capacity: usize) -> Self {
        Self(Arc::new(Inner::bounded(capacity)))
    }

    fn push(&self, item: T) {
        assert!(self.0.force_push(item).is_ok(), "it is open");
    }
}
