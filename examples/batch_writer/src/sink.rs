//! The way into the store, for whoever has rows: the controller's batches, a channel's chunks.

use std::{
    error::Error,
    fmt, iter,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use backpressure::{Batch, FlushError};
use rusqlite::ErrorCode;
use tokio::{
    task::{self, JoinError},
    time,
};

use crate::{event::Event, store::Store};

/// Events and the numbers under which they are stored.
pub(crate) trait Rows: Send + 'static {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)>;
}

/// The number of an event stays the same over retries, so a second attempt finds the rows of a first.
impl Rows for Batch<Event> {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)> {
        self.iter().enumerate().map(|(i, event)| (self.seq(i), event))
    }
}

/// Events that were not in a controller's batch, numbered from `first` on.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) events: Vec<Event>,
}

impl Rows for Chunk {
    fn rows(&self) -> impl Iterator<Item = (u64, &Event)> {
        iter::zip(self.first.., &self.events)
    }
}

/// A store that takes its time, or is away for a while, if told so.
#[derive(Debug, Clone)]
pub(crate) struct Sink {
    store: Arc<Mutex<Store>>,
    delay: Duration,
    fail_for: Duration,
    since: Instant,
}

impl Sink {
    pub(crate) fn new(store: Store, delay: Duration, fail_for: Duration) -> Self {
        Self { store: Arc::new(Mutex::new(store)), delay, fail_for, since: Instant::now() }
    }

    /// Writes `rows` in one transaction, on a thread that may block, and gives them back.
    ///
    /// The rows travel with the work. On an error they are dropped here or on that thread, also by
    /// a panic; a [`Batch`] is a guard, so it goes home then and is tried again.
    pub(crate) async fn write<R: Rows>(&self, rows: R) -> Result<R, SinkError> {
        if !self.delay.is_zero() {
            time::sleep(self.delay).await;
        }
        if self.since.elapsed() < self.fail_for {
            return Err(SinkError::Away);
        }
        let store = Arc::clone(&self.store);
        let work = task::spawn_blocking(move || {
            // A panic under the lock rolled its transaction back: the store is as good as before.
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            store.insert(rows.rows()).map(|()| rows)
        });
        work.await.map_err(SinkError::Thread)?.map_err(SinkError::Store)
    }
}

/// Why rows were not written.
#[derive(Debug)]
pub(crate) enum SinkError {
    Away,
    Store(rusqlite::Error),
    Thread(JoinError),
}

impl SinkError {
    /// What may pass is tried again; a statement that SQLite refuses would be refused forever.
    pub(crate) fn verdict(self) -> FlushError {
        use ErrorCode::{
            DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OperationInterrupted, OutOfMemory,
            SystemIoFailure,
        };
        let may_pass = match &self {
            Self::Away | Self::Thread(_) => true,
            Self::Store(error) => matches!(
                error.sqlite_error_code(),
                Some(
                    DatabaseBusy
                        | DatabaseLocked
                        | DiskFull
                        | FileLockingProtocolFailed
                        | OperationInterrupted
                        | OutOfMemory
                        | SystemIoFailure
                )
            ),
        };
        if may_pass { FlushError::retry(self) } else { FlushError::permanent(self) }
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away => "the store is away",
            Self::Store(_) => "the store refused the rows",
            Self::Thread(_) => "the writing thread failed",
        })
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Away => None,
            Self::Store(error) => Some(error),
            Self::Thread(error) => Some(error),
        }
    }
}
