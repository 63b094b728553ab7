//! flume: a lock around a deque.

use flume::{Receiver, SendError, Sender, TrySendError};

use crate::peer::{BATCH, Channel, Drain, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct Flume;

impl Peer for Flume {
    const NAME: &'static str = "flume";
}

impl<T: Send + 'static> Queue<T> for Flume {
    type Sender = Sender<T>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = flume::bounded(capacity);
        (sender, Batched { receiver, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Send + 'static> TryPush<T> for Sender<T> {
    type Refusal = TrySendError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        self.try_send(item)
    }

    fn item(refusal: Self::Refusal) -> T {
        refusal.into_inner()
    }
}

/// A receiver with the memory for a batch.
#[derive(Debug)]
pub(crate) struct Batched<T> {
    receiver: Receiver<T>,
    batch: Vec<T>,
}

impl<T: Send + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        self.batch.extend(self.receiver.try_iter().take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Channel<T> for Flume {
    const LOOP: &'static str = "flume try_iter + linger";

    type Sender = Sender<T>;
    type Receiver = Receiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        flume::bounded(capacity)
    }
}

impl<T: Send + 'static> Push<T> for Sender<T> {
    type Error = SendError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send_async(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |item| assert!(self.send(item).is_ok(), "it is open")
    }
}

impl<T: Send + 'static> Offer<T> for Sender<T> {
    fn offer(&self, item: T) -> bool {
        self.try_send(item).is_err()
    }
}

impl<T: Send + 'static> Receive<T> for Receiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, most: usize) {
        batch.extend(self.recv_async().await.ok());
        batch.extend(self.try_iter().take(most - 1));
    }
}
