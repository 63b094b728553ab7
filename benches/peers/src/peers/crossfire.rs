//! crossfire: lock-free, for tasks and threads mixed.

use crossfire::mpsc::{self, Array};
use crossfire::{AsyncRx, MAsyncTx, MTx, Rx, SendError, TrySendError};

use crate::peer::{BATCH, Channel, Drain, Offer, Peer, Push, Queue, Receive, TryPush};

#[derive(Debug)]
pub(crate) struct Crossfire;

impl Crossfire {
    /// To be called at the start, as its documentation advises for virtual machines.
    pub(crate) fn prepare() {
        crossfire::detect_backoff_cfg();
    }
}

impl Peer for Crossfire {
    const NAME: &'static str = "crossfire";
}

impl<T: Send + Unpin + 'static> Queue<T> for Crossfire {
    type Sender = MTx<Array<T>>;
    type Receiver = Batched<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let (sender, receiver) = mpsc::bounded_blocking(capacity);
        (sender, Batched { receiver, batch: Vec::with_capacity(BATCH) })
    }
}

impl<T: Send + Unpin + 'static> TryPush<T> for MTx<Array<T>> {
    type Refusal = TrySendError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        self.try_send(item)
    }

    fn item(refusal: Self::Refusal) -> T {
        refusal.into_inner()
    }
}

/// A receiver with the memory for a batch.
pub(crate) struct Batched<T: Send + Unpin + 'static> {
    receiver: Rx<Array<T>>,
    batch: Vec<T>,
}

impl<T: Send + Unpin + 'static> std::fmt::Debug for Batched<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Batched")
    }
}

impl<T: Send + Unpin + 'static> Drain<T> for Batched<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        self.batch.extend(std::iter::from_fn(|| self.receiver.try_recv().ok()).take(BATCH));
        see(&self.batch);
        let count = self.batch.len();
        self.batch.clear();
        count
    }
}

impl<T: Send + Unpin + 'static> Channel<T> for Crossfire {
    const LOOP: &'static str = "crossfire try_recv + linger";

    type Sender = MAsyncTx<Array<T>>;
    type Receiver = AsyncRx<Array<T>>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        mpsc::bounded_async(capacity)
    }
}

impl<T: Send + Unpin + 'static> Push<T> for MAsyncTx<Array<T>> {
    type Error = SendError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.send(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        let sender = Self::into_blocking(self);
        move |item| assert!(sender.send(item).is_ok(), "it is open")
    }
}

impl<T: Send + Unpin + 'static> Offer<T> for MAsyncTx<Array<T>> {
    fn offer(&self, item: T) -> bool {
        self.try_send(item).is_err()
    }
}

impl<T: Send + Unpin + 'static> Receive<T> for AsyncRx<Array<T>> {
    async fn receive(&mut self, batch: &mut Vec<T>, most: usize) {
        batch.extend(self.recv().await.ok());
        batch.extend(std::iter::from_fn(|| self.try_recv().ok()).take(most - 1));
    }
}
