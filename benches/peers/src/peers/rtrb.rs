//! rtrb: a ring for one producer and one consumer, so it stands only where there is one.

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::peer::{BATCH, Drain, Peer, Queue, TryPush};

#[derive(Debug)]
pub(crate) struct Rtrb;

impl Peer for Rtrb {
    const NAME: &'static str = "rtrb (1 producer)";
}

impl<T: Send + 'static> Queue<T> for Rtrb {
    type Sender = Producer<T>;
    type Receiver = Consumer<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        RingBuffer::new(capacity)
    }
}

impl<T: Send + 'static> TryPush<T> for Producer<T> {
    type Refusal = PushError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        self.push(item)
    }

    fn item(refusal: Self::Refusal) -> T {
        let PushError::Full(item) = refusal;
        item
    }
}

impl<T: Send + 'static> Drain<T> for Consumer<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        let count = self.slots().min(BATCH);
        let chunk = self.read_chunk(count).expect("so many are there");
        let (first, second) = chunk.as_slices();
        see(first);
        see(second);
        chunk.commit_all();
        count
    }
}
