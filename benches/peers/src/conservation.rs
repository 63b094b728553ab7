//! Each contestant conserves what it says, under the very harness: a loop that loses items, or that sees some twice,
//! would be fast for nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::harness::{Patience, race, two_workers};
use crate::living::{Living, Token};
use crate::peer::{Drain, Evicting, LINGER, Pipeline, Push, Queue, Settings, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, Broadcast, ChunksTimeout, ConcurrentQueue, Crossfire, EmitBatcher, EmitTruncating,
    Evictor, Flume, Forced, FuturesBatch, Interval, Kanal, Lingering, MutexDeque, MutexNotify, Ours, OursEager,
    OursEvicting, Rtrb, Thingbuf, Tokio,
};
use crate::rows::overloaded;
use crate::sink::{Sink, Work};

const ITEMS: u64 = 20_000;
/// Far above what any of it takes: whoever is stuck has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// The items of a producer carry its number.
fn item(producer: u64, number: u64) -> u64 {
    producer * ITEMS + number
}

/// Each item once, and those of a producer in their order.
fn assert_conserved(seen: &[u64], producers: u64) {
    let mut next = vec![0; producers as usize];
    for &item in seen {
        let next = &mut next[(item / ITEMS) as usize];
        assert_eq!(item % ITEMS, *next, "of producer {}", item / ITEMS);
        *next += 1;
    }
    assert!(next.iter().all(|&next| next == ITEMS), "{next:?}");
}

fn queue_conserves<Q: Queue<u64>>(senders: impl FnOnce(Q::Sender) -> Vec<Q::Sender>) {
    let (sender, mut receiver) = Q::bounded(100);
    let senders = senders(sender);
    let producers = senders.len() as u64;
    let mut seen = Vec::new();
    let consumer = Box::new(|| {
        let mut patience = Patience::default();
        while seen.len() < (producers * ITEMS) as usize {
            if receiver.drain(|batch| seen.extend_from_slice(batch)) == 0 {
                patience.wait();
            }
        }
        assert_eq!(receiver.drain(|_| {}), 0, "there is no more");
    }) as Box<dyn FnOnce() + Send>;
    let pushes = (0..).zip(senders).map(|(producer, mut sender)| {
        Box::new(move || {
            let mut patience = Patience::default();
            let start = Instant::now();
            for number in 0..ITEMS {
                let mut offered = item(producer, number);
                while let Err(back) = sender.try_push(offered) {
                    assert!(start.elapsed() < LIMIT, "nobody takes anything out");
                    offered = Q::Sender::item(back);
                    patience.wait();
                }
            }
        }) as Box<dyn FnOnce() + Send>
    });
    race(pushes.chain([consumer]));
    assert_conserved(&seen, producers);
}

macro_rules! queues {
    ($($name:ident: $peer:ty),+ $(,)?) => {
        mod queue {
            use super::*;
            $(
                #[test]
                fn $name() {
                    queue_conserves::<$peer>(|sender| vec![sender; 3]);
                }
            )+

            #[test]
            fn rtrb() {
                queue_conserves::<Rtrb>(|sender| vec![sender]);
            }
        }
    };
}

queues! {
    ours: Ours<u64>,
    ours_eager: OursEager,
    tokio: Tokio,
    kanal: Kanal,
    flume: Flume,
    crossfire: Crossfire,
    async_channel: AsyncChannel,
    thingbuf: Thingbuf,
    array_queue: ArrayQueue<u64>,
    concurrent_queue: ConcurrentQueue<u64>,
    mutex: MutexDeque<u64>,
}

/// From tasks, then from threads; with a linger and without.
fn pipeline_conserves<P: Pipeline<u64> + 'static>(lingers: &[Duration]) {
    for &linger in lingers {
        for is_threads in [false, true] {
            pipeline_conserves_from::<P>(Settings { capacity: 100, batch: 30, linger }, is_threads);
        }
    }
}

fn pipeline_conserves_from<P: Pipeline<u64> + 'static>(settings: Settings, is_threads: bool) {
    const PRODUCERS: u64 = 3;
    let runtime = two_workers();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let see = Arc::clone(&seen);
    let sink = Sink::new(Work::Yield, move |batch: &[u64]| see.lock().extend_from_slice(batch));
    let inside = runtime.enter();
    let pipeline = P::start(settings, sink);
    drop(inside);
    if is_threads {
        race((0..PRODUCERS).map(|producer| {
            let mut push = pipeline.sender().into_blocking();
            move || (0..ITEMS).for_each(|number| push(item(producer, number)))
        }));
    } else {
        let tasks = (0..PRODUCERS).map(|producer| {
            let sender = pipeline.sender();
            runtime.spawn(async move {
                for number in 0..ITEMS {
                    assert!(sender.push(item(producer, number)).await.is_ok(), "it is open, and there is room in time");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            runtime.block_on(task).expect("no panic");
        }
    }
    let end = runtime.block_on(async { timeout(LIMIT, pipeline.finish()).await });
    assert!(end.is_ok(), "the sink has not seen all");
    assert_conserved(&seen.lock(), PRODUCERS);
}

macro_rules! pipelines {
    ($($name:ident: $peer:ty, $lingers:expr);+ $(;)?) => {
        mod pipeline {
            use super::*;
            $(
                #[test]
                fn $name() {
                    pipeline_conserves::<$peer>($lingers);
                }
            )+
        }
    };
}

const BOTH: &[Duration] = &[Duration::ZERO, LINGER];

pipelines! {
    ours: Ours<u64>, BOTH;
    tokio: Lingering<u64, Tokio>, BOTH;
    // Not with a linger, for the reason that its file gives.
    kanal: Lingering<u64, Kanal>, &[Duration::ZERO];
    flume: Lingering<u64, Flume>, BOTH;
    crossfire: Lingering<u64, Crossfire>, BOTH;
    async_channel: Lingering<u64, AsyncChannel>, BOTH;
    thingbuf: Lingering<u64, Thingbuf>, BOTH;
    mutex: Lingering<u64, MutexNotify>, BOTH;
    emit_batcher: EmitBatcher<u64>, &[LINGER];
    interval: Interval<u64>, &[LINGER];
    chunks_timeout: ChunksTimeout<u64>, &[LINGER];
    futures_batch: FuturesBatch<u64>, &[LINGER];
}

/// Ten threads displace one item for each that they push, no more and no less.
fn evicting_holds_the_youngest<Q: Evicting<Token>>() {
    const CAPACITY: usize = 64;
    let living = Arc::new(Living::default());
    let queue = Q::bounded(CAPACITY);
    race((0..10).map(|_| {
        let (queue, living) = (queue.clone(), Arc::clone(&living));
        move || (0..1000).for_each(|_| queue.push(Token::new(&living)))
    }));
    assert_eq!(living.now(), CAPACITY as i64);
    drop(queue);
    assert_eq!(living.now(), 0);
}

#[test]
fn evicting_queues_hold_the_youngest() {
    evicting_holds_the_youngest::<Evictor<Token>>();
    evicting_holds_the_youngest::<ArrayQueue<Token>>();
    evicting_holds_the_youngest::<ConcurrentQueue<Token>>();
    evicting_holds_the_youngest::<MutexDeque<Token>>();
    evicting_holds_the_youngest::<Forced<Token>>();
    evicting_holds_the_youngest::<Broadcast<Token>>();
}

/// What an overload loses, the contestant tells, but for the one that is there because it does not.
#[test]
fn losses_are_told() {
    let silent = |figures: Vec<f64>| figures[0];
    let span = Duration::from_millis(50);
    for figures in [overloaded::<Ours<Token>>(span), overloaded::<OursEvicting<Token>>(span)] {
        assert_eq!(figures, [0.0, 0.0]);
    }
    assert_eq!(silent(overloaded::<Lingering<Token, Tokio>>(span)), 0.0);
    assert_eq!(silent(overloaded::<Lingering<Token, Flume>>(span)), 0.0);
    assert_eq!(silent(overloaded::<Lingering<Token, Crossfire>>(span)), 0.0);
    assert_eq!(silent(overloaded::<Lingering<Token, AsyncChannel>>(span)), 0.0);
    assert_eq!(silent(overloaded::<Lingering<Token, MutexNotify>>(span)), 0.0);
    assert_eq!(silent(overloaded::<EmitBatcher<Token>>(span)), 0.0);
    assert!(silent(overloaded::<EmitTruncating<Token>>(span)) > 0.0);
}
