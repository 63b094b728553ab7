//! tokio-stream's `chunks_timeout`, behind tokio's channel.

use std::pin::pin;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::peer::{Peer, Pipeline, Settings};
use crate::sink::Sink;

#[derive(Debug)]
pub(crate) struct ChunksTimeout<T> {
    sender: mpsc::Sender<T>,
    consumer: JoinHandle<()>,
}

impl<T> Peer for ChunksTimeout<T> {
    const NAME: &'static str = "tokio-stream chunks_timeout";
}

impl<T: Send + 'static> Pipeline<T> for ChunksTimeout<T> {
    type Sender = mpsc::Sender<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let (sender, receiver) = mpsc::channel(settings.capacity);
        let consumer = tokio::spawn(async move {
            let batches = ReceiverStream::new(receiver).chunks_timeout(settings.batch, settings.linger);
            let mut batches = pin!(batches);
            while let Some(batch) = batches.next().await {
                let work = sink.flush(&batch);
                work.await;
                drop(batch);
            }
        });
        Self { sender, consumer }
    }

    fn sender(&self) -> Self::Sender {
        self.sender.clone()
    }

    async fn finish(self) {
        drop(self.sender);
        self.consumer.await.expect("no panic");
    }
}
