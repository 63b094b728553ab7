//! What a peer is to the harness: a few small traits, each for one way of using a queue.
//!
//! A peer implements those that make sense for it, on the types that its library gives to its users, so that its file
//! shows how it is used and nothing else.

use std::future::Future;
use std::time::Duration;

use crate::sink::Sink;

/// The most items that a consumer handles at once, in all rows.
pub(crate) const BATCH: usize = 500;
/// How long a partial batch waits where a row has a linger.
pub(crate) const LINGER: Duration = Duration::from_millis(5);

/// Somebody with a name in the tables.
pub(crate) trait Peer {
    const NAME: &'static str;
}

/// A bounded queue between threads, without waiting on either side.
pub(crate) trait Queue<T>: Peer {
    type Sender: TryPush<T>;
    type Receiver: Drain<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver);
}

/// The producer's end of a [`Queue`]; one that can be shared is `Clone`.
pub(crate) trait TryPush<T>: Send + 'static {
    /// The library's own error, with the item in it: what it costs to bring it is in the figures, unwrapping it is not.
    type Refusal;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal>;

    fn item(refusal: Self::Refusal) -> T;
}

/// The consumer's end of a [`Queue`].
pub(crate) trait Drain<T>: Send + 'static {
    /// Shows what is there, up to about [`BATCH`] items, and drops it; how many there were.
    fn drain(&mut self, see: impl FnMut(&[T])) -> usize;
}

/// The producer's end of a buffer that displaces its oldest item when it is full.
pub(crate) trait Evicting<T>: Peer + Clone + Send + 'static {
    /// What keeps the consumer's end open is inside.
    fn bounded(capacity: usize) -> Self;

    /// Stores the item and drops the one that it displaces.
    fn push(&self, item: T);
}

/// A producer's end that waits for room.
pub(crate) trait Push<T>: Clone + Send + Sync + 'static {
    /// Why it ended without the item.
    type Error: Send;

    /// The library's own future, with nothing around it: what the caller awaits is what its users await.
    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The same on a plain thread, which is parked meanwhile.
    fn into_blocking(self) -> impl FnMut(T) + Send + 'static;
}

/// A bounded channel between tasks.
pub(crate) trait Channel<T>: Peer {
    /// What its batching consumer is called: see [`Lingering`](crate::peers::Lingering).
    const LOOP: &'static str;

    type Sender: Push<T> + Offer<T>;
    type Receiver: Receive<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver);
}

/// The consumer's end of a [`Channel`].
pub(crate) trait Receive<T>: Send + 'static {
    /// Waits for an item, then moves what is there behind `batch`, up to `most` items if the channel can be told;
    /// nothing once the channel is closed and empty. Cancel-safe.
    fn receive(&mut self, batch: &mut Vec<T>, most: usize) -> impl Future<Output = ()> + Send;
}

/// How a [`Pipeline`] is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) capacity: usize,
    pub(crate) batch: usize,
    /// Zero: whatever is there leaves at once.
    pub(crate) linger: Duration,
}

impl Settings {
    /// Batches of [`BATCH`] items, fewer if the capacity is smaller.
    pub(crate) fn new(capacity: usize, linger: Duration) -> Self {
        Self { capacity, batch: BATCH.min(capacity), linger }
    }
}

/// A bounded buffer with a consumer that gathers batches for an asynchronous sink, on the runtime of the caller.
pub(crate) trait Pipeline<T>: Peer + Sized + Send {
    type Sender: Push<T> + Offer<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self;

    fn sender(&self) -> Self::Sender;

    /// Waits until all has reached the sink. The senders have been dropped.
    fn finish(self) -> impl Future<Output = ()> + Send;

    /// How many items it says it has lost by itself, those aside that [`Offer`] has told.
    fn told(&self) -> u64 {
        0
    }
}

/// A producer's end that does not wait: what finds no room is lost, as its users lose it.
pub(crate) trait Offer<T> {
    /// Whether an item is known to be lost: this one, or one that it displaces.
    fn offer(&self, item: T) -> bool;
}
