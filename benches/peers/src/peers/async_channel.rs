//! async-channel: a lock-free queue with listeners for both sides.

use async_channel::{Receiver, SendError, Sender, TrySendError};

use crate::peer::{BATCH, Channel, Drain, Evicting, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct AsyncChannel;

impl Peer for AsyncChannel {
    const NAME: &'static str = "async-channel";
}

impl<T: Send + 'static> Queue<T> for AsyncChannel {
    type Sender = Sender<T>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = async_channel::bounded(capacity);
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
        self.batch.extend(std::iter::from_fn(|| self.receiver.try_recv().ok()).take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Channel<T> for AsyncChannel {
    const LOOP: &'static str = "async-channel try_recv + linger";

    type Sender = Sender<T>;
    type Receiver = Receiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        async_channel::bounded(capacity)
    }
}

impl<T: Send + 'static> Push<T> for Sender<T> {
    type Error = SendError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |item| assert!(self.send_blocking(item).is_ok(), "it is open")
    }
}

/// By the send that displaces the oldest item and gives it back.
impl<T: Send + 'static> Offer<T> for Sender<T> {
    fn offer(&self, item: T) -> bool {
        self.force_send(item).is_ok_and(|displaced| displaced.is_some())
    }
}

impl<T: Send + 'static> Receive<T> for Receiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, most: usize) {
        batch.extend(self.recv().await.ok());
        batch.extend(std::iter::from_fn(|| self.try_recv().ok()).take(most - 1));
    }
}

/// With the send that displaces the oldest item.
#[derive(Clone, Debug)]
pub(crate) struct Forced<T> {
    sender: Sender<T>,
    _receiver: Receiver<T>,
}

impl<T> Peer for Forced<T> {
    const NAME: &'static str = "async-channel force_send";
}

impl<T: Clone + Send + 'static> Evicting<T> for Forced<T> {
    fn bounded(capacity: usize) -> Self {
        let (sender, receiver) = async_channel::bounded(capacity);
        Self { sender, _receiver: receiver }
    }

    fn push(&self, item: T) {
        drop(self.sender.force_send(item).expect("it is open"));
    }
}
