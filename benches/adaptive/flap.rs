//! R18: a depth that hovers at the high mark, with batches that each take a sixth of the capacity away.
//!
//! A load that follows the sink with some noise holds the depth there for ten minutes. Beside the changes of the state stand
//! those of a state without hysteresis, which compares the depth with the marks after each arrival and each flush.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Strategy};
use tokio::sync::Notify;

use crate::audit::{Auditor, audit};
use crate::mark::{Mark, Unit};
use crate::rig::Pending;
use crate::rng::Rng;
use crate::row::Row;
use crate::run::on_paused_clock;
use crate::sink::Sink;
use crate::steady::SERIAL;
use crate::writer::Who;

const CAPACITY: usize = 10_000;
const BATCH: usize = 1600;
const HOVER: f64 = 0.8;
/// Items a second that the sink takes in such batches.
const DRAIN: f64 = 1600.0 / 0.088;
const MINUTES: f64 = 10.0;

pub(crate) fn row() -> Row {
    Row::new("R18", "flapping", |who, seed| {
        (who == Who::Adaptive).then(|| {
            let changes = on_paused_clock(hover(seed));
            let per_minute = |count: u64| count as f64 / MINUTES;
            vec![
                Mark::at_most("transitions", per_minute(changes.with), 70.0, Unit::PerMinute),
                Mark::shown("without hysteresis", per_minute(changes.without), Unit::PerMinute),
                Mark::shown("mean depth", changes.mean_depth, Unit::Percent),
            ]
        })
    })
}

struct Changes {
    with: u64,
    without: u64,
    mean_depth: f64,
}

async fn hover(seed: u64) -> Changes {
    let mut rng = Rng::new(seed, 2);
    let sink = Sink::start(SERIAL, seed);
    let ended = Arc::new(Notify::new());
    let controller = controller(&sink, &ended);
    let auditor = Auditor::of(&ended, &controller);
    let (mut carry, mut push, mut depths) = (0.0, 0.0, 0.0);
    let naive = Naive::default();
    let ticks = (MINUTES * 60.0 * 500.0) as u64;
    for tick in 0..ticks {
        let depth = controller.depth() as f64 / CAPACITY as f64;
        depths += depth;
        naive.observe(depth);
        if tick % 500 == 0 {
            push = 0.2 * rng.gauss();
        }
        carry += DRAIN * (1.0 + push + 0.5 * (HOVER - depth)).max(0.0) / 500.0;
        while carry >= 1.0 {
            carry -= 1.0;
            // What finds no room is refused; the depth is then far above the mark.
            let _ = controller.try_push(());
        }
        naive.observe(controller.depth() as f64 / CAPACITY as f64);
        audit(&controller);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    auditor.has_found_nothing();
    let with = controller.snapshot().transitions.total();
    Changes { with, without: naive.changes.get(), mean_depth: depths / ticks as f64 }
}

fn controller(sink: &Arc<Sink>, ended: &Arc<Notify>) -> BackpressureController<()> {
    let (sink, ended) = (Arc::clone(sink), Arc::clone(ended));
    let flush = move |batch: Batch<()>| -> Pending {
        let (sink, ended) = (Arc::clone(&sink), Arc::clone(&ended));
        Box::pin(async move {
            sink.call(batch.len() as u64).await.map_err(|_| FlushError::retry("the sink is down"))?;
            ended.notify_one();
            Ok(())
        })
    };
    let builder = BackpressureController::builder(CAPACITY).strategy(Strategy::DropNewest);
    builder.fixed(BATCH, Duration::from_millis(50)).spawn(flush).expect("the settings are valid")
}

/// A state that follows the marks to the letter.
#[derive(Default)]
struct Naive {
    level: Cell<u8>,
    changes: Cell<u64>,
}

impl Naive {
    fn observe(&self, depth: f64) {
        let level = [0.5, 0.8, 1.0].iter().map(|&mark| u8::from(depth >= mark)).sum();
        self.changes.set(self.changes.get() + u64::from(self.level.replace(level) != level));
    }
}
