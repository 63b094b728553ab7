//! thingbuf's channel: slots that are kept and reused, so items are `Clone` and `Default`.

use thingbuf::mpsc::errors::{Closed, TrySendError};
use thingbuf::mpsc::{Receiver, Sender, channel};

use crate::peer::{BATCH, Channel, Drain, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct Thingbuf;

impl Peer for Thingbuf {
    const NAME: &'static str = "thingbuf";
}

impl<T: Clone + Default + Send + Sync + 'static> Queue<T> for Thingbuf {
    type Sender = Sender<T>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = channel(capacity);
        (sender, Batched { receiver, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Clone + Default + Send + Sync + 'static> TryPush<T> for Sender<T> {
    type Refusal = TrySendError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        self.try_send(item)
    }

    fn item(refusal: Self::Refusal) -> T {
        match refusal {
            TrySendError::Full(item) | TrySendError::Closed(item) => item,
            other => unreachable!("no such error as yet: {other}"),
        }
    }
}

/// A receiver with the memory for a batch.
#[derive(Debug)]
pub(crate) struct Batched<T> {
    receiver: Receiver<T>,
    batch: Vec<T>,
}

impl<T: Clone + Default + Send + Sync + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        self.batch.extend(std::iter::from_fn(|| self.receiver.try_recv().ok()).take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Clone + Default + Send + Sync + 'static> Channel<T> for Thingbuf {
    const LOOP: &'static str = "thingbuf try_recv + linger";

    type Sender = Sender<T>;
    type Receiver = Receiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        channel(capacity)
    }
}

impl<T: Clone + Default + Send + Sync + 'static> Push<T> for Sender<T> {
    type Error = Closed<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        // This channel of its crate is for tasks alone.
        move |item| assert!(futures::executor::block_on(self.send(item)).is_ok(), "it is open")
    }
}

impl<T: Clone + Default + Send + Sync + 'static> Offer<T> for Sender<T> {
    fn offer(&self, item: T) -> bool {
        self.try_send(item).is_err()
    }
}

impl<T: Clone + Default + Send + Sync + 'static> Receive<T> for Receiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, most: usize) {
        batch.extend(self.recv().await);
        batch.extend(std::iter::from_fn(|| self.try_recv().ok()).take(most - 1));
    }
}
