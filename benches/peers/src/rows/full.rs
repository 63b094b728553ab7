//! Producers that find the buffer full: each push displaces the oldest item, or is refused.

use std::hint::black_box;

use super::enter;
use crate::harness::{Contest, Limit, best, per_item, race};
use crate::options::Form;
use crate::peer::{Evicting, Peer, Queue, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, Broadcast, ConcurrentQueue, Crossfire, Evictor, Flume, Forced, Kanal, MutexDeque, Ours,
    Thingbuf, Tokio,
};

const ITEMS: u64 = 200_000;
const CAPACITY: u64 = 1_000;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    vec![
        evict_row(1, 0.75, items),
        evict_row(2, 1.2, items).ambition(LOCK),
        evict_row(4, 1.2, items).ambition(LOCK),
        refuse_row(1, items),
        refuse_row(2, items).enter(ALONE, move || refuse::<Ours<u64>>(1, items)).mark(Limit::Of(ALONE, 1.0)),
    ]
}

const LOCK: Limit = Limit::Of("Mutex<VecDeque>", 1.0);
const ALONE: &str = "backpressure, 1 thread";

fn evict_row(producers: u64, mark: f64, items: u64) -> Contest {
    let about = "Threads push into a full buffer of 1000; each push displaces the oldest item, which is dropped.";
    let contest = Contest::new(format!("drop oldest, {}", threads(producers)), "ns/item", about);
    enter!(contest, evict::<_>(producers, items):
        Evictor<u64>, ArrayQueue<u64>, ConcurrentQueue<u64>, MutexDeque<u64>, Forced<u64>, Broadcast<u64>)
    .mark(Limit::Of(<ArrayQueue<u64> as Peer>::NAME, mark))
}

fn evict<Q: Evicting<u64>>(producers: u64, items: u64) -> f64 {
    let queue = Q::bounded(CAPACITY as usize);
    (0..CAPACITY).for_each(|item| queue.push(item));
    let (passes, share) = passes(producers, items);
    let pass = || {
        race((0..producers).map(|_| {
            let queue = queue.clone();
            move || (0..share).for_each(|item| queue.push(black_box(item)))
        }))
    };
    per_item(best(passes, pass), share * producers)
}

fn refuse_row(producers: u64, items: u64) -> Contest {
    let about =
        "Threads push into a full buffer of 1000, which gives each item back. Of all here, only ours counts them.";
    let contest = Contest::new(format!("refused push, {}", threads(producers)), "ns/item", about);
    enter!(contest, refuse::<_>(producers, items):
        Ours<u64>, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<u64>, ConcurrentQueue<u64>,
        MutexDeque<u64>)
    .mark(Limit::Of(Kanal::NAME, 1.5))
    .ambition(Limit::Of(<ArrayQueue<u64> as Peer>::NAME, 1.0))
}

fn refuse<Q: Queue<u64>>(producers: u64, items: u64) -> f64
where
    Q::Sender: Clone,
{
    let (mut sender, _receiver) = Q::bounded(CAPACITY as usize);
    while sender.try_push(0).is_ok() {}
    let (passes, share) = passes(producers, items);
    let pass = || {
        race((0..producers).map(|_| {
            let mut sender = sender.clone();
            move || {
                for item in 0..share {
                    assert!(black_box(sender.try_push(item)).is_err(), "it is full");
                }
            }
        }))
    };
    per_item(best(passes, pass), share * producers)
}

/// How many passes a round has, and how many items a producer pushes in each. Several threads have one pass: in the
/// least of several they would have run one after the other.
fn passes(producers: u64, items: u64) -> (usize, u64) {
    if producers == 1 { (10, items / 10) } else { (1, items / producers) }
}

fn threads(count: u64) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}
