//! Producers that find the buffer full: each push displaces the oldest item, or is refused.

use std::hint::black_box;

use super::enter;
use crate::harness::{Contest, Limit, best, per_item, race};
use crate::options::Form;
use crate::payload::{Bytes64, Payload};
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
        evict_row::<u64>(1, items).mark(Limit::Of(ARRAY_QUEUE, 0.75)),
        evict_row::<u64>(2, items).mark(Limit::Of(ARRAY_QUEUE, 1.2)).ambition(LOCK),
        evict_row::<u64>(4, items).mark(Limit::Of(ARRAY_QUEUE, 1.2)).ambition(LOCK),
        evict_row::<Bytes64>(1, items).ambition(Limit::Of(ARRAY_QUEUE, 0.75)),
        evict_row::<String>(1, items).ambition(Limit::Of(ARRAY_QUEUE, 1.2)),
        refuse_row::<u64>(1, items).mark(KANAL),
        refuse_row::<u64>(2, items)
            .mark(KANAL)
            .enter(ALONE, move || refuse::<Ours<u64>, u64>(1, items))
            .mark(Limit::Of(ALONE, 1.0)),
        refuse_row::<Bytes64>(1, items).ambition(KANAL),
    ]
}

const ARRAY_QUEUE: &str = <ArrayQueue<u64> as Peer>::NAME;
const KANAL: Limit = Limit::Of(Kanal::NAME, 1.5);
const LOCK: Limit = Limit::Of("Mutex<VecDeque>", 1.0);
const ALONE: &str = "backpressure, 1 thread";

fn evict_row<T: Payload>(producers: u64, items: u64) -> Contest {
    let about = "Threads push into a full buffer of 1000; each push displaces the oldest item, which is dropped.";
    let contest = Contest::new(format!("drop oldest, {}", who::<T>(producers)), "ns/item", about);
    enter!(contest, evict::<_, T>(producers, items):
        Evictor<T>, ArrayQueue<T>, ConcurrentQueue<T>, MutexDeque<T>, Forced<T>, Broadcast<T>)
}

fn evict<Q: Evicting<T>, T: Payload>(producers: u64, items: u64) -> f64 {
    let queue = Q::bounded(CAPACITY as usize);
    T::supply(CAPACITY).for_each(|item| queue.push(item));
    let (passes, share) = passes(producers, items);
    let pass = || {
        race((0..producers).map(|_| {
            let (queue, supply) = (queue.clone(), T::supply(share));
            move || supply.for_each(|item| queue.push(black_box(item)))
        }))
    };
    per_item(best(passes, pass), share * producers)
}

fn refuse_row<T: Payload>(producers: u64, items: u64) -> Contest {
    let about =
        "Threads push into a full buffer of 1000, which gives each item back. Of all here, only ours counts them.";
    let contest = Contest::new(format!("refused push, {}", who::<T>(producers)), "ns/item", about);
    enter!(contest, refuse::<_, T>(producers, items):
        Ours<T>, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<T>, ConcurrentQueue<T>,
        MutexDeque<T>)
    .ambition(Limit::Of(ARRAY_QUEUE, 1.0))
}

fn refuse<Q: Queue<T>, T: Payload>(producers: u64, items: u64) -> f64
where
    Q::Sender: Clone,
{
    let (mut sender, _receiver) = Q::bounded(CAPACITY as usize);
    while sender.try_push(T::default()).is_ok() {}
    let (passes, share) = passes(producers, items);
    let pass = || {
        race((0..producers).map(|_| {
            let mut sender = sender.clone();
            move || {
                for item in T::supply(share) {
                    assert!(black_box(sender.try_push(item)).is_err(), "it is full");
                }
            }
        }))
    };
    per_item(best(passes, pass), share * producers)
}

/// How many passes a round has, and how many items a producer pushes in each. Several threads have one pass: in the
/// least of several they would have run one after the other. It is long, since the scheduler takes some milliseconds to find
/// them a processor each.
fn passes(producers: u64, items: u64) -> (usize, u64) {
    if producers == 1 { (10, items / 10) } else { (1, 40 * items / producers) }
}

fn who<T: Payload>(threads: u64) -> String {
    let item = if T::NAME == u64::NAME { String::new() } else { format!(", {}", T::NAME) };
    format!("{threads} thread{}{item}", if threads == 1 { "" } else { "s" })
}
