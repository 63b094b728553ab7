//! A storm for ThreadSanitizer: pushes, permits, evictions, waits, a slow taker, close and drain, over and over, for
//! `BACKPRESSURE_TSAN_SECONDS` (1 unless told).
//!
//! `std` is not instrumented: so there is no test harness, the flusher is driven by hand on a plain thread, and the
//! runtime whose timer it uses is never shut down. `Arc` frees behind a fence, which the sanitizer does not know: that one
//! report is to be left out, by `TSAN_OPTIONS=suppressions=$PWD/.ci/tsan.supp`. Under `--cfg backpressure_planted_race` one Release of the ring is
//! weakened, and the sanitizer has to see it.
#![allow(clippy::disallowed_methods, reason = "a storm lasts for real time")]

use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use backpressure::{BackpressureController, Batch, FlushError, Retry, Strategy};

/// Its content is read and written without atomics, so that a slot that is handed over without an order is a race.
struct Item(Box<[u64; 4]>);

impl Item {
    fn new(n: u64) -> Self {
        Self(Box::new([n, n + 1, n + 2, n + 3]))
    }

    fn check(&self) -> u64 {
        let [a, b, c, d] = *self.0;
        assert!(a + 1 == b && b + 1 == c && c + 1 == d, "torn: {a} {b} {c} {d}");
        1
    }
}

type Controller = BackpressureController<Item>;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Keeps this thread's handle for good: who drops it last is ordered by std, where the sanitizer does not look.
fn keep_handle() {
    mem::forget(thread::current());
}

#[derive(Default)]
struct Count {
    accepted: AtomicU64,
    unknown: AtomicU64,
    seen: AtomicU64,
    lost: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn producer(kind: usize, c: &Controller, count: &Count, rounds: u64) {
    for n in 0..rounds {
        let item = Item::new(n);
        let accepted = match kind {
            0 => u64::from(c.try_push(item).is_ok()),
            1 => u64::from(c.blocking_push(item).is_ok()),
            2 => block_on(c.reserve()).map_or(0, |permit| {
                permit.send(item);
                1
            }),
            3 => match block_on(c.push_all((0..5).map(|i| Item::new(n + i)))) {
                Ok(accepted) => accepted as u64,
                Err(error) => error.accepted() as u64,
            },
            4 => {
                // A wait that gives up at once.
                let mut push = Box::pin(c.push(item));
                match push.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(result) => u64::from(result.is_ok()),
                    // Cancelled, shut out, or served meanwhile.
                    Poll::Pending => {
                        add(&count.unknown, 1);
                        0
                    }
                }
            }
            _ => {
                c.snapshot().audit().unwrap();
                c.purge().iter().for_each(|item| add(&count.lost, item.check()));
                thread::yield_now();
                0
            }
        };
        add(&count.accepted, accepted);
    }
}

fn storm(strategy: Strategy<Item>, capacity: usize, is_weighed: bool, timer: &tokio::runtime::Handle) {
    let count = Arc::new(Count::default());
    let (sunk, lost) = (Arc::clone(&count), Arc::clone(&count));
    let mut calls = 0_u64;
    let sink = move |mut batch: Batch<Item>| {
        calls += 1;
        let answer = match calls % 7 {
            3 => Err(FlushError::retry("down")),
            5 => Err(FlushError::too_large("long")),
            _ => {
                batch.take().iter().for_each(|item| add(&sunk.seen, item.check()));
                Ok(())
            }
        };
        std::future::ready(answer)
    };
    let builder = Controller::builder(capacity);
    // Light enough for what is prepaid, but for one in five.
    let builder = if is_weighed {
        builder.weigher(|item: &Item| item.0[0] % 5).capacity_weight(3 * capacity as u64 + 1)
    } else {
        builder
    };
    let (c, flusher) = builder
        .strategy(strategy)
        .fixed(capacity.div_ceil(2), Duration::ZERO)
        .retry(Retry::exponential(Duration::ZERO, Duration::ZERO))
        .on_loss(move |loss| add(&lost.lost, loss.item.map_or(1, |item| item.check())))
        .build(sink)
        .unwrap();
    let handle = timer.clone();
    let flusher = thread::spawn(move || {
        keep_handle();
        let _inside = handle.enter();
        block_on(flusher).unwrap();
    });
    let threads: Vec<_> = (0..6)
        .map(|kind| {
            let (c, count) = (c.clone(), Arc::clone(&count));
            thread::spawn(move || {
                keep_handle();
                producer(kind, &c, &count, if kind == 5 { 50 } else { 300 });
            })
        })
        .collect();
    let closer = (capacity % 2 == 0).then(|| c.clone());
    if let Some(c) = closer {
        // Close in the middle of it.
        thread::yield_now();
        while c.snapshot().accepted < 200 {
            thread::yield_now();
        }
        c.close();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    c.close();
    flusher.join().unwrap();
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    let counters = [&count.accepted, &count.unknown, &count.seen, &count.lost];
    let [accepted, unknown, seen, lost] = counters.map(|n| n.load(Ordering::Relaxed));
    assert!((accepted..=accepted + unknown).contains(&snapshot.accepted), "{accepted} and {unknown}: {snapshot:?}");
    assert_eq!((snapshot.delivered, snapshot.accepted, snapshot.depth), (seen, seen + lost, 0), "{snapshot:?}");
}

/// Plain items that nobody minds: most evictions take no lock. Three words, so that they are moved word by word.
fn storm_of_the_unminded(capacity: usize, timer: &tokio::runtime::Handle) {
    const EACH: u64 = 2_000;
    let builder = BackpressureController::<[u64; 3]>::builder(capacity).strategy(Strategy::DropOldest);
    let sink = |batch: Batch<[u64; 3]>| {
        batch.iter().for_each(|item| assert_eq!([item[0], item[0]], [!item[1], item[2]], "it is whole"));
        std::future::ready(Ok(()))
    };
    let (c, flusher) = builder.fixed(capacity.div_ceil(2), Duration::ZERO).build(sink).unwrap();
    let handle = timer.clone();
    let flusher = thread::spawn(move || {
        keep_handle();
        let _inside = handle.enter();
        block_on(flusher).unwrap();
    });
    let threads: Vec<_> = (0..4)
        .map(|kind| {
            let c = c.clone();
            thread::spawn(move || {
                keep_handle();
                (0..EACH).filter(|n| c.try_push([n + kind, !(n + kind), n + kind]).is_ok()).count() as u64
            })
        })
        .collect();
    while !threads.iter().all(thread::JoinHandle::is_finished) {
        c.snapshot().audit().unwrap();
    }
    let accepted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    c.close();
    flusher.join().unwrap();
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert_eq!((snapshot.accepted, snapshot.delivered + snapshot.evicted), (accepted, accepted), "{snapshot:?}");
}

fn main() {
    // A test runner that asks for names gets none: there is one test, and it is this program.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let seconds = std::env::var("BACKPRESSURE_TSAN_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0_u64;
    while Instant::now() < end || rounds == 0 {
        for capacity in [1, 2, 3, 5, 64] {
            for strategy in [Strategy::Block, Strategy::DropOldest, Strategy::DropNewest] {
                storm(strategy.clone(), capacity, false, runtime.handle());
                storm(strategy, capacity, true, runtime.handle());
            }
            storm_of_the_unminded(capacity, runtime.handle());
        }
        rounds += 1;
    }
    // Its shutdown is in parts of std that are not instrumented.
    mem::forget(runtime);
    println!("test result: ok. 1 passed; {rounds} rounds of 35 storms");
}
