//! A deque behind a lock, which the consumer swaps with an empty one: what people write themselves.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::peer::{Drain, Evicting, Peer, Queue, TryPush};

/// The producers' end, and the bound.
#[derive(Debug)]
pub(crate) struct MutexDeque<T> {
    queue: Arc<Mutex<VecDeque<T>>>,
    capacity: usize,
}

impl<T> Clone for MutexDeque<T> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), capacity: self.capacity }
    }
}

impl<T> Peer for MutexDeque<T> {
    const NAME: &'static str = "Mutex<VecDeque>";
}

impl<T: Send + 'static> Queue<T> for MutexDeque<T> {
    type Sender = Self;
    type Receiver = Swapped<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let sender = Self::new(capacity);
        let receiver = Swapped { queue: Arc::clone(&sender.queue), mine: VecDeque::with_capacity(capacity) };
        (sender, receiver)
    }
}

impl<T> MutexDeque<T> {
    fn new(capacity: usize) -> Self {
        Self { queue: Arc::new(Mutex::new(VecDeque::with_capacity(capacity))), capacity }
    }
}

impl<T: Send + 'static> TryPush<T> for MutexDeque<T> {
    type Refusal = T;

    fn try_push(&mut self, item: T) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.len() == self.capacity {
            return Err(item);
        }
        queue.push_back(item);
        Ok(())
    }

    fn item(refusal: T) -> T {
        refusal
    }
}

/// The consumer's end. While it has one deque, producers fill the other: twice the capacity.
#[derive(Debug)]
pub(crate) struct Swapped<T> {
    queue: Arc<Mutex<VecDeque<T>>>,
    mine: VecDeque<T>,
}

impl<T: Send + 'static> Drain<T> for Swapped<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        mem::swap(&mut *self.queue.lock(), &mut self.mine);
        let (first, second) = self.mine.as_slices();
        see(first);
        see(second);
        let count = self.mine.len();
        self.mine.clear();
        count
    }
}

impl<T: Send + 'static> Evicting<T> for MutexDeque<T> {
    fn bounded(capacity: usize) -> Self {
        Self::new(capacity)
    }

    fn push(&self, item: T) {
        let mut queue = self.queue.lock();
        let displaced = if queue.len() == self.capacity { queue.pop_front() } else { None };
        queue.push_back(item);
        drop(queue);
        drop(displaced);
    }
}
