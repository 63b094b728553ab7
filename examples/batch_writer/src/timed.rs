//! A sink that notes how long each call of it took.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use backpressure::{Batch, BatchSink, FlushError};

use crate::{event::Event, sink::Sink};

/// Its clones note into the same place.
#[derive(Debug, Clone)]
pub(crate) struct Timed {
    sink: Sink,
    calls: Calls,
}

impl Timed {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { sink, calls: Calls::default() }
    }

    /// The calls that it notes, for when it is gone.
    pub(crate) fn calls(&self) -> Calls {
        self.calls.clone()
    }
}

impl BatchSink<Event> for Timed {
    async fn flush(&mut self, batch: Batch<Event>) -> Result<(), FlushError> {
        let (start, rows) = (Instant::now(), batch.len() as u64);
        self.sink.flush(batch).await?;
        let end = Instant::now();
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner).push(Call { end, took: end - start, rows });
        Ok(())
    }
}

/// The calls that succeeded, in the order in which they ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Call>>>);

#[derive(Debug, Clone, Copy)]
struct Call {
    end: Instant,
    took: Duration,
    rows: u64,
}

impl Calls {
    /// What the calls that ended in a window come to; nothing if there were fewer than two.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Option<Pulse> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls: Vec<Call> = calls.iter().copied().filter(|call| (from..to).contains(&call.end)).collect();
        let ([first, rest @ ..], Some(last)) = (calls.as_slice(), calls.last()) else { return None };
        // From the end of one call to the end of another, so that no part of a batch is counted.
        let seconds = (last.end - first.end).as_secs_f64();
        let rows = rest.iter().map(|call| call.rows).sum::<u64>() as f64;
        let mut latencies: Vec<Duration> = calls.iter().map(|call| call.took).collect();
        latencies.sort_unstable();
        let p95 = latencies.get((latencies.len() * 95).div_ceil(100).saturating_sub(1))?;
        (seconds > 0.0).then(|| Pulse { rate: rows / seconds, batch: rows / rest.len() as f64, p95: *p95 })
    }
}

/// How a sink was used while it was watched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// Rows a second.
    pub(crate) rate: f64,
    /// Rows a call, on average.
    pub(crate) batch: f64,
    /// What 95 of 100 calls took at most.
    pub(crate) p95: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_calls_within_the_window_count() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let calls = Calls::default();
        let all: Vec<Call> =
            (1..=30).map(|i| Call { end: at(100 * i), took: Duration::from_millis(i), rows: 50 }).collect();
        calls.0.lock().unwrap().extend(all);

        let pulse = calls.between(at(1_000), at(3_000)).unwrap();
        assert_eq!((pulse.rate, pulse.batch, pulse.p95), (500.0, 50.0, Duration::from_millis(28)));
        assert!(calls.between(at(1_000), at(1_100)).is_none());
    }
}
