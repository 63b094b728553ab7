//! R19: what adapting costs, as the difference to a controller that does not, on the machine's clock.
//!
//! Both get one item at a time, which is a full batch of theirs, and a sink that answers at once; their flushers are polled by
//! hand. They take turns in short rounds, and the best round of each counts, which a busy machine leaves alone. That the pace has at most 512 bytes is
//! asserted where it is defined, when the crate is compiled.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use backpressure::{BackpressureController, Batch, Builder, FlushError, Flusher};

use crate::heap;
use crate::mark::{Mark, Unit};
use crate::row::Row;
use crate::writer::Who;

const FLUSHES: u32 = 100;
const ROUNDS: usize = 5_000;

pub(crate) fn row() -> Row {
    Row::on_the_real_clock("R19", "cost", |who, _| (who == Who::Adaptive).then(marks))
}

fn marks() -> Vec<Mark> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let mut adaptive = Stepped::new(|builder| builder.max_batch(1));
    let mut fixed = Stepped::new(|builder| builder.fixed(1, Duration::from_millis(5)));
    let (mut ours, mut theirs) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        ours = ours.min(adaptive.time());
        theirs = theirs.min(fixed.time());
    }
    let before = heap::calls();
    adaptive.time();
    let allocations = (heap::calls() - before) as f64 / f64::from(FLUSHES);
    vec![
        Mark::at_most("adapting, per flush", ours - theirs, 300.0, Unit::Nanos),
        Mark::at_most("allocations per flush", allocations, 0.0, Unit::Ratio),
        Mark::shown("all the rest of a flush", theirs, Unit::Nanos),
    ]
}

/// A controller that is driven by hand.
struct Stepped {
    controller: BackpressureController<u64>,
    flusher: Flusher,
}

impl Stepped {
    fn new(settings: fn(Builder<u64>) -> Builder<u64>) -> Self {
        let builder = settings(BackpressureController::builder(16));
        let (controller, flusher) = builder.build(accept).expect("the settings are valid");
        let mut stepped = Self { controller, flusher };
        stepped.time();
        stepped
    }

    /// Nanoseconds of a flush.
    fn time(&mut self) -> f64 {
        let mut context = Context::from_waker(Waker::noop());
        let delivered = self.controller.snapshot().delivered;
        let start = Instant::now();
        for item in 0..FLUSHES {
            self.controller.try_push(u64::from(item)).expect("there is room");
            assert!(Pin::new(&mut self.flusher).poll(&mut context).is_pending(), "it is open");
        }
        let time = start.elapsed();
        let delivered = self.controller.snapshot().delivered - delivered;
        assert_eq!(delivered, u64::from(FLUSHES), "each poll is a flush");
        time.as_nanos() as f64 / f64::from(FLUSHES)
    }
}

async fn accept(batch: Batch<u64>) -> Result<(), FlushError> {
    std::hint::black_box(&*batch);
    Ok(())
}
