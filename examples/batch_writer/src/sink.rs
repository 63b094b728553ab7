//! The way into the store, for whoever has rows: the controller's batches, a channel's chunks.

use std::time::{Duration, Instant};

use backpressure::{Batch, BatchSink, FlushError};
use tokio::time;

use crate::{
    error::WriteError,
    event::Event,
    store::{Rows, Store},
};

/// The number of an event stays the same over retries, so a second attempt finds the rows of a first.
impl Rows for Batch<Event> {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)> + Send {
        self.iter().enumerate().map(|(i, event)| (self.seq(i), event))
    }

    fn were_sent_before(&self) -> bool {
        self.attempt() > 1
    }
}

/// Events that were not in a controller's batch, numbered from `first` on.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) events: Vec<Event>,
}

impl Rows for Chunk {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)> + Send {
        std::iter::zip(self.first.., &self.events)
    }

    fn were_sent_before(&self) -> bool {
        false
    }
}

/// A store that takes its time, or is away for a while, if told so.
#[derive(Debug, Clone)]
pub(crate) struct Sink {
    store: Store,
    delay: Duration,
    fail_for: Duration,
    since: Instant,
}

impl Sink {
    pub(crate) fn new(store: Store, delay: Duration, fail_for: Duration) -> Self {
        Self { store, delay, fail_for, since: Instant::now() }
    }

    /// Writes `rows` in one transaction and gives them back.
    ///
    /// On an error they are dropped; a [`Batch`] is a guard, so it goes home then and is tried again.
    pub(crate) async fn write<R: Rows>(&mut self, rows: R) -> Result<R, WriteError> {
        if !self.delay.is_zero() {
            time::sleep(self.delay).await;
        }
        if self.since.elapsed() < self.fail_for {
            return Err(WriteError::Away);
        }
        self.store.write(rows).await
    }
}

impl BatchSink<Event> for Sink {
    async fn flush(&mut self, batch: Batch<Event>) -> Result<(), FlushError> {
        self.write(batch).await.map(drop).map_err(WriteError::verdict)
    }
}
