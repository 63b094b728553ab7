//! Whole pipelines: producers, a buffer, batches, a sink.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::runtime::Runtime;

use super::enter;
use crate::harness::{Contest, Limit, note_losses, per_item, two_workers};
use crate::options::Form;
use crate::peer::{Channel, LINGER, Pipeline, Push, Settings};
use crate::peers::{
    AsyncChannel, ChunksTimeout, Crossfire, EmitBatcher, Flume, FuturesBatch, Interval, Kanal, Lingering, MutexNotify,
    Ours, Thingbuf, Tokio,
};
use crate::sink::{Sink, Work};

const ITEMS: u64 = 1_000_000;
const CAPACITY: usize = 10_000;
const PRODUCERS: u64 = 2;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let about =
        "Two tasks push and wait for room; batches of 500, or what came within 5 ms; a sink that lets others run.";
    let contest = Contest::new("pipeline flat out", "ns/item", about);
    let contest = enter!(contest, flat_out::<_>(items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, MutexNotify>, EmitBatcher<u64>,
        Lingering<u64, Crossfire>, Lingering<u64, Flume>, Lingering<u64, AsyncChannel>, Lingering<u64, Thingbuf>,
        Interval<u64>, ChunksTimeout<u64>, FuturesBatch<u64>);
    let tokio = Limit::Of(<Tokio as Channel<u64>>::LOOP, 0.55);
    vec![contest.mark(tokio).ambition(Limit::Of(<Kanal as Channel<u64>>::LOOP, 1.0))]
}

fn flat_out<P: Pipeline<u64> + 'static>(items: u64) -> f64 {
    let settings = Settings::new(CAPACITY, LINGER);
    per_item(flow::<P>(&two_workers(), settings, Work::Yield, PRODUCERS, items), items)
}

/// Sends so many items through, from so many tasks, and waits until the sink has seen all: how long that takes.
pub(crate) fn flow<P: Pipeline<u64> + 'static>(
    runtime: &Runtime,
    settings: Settings,
    work: Work,
    tasks: u64,
    items: u64,
) -> Duration {
    let (sink, seen) = Sink::counting(work);
    let share = items / tasks;
    let time = runtime.block_on(async {
        let pipeline = P::start(settings, sink);
        let start = Instant::now();
        let producers = (0..tasks).map(|_| {
            let sender = pipeline.sender();
            tokio::spawn(async move {
                for item in 0..share {
                    assert!(sender.push(item).await.is_ok(), "it is open, and there is room in time");
                }
            })
        });
        let producers: Vec<_> = producers.collect();
        join_all(producers).await.into_iter().for_each(|end| end.expect("no panic"));
        pipeline.finish().await;
        start.elapsed()
    });
    note_losses::<P>(share * tasks - seen.load(Ordering::Relaxed));
    time
}

/// The same from plain threads, which are parked while they wait.
pub(crate) fn flow_from_threads<P: Pipeline<u64> + 'static>(
    runtime: &Runtime,
    settings: Settings,
    work: Work,
    threads: u64,
    items: u64,
) -> Duration {
    let (sink, seen) = Sink::counting(work);
    let share = items / threads;
    let inside = runtime.enter();
    let pipeline = P::start(settings, sink);
    drop(inside);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            let mut push = pipeline.sender().into_blocking();
            scope.spawn(move || (0..share).for_each(&mut push));
        }
    });
    runtime.block_on(pipeline.finish());
    let time = start.elapsed();
    note_losses::<P>(share * threads - seen.load(Ordering::Relaxed));
    time
}
