//! Evictions of plain items without a hook: nobody minds the one that goes, and most take no lock. They are as exact as others.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use backpressure::{Admission, BackpressureController, Batch, Flusher, Loss, Pressure, PushError, Strategy};
use support::{GUARD, rounds, within, workers};

const PRODUCERS: u64 = 4;
const CAPACITY: usize = 100;

/// A controller that nobody drives, so that what is told is what the pushes alone have done.
fn full(capacity: usize) -> (BackpressureController<u64>, Flusher) {
    let builder = BackpressureController::builder(capacity).strategy(Strategy::DropOldest);
    let (c, flusher) = builder.build(|_: Batch<u64>| async { Ok(()) }).unwrap();
    for item in 0..capacity as u64 {
        c.try_push(item).unwrap();
    }
    (c, flusher)
}

#[test]
fn each_snapshot_tells_of_each_eviction() {
    for capacity in [1, 2, 3, 7, 100, 1_000] {
        let (c, _flusher) = full(capacity);
        for n in 0..3_000 {
            assert_eq!((c.len(), c.depth()), (capacity, capacity));
            if n % 7 == 0 || n > 2_900 {
                let now = c.snapshot();
                now.audit().unwrap();
                assert_eq!((now.evicted, now.buffered, now.accepted), (n, capacity as u64, capacity as u64 + n));
            }
            c.try_push(capacity as u64 + n).unwrap();
        }
        assert_eq!(c.purge(), (3_000..3_000 + capacity as u64).collect::<Vec<_>>(), "the youngest are there, in order");
        c.try_push(0).unwrap();
        assert_eq!(c.snapshot().buffered, 1);
    }
}

/// Only the producer of the oldest item can keep the others from it, by losing its processor for ten milliseconds in the middle of
/// its push. How often is said in ARCHITECTURE.md: `BACKPRESSURE_FULL=1 cargo test --release --test unminded refused -- --nocapture`.
#[test]
fn hardly_any_is_refused() {
    const OFFERS: (u64, u64) = (3_000_000_000, 400_000);
    for producers in [2, 4] {
        let (c, _flusher) = full(1_000);
        let each = rounds(OFFERS.0, OFFERS.1) / producers;
        let offer = || (0..each).filter(|item| c.try_push(*item).is_err()).count() as u64;
        let refused: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..producers).map(|_| scope.spawn(offer)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        let evicted = each * producers - refused;
        println!("{producers} producers: {evicted} evictions, {refused} refused");
        assert_eq!((snapshot.evicted, snapshot.refused.full), (evicted, refused));
        assert!(refused <= evicted / 10_000, "{refused} of {evicted}");
    }
}

#[test]
fn whoever_else_comes_in_between_finds_a_full_buffer() {
    let (c, _flusher) = full(100);
    let push = |n: u64| (0..n).for_each(|item| c.try_push(item).unwrap());
    push(10);
    assert!(c.try_reserve().is_err());
    push(10);
    c.reconfigure(|changes| changes.strategy(Strategy::DropNewest)).unwrap();
    assert!(matches!(c.try_push(7), Err(PushError::Full(7))));
    c.reconfigure(|changes| changes.strategy(Strategy::DropOldest)).unwrap();
    push(10);
    c.set_capacity(50).unwrap();
    push(10);
    assert_eq!((c.snapshot().evicted, c.depth()), (40, 100));
    c.set_capacity(100).unwrap();
    push(10);
    c.close();
    assert!(matches!(c.try_push(7), Err(PushError::Closed(7))));
    assert_eq!(c.snapshot().evicted, 50);
}

#[test]
fn who_is_to_be_asked_is_asked_each_time() {
    let (c, _flusher) = full(8);
    let evens = Strategy::custom(
        |item: &u64, _: &Pressure| {
            if item % 2 == 0 { Admission::EvictOldest } else { Admission::Refuse }
        },
    );
    let push = |n: u64| (0..n).for_each(|item| c.try_push(item).unwrap());
    for _ in 0..3 {
        push(2);
        c.reconfigure(|changes| changes.strategy(evens.clone())).unwrap();
        for item in 0..20 {
            let pushed = c.try_push(item);
            assert!(if item % 2 == 0 { pushed.is_ok() } else { matches!(pushed, Err(PushError::Full(_))) }, "{item}");
        }
        c.reconfigure(|changes| changes.strategy(Strategy::DropOldest)).unwrap();
    }
    assert_eq!(c.snapshot().evicted, 3 * (2 + 10));
}

#[test]
fn one_that_evicts_all_the_time_leaves_the_sink_its_turn() {
    const ITEMS: u64 = 50_000;
    let delivered = within(GUARD, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let builder = BackpressureController::builder(CAPACITY).strategy(Strategy::DropOldest);
            let c = builder.spawn(|_: Batch<u64>| async { Ok(()) }).unwrap();
            for item in 0..ITEMS {
                c.push(item).await.unwrap();
            }
            c.drain(Duration::MAX).await.delivered()
        })
    });
    assert!(delivered > ITEMS / 4, "{delivered} of {ITEMS}");
}

/// Not even what a push before it has left credit for.
#[test]
fn a_push_from_inside_a_hook_does_not_evict() {
    let (other, _other_flusher) = full(100);
    (0..3).for_each(|item| other.try_push(item).unwrap());
    let (inner, refused) = (other.clone(), Arc::new(AtomicU64::new(0)));
    let told = Arc::clone(&refused);
    let builder = BackpressureController::builder(1).strategy(Strategy::DropOldest).on_loss(move |loss: Loss<u64>| {
        let back = if loss.item == Some(0) { inner.blocking_push(0) } else { inner.try_push(1) };
        told.fetch_add(u64::from(matches!(back, Err(PushError::Full(_)))), Ordering::Relaxed);
    });
    let (c, _flusher) = builder.build(|_: Batch<u64>| async { Ok(()) }).unwrap();
    (0..=50).for_each(|item| c.try_push(item).unwrap());
    assert_eq!((refused.load(Ordering::Relaxed), other.snapshot().evicted), (50, 3));
}

#[test]
fn a_storm_is_counted_in_every_snapshot() {
    within(4 * GUARD, || {
        let runtime = workers(2);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let seen = Arc::clone(&seen);
            move |batch: Batch<u64>| {
                seen.lock().unwrap().extend_from_slice(&batch);
                async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(())
                }
            }
        };
        let builder = BackpressureController::builder(CAPACITY).strategy(Strategy::DropOldest);
        let c = builder.fixed(CAPACITY / 2, support::ms(1)).spawn_on(runtime.handle(), sink).unwrap();
        let (is_over, accepted, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (is_over, accepted, refused) = (&is_over, &accepted, &refused);
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let c = c.clone();
                scope.spawn(move || {
                    for n in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let counter = if c.try_push(n * PRODUCERS + producer).is_ok() { accepted } else { refused };
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let mut last = 0;
            let least_rounds = rounds(200_000, 5_000);
            let mut round = 0;
            while round < least_rounds || last < 100_000 {
                round += 1;
                let least = accepted.load(Ordering::SeqCst);
                let now = c.snapshot();
                now.audit().unwrap();
                assert!(now.buffered + now.in_flight <= CAPACITY as u64);
                assert!(now.accepted >= least.max(last));
                last = now.accepted;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let report = runtime.block_on(c.drain(Duration::MAX));
        let seen = seen.lock().unwrap();
        assert_eq!(report.delivered(), seen.len() as u64);
        assert_eq!(report.delivered() + report.evicted(), accepted.load(Ordering::Relaxed));
        let refused = refused.load(Ordering::Relaxed);
        assert_eq!(report.totals.refused.full, refused);
        // Only while the producer of the oldest item has lost its processor for longer than others wait for it.
        assert!(refused <= report.totals.accepted / 100 + 4 * PRODUCERS, "{refused} refused");
        for producer in 0..PRODUCERS {
            assert!(seen.iter().filter(|item| **item % PRODUCERS == producer).is_sorted(), "in order");
        }
        runtime.shutdown_background();
    });
}
