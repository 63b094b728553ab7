//! The same with tokio's `Notify` for both sides: what people write themselves for tasks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::mem;
use std::pin::pin;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::peer::{Channel, Offer, Peer, Push, Receive};

#[derive(Debug)]
pub(crate) struct MutexNotify;

impl Peer for MutexNotify {
    const NAME: &'static str = "Mutex<VecDeque> + Notify";
}

impl<T: Send + 'static> Channel<T> for MutexNotify {
    const LOOP: &'static str = "Mutex<VecDeque> + Notify + linger";

    type Sender = Sender<T>;
    type Receiver = Receiver<T>;

    fn channel(capacity: usize) -> (Self::Sender, Self::Receiver) {
        let shared = Arc::new(Shared {
            capacity,
            items: Mutex::new(Items { queue: VecDeque::with_capacity(capacity), senders: 1 }),
            room: Notify::new(),
            room_for_threads: Condvar::new(),
            news: Notify::new(),
        });
        (Sender(Arc::clone(&shared)), Receiver { shared, mine: VecDeque::with_capacity(capacity) })
    }
}

#[derive(Debug)]
struct Shared<T> {
    capacity: usize,
    items: Mutex<Items<T>>,
    /// There is room again, for tasks and for threads.
    room: Notify,
    room_for_threads: Condvar,
    /// There is something, or nothing more will come.
    news: Notify,
}

#[derive(Debug)]
struct Items<T> {
    queue: VecDeque<T>,
    senders: usize,
}

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    fn try_push(&self, item: T) -> Result<(), T> {
        let mut items = self.0.items.lock();
        if items.queue.len() == self.0.capacity {
            return Err(item);
        }
        items.queue.push_back(item);
        let is_first = items.queue.len() == 1;
        drop(items);
        if is_first {
            self.0.news.notify_one();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.items.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.items.lock().senders -= 1;
        self.0.news.notify_one();
    }
}

impl<T: Send + 'static> Push<T> for Sender<T> {
    type Error = Infallible;

    async fn push(&self, mut item: T) -> Result<(), Infallible> {
        loop {
            let Err(back) = self.try_push(item) else { return Ok(()) };
            let mut room = pin!(self.0.room.notified());
            room.as_mut().enable();
            let Err(back) = self.try_push(back) else { return Ok(()) };
            item = back;
            room.await;
        }
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |mut item| {
            while let Err(back) = self.try_push(item) {
                let mut items = self.0.items.lock();
                if items.queue.len() == self.0.capacity {
                    self.0.room_for_threads.wait(&mut items);
                }
                item = back;
            }
        }
    }
}

impl<T: Send + 'static> Offer<T> for Sender<T> {
    fn offer(&self, item: T) -> bool {
        self.try_push(item).is_err()
    }
}

#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    mine: VecDeque<T>,
}

impl<T: Send + 'static> Receive<T> for Receiver<T> {
    async fn receive(&mut self, batch: &mut Vec<T>, _most: usize) {
        loop {
            let is_over = {
                let mut items = self.shared.items.lock();
                mem::swap(&mut items.queue, &mut self.mine);
                items.senders == 0
            };
            if !self.mine.is_empty() {
                self.shared.room.notify_waiters();
                self.shared.room_for_threads.notify_all();
                batch.extend(self.mine.drain(..));
                return;
            }
            if is_over {
                return;
            }
            self.shared.news.notified().await;
        }
    }
}
