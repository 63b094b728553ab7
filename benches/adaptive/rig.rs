//! The place of one writer in a run: what stands between it and the sink, and writes down what passes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backpressure::FlushError;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::meter::{End, Flush, Item, Meter};
use crate::sink::{Fault, Sink};

/// A call of a sink of the crate.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<(), FlushError>> + Send>>;

#[derive(Debug)]
pub(crate) struct Rig {
    sink: Arc<Sink>,
    /// The start of the course.
    origin: Instant,
    meter: Mutex<Meter>,
    /// A flush has ended.
    pub(crate) ended: Arc<Notify>,
}

impl Rig {
    /// In front of a sink that others may use, too.
    pub(crate) fn new(sink: Arc<Sink>) -> Arc<Self> {
        Arc::new(Self { sink, origin: Instant::now(), meter: Mutex::default(), ended: Arc::default() })
    }

    /// Sends the items to the sink. To be dropped when the time is over.
    pub(crate) async fn flush(&self, items: &[Item]) -> Result<(), Fault> {
        let mut call = Call::start(self, items.len() as u64);
        let answer = self.sink.call(items.len() as u64).await;
        call.end = match answer {
            Ok(()) => End::Ok,
            Err(Fault::Error) => End::Error,
            Err(Fault::Throttled) => End::Throttled,
        };
        if answer.is_ok() {
            self.meter().delivered(self.now(), items);
        }
        answer
    }

    /// In milliseconds since the start of the course.
    pub(crate) fn now(&self) -> u32 {
        u32::try_from(self.origin.elapsed().as_millis()).expect("a course ends within 49 days")
    }

    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    pub(crate) fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flush under way. One that is dropped early was given up.
struct Call<'a> {
    rig: &'a Rig,
    started: u32,
    items: u64,
    end: End,
}

impl<'a> Call<'a> {
    fn start(rig: &'a Rig, items: u64) -> Self {
        let started = rig.now();
        rig.meter().started(started);
        Self { rig, started, items, end: End::TimedOut }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let done = self.rig.now();
        let latency = done.saturating_sub(self.started);
        self.rig.meter().ended(Flush { done, items: self.items as u32, latency, end: self.end });
        self.rig.ended.notify_one();
    }
}
