//! emit_batcher: a vector behind a lock, which the consumer takes whole and looks for every now and then.

use std::sync::Arc;
use std::time::Duration;

use emit_batcher::{BatchError, Sender, bounded};
use tokio::task::JoinHandle;

use crate::peer::{Offer, Peer, Pipeline, Push, Settings};
use crate::sink::Sink;

/// Its send that waits has to have a limit.
const PATIENCE: Duration = Duration::from_secs(600);

/// It has times and batch sizes of its own.
pub(crate) struct EmitBatcher<T> {
    sender: Arc<Sender<Vec<T>>>,
    consumer: JoinHandle<()>,
}

impl<T> Peer for EmitBatcher<T> {
    const NAME: &'static str = "emit_batcher";
}

impl<T: Send + 'static> Pipeline<T> for EmitBatcher<T> {
    type Sender = Waiting<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let (sender, receiver) = bounded::<Vec<T>>(settings.capacity);
        let consumer = tokio::spawn(emit_batcher::tokio::exec(receiver, move |batch: Vec<T>| {
            let work = sink.flush(&batch);
            async move {
                work.await;
                drop(batch);
                Ok::<_, BatchError<Vec<T>>>(())
            }
        }));
        Self { sender: Arc::new(sender), consumer }
    }

    fn sender(&self) -> Self::Sender {
        Waiting(Arc::clone(&self.sender))
    }

    async fn finish(self) {
        drop(self.sender);
        self.consumer.await.expect("no panic");
    }
}

/// With the send that waits.
pub(crate) struct Waiting<T>(Arc<Sender<Vec<T>>>);

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> Push<T> for Waiting<T> {
    type Error = BatchError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        emit_batcher::tokio::send(&self.0, item, PATIENCE)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |item| {
            assert!(emit_batcher::sync::blocking_send(&self.0, item, PATIENCE).is_ok(), "there is room in time");
        }
    }
}

impl<T: Send + 'static> Offer<T> for Waiting<T> {
    fn offer(&self, item: T) -> bool {
        self.0.try_send(item).is_err()
    }
}

/// With the send that does not wait: when there is no room, all that is buffered goes.
pub(crate) struct EmitTruncating<T>(EmitBatcher<T>);

impl<T> Peer for EmitTruncating<T> {
    const NAME: &'static str = "emit_batcher send";
}

impl<T: Send + 'static> Pipeline<T> for EmitTruncating<T> {
    type Sender = Truncating<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        Self(EmitBatcher::start(settings, sink))
    }

    fn sender(&self) -> Self::Sender {
        Truncating(self.0.sender())
    }

    async fn finish(self) {
        self.0.finish().await;
    }
}

pub(crate) struct Truncating<T>(Waiting<T>);

impl<T> Clone for Truncating<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + 'static> Push<T> for Truncating<T> {
    type Error = BatchError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.0.push(item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        self.0.into_blocking()
    }
}

impl<T: Send + 'static> Offer<T> for Truncating<T> {
    fn offer(&self, item: T) -> bool {
        // It counts how often it has truncated, and not what.
        self.0.0.send(item);
        false
    }
}
