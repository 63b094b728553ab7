//! Producers against a consumer that never sleeps, or that looks every now and then.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::enter;
use crate::harness::{Contest, Limit, Patience, per_item, race};
use crate::options::Form;
use crate::payload::look;
use crate::peer::{Drain, Peer, Queue, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, ConcurrentQueue, Crossfire, Flume, Kanal, MutexDeque, Ours, OursEager, Rtrb, Thingbuf,
    Tokio,
};

/// Multiples of the batch: the last one is full, too, so that nothing waits for its linger.
const ITEMS: u64 = 1_000_000;
/// A pass is long, since the scheduler takes some milliseconds to find each thread a processor.
const POLLED: u64 = 4 * ITEMS;
const CAPACITY: usize = 10_000;
/// So much that it is never full, whoever pushes.
const ROOMY: usize = 100_000;
const PAUSE: Duration = Duration::from_micros(30);

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let polled = form.items(POLLED);
    vec![polling(1, polled), polling(2, polled), polling(4, polled), now_and_then_row(form.items(ITEMS))]
}

fn polling(producers: u64, items: u64) -> Contest {
    let about = "Threads push, and try again when it is full; one thread takes out what is there, again and again. \
                 Ours gives full batches of 500, and others after 5 ms; without a linger it gives what is there.";
    let name = format!("polling consumer, {producers} producer{}", if producers == 1 { "" } else { "s" });
    let contest = Contest::new(name, "ns/item", about);
    let contest = enter!(contest, poll_shared::<_>(producers, items):
        Ours<u64>, OursEager, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<u64>,
        ConcurrentQueue<u64>, MutexDeque<u64>);
    let contest = contest.mark(Limit::Of(Tokio::NAME, 0.20)).ambition(Limit::Of(Kanal::NAME, 1.0));
    if producers > 1 {
        return contest;
    }
    enter!(contest, poll_alone::<_>(items): Rtrb)
}

fn poll_shared<Q: Queue<u64>>(producers: u64, items: u64) -> f64
where
    Q::Sender: Clone,
{
    let (sender, receiver) = Q::bounded(CAPACITY);
    poll(vec![sender; producers as usize], receiver, items)
}

fn poll_alone<Q: Queue<u64>>(items: u64) -> f64 {
    let (sender, receiver) = Q::bounded(CAPACITY);
    poll(vec![sender], receiver, items)
}

fn poll<S: TryPush<u64>>(senders: Vec<S>, mut receiver: impl Drain<u64>, items: u64) -> f64 {
    let share = items / senders.len() as u64;
    let total = share * senders.len() as u64;
    let producers =
        senders.into_iter().map(|sender| Box::new(move || push_all(sender, share)) as Box<dyn FnOnce() + Send>);
    let consumer = Box::new(move || {
        let mut patience = Patience::default();
        let mut count = 0;
        while count < total {
            match receiver.drain(look) {
                0 => patience.wait(),
                some => {
                    count += some as u64;
                    patience.reset();
                }
            }
        }
    }) as Box<dyn FnOnce() + Send>;
    per_item(race(producers.chain([consumer])), total)
}

fn push_all<S: TryPush<u64>>(mut sender: S, items: u64) {
    let mut patience = Patience::default();
    for mut item in 0..items {
        while let Err(back) = sender.try_push(item) {
            item = S::item(back);
            patience.wait();
        }
        patience.reset();
    }
}

fn now_and_then_row(items: u64) -> Contest {
    let about = "One thread pushes, by whose time it goes; another takes out all that is there, every 30 us.";
    let contest = Contest::new("consumer drains every 30 us", "ns/item", about);
    enter!(contest, now_and_then::<_>(items):
        Ours<u64>, OursEager, Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<u64>,
        ConcurrentQueue<u64>, MutexDeque<u64>, Rtrb)
    .mark(Limit::Of(Tokio::NAME, 0.30))
    .ambition(Limit::Of(Rtrb::NAME, 1.0))
}

fn now_and_then<Q: Queue<u64>>(items: u64) -> f64 {
    let (sender, mut receiver) = Q::bounded(ROOMY);
    let is_over = AtomicBool::new(false);
    let mut time = Duration::ZERO;
    let producer = Box::new(|| {
        let start = Instant::now();
        push_all(sender, items);
        time = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
    }) as Box<dyn FnOnce() + Send>;
    let consumer = Box::new(|| {
        while !is_over.load(Ordering::Relaxed) {
            let next = Instant::now() + PAUSE;
            while receiver.drain(look) > 0 {}
            while Instant::now() < next {
                spin_loop();
            }
        }
    }) as Box<dyn FnOnce() + Send>;
    race([producer, consumer]);
    per_item(time, items)
}
