//! A producer alone: nothing is in its way, and nobody takes anything out.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use backpressure::{BackpressureController, Sample, Strategy};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::enter;
use crate::harness::{Contest, Limit, OURS, best, per_item, timed};
use crate::options::Form;
use crate::payload::{Bytes64, Bytes128, Payload, look};
use crate::peer::{Drain, Peer, Queue, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, ConcurrentQueue, Crossfire, Flume, Kanal, MutexDeque, Ours, Rtrb, Thingbuf, Tokio,
    undriven, undriven_weighed,
};

/// A capacity as many have, and memory that stays in the processor's cache.
const ITEMS: u64 = 10_000;
const PASSES: usize = 20;
/// As many as `push_all` claims at once.
const CHUNK: u64 = 64;
const FLOOR: &str = "floor: CAS, write, store";
const WEIGHED_FLOOR: &str = "floor: call, two CAS, size";

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let tokio = Limit::Of(Tokio::NAME, 0.42);
    vec![
        push_row::<u64>(items).enter(FLOOR, move || floor(items)).mark(tokio).ambition(Limit::Of(FLOOR, 1.6)),
        push_row::<Bytes64>(items).ambition(tokio),
        push_row::<Bytes128>(items).ambition(tokio),
        push_row::<String>(items).ambition(tokio),
        push_all_row(items),
        strategy_row("DropOldest", items, || Strategy::DropOldest),
        strategy_row("Sample", items, || Strategy::Sample(Sample::new())),
        weigher_row::<u64>("push, weigher, not full", items)
            .enter(FLOOR, move || floor(items))
            .enter(WEIGHED_FLOOR, move || weighed_floor(items))
            .mark(Limit::Of(BLOCK, 1.5)),
        weigher_row::<String>("push, weigher, not full, String", items).ambition(Limit::Of(BLOCK, 1.5)),
    ]
}

fn push_row<T: Payload>(items: u64) -> Contest {
    let name = format!("push, uncontended, {}", T::NAME);
    let contest = Contest::new(name, "ns/item", "One thread fills the queue by the push that does not wait.");
    enter!(contest, push::<_, T>(items):
        Ours<T>, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<T>, ConcurrentQueue<T>,
        MutexDeque<T>, Rtrb)
}

fn push<Q: Queue<T>, T: Payload>(items: u64) -> f64 {
    let (mut sender, mut receiver) = Q::bounded(items as usize);
    let pass = || {
        let supply = T::supply(items);
        let time = timed(|| fill(&mut sender, supply));
        while receiver.drain(look) > 0 {}
        time
    };
    per_item(best(PASSES, pass), items)
}

fn fill<T>(sender: &mut impl TryPush<T>, items: impl Iterator<Item = T>) {
    for item in items {
        assert!(black_box(sender.try_push(item).is_ok()), "there is room");
    }
}

/// What any push with one read-modify-write must cost. Where an item goes is known, so that finding its slot costs nothing.
fn floor(items: u64) -> f64 {
    let tail = AtomicU64::new(0);
    let slots = slots(items);
    let work = || {
        for (i, slot) in slots.iter().enumerate() {
            claim(&tail, 1);
            fill_slot(slot, i as u64);
        }
    };
    per_item(best(PASSES, || timed(work)), items)
}

/// What one must cost that is weighed by somebody else's code and claims its weight, too.
fn weighed_floor(items: u64) -> f64 {
    let (tail, inside) = (AtomicU64::new(0), AtomicU64::new(0));
    let slots = slots(items);
    let sizes: Vec<AtomicU64> = (0..items).map(|_| AtomicU64::default()).collect();
    let weigher: Box<dyn Fn(&u64) -> u64> = black_box(Box::new(|item| *item & 15));
    let work = || {
        for (i, (slot, size)) in slots.iter().zip(&sizes).enumerate() {
            let weight = weigher(&(i as u64));
            claim(&inside, weight);
            claim(&tail, 1);
            size.store(weight, Ordering::Relaxed);
            fill_slot(slot, i as u64);
        }
    };
    per_item(best(PASSES, || timed(work)), items)
}

type Slot = (AtomicU64, AtomicU64);

fn slots(items: u64) -> Vec<Slot> {
    (0..items).map(|_| <_>::default()).collect()
}

fn claim(word: &AtomicU64, n: u64) {
    let seen = word.load(Ordering::Relaxed);
    word.compare_exchange(seen, seen + n, Ordering::AcqRel, Ordering::Relaxed).expect("alone");
}

fn fill_slot(slot: &Slot, item: u64) {
    slot.0.store(item, Ordering::Relaxed);
    slot.1.store(1, Ordering::Release);
}

fn push_all_row(items: u64) -> Contest {
    let items = items / CHUNK * CHUNK;
    let about = "One thread fills the queue, 64 items at a time where it can; two peers do it one by one.";
    Contest::new("push_all of 64, u64", "ns/item", about)
        .enter(OURS, move || push_all(items))
        .enter("tokio mpsc, one by one", move || push::<Tokio, u64>(items))
        .enter("tokio mpsc try_reserve_many", move || reserve_many(items))
        .enter("Mutex<VecDeque> extend", move || extend(items))
        .enter("rtrb, one by one", move || push::<Rtrb, u64>(items))
        .enter("rtrb chunks", move || chunks(items))
        .mark(Limit::Of("tokio mpsc, one by one", 0.12))
        .ambition(Limit::Of("rtrb, one by one", 1.0))
}

/// The numbers of the items, chunk by chunk.
fn in_chunks(items: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..items / CHUNK).map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK)
}

fn push_all(items: u64) -> f64 {
    let (queue, _batches) = <Ours<u64> as Queue<u64>>::bounded(items as usize);
    let fill = || {
        for chunk in in_chunks(items) {
            assert!(queue.push_all(chunk).now_or_never().is_some_and(|pushed| pushed.is_ok()), "there is room");
        }
    };
    let pass = || {
        let time = timed(fill);
        drop(queue.purge());
        time
    };
    per_item(best(PASSES, pass), items)
}

fn reserve_many(items: u64) -> f64 {
    let (sender, mut receiver) = mpsc::channel(items as usize);
    let fill = || {
        for chunk in in_chunks(items) {
            let permits = sender.try_reserve_many(CHUNK as usize).expect("there is room");
            permits.zip(chunk).for_each(|(permit, item)| permit.send(item));
        }
    };
    let pass = || {
        let time = timed(fill);
        while receiver.try_recv().is_ok() {}
        time
    };
    per_item(best(PASSES, pass), items)
}

fn extend(items: u64) -> f64 {
    let queue = Mutex::new(std::collections::VecDeque::with_capacity(items as usize));
    let fill = || {
        for chunk in in_chunks(items) {
            let mut queue = queue.lock();
            assert!(queue.len() + CHUNK as usize <= items as usize, "there is room");
            queue.extend(chunk);
        }
    };
    let pass = || {
        let time = timed(fill);
        queue.lock().clear();
        time
    };
    per_item(best(PASSES, pass), items)
}

fn chunks(items: u64) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(items as usize);
    let mut fill = || {
        for chunk in in_chunks(items) {
            let room = producer.write_chunk_uninit(CHUNK as usize).expect("there is room");
            assert_eq!(room.fill_from_iter(chunk), CHUNK as usize);
        }
    };
    let pass = || {
        let time = timed(&mut fill);
        while consumer.pop().is_ok() {}
        time
    };
    per_item(best(PASSES, pass), items)
}

const BLOCK: &str = "backpressure, Block";
const NOT_FULL: &str = "One thread fills 0.4 of the buffer, below the first mark.";

/// Both sides are ours: what a strategy costs as long as it has nothing to do.
fn strategy_row(name: &'static str, items: u64, strategy: fn() -> Strategy<u64>) -> Contest {
    Contest::new(format!("push, {name}, not full"), "ns/item", NOT_FULL)
        .enter(OURS, move || push_into::<u64>(&undriven(items as usize * 5 / 2, strategy()).0, items))
        .enter(BLOCK, move || push_by_block::<u64>(items))
        .mark(Limit::Of(BLOCK, 1.15))
}

/// The same of a bound by weight.
fn weigher_row<T: Payload>(name: &'static str, items: u64) -> Contest {
    Contest::new(name, "ns/item", NOT_FULL)
        .enter(OURS, move || push_into::<T>(&undriven_weighed(items as usize * 5 / 2).0, items))
        .enter(BLOCK, move || push_by_block::<T>(items))
}

fn push_by_block<T: Payload>(items: u64) -> f64 {
    push_into::<T>(&undriven(items as usize * 5 / 2, Strategy::Block).0, items)
}

fn push_into<T: Payload>(queue: &BackpressureController<T>, items: u64) -> f64 {
    let pass = || {
        let supply = T::supply(items);
        let time = timed(|| {
            for item in supply {
                assert!(black_box(queue.try_push(item).is_ok()), "there is room");
            }
        });
        drop(queue.purge());
        time
    };
    per_item(best(PASSES, pass), items)
}
