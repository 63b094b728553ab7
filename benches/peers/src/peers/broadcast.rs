//! tokio's broadcast channel: a slow receiver misses the oldest items, and is told how many.

use std::sync::Arc;

use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::peer::{Evicting, Peer};

/// With its one receiver, which lags behind.
#[derive(Debug)]
pub(crate) struct Broadcast<T> {
    sender: Sender<T>,
    _receiver: Arc<Receiver<T>>,
}

impl<T> Clone for Broadcast<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), _receiver: Arc::clone(&self._receiver) }
    }
}

impl<T> Peer for Broadcast<T> {
    const NAME: &'static str = "tokio broadcast";
}

impl<T: Clone + Send + Sync + 'static> Evicting<T> for Broadcast<T> {
    fn bounded(capacity: usize) -> Self {
        let (sender, receiver) = broadcast::channel(capacity);
        Self { sender, _receiver: Arc::new(receiver) }
    }

    fn push(&self, item: T) {
        assert!(self.sender.send(item).is_ok(), "it is open");
    }
}
