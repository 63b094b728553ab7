//! R17: a crowd that is refused, and comes back when it was told to.
//!
//! 400 producers, each with a submission of 100 items about once a second, which makes 40 times what the sink takes. A submission
//! for which there is no room is refused as a whole, and comes again after some time. If all come too early they are refused again
//! and again; if they come too late the sink has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Strategy};
use tokio::time::sleep;

use crate::audit::{Auditor, audit};
use crate::mark::{Mark, Unit};
use crate::meter::Item;
use crate::rig::{Pending, Rig};
use crate::rng::Rng;
use crate::row::Row;
use crate::run::on_paused_clock;
use crate::sink::{Sink, Spec};
use crate::writer::{FIXED_BATCH, FIXED_LINGER, Who};

const CAPACITY: usize = 10_000;
const PRODUCERS: u64 = 400;
const ITEMS: usize = 100;
/// Seconds from an accepted submission to the next.
const PAUSE: f64 = 1.0;
/// Figures are taken between these times, in seconds.
const MEASURE: (f64, f64) = (60.0, 300.0);

type Wait = fn(&BackpressureController<Item>) -> Duration;

/// How long a refused producer waits; `None` if the contestant has no part in it.
fn wait(who: Who) -> Option<Wait> {
    match who {
        Who::Adaptive => Some(|controller| controller.retry_after_for(ITEMS)),
        Who::Fixed => Some(|_| Duration::from_secs(5)),
        Who::IntervalOnly => None,
    }
}

pub(crate) fn row() -> Row {
    Row::new("R17", "retry after", |who, seed| {
        let crowd = on_paused_clock(crowd(who, wait(who)?, seed));
        Some(vec![
            Mark::at_most("refused per accepted", crowd.refused / crowd.accepted, 1.6, Unit::Ratio),
            Mark::at_most("idle sink", crowd.idle, 0.005, Unit::Percent),
        ])
    })
}

/// Submissions in the time of the figures, and the share of it in which the sink had nothing to do.
struct Crowd {
    accepted: f64,
    refused: f64,
    idle: f64,
}

async fn crowd(who: Who, wait: Wait, seed: u64) -> Crowd {
    // About 1000 items a second.
    let rig = Rig::new(Sink::start(Spec::new(0.01, 0.9e-3), seed));
    let controller = controller(who, &rig);
    let auditor = Auditor::of(&rig.ended, &controller);
    let mut producers = Vec::new();
    for number in 0..PRODUCERS {
        producers.push(tokio::spawn(produce(Arc::clone(&rig), controller.clone(), wait, Rng::new(seed, number))));
    }
    sleep(Duration::from_secs_f64(MEASURE.1)).await;
    auditor.has_found_nothing();
    let (mut accepted, mut refused) = (0, 0);
    for producer in producers {
        let submitted = producer.await.expect("no producer panics");
        accepted += submitted.0;
        refused += submitted.1;
    }
    let idle = 1.0 - rig.meter().busy(MEASURE.0, MEASURE.1);
    Crowd { accepted: f64::from(accepted), refused: f64::from(refused), idle }
}

/// Submissions accepted and refused in the time of the figures.
async fn produce(rig: Arc<Rig>, controller: BackpressureController<Item>, wait: Wait, mut rng: Rng) -> (u32, u32) {
    let (mut accepted, mut refused) = (0, 0);
    sleep(Duration::from_secs_f64(PAUSE * rng.unit())).await;
    while rig.now() < (MEASURE.1 * 1000.0) as u32 {
        let counts = u32::from(f64::from(rig.now()) >= MEASURE.0 * 1000.0);
        // One thread, and nothing is awaited: what is free now stays free.
        if controller.capacity() - controller.depth() >= ITEMS {
            for seq in 0..ITEMS {
                controller.try_push(Item { at: rig.now(), seq: seq as u32 }).expect("there is room");
            }
            audit(&controller);
            accepted += counts;
            sleep(Duration::from_secs_f64(PAUSE * (0.5 + rng.unit()))).await;
        } else {
            refused += counts;
            sleep(wait(&controller)).await;
        }
    }
    (accepted, refused)
}

fn controller(who: Who, rig: &Arc<Rig>) -> BackpressureController<Item> {
    let rig = Arc::clone(rig);
    let flush = move |batch: Batch<Item>| -> Pending {
        let rig = Arc::clone(&rig);
        Box::pin(async move { rig.flush(&batch).await.map_err(|_| FlushError::retry("the sink is down")) })
    };
    let builder = BackpressureController::builder(CAPACITY).strategy(Strategy::DropNewest);
    let builder = if who == Who::Fixed { builder.fixed(FIXED_BATCH, FIXED_LINGER) } else { builder };
    builder.spawn(flush).expect("the settings are valid")
}
