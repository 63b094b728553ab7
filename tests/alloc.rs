//! What allocates: no push, no eviction, no flush, one `push_all`.
//!
//! Everything runs on the thread of its test, whose allocations are counted.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Flusher, Strategy};

#[path = "support/heap.rs"]
mod heap;

/// How often `code` allocates.
fn allocations<R>(code: impl FnOnce() -> R) -> u64 {
    let before = heap::calls();
    black_box(code());
    heap::calls() - before
}

type Controller = BackpressureController<u64>;

/// A controller whose flusher runs when it is polled, with a sink that answers at once.
fn rig(capacity: usize, batch: usize, strategy: Strategy<u64>) -> (Controller, Pin<Box<Flusher>>) {
    let sink = |batch: Batch<u64>| {
        drop(batch);
        std::future::ready(Ok(()))
    };
    let (c, flusher) =
        Controller::builder(capacity).strategy(strategy).fixed(batch, Duration::ZERO).build(sink).unwrap();
    (c, Box::pin(flusher))
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    tokio::task::coop::unconstrained(future).poll_now()
}

/// Polls with a waker that does nothing.
trait PollNow: Future {
    fn poll_now(self) -> Poll<Self::Output>;
}

impl<F: Future + Unpin> PollNow for F {
    fn poll_now(mut self) -> Poll<Self::Output> {
        Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Flushes all that is there.
async fn flush_all(c: &Controller, flusher: &mut Pin<Box<Flusher>>) {
    while !c.is_empty() {
        tokio::task::yield_now().await;
        poll_fn(|cx| Poll::Ready(flusher.as_mut().poll(cx).is_ready())).await;
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_fixed_at_the_build() {
    pushes_with_room_allocate_nothing().await;
    blocked_pushes_allocate_nothing_once_as_many_have_waited().await;
    evictions_and_refusals_allocate_nothing().await;
    push_all_allocates_once().await;
    a_flush_allocates_nothing_whatever_the_batch().await;
    nor_does_it_with_several_calls_at_once().await;
    s_i03_polling_a_parked_push_again_keeps_one_waker();
}

async fn pushes_with_room_allocate_nothing() {
    let (c, mut flusher) = rig(1000, 1000, Strategy::Block);
    for _ in 0..3 {
        let spent = allocations(|| {
            for i in 0..100 {
                c.try_push(i).unwrap();
                assert!(poll(pin!(c.push(i))).is_ready());
                assert!(poll(pin!(c.push_timeout(i, Duration::from_secs(1)))).is_ready());
                c.blocking_push(i).unwrap();
                c.try_reserve().unwrap().send(i);
                let Poll::Ready(Ok(permit)) = poll(pin!(c.reserve())) else { panic!("there is room") };
                permit.send(i);
                let Poll::Ready(Ok(permits)) = poll(pin!(c.reserve_many(3))) else { panic!("there is room") };
                permits.take(2).for_each(|permit| permit.send(i));
            }
        });
        assert_eq!(spent, 0, "pushes with room");
        flush_all(&c, &mut flusher).await;
    }
}

async fn blocked_pushes_allocate_nothing_once_as_many_have_waited() {
    let (c, mut flusher) = rig(4, 4, Strategy::Block);
    for round in 0..3 {
        (0..4).for_each(|i| c.try_push(i).unwrap());
        let mut pushes: [_; 8] = std::array::from_fn(|i| Box::pin(c.push(i as u64)));
        let mut reserve = Box::pin(c.reserve());
        let spent = allocations(|| {
            for push in &mut pushes {
                assert!(poll(push.as_mut()).is_pending());
            }
            assert!(poll(reserve.as_mut()).is_pending());
        });
        assert!(round == 0 || spent == 0, "{spent} allocations of blocked pushes");
        let served = allocations(|| drop(c.purge()));
        assert!(served <= 2, "{served} allocations to serve nine waiters: the purged items and the wakers");
        drop((pushes, reserve));
        flush_all(&c, &mut flusher).await;
    }
    // A wait that is given up allocates nothing, either.
    (0..4).for_each(|i| c.try_push(i).unwrap());
    let spent = allocations(|| {
        for i in 0..1000 {
            assert!(poll(pin!(c.push(i))).is_pending());
        }
    });
    assert_eq!(spent, 0, "cancelled waits");
}

async fn evictions_and_refusals_allocate_nothing() {
    let (c, _flusher) = rig(10, 10, Strategy::DropOldest);
    let spent = allocations(|| (0..1000).for_each(|i| c.try_push(i).unwrap()));
    assert_eq!((spent, c.snapshot().evicted), (0, 990), "evictions");
    let (c, _flusher) = rig(10, 10, Strategy::DropNewest);
    let spent = allocations(|| assert_eq!((0..1000).filter(|i| c.try_push(*i).is_ok()).count(), 10));
    assert_eq!(spent, 0, "refusals");
}

async fn push_all_allocates_once() {
    for items in [1, 64, 1000] {
        let (c, _flusher) = rig(1000, 1000, Strategy::Block);
        let spent = allocations(|| assert!(matches!(poll(pin!(c.push_all(0..items))), Poll::Ready(Ok(_)))));
        assert!(spent <= 1, "{spent} allocations for {items} items");
    }
}

async fn a_flush_allocates_nothing_whatever_the_batch() {
    for batch in [1, 10, 1000] {
        let (c, mut flusher) = rig(1000, batch, Strategy::Block);
        for round in 0..5 {
            let flushes = 1000 / batch as u64;
            (0..1000).for_each(|i| c.try_push(i).unwrap());
            let before = heap::calls();
            flush_all(&c, &mut flusher).await;
            let spent = heap::calls() - before;
            assert_eq!(c.snapshot().flushes.ok, (round + 1) * flushes);
            // The first round fills the slab and the spare batch.
            assert!(round == 0 || spent == 0, "{spent} allocations in {flushes} flushes of {batch}");
        }
    }
}

async fn nor_does_it_with_several_calls_at_once() {
    for (slots, batch) in [(2, 1), (4, 10), (8, 100)] {
        // All slots are taken before the first call ends.
        let sink = |batch: Batch<u64>| async move {
            tokio::task::yield_now().await;
            drop(batch);
            Ok(())
        };
        let (c, flusher) =
            Controller::builder(1000).fixed(batch, Duration::ZERO).build_concurrent(slots, sink).unwrap();
        let mut flusher = Box::pin(flusher);
        for round in 0..5 {
            let flushes = 1000 / batch as u64;
            (0..1000).for_each(|i| c.try_push(i).unwrap());
            let before = heap::calls();
            flush_all(&c, &mut flusher).await;
            let spent = heap::calls() - before;
            assert_eq!(c.snapshot().flushes.ok, (round + 1) * flushes);
            assert!(round == 0 || spent == 0, "{spent} allocations in {flushes} flushes of {batch} on {slots} slots");
        }
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn s_i03_polling_a_parked_push_again_keeps_one_waker() {
    let (c, _flusher) = rig(1, 1, Strategy::Block);
    c.try_push(0).unwrap();
    let mut push = pin!(tokio::task::coop::unconstrained(c.push(1)));
    let counts: [Arc<Wakes>; 2] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    let mut poll = |i: usize| push.as_mut().poll(&mut Context::from_waker(&wakers[i]));
    assert!(poll(0).is_pending());
    let before = heap::held();
    for i in 0..1_000_000 {
        // First the same waker, then two by turns.
        assert!(poll(usize::from(i >= 500_000) * (i % 2)).is_pending());
    }
    let growth = heap::held() - before;
    assert!(growth < 4096, "it grew by {growth} bytes");
    assert_eq!(c.purge(), [0]);
    let wakes: usize = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum();
    assert_eq!(wakes, 1, "one wake on release");
    assert!(poll(0).is_ready());
}
