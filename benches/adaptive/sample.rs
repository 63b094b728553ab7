//! R16: a sample of an overload says how much there was of each class, though most of it was never stored.
//!
//! The sink takes about 1000 items a second; the load is a multiple of that, in five classes that come in a fixed order, which
//! is what a strict one in k would alias with.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Sample, Strategy};
use tokio::sync::Notify;

use crate::audit::{Auditor, audit};
use crate::mark::{Mark, Unit};
use crate::rig::Pending;
use crate::row::Row;
use crate::run::on_paused_clock;
use crate::sink::{Sink, Spec};
use crate::writer::Who;

/// Of a hundred items in a row.
const CLASSES: [u64; 5] = [50, 25, 15, 7, 3];
/// Coprime to 100, so that the classes are mixed.
const STRIDE: u64 = 37;
const CAPACITY: usize = 10_000;
/// Items a second that the sink takes.
const DRAIN: f64 = 1000.0;
/// How long items come, in seconds: so long that what is left is bias, not chance. At 25 times the load one item stands for
/// more than half of those between two flushes, so it is the number of flushes that counts.
const SECONDS: u64 = 300;

type Counts = [f64; CLASSES.len()];

/// The mean over so many runs of a load is judged.
const RUNS: u64 = 20;

pub(crate) fn row() -> Row {
    let row = Row::new("R16", "sample", move |who, seed| {
        if who != Who::Adaptive {
            return None;
        }
        let loads = [3.0, 25.0].map(|load| biases(load, seed * RUNS..(seed + 1) * RUNS));
        let worst = |which: fn(&Biases) -> f64| loads.iter().map(which).fold(0.0, f64::max);
        Some(vec![
            Mark::at_most("bias", worst(|biases| biases.total), 0.02, Unit::Percent),
            Mark::at_most("of the worst class", worst(|biases| biases.worst), 0.04, Unit::Percent),
        ])
    });
    row.worth(RUNS as usize)
}

/// How far the means over the seeds are off, as shares.
struct Biases {
    total: f64,
    worst: f64,
}

fn biases(load: f64, seeds: std::ops::Range<u64>) -> Biases {
    let count = (seeds.end - seeds.start) as f64;
    let mut offered = 0.0;
    let mut means = Counts::default();
    let mut truths = Counts::default();
    for seed in seeds {
        let (estimates, truth) = on_paused_clock(estimate(load, seed));
        for class in 0..CLASSES.len() {
            means[class] += estimates[class] / count;
            truths[class] += truth[class] / count;
        }
        offered += truth.iter().sum::<f64>() / count;
    }
    let total = (means.iter().sum::<f64>() / offered - 1.0).abs();
    let worst = means.iter().zip(truths).map(|(mean, truth)| (mean / truth - 1.0).abs()).fold(0.0, f64::max);
    Biases { total, worst }
}

/// What the weights say of each class, and what is true.
async fn estimate(load: f64, seed: u64) -> (Counts, Counts) {
    let weights = Arc::new(Mutex::new(Counts::default()));
    let sink = Sink::start(Spec::new(0.01, 0.9 / DRAIN), seed);
    let ended = Arc::new(Notify::new());
    let controller = controller(&sink, &weights, &ended, seed);
    let auditor = Auditor::of(&ended, &controller);
    let mut truth = Counts::default();
    let mut carry = 0.0;
    let mut number = 0;
    for _ in 0..SECONDS * 500 {
        carry += load * DRAIN / 500.0;
        while carry >= 1.0 {
            let class = class(number);
            // What becomes of it, the weights have to tell.
            let _ = controller.try_push(class);
            truth[class] += 1.0;
            number += 1;
            carry -= 1.0;
        }
        audit(&controller);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let report = controller.drain(Duration::MAX).await;
    auditor.has_found_nothing();
    assert_eq!(report.leftovers.len(), 0, "all is delivered");
    let weights = *weights.lock().expect("no panic");
    (weights, truth)
}

fn class(number: u64) -> usize {
    let mut place = number * STRIDE % 100;
    CLASSES
        .iter()
        .position(|&share| {
            let is_here = place < share;
            place = place.saturating_sub(share);
            is_here
        })
        .expect("the shares are a hundred")
}

fn controller(
    sink: &Arc<Sink>,
    weights: &Arc<Mutex<Counts>>,
    ended: &Arc<Notify>,
    seed: u64,
) -> BackpressureController<usize> {
    let (sink, weights, ended) = (Arc::clone(sink), Arc::clone(weights), Arc::clone(ended));
    let flush = move |batch: Batch<usize>| -> Pending {
        let (sink, weights, ended) = (Arc::clone(&sink), Arc::clone(&weights), Arc::clone(&ended));
        Box::pin(async move {
            sink.call(batch.len() as u64).await.map_err(|_| FlushError::retry("the sink is down"))?;
            let mut weights = weights.lock().expect("no panic");
            for (&class, weight) in batch.weighted() {
                weights[class] += weight as f64;
            }
            ended.notify_one();
            Ok(())
        })
    };
    let builder = BackpressureController::builder(CAPACITY).strategy(Strategy::Sample(Sample::new().seed(seed)));
    builder.spawn(flush).expect("the settings are valid")
}
