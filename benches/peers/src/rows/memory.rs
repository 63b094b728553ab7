//! What is allocated: per push, per batch, and for the buffer.

use super::enter;
use crate::allocations;
use crate::harness::{Contest, Limit, one_thread};
use crate::options::Form;
use crate::payload::{Bytes64, Payload, look};
use crate::peer::{Drain, LINGER, Pipeline, Push, Queue, Settings, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, ChunksTimeout, ConcurrentQueue, Crossfire, EmitBatcher, Flume, FuturesBatch, Kanal,
    Lingering, MutexDeque, MutexNotify, Ours, Rtrb, Thingbuf, Tokio,
};
use crate::sink::{Sink, Work};

const ITEMS: u64 = 100_000;
const FLUSHES: u64 = 1000;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let flushes = form.items(FLUSHES);
    let mut rows = vec![per_push(items)];
    rows.extend([10, 500, 5000].map(|batch| per_flush(batch, flushes)));
    rows.push(bytes());
    rows
}

fn per_push(items: u64) -> Contest {
    let about = "One thread fills a queue that was used before.";
    let contest = Contest::new("allocations per push", "per item", about);
    enter!(contest, push::<_>(items):
        Ours<u64>, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<u64>, ConcurrentQueue<u64>,
        MutexDeque<u64>, Rtrb)
    .mark(Limit::Value(0.0))
}

fn push<Q: Queue<u64>>(items: u64) -> f64 {
    let (mut sender, mut receiver) = Q::bounded(items as usize);
    let mut fill = || (0..items).for_each(|item| assert!(sender.try_push(item).is_ok(), "there is room"));
    fill();
    while receiver.drain(look) > 0 {}
    let counter = allocations::start();
    fill();
    counter.stop().calls as f64 / items as f64
}

fn per_flush(batch: usize, flushes: u64) -> Contest {
    let about = "One thread pushes a batch, again and again, and lets the consumer run; the pushes count, too.";
    let contest = Contest::new(format!("allocations per flush of {batch}"), "per batch", about);
    enter!(contest, flush::<_>(batch, flushes):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, MutexNotify>,
        Lingering<u64, Crossfire>, Lingering<u64, Flume>, EmitBatcher<u64>, ChunksTimeout<u64>, FuturesBatch<u64>)
    .mark(Limit::Value(1.0))
    .ambition(Limit::Value(0.0))
}

fn flush<P: Pipeline<u64>>(batch: usize, flushes: u64) -> f64 {
    let runtime = one_thread();
    let (sink, seen) = Sink::counting(Work::None);
    let counted = runtime.block_on(async {
        let settings = Settings { capacity: 2 * batch, batch, linger: LINGER };
        let pipeline = P::start(settings, sink);
        let sender = pipeline.sender();
        let some = async |count: u64| {
            for _ in 0..count {
                for item in 0..batch as u64 {
                    assert!(sender.push(item).await.is_ok(), "it is open, and there is room in time");
                }
                tokio::task::yield_now().await;
            }
        };
        some(flushes / 10).await;
        let counter = allocations::start();
        some(flushes).await;
        let counted = counter.stop();
        drop(sender);
        pipeline.finish().await;
        counted
    });
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed) >= flushes * batch as u64);
    counted.calls as f64 / flushes as f64
}

fn bytes() -> Contest {
    let about = "What a full queue of 100 000 items of 64 bytes holds, for each item.";
    let contest = Contest::new("memory, capacity 100 000 of 64 B", "B/item", about);
    enter!(contest, held::<_>():
        Ours<Bytes64>, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<Bytes64>,
        ConcurrentQueue<Bytes64>, MutexDeque<Bytes64>, Rtrb)
    .mark(Limit::Value(76.0))
    .ambition(Limit::Value(72.0))
}

fn held<Q: Queue<Bytes64>>() -> f64 {
    let counter = allocations::start();
    let (mut sender, _receiver) = Q::bounded(ITEMS as usize);
    for item in Bytes64::supply(ITEMS) {
        assert!(sender.try_push(item).is_ok(), "there is room");
    }
    counter.stop().bytes as f64 / ITEMS as f64
}
