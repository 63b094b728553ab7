//! What is at the end of every pipeline.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An asynchronous sink: it sees a batch, then works for a while.
pub(crate) struct Sink<T> {
    see: Arc<See<T>>,
    work: Work,
}

type See<T> = dyn Fn(&[T]) + Send + Sync;

/// How long a sink takes for a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// It is ready at once.
    None,
    /// It lets others run, as one that writes to a socket does.
    Yield,
    Sleep(Duration),
}

impl<T> Sink<T> {
    pub(crate) fn new(work: Work, see: impl Fn(&[T]) + Send + Sync + 'static) -> Self {
        Self { see: Arc::new(see), work }
    }

    /// One that counts the items.
    pub(crate) fn counting(work: Work) -> (Self, Arc<AtomicU64>) {
        let count = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&count);
        let see = move |batch: &[T]| {
            seen.fetch_add(batch.len() as u64, Ordering::Relaxed);
        };
        (Self::new(work, see), count)
    }

    /// Whoever calls it holds the batch until the future is ready.
    pub(crate) fn flush(&self, batch: &[T]) -> impl Future<Output = ()> + Send + use<T> {
        (self.see)(batch);
        let work = self.work;
        async move {
            match work {
                Work::None => {}
                Work::Yield => tokio::task::yield_now().await,
                Work::Sleep(time) => tokio::time::sleep(time).await,
            }
        }
    }
}

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Self {
        Self { see: Arc::clone(&self.see), work: self.work }
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("work", &self.work).finish_non_exhaustive()
    }
}
