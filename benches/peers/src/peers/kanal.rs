//! kanal: a lock around a deque, which hands over to a receiver that waits.
//!
//! A receive that is dropped while an item is handed over to it, as by a timeout, takes the item with it. The loop with
//! a linger loses one every now and then; the report says so.

use kanal::{AsyncReceiver, AsyncSender, Receiver, SendError, Sender};

use crate::peer::{Channel, Drain, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct Kanal;

impl Peer for Kanal {
    const NAME: &'static str = "kanal";
}

impl<T: Send + 'static> Queue<T> for Kanal {
    type Sender = Sender<T>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = kanal::bounded(capacity);
        (sender, Batched { receiver, batch: Vec::new() })
    }
}

impl<T: Send + 'static> TryPush<T> for Sender<T> {
    type Refusal = T;

    fn try_push(&mut self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        match self.try_send_option(&mut item) {
            Ok(true) => Ok(()),
            _ => Err(item.expect("it was not sent")),
        }
    }

    fn item(refusal: T) -> T {
        refusal
    }
}

/// `drain_into` takes all that is there, as much as it may be.
#[derive(Debug)]
pub(crate) struct Batched<T> {
    receiver: Receiver<T>,
    batch: Vec<T>,
}

impl<T: Send + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        let count = self.receiver.drain_into(&mut self.batch).unwrap_or(0);
        see(&self.batch);
        self.batch.clear();
        count
    }
}

impl<T: Send + 'static> Channel<T> for Kanal {
    const LOOP: &'static str = "kanal drain_into + linger";

    type Sender = AsyncSender<T>;
    type Receiver = AsyncReceiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        kanal::bounded_async(capacity)
    }
}

impl<T: Send + 'static> Push<T> for AsyncSender<T> {
    type Error = SendError;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        let sender = self.to_sync();
        move |item| sender.send(item).expect("it is open")
    }
}

impl<T: Send + 'static> Offer<T> for AsyncSender<T> {
    fn offer(&self, item: T) -> bool {
        !self.try_send(item).expect("it is open")
    }
}

impl<T: Send + 'static> Receive<T> for AsyncReceiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, _most: usize) {
        // The way of its documentation: what is there, and if that is nothing, the next one.
        if self.drain_into(batch).unwrap_or(0) == 0 {
            batch.extend(self.recv().await.ok());
        }
    }
}
