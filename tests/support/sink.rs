//! A sink that does what a test says, and remembers each call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{Batch, BatchSink, FlushError, FlushReason};
use tokio::time::Instant;

use super::{Gate, Token};

/// What a sink remembers of an item.
pub(crate) trait Key {
    fn key(&self) -> u64;
}

impl Key for u64 {
    fn key(&self) -> u64 {
        *self
    }
}

impl Key for Token {
    fn key(&self) -> u64 {
        self.id()
    }
}

/// One call of the sink.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) items: Vec<u64>,
    /// When it began, since the sink was made.
    pub(crate) at: Duration,
    pub(crate) attempt: u32,
    pub(crate) reason: FlushReason,
    /// Its answer was `Ok(())`.
    pub(crate) is_ok: bool,
}

/// A scripted sink: cloned handles share the script and the memory.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    calls: Mutex<Vec<Call>>,
    gate: Gate,
    /// Calls that still fail, or panic.
    faults: AtomicU64,
    fault: Fault,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Retry,
    Permanent,
    Panic,
}

impl Sink {
    /// Delivers everything at once.
    pub(crate) fn ok() -> Self {
        let sink = Self::new(0, Fault::Retry);
        sink.open();
        sink
    }

    /// Each call waits at the gate.
    pub(crate) fn gated() -> Self {
        Self::new(0, Fault::Retry)
    }

    /// Fails `n` times, then works.
    pub(crate) fn fail(n: u64) -> Self {
        let sink = Self::new(n, Fault::Retry);
        sink.open();
        sink
    }

    /// Refuses for good, each time.
    pub(crate) fn refuse() -> Self {
        let sink = Self::new(u64::MAX, Fault::Permanent);
        sink.open();
        sink
    }

    /// Panics `n` times, then works.
    pub(crate) fn panic(n: u64) -> Self {
        let sink = Self::new(n, Fault::Panic);
        sink.open();
        sink
    }

    fn new(faults: u64, fault: Fault) -> Self {
        let shared = Shared {
            start: Instant::now(),
            calls: Mutex::default(),
            gate: Gate::closed(),
            faults: AtomicU64::new(faults),
            fault,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Lets one call through.
    pub(crate) fn open_one(&self) {
        self.shared.gate.let_through(1);
    }

    /// Opens the gate for ever.
    pub(crate) fn open(&self) {
        self.shared.gate.open();
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// The items of each call.
    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        self.calls().into_iter().map(|call| call.items).collect()
    }

    /// The sizes of the calls.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.calls().iter().map(|call| call.items.len()).collect()
    }

    /// When the calls began, since the sink was made.
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.calls().iter().map(|call| call.at).collect()
    }

    /// The bytes that its memory of calls takes.
    pub(crate) fn footprint(&self) -> isize {
        let calls = self.shared.calls.lock().unwrap();
        let items: usize = calls.iter().map(|call| call.items.capacity() * size_of::<u64>()).sum();
        (items + calls.capacity() * size_of::<Call>()) as isize
    }

    /// What was delivered, in order.
    pub(crate) fn delivered(&self) -> Vec<u64> {
        self.calls().into_iter().filter(|call| call.is_ok).flat_map(|call| call.items).collect()
    }
}

impl<T: Key + Send> BatchSink<T> for Sink {
    fn flush(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), FlushError>> + Send {
        let shared = Arc::clone(&self.shared);
        let items = batch.iter().map(Key::key).collect();
        let (attempt, reason) = (batch.attempt(), batch.reason());
        let call = Call { items, at: shared.start.elapsed(), attempt, reason, is_ok: false };
        let mut calls = shared.calls.lock().unwrap();
        let index = calls.len();
        calls.push(call);
        drop(calls);
        async move {
            shared.gate.pass().await;
            let left = shared.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() {
                drop(batch);
                match shared.fault {
                    Fault::Retry => return Err(FlushError::retry("down")),
                    Fault::Permanent => return Err(FlushError::permanent("refused")),
                    Fault::Panic => panic!("the script says so"),
                }
            }
            shared.calls.lock().unwrap()[index].is_ok = true;
            Ok(())
        }
    }
}
