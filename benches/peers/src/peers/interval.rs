//! The other loop that people write: `select!` over tokio's channel and an interval at which the batch is sent.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::peer::{Peer, Pipeline, Settings};
use crate::sink::Sink;

#[derive(Debug)]
pub(crate) struct Interval<T> {
    sender: mpsc::Sender<T>,
    consumer: JoinHandle<()>,
}

impl<T> Peer for Interval<T> {
    const NAME: &'static str = "tokio select! with an interval";
}

impl<T: Send + Sync + 'static> Pipeline<T> for Interval<T> {
    type Sender = mpsc::Sender<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let (sender, receiver) = mpsc::channel(settings.capacity);
        Self { sender, consumer: tokio::spawn(consume(receiver, settings, sink)) }
    }

    fn sender(&self) -> Self::Sender {
        self.sender.clone()
    }

    async fn finish(self) {
        drop(self.sender);
        self.consumer.await.expect("no panic");
    }
}

async fn consume<T: Send + Sync>(mut receiver: mpsc::Receiver<T>, settings: Settings, sink: Sink<T>) {
    let mut ticks = interval(settings.linger);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(settings.batch);
    let mut is_over = false;
    while !is_over {
        let room = settings.batch - batch.len();
        let is_due = tokio::select! {
            count = receiver.recv_many(&mut batch, room) => {
                is_over = count == 0;
                batch.len() == settings.batch || is_over
            }
            _ = ticks.tick() => true,
        };
        if is_due && !batch.is_empty() {
            sink.flush(&batch).await;
            batch.clear();
        }
    }
}
