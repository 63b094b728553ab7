//! tokio's channel, and the loop around `recv_many` that people write.

use futures::FutureExt;
use tokio::sync::mpsc;

use crate::peer::{BATCH, Channel, Drain, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct Tokio;

impl Peer for Tokio {
    const NAME: &'static str = "tokio mpsc";
}

impl<T: Send + 'static> Queue<T> for Tokio {
    type Sender = mpsc::Sender<T>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = mpsc::channel(capacity);
        (sender, Batched { receiver, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Send + 'static> TryPush<T> for mpsc::Sender<T> {
    type Refusal = mpsc::error::TrySendError<T>;

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
    receiver: mpsc::Receiver<T>,
    batch: Vec<T>,
}

impl<T: Send + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        let count = self.receiver.recv_many(&mut self.batch, BATCH).now_or_never().unwrap_or(0);
        see(&self.batch);
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Channel<T> for Tokio {
    const LOOP: &'static str = "tokio recv_many + linger";

    type Sender = mpsc::Sender<T>;
    type Receiver = mpsc::Receiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::channel(capacity)
    }
}

impl<T: Send + 'static> Push<T> for mpsc::Sender<T> {
    type Error = mpsc::error::SendError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |item| assert!(self.blocking_send(item).is_ok(), "it is open")
    }
}

impl<T: Send + 'static> Offer<T> for mpsc::Sender<T> {
    fn offer(&self, item: T) -> bool {
        self.try_send(item).is_err()
    }
}

impl<T: Send + 'static> Receive<T> for mpsc::Receiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, most: usize) {
        self.recv_many(batch, most).await;
    }
}
