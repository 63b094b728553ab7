//! What can be changed while all goes on: the capacity. A smaller one drops nothing, a larger one serves who waits.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use backpressure::{
    BackpressureController, Batch, BuildError, LossReason, PushError, ReserveError, State, Strategy, Watermarks,
};

use self::support::{Dice, GUARD, Gate, HOUR, Log, Losses, SEC, gated, idle, ok, paused, rounds, within, workers};

/// Fails at the first snapshot that does not add up, or that holds more than there are slots.
fn audit<T>(c: &BackpressureController<T>) {
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert!(snapshot.depth <= snapshot.max_capacity, "{snapshot:?}");
    assert!(snapshot.capacity <= snapshot.max_capacity, "{snapshot:?}");
    assert!(c.len() <= c.max_capacity() && c.depth() <= c.max_capacity());
    assert!((0.0..=1.0).contains(&c.pressure()));
}

#[test]
fn a_smaller_capacity_drops_nothing_and_admits_nothing_until_it_has_drained() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10).fixed(4, HOUR).spawn(gated(&gate, &log)).unwrap();
        for i in 0..10 {
            c.try_push(i).unwrap();
        }
        idle().await;
        c.set_capacity(3).unwrap();
        let told = c.explain();
        assert_eq!((told.batch_limit, told.max_batch, c.snapshot().batch_limit), (3, 3, 3), "no batch is larger");
        assert_eq!((c.capacity(), c.max_capacity(), c.len(), c.depth()), (3, 10, 10, 10));
        assert_eq!((c.state(), c.pressure()), (State::Blocked, 1.0));
        assert_eq!(c.try_push(10), Err(PushError::Full(10)));
        // The batch that is out was taken before; the others hold the capacity at most.
        for (call, left) in [6, 3, 0].into_iter().enumerate() {
            gate.let_through(1);
            idle().await;
            audit(&c);
            assert_eq!((c.depth(), c.try_push(90 + call).is_ok()), (left, left < 3), "after call {call}");
        }
        assert_eq!(log.sizes(), [4, 3, 3]);
        assert_eq!(log.items(), (0..10).collect::<Vec<_>>());
        assert_eq!(c.state(), State::Normal);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.capacity, snapshot.max_capacity, snapshot.peak_depth), (3, 10, 10));
        assert_eq!((snapshot.refused.full, snapshot.losses().total()), (3, 0));
    });
}

#[test]
fn a_larger_capacity_serves_the_producers_that_wait_in_order() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10).fixed(1, SEC).spawn(gated(&gate, &log)).unwrap();
        c.set_capacity(1).unwrap();
        c.try_push(0).unwrap();
        let waiters: Vec<_> = (1..7)
            .map(|i| {
                let c = c.clone();
                tokio::spawn(async move { c.push(i).await })
            })
            .collect();
        idle().await;
        assert_eq!(c.snapshot().waiting, 6);
        c.set_capacity(4).unwrap();
        assert_eq!((c.snapshot().waiting, c.depth(), c.try_push(9)), (3, 4, Err(PushError::Full(9))));
        idle().await;
        assert_eq!(
            waiters.iter().map(|waiter| waiter.is_finished()).collect::<Vec<_>>(),
            [true, true, true, false, false, false]
        );
        c.set_capacity(10).unwrap();
        idle().await;
        assert!(waiters.iter().all(|waiter| waiter.is_finished()));
        assert_eq!(c.try_push(7), Ok(()));
        gate.open();
        let _ = c.flush().await;
        assert_eq!(log.items(), (0..8).collect::<Vec<_>>());
        audit(&c);
    });
}

#[test]
fn a_capacity_that_cannot_be_is_refused_and_nothing_is_changed() {
    let (c, _flusher) = BackpressureController::<u32>::builder(5).build(ok(&Log::default())).unwrap();
    assert_eq!(c.set_capacity(0), Err(BuildError::CapacityZero));
    assert_eq!(c.set_capacity(6), Err(BuildError::CapacityTooLarge { max: 5 }));
    assert_eq!(c.set_capacity(usize::MAX), Err(BuildError::CapacityTooLarge { max: 5 }));
    assert_eq!((c.capacity(), c.max_capacity()), (5, 5));
    for n in [1, 5, 3, 3] {
        c.set_capacity(n).unwrap();
        assert_eq!(c.capacity(), n);
    }
}

#[test]
fn a_reservation_that_can_never_be_granted_is_told_so_and_gives_back_what_it_had() {
    paused(|| async {
        let (c, _flusher) = BackpressureController::builder(8).build(ok(&Log::default())).unwrap();
        let held: Vec<_> = (0..6).map(|_| c.try_reserve().unwrap()).collect();
        let [large, small] = [5, 3].map(|n| {
            let c = c.clone();
            tokio::spawn(async move { c.reserve_many(n).await })
        });
        idle().await;
        let item = tokio::spawn({
            let c = c.clone();
            async move { c.push(1).await }
        });
        idle().await;
        assert_eq!((c.snapshot().reserved, c.snapshot().waiting_producers), (8, 3), "it has gathered two");
        c.set_capacity(4).unwrap();
        let told = large.await.unwrap().map(|_| ());
        assert_eq!(told, Err(ReserveError::TooMany { asked: 5, capacity: 4 }));
        assert_eq!((c.snapshot().reserved, c.depth()), (6, 6), "its places are nobody's: there are too many");
        let again = c.reserve_many(5).await.map(|_| ());
        assert_eq!(again, Err(ReserveError::TooMany { asked: 5, capacity: 4 }));
        drop(held);
        let permits = small.await.unwrap().unwrap();
        item.await.unwrap().unwrap();
        assert_eq!((permits.len(), c.depth(), c.state()), (3, 4, State::Blocked));
        audit(&c);
    });
}

#[test]
fn permits_keep_their_places_and_those_above_the_capacity_are_not_handed_on() {
    paused(|| async {
        let log = Log::default();
        let (c, _flusher) = BackpressureController::builder(4).build(ok(&log)).unwrap();
        let mut permits: Vec<_> = (0..4).map(|_| c.try_reserve().unwrap()).collect();
        let waiter = tokio::spawn({
            let c = c.clone();
            async move { c.reserve().await }
        });
        idle().await;
        c.set_capacity(2).unwrap();
        permits.pop().unwrap().send(7);
        assert_eq!((c.depth(), c.len()), (4, 1), "a permit stands for a place");
        for left in [3, 2] {
            permits.pop();
            idle().await;
            assert_eq!((c.depth(), waiter.is_finished()), (left, false));
        }
        permits.pop();
        let _permit = waiter.await.unwrap().unwrap();
        assert_eq!(c.depth(), 2, "handed on: there is no more inside than the capacity");
        audit(&c);
    });
}

#[test]
fn an_eviction_above_the_capacity_displaces_one_for_one() {
    paused(|| async {
        let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
        let c = BackpressureController::builder(6)
            .strategy(Strategy::DropOldest)
            .fixed(2, HOUR)
            .on_loss(losses.hook())
            .spawn(gated(&gate, &log))
            .unwrap();
        for i in 0..6 {
            c.try_push(i).unwrap();
        }
        idle().await;
        c.set_capacity(1).unwrap();
        for i in 6..9 {
            c.try_push(i).unwrap();
            assert_eq!(c.depth(), 6);
        }
        assert_eq!(losses.items(), [2, 3, 4]);
        gate.open();
        idle().await;
        assert_eq!(log.items(), [0, 1, 5, 6, 7, 8]);
        assert_eq!(log.sizes(), [2, 1, 1, 1, 1]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.evicted, snapshot.delivered, snapshot.refused.total()), (3, 6, 0));
        audit(&c);
    });
}

#[test]
fn the_state_and_its_watchers_follow_a_change_at_once() {
    paused(|| async {
        let (c, _flusher) = BackpressureController::builder(100)
            .watermarks(Watermarks::new(0.5, 0.8).unwrap())
            .fixed(1, SEC)
            .build(ok(&Log::default()))
            .unwrap();
        let mut watch = c.watch();
        for i in 0..8 {
            c.try_push(i).unwrap();
        }
        for (capacity, expected) in [
            (100, State::Normal),
            (16, State::Elevated),
            (10, State::Critical),
            (8, State::Blocked),
            (3, State::Blocked),
            (100, State::Normal),
        ] {
            c.set_capacity(capacity).unwrap();
            assert_eq!((c.state(), watch.current()), (expected, expected), "8 of {capacity}");
        }
        assert_eq!(watch.changed().await, Some(State::Normal));
        c.set_capacity(20).unwrap();
        c.try_push(8).unwrap();
        c.try_push(9).unwrap();
        assert_eq!(c.state(), State::Elevated, "the producer that crosses the new mark says so");
    });
}

#[test]
fn a_flusher_that_sleeps_takes_what_a_smaller_capacity_makes_a_full_batch() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(100)
            .strategy(Strategy::DropNewest)
            .fixed(50, HOUR)
            .spawn(ok(&log))
            .unwrap();
        for i in 0..7 {
            c.try_push(i).unwrap();
        }
        idle().await;
        assert_eq!(log.sizes(), [0_usize; 0]);
        c.set_capacity(9).unwrap();
        idle().await;
        assert_eq!(log.sizes(), [0_usize; 0], "there is room yet");
        c.try_push(7).unwrap();
        c.try_push(8).unwrap();
        idle().await;
        assert_eq!(log.sizes(), [9]);
        for i in 9..12 {
            c.try_push(i).unwrap();
        }
        c.set_capacity(2).unwrap();
        idle().await;
        assert_eq!(log.sizes(), [9, 2], "one is left to its linger");
    });
}

#[test]
fn a_flusher_that_sleeps_learns_of_a_limit_that_no_mark_stands_for() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(100)
            .strategy(Strategy::DropNewest)
            .fixed(60, HOUR)
            .spawn(ok(&log))
            .unwrap();
        let _permits = c.reserve_many(50).await.unwrap();
        for i in 0..50 {
            c.try_push(i).unwrap();
        }
        idle().await;
        for i in 50..55 {
            c.try_push(i).unwrap();
        }
        idle().await;
        assert_eq!((log.sizes(), c.state()), (vec![50], State::Blocked), "within the margin, so no mark is above");
        c.set_capacity(57).unwrap();
        for i in 55..57 {
            c.try_push(i).unwrap();
        }
        idle().await;
        assert_eq!(log.sizes(), [50, 7], "full, though not at the level that it slept until");
    });
}

#[test]
fn an_end_comes_also_with_more_inside_than_the_capacity() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(4, HOUR).spawn(ok(&log)).unwrap();
        c.pause();
        for i in 0..10 {
            c.try_push(i).unwrap();
        }
        c.set_capacity(1).unwrap();
        let report = c.drain(SEC).await;
        assert_eq!((report.delivered(), report.leftovers.len()), (10, 0));
        c.set_capacity(10).unwrap();
        assert_eq!((c.state(), c.try_push(11)), (State::Draining, Err(PushError::Closed(11))));
        audit(&c);
    });
}

const PRODUCERS: usize = 4;
const LARGEST: usize = 64;

/// Producer and number.
type Item = (usize, u64);

/// Four threads push while the capacity changes; then all is drained. What was accepted of each, delivered, and lost.
fn storm(strategy: Strategy<Item>) -> ([u64; PRODUCERS], Vec<Item>, Vec<Item>) {
    let runtime = workers(2);
    let (delivered, losses) = (Arc::new(Mutex::new(Vec::new())), Losses::default());
    let sink = {
        let delivered = Arc::clone(&delivered);
        move |batch: Batch<Item>| {
            assert!(batch.len() <= LARGEST / 2);
            delivered.lock().unwrap().extend_from_slice(&batch);
            async {
                tokio::task::yield_now().await;
                Ok(())
            }
        }
    };
    let builder = BackpressureController::builder(LARGEST).strategy(strategy).fixed(LARGEST / 2, support::ms(1));
    let c = builder.on_loss(losses.hook()).spawn_on(runtime.handle(), sink).unwrap();
    let is_over = AtomicBool::new(false);
    let accepted = thread::scope(|scope| {
        let producers = std::array::from_fn::<_, PRODUCERS, _>(|producer| {
            let (c, is_over) = (c.clone(), &is_over);
            scope.spawn(move || {
                let mut next = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // A refused item is offered again: the numbers of those that are accepted have no gap.
                    next += u64::from(c.blocking_push((producer, next)).is_ok());
                }
                next
            })
        });
        let mut dice = Dice(7);
        for change in 0..rounds(100_000, 1_000) {
            c.set_capacity(1 + dice.up_to(LARGEST as u64 - 1) as usize).unwrap();
            audit(&c);
            if change % 4 == 0 {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        producers.map(|producer| producer.join().unwrap())
    });
    // Nobody pushes any more: once it is drained, the bound is the new capacity.
    c.set_capacity(3).unwrap();
    let _ = runtime.block_on(c.flush());
    assert_eq!(c.depth(), 0);
    c.pause();
    let permits: Vec<_> = (0..LARGEST).filter_map(|_| c.try_reserve().ok()).collect();
    assert_eq!(permits.len(), 3);
    audit(&c);
    let snapshot = c.snapshot();
    assert_eq!(snapshot.accepted, accepted.iter().sum::<u64>());
    assert!(snapshot.peak_depth <= LARGEST as u64);
    let lines = losses.lines();
    assert!(lines.iter().all(|(item, reason, _)| item.is_some() && *reason == LossReason::Evicted));
    assert_eq!(snapshot.evicted, lines.len() as u64);
    let delivered = std::mem::take(&mut *delivered.lock().unwrap());
    runtime.shutdown_background();
    (accepted, delivered, losses.items())
}

/// What is of one producer, as it came.
fn numbers(items: &[Item], producer: usize) -> Vec<u64> {
    items.iter().filter(|item| item.0 == producer).map(|item| item.1).collect()
}

#[test]
fn a_storm_that_blocks_loses_nothing_while_the_capacity_changes() {
    within(12 * GUARD, || {
        let (accepted, delivered, lost) = storm(Strategy::Block);
        assert_eq!(lost, []);
        for (producer, accepted) in accepted.into_iter().enumerate() {
            assert_eq!(numbers(&delivered, producer), (0..accepted).collect::<Vec<_>>(), "all of it, in order");
        }
    });
}

#[test]
fn a_storm_that_evicts_tells_of_each_item_while_the_capacity_changes() {
    within(12 * GUARD, || {
        let (accepted, delivered, lost) = storm(Strategy::DropOldest);
        assert!(!lost.is_empty(), "it was full at times");
        for (producer, accepted) in accepted.into_iter().enumerate() {
            let ours = numbers(&delivered, producer);
            assert!(ours.is_sorted(), "in order");
            let mut all = [ours, numbers(&lost, producer)].concat();
            all.sort_unstable();
            assert_eq!(all, (0..accepted).collect::<Vec<_>>(), "each one once, in the sink or lost");
        }
    });
}
