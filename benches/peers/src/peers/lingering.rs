//! The loop that people write around a channel: a full batch, or what came within the linger of its first item.

use std::marker::PhantomData;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::peer::{Channel, Peer, Pipeline, Receive, Settings};
use crate::sink::Sink;

/// A channel with that loop behind it.
#[derive(Debug)]
pub(crate) struct Lingering<T, C: Channel<T>> {
    sender: C::Sender,
    consumer: JoinHandle<()>,
    item: PhantomData<T>,
}

impl<T: Send, C: Channel<T>> Peer for Lingering<T, C> {
    const NAME: &'static str = C::LOOP;
}

impl<T: Send + Sync + 'static, C: Channel<T>> Pipeline<T> for Lingering<T, C> {
    type Sender = C::Sender;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let (sender, receiver) = C::channel(settings.capacity);
        Self { sender, consumer: tokio::spawn(consume(receiver, settings, sink)), item: PhantomData }
    }

    fn sender(&self) -> Self::Sender {
        self.sender.clone()
    }

    async fn finish(self) {
        drop(self.sender);
        self.consumer.await.expect("no panic");
    }
}

async fn consume<T: Send + Sync>(mut receiver: impl Receive<T>, settings: Settings, sink: Sink<T>) {
    let mut batch = Vec::with_capacity(settings.batch);
    loop {
        receiver.receive(&mut batch, settings.batch).await;
        if batch.is_empty() {
            return;
        }
        let deadline = Instant::now() + settings.linger;
        while batch.len() < settings.batch && !settings.linger.is_zero() {
            let count = batch.len();
            let more = receiver.receive(&mut batch, settings.batch - count);
            // Too late, or closed.
            if timeout_at(deadline, more).await.is_err() || batch.len() == count {
                break;
            }
        }
        sink.flush(&batch).await;
        batch.clear();
    }
}
