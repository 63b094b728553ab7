//! Bounds by weight: exact, in flight included (I3), fair whatever an item weighs (I7), and in the accounts (I1).

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, BuildError, Builder, FlushError, FlushReason, LossReason,
    MAX_CAPACITY_WEIGHT, PushError, RefuseReason, ReserveError, Retry, Sample, State, Strategy, Weights,
};

use metrics::{Unit, with_local_recorder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use self::support::{
    Dice, GUARD, Gate, HOUR, Log, Losses, SEC, Wakes, gated, hung, idle, ms, ok, paused, poll_once, rounds, secs,
    within, workers,
};

/// A name and a weight.
type Item = (u32, u64);

fn weigh(item: &Item) -> u64 {
    item.1
}

async fn done<T: Send>(batch: Batch<T>) -> Result<(), FlushError> {
    drop(batch);
    Ok(())
}

/// One hundred places, no linger that a test waits for.
fn builder(weight: u64) -> Builder<Item> {
    BackpressureController::builder(100).fixed(50, HOUR).weigher(weigh).capacity_weight(weight)
}

fn weights<T>(c: &BackpressureController<T>) -> Weights {
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    let weights = snapshot.weights.unwrap();
    assert_eq!((c.weight(), c.capacity_weight()), (weights.depth, Some(weights.capacity)));
    weights
}

#[test]
fn s_h03_what_is_too_heavy_is_refused_at_once_and_delays_nobody() {
    paused(|| async {
        for (most, weight) in [(None, 1200), (None, 1001), (Some(600), 601), (None, u64::MAX)] {
            let c = most.into_iter().fold(builder(1000), Builder::max_item_weight).spawn(done).unwrap();
            let start = support::now();
            assert_eq!(c.push((1, weight)).await, Err(PushError::TooLarge((1, weight))));
            assert_eq!(c.push_timeout((1, weight), SEC).await, Err(PushError::TooLarge((1, weight))));
            assert_eq!(c.try_push((1, weight)), Err(PushError::TooLarge((1, weight))));
            assert!(matches!(c.push_tracked((1, weight)).await, Err(PushError::TooLarge(_))));
            c.push((2, 1)).await.unwrap();
            assert!(start.elapsed() <= ms(1));
            // Nor with a full buffer, and producers that wait.
            c.push((3, most.unwrap_or(999))).await.unwrap();
            let mut waits = Box::pin(c.push((4, 600)));
            assert!(poll_once(&mut waits).is_pending());
            assert_eq!(c.push((5, weight)).await, Err(PushError::TooLarge((5, weight))));
            assert_eq!(c.snapshot().refused.too_large, 5);
            assert_eq!(c.snapshot().waiting, 1);
            c.close();
            assert_eq!(c.try_push((6, weight)), Err(PushError::Closed((6, weight))));
        }
    });
}

#[test]
fn s_a07_an_item_that_would_overflow_a_batch_is_not_lost_with_it() {
    paused(|| async {
        let (log, fails) = (Log::default(), Arc::new(AtomicU64::new(1)));
        let (calls, left) = (log.clone(), Arc::clone(&fails));
        let c = BackpressureController::builder(100)
            .fixed(50, ms(5))
            .weigher(weigh)
            .max_batch_weight(10)
            .spawn(move |batch: Batch<Item>| {
                calls.add(&batch);
                let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                async move { if fails.is_ok() { Err(FlushError::retry("down")) } else { Ok(()) } }
            })
            .unwrap();
        c.push((1, 6)).await.unwrap();
        c.push((2, 6)).await.unwrap();
        assert_eq!(c.flush().await.delivered, 2);
        assert_eq!(log.calls(), [vec![(1, 6)], vec![(1, 6)], vec![(2, 6)]]);

        fails.store(u64::MAX, Ordering::SeqCst);
        c.push((3, 6)).await.unwrap();
        c.push((4, 6)).await.unwrap();
        let report = c.drain(SEC).await;
        assert_eq!((report.totals.delivered, report.totals.abandoned), (2, 2));
        assert_eq!(report.leftovers, [(3, 6), (4, 6)]);
        let by_weight = report.totals.weights.unwrap();
        assert_eq!((by_weight.accepted, by_weight.delivered, by_weight.abandoned, by_weight.depth), (24, 12, 12, 0));
        assert_eq!(c.push((5, 6)).await, Err(PushError::Closed((5, 6))));
        assert_eq!((c.snapshot().refused.closed, c.snapshot().buffered), (1, 0));
        weights(&c);
    });
}

#[test]
fn s_j01_a_statement_never_has_too_many_values() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::<u32>::builder(20_000)
            .fixed(10_000, ms(5))
            .weigher(|_| 12)
            .max_batch_weight(65_535)
            .spawn(ok(&log))
            .unwrap();
        assert_eq!(c.push_all(0..20_000).await.unwrap(), 20_000);
        assert_eq!(c.flush().await.delivered, 20_000);
        assert_eq!(log.sizes(), [5461, 5461, 5461, 3617]);
        assert_eq!(log.items(), (0..20_000).collect::<Vec<_>>());
    });
}

#[test]
fn the_bound_holds_for_what_is_in_flight_and_waits_for_a_retry() {
    paused(|| async {
        let c = builder(10)
            .fixed(1, HOUR)
            .retry(Retry::exponential(HOUR, HOUR))
            .spawn(|_: Batch<Item>| async { Err(FlushError::retry("down")) });
        let c = c.unwrap();
        c.push((1, 7)).await.unwrap();
        idle().await;
        let by_weight = weights(&c);
        assert_eq!((by_weight.in_flight, by_weight.buffered, c.snapshot().retry_waiting), (7, 0, 1));
        assert!(c.try_push((2, 3)).is_ok(), "to the brim");
        assert_eq!(c.try_push((3, 1)), Err(PushError::Full((3, 1))));
        assert!(c.try_push((4, 0)).is_ok(), "what weighs nothing is bounded by items alone");
        assert_eq!((weights(&c).depth, c.len()), (10, 3));
    });
}

#[test]
fn both_bounds_hold_at_once() {
    paused(|| async {
        let c = BackpressureController::builder(2).weigher(weigh).capacity_weight(100).spawn(hung).unwrap();
        assert!(c.try_push((1, 1)).is_ok() && c.try_push((2, 1)).is_ok());
        assert_eq!(c.try_push((3, 1)), Err(PushError::Full((3, 1))), "no place");
        assert_eq!((weights(&c).depth, c.snapshot().refused.full), (2, 1));
    });
}

#[test]
fn a_heavy_head_is_not_overtaken() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(10).fixed(1, HOUR).spawn(gated(&gate, &log)).unwrap();
        for item in [(1, 4), (2, 4)] {
            c.push(item).await.unwrap();
        }
        let mut waiting = Vec::new();
        for item in [(3, 6), (4, 1), (5, 2), (6, 10), (7, 0)] {
            let wakes = Wakes::new();
            let mut push = Box::pin(c.push(item));
            assert!(wakes.poll(&mut push).is_pending(), "{item:?}");
            waiting.push((push, wakes));
        }
        // Two are spare, and the light ones would fit.
        assert_eq!(c.try_push((8, 1)), Err(PushError::Full((8, 1))));
        assert_eq!(c.try_reserve_weight(0).map(drop), Err(ReserveError::Full));
        assert_eq!((c.snapshot().waiting, c.state()), (5, State::Blocked));
        let mut served = Vec::new();
        for _ in 0..5 {
            gate.let_through(1);
            idle().await;
            served.push(waiting.iter().map(|(_, wakes)| wakes.count()).sum::<usize>());
            assert!(weights(&c).depth <= 10);
        }
        // 4 + 2 | 4 + 6 | 6 + 1 + 2 | 1 + 2 | 2 | 10 + 0
        assert_eq!(served, [1, 3, 3, 3, 5], "in order, each as soon as it fits behind the one before it");
        gate.open();
        let _ = c.flush().await;
        assert_eq!(log.items().iter().map(|item| item.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        for (mut push, _) in waiting {
            assert!(poll_once(&mut push).is_ready());
        }
        assert!(c.try_push((8, 1)).is_ok(), "nobody waits any more");
        weights(&c);
    });
}

#[test]
fn a_heavy_head_that_gives_up_lets_the_next_ones_go() {
    paused(|| async {
        for by_time in [false, true] {
            let c = builder(10).spawn(hung).unwrap();
            c.push((1, 6)).await.unwrap();
            let mut heavy = Box::pin(c.push_timeout((2, 9), SEC));
            assert!(poll_once(&mut heavy).is_pending());
            idle().await;
            let (wakes, last) = (Wakes::new(), Wakes::new());
            let (mut light, mut next) = (Box::pin(c.push((3, 2))), Box::pin(c.push((4, 3))));
            assert!(wakes.poll(&mut light).is_pending() && last.poll(&mut next).is_pending());
            assert_eq!(weights(&c).depth, 6);
            if by_time {
                assert_eq!(heavy.await, Err(PushError::TimedOut((2, 9))));
            } else {
                drop(heavy);
            }
            assert_eq!((wakes.count(), last.count()), (1, 0), "what fits goes, and what does not heads the queue");
            assert!(poll_once(&mut light).is_ready());
            assert_eq!((weights(&c).depth, c.snapshot().waiting), (8, 1));
            assert_eq!(c.try_push((5, 1)), Err(PushError::Full((5, 1))));
            drop(next);
            assert!(c.try_push((5, 1)).is_ok());
            assert_eq!(c.snapshot().cancelled, 1 + u64::from(!by_time));
        }
    });
}

#[test]
fn drop_oldest_evicts_as_many_as_it_needs_and_no_more() {
    paused(|| async {
        let losses = Losses::default();
        let (c, _flusher) = builder(10).strategy(Strategy::DropOldest).on_loss(losses.hook()).build(done).unwrap();
        for item in [(1, 2), (2, 3), (3, 1), (4, 4)] {
            c.push(item).await.unwrap();
        }
        assert_eq!(c.try_push((5, 1)), Ok(()));
        assert_eq!(losses.items(), [(1, 2)]);
        c.push((6, 1)).await.unwrap();
        assert_eq!(losses.items().len(), 1, "1 was spare");
        c.push((7, 4)).await.unwrap();
        assert_eq!(losses.items()[1..], [(2, 3), (3, 1)]);
        c.push((8, 10)).await.unwrap();
        assert_eq!(losses.items().len(), 7);
        let by_weight = weights(&c);
        assert_eq!((by_weight.depth, by_weight.buffered, by_weight.evicted), (10, 10, 16));
        assert!(losses.lines().iter().all(|line| line.1 == LossReason::Evicted));
        assert_eq!((c.snapshot().evicted, c.snapshot().refused.total()), (7, 0));
        // What weighs nothing needs no victim, unless there is no place.
        c.push((9, 0)).await.unwrap();
        assert_eq!((losses.items().len(), c.len()), (7, 2));
    });
}

#[test]
fn nothing_is_evicted_in_vain() {
    paused(|| async {
        let losses = Losses::default();
        let builder = builder(10).fixed(1, HOUR).strategy(Strategy::DropOldest).on_loss(losses.hook());
        let c = builder.spawn(hung).unwrap();
        c.push((1, 5)).await.unwrap();
        idle().await;
        c.push((2, 2)).await.unwrap();
        c.push((3, 2)).await.unwrap();
        // 5 are in flight; all that is buffered and spare would be 5.
        assert_eq!(c.try_push((4, 6)), Err(PushError::Full((4, 6))));
        assert_eq!(c.push((4, 6)).await, Err(PushError::Full((4, 6))));
        assert!(losses.items().is_empty());
        assert_eq!(c.try_push((5, 5)), Ok(()));
        assert_eq!(losses.items(), [(2, 2), (3, 2)]);
        assert_eq!(weights(&c).depth, 10);
    });
}

#[test]
fn an_eviction_leaves_whoever_waits_what_is_spare() {
    paused(|| async {
        let losses = Losses::default();
        let (c, _flusher) = builder(10).strategy(Strategy::DropOldest).on_loss(losses.hook()).build(done).unwrap();
        for item in [(1, 3), (2, 3), (3, 1)] {
            c.push(item).await.unwrap();
        }
        let mut reserve = Box::pin(c.reserve_weight(4));
        assert!(poll_once(&mut reserve).is_pending());
        // 3 are spare, and the reservation's; the victim makes room for 3, of which the item needs 2.
        c.push((4, 2)).await.unwrap();
        assert_eq!(losses.items(), [(1, 3)]);
        assert!(poll_once(&mut reserve).is_ready(), "what it did not need is the reservation's");
        assert_eq!(weights(&c).depth, 6);
    });
}

#[test]
fn a_permit_holds_weight_and_gives_back_what_its_item_does_not_need() {
    paused(|| async {
        let losses = Losses::default();
        let (c, _flusher) = builder(10).max_item_weight(4).on_loss(losses.hook()).build(done).unwrap();
        let permit = c.reserve().await.unwrap();
        assert_eq!((permit.weight(), weights(&c).reserved, weights(&c).depth), (4, 4, 4));
        let small = c.reserve_weight(2).await.unwrap();
        let none = c.try_reserve_weight(0).unwrap();
        assert_eq!((weights(&c).reserved, c.snapshot().reserved), (6, 3));
        assert_eq!(c.reserve_weight(5).await.map(drop), Err(ReserveError::TooLarge { asked: 5, most: 4 }));
        assert_eq!(c.try_reserve_weight(5).map(drop), Err(ReserveError::TooLarge { asked: 5, most: 4 }));

        let mut waits = Box::pin(c.reserve_many(2));
        assert!(poll_once(&mut waits).is_pending(), "8 are needed, 4 are there");
        assert_eq!((weights(&c).reserved, c.snapshot().reserved), (10, 4), "it gathers");
        permit.send((1, 0));
        assert!(poll_once(&mut waits).is_ready(), "what was not needed, and its permits are dropped here");
        assert_eq!((weights(&c).reserved, weights(&c).depth), (2, 2));

        assert_eq!(small.try_send((2, 3)), Err(PushError::TooLarge((2, 3))));
        none.send((3, 1));
        assert_eq!(losses.lines(), [(Some((3, 1)), LossReason::Refused(RefuseReason::TooLarge), None)]);
        c.reserve_weight(2).await.unwrap().try_send((4, 2)).unwrap();
        c.reserve_weight(3).await.unwrap().release();
        let snapshot = c.snapshot();
        assert_eq!((snapshot.accepted, snapshot.refused.too_large, snapshot.reserved, snapshot.depth), (2, 2, 0, 2));
        assert_eq!((weights(&c).reserved, weights(&c).depth), (0, 2));

        assert_eq!(c.reserve_many(3).await.map(drop), Err(ReserveError::TooMany { asked: 3, capacity: 2 }));
        assert_eq!(c.reserve_many(2).await.unwrap().len(), 2);
        assert_eq!(weights(&c).depth, 2);
    });
}

#[test]
fn reservations_wait_their_turn_and_give_it_up() {
    paused(|| async {
        let (c, _flusher) = builder(10).max_item_weight(5).build(done).unwrap();
        c.push((1, 5)).await.unwrap();
        let mut first = Box::pin(c.reserve_many(2));
        assert!(poll_once(&mut first).is_pending());
        let mut push = Box::pin(c.push((2, 1)));
        assert!(poll_once(&mut push).is_pending());
        assert_eq!((weights(&c).reserved, weights(&c).depth), (5, 10));
        drop(first);
        assert!(poll_once(&mut push).is_ready());
        assert_eq!((weights(&c).reserved, weights(&c).depth), (0, 6));

        let mut last = Box::pin(c.reserve_weight(5));
        assert!(poll_once(&mut last).is_pending());
        c.close();
        assert!(matches!(poll_once(&mut last), Poll::Ready(Err(ReserveError::Closed))));
        assert_eq!((weights(&c).reserved, weights(&c).depth), (0, 6));
    });
}

#[test]
fn a_reservation_is_sent_after_close_and_abandoned_after_the_end() {
    paused(|| async {
        let losses = Losses::default();
        let c = builder(10).max_item_weight(5).on_loss(losses.hook()).spawn(done).unwrap();
        let (early, late) = (c.reserve().await.unwrap(), c.reserve().await.unwrap());
        c.close();
        early.send((1, 3));
        let report = c.drain(SEC).await;
        assert_eq!((report.totals.delivered, report.permits_out, weights(&c).reserved), (1, 1, 5));
        late.send((2, 4));
        assert_eq!(losses.lines(), [(Some((2, 4)), LossReason::Abandoned, None)]);
        assert_eq!((weights(&c).abandoned, weights(&c).depth), (4, 0));
    });
}

#[test]
fn many_are_pushed_until_one_is_too_heavy() {
    paused(|| async {
        let (c, _flusher) = builder(10).max_item_weight(6).fixed(1, HOUR).build(done).unwrap();
        let items = [(1, 2), (2, 3), (3, 7), (4, 1)];
        let error = c.push_all(items).await.unwrap_err();
        assert_eq!((error.reason(), error.accepted()), (RefuseReason::TooLarge, 2));
        assert_eq!(error.into_rest().collect::<Vec<_>>(), [(3, 7), (4, 1)]);
        assert_eq!((c.snapshot().offered, c.snapshot().refused.too_large, weights(&c).depth), (3, 1, 5));

        // What comes before it waits for room, it does not.
        let items = [(5, 5), (6, 5), (7, u64::MAX), (8, 0)];
        let mut all = Box::pin(c.push_all(items));
        assert!(poll_once(&mut all).is_pending());
        assert_eq!((c.snapshot().waiting, weights(&c).depth), (1, 10));
        assert_eq!(c.purge().len(), 3);
        let Poll::Ready(Err(error)) = poll_once(&mut all) else { panic!("all that fits is in") };
        assert_eq!((error.reason(), error.accepted()), (RefuseReason::TooLarge, 2));
        assert_eq!(error.into_rest().collect::<Vec<_>>(), [(7, u64::MAX), (8, 0)]);
        assert_eq!((c.snapshot().refused.too_large, weights(&c).depth), (2, 5));

        // Dropped meanwhile, it is cancelled with what waits.
        let mut all = Box::pin(c.push_all([(9, 5), (10, 4), (11, 3), (12, 9)]));
        assert!(poll_once(&mut all).is_pending());
        drop(all);
        assert_eq!((c.snapshot().cancelled, weights(&c).depth), (3, 10));
        c.close();
        let error = c.push_all([(13, 1), (14, 9)]).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.into_rest().count(), c.snapshot().refused.closed),
            (RefuseReason::Closed, 2, 2)
        );
    });
}

#[test]
fn an_item_is_weighed_once_whatever_becomes_of_it() {
    paused(|| async {
        let asked = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&asked);
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::<Item>::builder(10)
            .fixed(1, HOUR)
            .weigher(move |item| {
                counts.fetch_add(1, Ordering::SeqCst);
                item.1
            })
            .capacity_weight(10)
            .spawn(gated(&gate, &log))
            .unwrap();
        let asked = || asked.swap(0, Ordering::SeqCst);
        c.push((1, 8)).await.unwrap();
        assert_eq!(asked(), 1);
        assert!(c.try_push((2, 3)).is_err());
        assert!(c.push_timeout((3, 3), ms(2)).await.is_err());
        assert_eq!(asked(), 2);
        let mut waits = Box::pin(c.push((4, 3)));
        for _ in 0..3 {
            assert!(poll_once(&mut waits).is_pending());
        }
        gate.open();
        waits.await.unwrap();
        assert_eq!(asked(), 1);
        assert_eq!(c.push_all([(5, 1), (6, 10)]).await.unwrap(), 2);
        assert_eq!(asked(), 2);
        c.reserve_weight(1).await.unwrap().send((7, 1));
        assert!(c.push_tracked((8, 1)).await.unwrap().await.is_delivered());
        assert_eq!(asked(), 2);
        thread::scope(|scope| scope.spawn(|| c.blocking_push((9, 1)).unwrap()).join().unwrap());
        assert!(c.drain(SEC).await.leftovers.is_empty());
        assert_eq!(asked(), 1);
    });
}

#[test]
fn what_cannot_be_weighed_is_too_heavy() {
    paused(|| async {
        let bad = AtomicBool::new(true);
        let c = BackpressureController::<u32>::builder(10)
            .weigher(move |_| if bad.load(Ordering::SeqCst) { panic!("the test says so") } else { 1 })
            .capacity_weight(10)
            .spawn(done)
            .unwrap();
        assert_eq!(c.push(1).await, Err(PushError::TooLarge(1)));
        assert_eq!(c.try_push(2), Err(PushError::TooLarge(2)));
        let error = c.push_all([3, 4]).await.unwrap_err();
        assert_eq!((error.reason(), error.into_rest().collect::<Vec<_>>()), (RefuseReason::TooLarge, vec![3, 4]));
        assert_eq!(c.reserve().await.unwrap().try_send(5), Err(PushError::TooLarge(5)));
        let snapshot = c.snapshot();
        assert_eq!((snapshot.panics, snapshot.refused.too_large, snapshot.depth, c.weight()), (4, 4, 0, 0));
        weights(&c);
    });
}

/// What becomes of each of many pushes, of items that have so many bytes besides a name and a weight; then, what is delivered.
fn story<const BYTES: usize>(strategy: Strategy<(u64, u64, [u8; BYTES])>, seed: u64) -> (Vec<String>, Vec<u64>) {
    type Sized<const BYTES: usize> = (u64, u64, [u8; BYTES]);
    const UNWEIGHABLE: u64 = 41;
    paused(move || async move {
        let log = Log::default();
        let calls = log.clone();
        let c = BackpressureController::builder(20)
            .fixed(20, HOUR)
            .weigher(|item: &Sized<BYTES>| if item.1 == UNWEIGHABLE { panic!("the test says so") } else { item.1 })
            .capacity_weight(200)
            .strategy(strategy)
            .spawn(move |batch: Batch<Sized<BYTES>>| {
                calls.add(&batch.iter().map(|item| item.0).collect::<Vec<_>>());
                async { Ok(()) }
            })
            .unwrap();
        let mut dice = Dice(seed);
        let mut lines = Vec::new();
        for name in 0..200 {
            // Most weigh at most an equal share; some do not, and some are too heavy.
            let weight = if dice.up_to(4) == 0 { dice.up_to(250) } else { dice.up_to(10) };
            let item = (name, weight, [name as u8; BYTES]);
            let reason = if dice.up_to(2) == 0 {
                match poll_once(&mut Box::pin(c.push(item))) {
                    Poll::Ready(result) => result.err().map(|error| error.reason()),
                    Poll::Pending => Some(RefuseReason::TimedOut),
                }
            } else {
                c.try_push(item).err().map(|error| {
                    let reason = error.reason();
                    assert_eq!(error.into_inner(), item);
                    reason
                })
            };
            let weights = weights(&c);
            lines.push(format!("{weight}: {reason:?}, {} inside, {weights:?}", c.len()));
            if dice.up_to(20) == 0 {
                let _ = c.flush().await;
            }
        }
        assert!(c.drain(SEC).await.leftovers.is_empty());
        c.snapshot().audit().unwrap();
        (lines, log.items())
    })
}

/// Those that go in registers take another way in than those that go in memory.
#[test]
fn items_of_all_sizes_are_bounded_alike() {
    fn strategies<const BYTES: usize>() -> [Strategy<(u64, u64, [u8; BYTES])>; 4] {
        let asked = Strategy::custom_from(State::Normal, |item: &(u64, u64, [u8; BYTES]), _| {
            if item.0 % 3 == 0 { Admission::Refuse } else { Admission::EvictOldest }
        });
        [Strategy::Block, Strategy::DropOldest, Strategy::DropNewest, asked]
    }
    for seed in 0..rounds(200, 10) {
        for (small, large) in strategies::<0>().into_iter().zip(strategies::<48>()) {
            let told = format!("{small:?}, {seed}");
            let (small, large) = (story(small, seed), story(large, seed));
            assert_eq!(small, large, "{told}");
            assert!(small.1.len() > 20, "{told}");
        }
    }
}

#[test]
fn the_largest_weights_do_not_wrap() {
    paused(|| async {
        let (c, _flusher) = builder(MAX_CAPACITY_WEIGHT).strategy(Strategy::DropOldest).build(done).unwrap();
        for i in 0..100 {
            c.push((i, MAX_CAPACITY_WEIGHT)).await.unwrap();
            assert_eq!(weights(&c).depth, MAX_CAPACITY_WEIGHT);
        }
        let by_weight = weights(&c);
        assert_eq!(by_weight.accepted, 100 * u128::from(MAX_CAPACITY_WEIGHT));
        assert_eq!(by_weight.evicted, 99 * u128::from(MAX_CAPACITY_WEIGHT));
        assert_eq!(c.try_push((0, u64::MAX)), Err(PushError::TooLarge((0, u64::MAX))));
        assert_eq!((c.state(), c.pressure()), (State::Blocked, 1.0));
        assert!(c.reserve_weight(u64::MAX).await.is_err());
    });
}

#[test]
fn bounds_that_cannot_work_are_errors_when_built() {
    let built = |set: fn(Builder<Item>) -> Builder<Item>| {
        set(Builder::weigher(BackpressureController::builder(10), weigh)).build(done).err()
    };
    assert_eq!(built(|b| b), None);
    assert_eq!(built(|b| b.capacity_weight(0)), Some(BuildError::Weight { given: 0, most: MAX_CAPACITY_WEIGHT }));
    let above = MAX_CAPACITY_WEIGHT + 1;
    assert_eq!(
        built(|b| b.capacity_weight(MAX_CAPACITY_WEIGHT + 1)),
        Some(BuildError::Weight { given: above, most: MAX_CAPACITY_WEIGHT })
    );
    assert_eq!(built(|b| b.capacity_weight(MAX_CAPACITY_WEIGHT)), None);
    assert_eq!(built(|b| b.capacity_weight(5).max_item_weight(6)), Some(BuildError::Weight { given: 6, most: 5 }));
    assert_eq!(built(|b| b.capacity_weight(5).max_item_weight(0)), Some(BuildError::Weight { given: 0, most: 5 }));
    assert_eq!(built(|b| b.max_batch_weight(0)), Some(BuildError::Weight { given: 0, most: u64::MAX }));
    assert_eq!(built(|b| b.max_batch_weight(u64::MAX)), None);
    let without: [fn(Builder<Item>) -> Builder<Item>; 3] =
        [|b| b.capacity_weight(1), |b| b.max_item_weight(1), |b| b.max_batch_weight(1)];
    for set in without {
        assert_eq!(set(BackpressureController::builder(10)).build(done).err(), Some(BuildError::NoWeigher));
    }
}

#[test]
fn without_a_weigher_there_is_no_weight() {
    paused(|| async {
        let (c, _flusher) = BackpressureController::<Item>::builder(10).build(done).unwrap();
        c.push((1, u64::MAX)).await.unwrap();
        let permit = c.reserve_weight(u64::MAX).await.unwrap();
        assert_eq!((permit.weight(), c.weight(), c.capacity_weight(), c.snapshot().weights), (0, 0, None, None));
        permit.try_send((2, 7)).unwrap();
        assert_eq!(c.try_reserve_weight(9).unwrap().weight(), 0);
        assert_eq!(c.len(), 2);
    });
}

#[test]
fn a_batch_that_is_full_by_weight_leaves_at_once() {
    paused(|| async {
        let sink = Arc::new(std::sync::Mutex::new(Vec::new()));
        let calls = Arc::clone(&sink);
        let c = builder(1000).max_batch_weight(10).spawn(move |batch: Batch<Item>| {
            calls.lock().unwrap().push((batch.to_vec(), batch.reason()));
            async { Ok(()) }
        });
        let c = c.unwrap();
        let seen = || std::mem::take(&mut *sink.lock().unwrap());
        c.push((1, 4)).await.unwrap();
        c.push((2, 5)).await.unwrap();
        idle().await;
        assert!(seen().is_empty(), "9 of 10");
        c.push((3, 1)).await.unwrap();
        idle().await;
        assert_eq!(seen(), [(vec![(1, 4), (2, 5), (3, 1)], FlushReason::Full)]);
        c.push((4, 6)).await.unwrap();
        c.push((5, 5)).await.unwrap();
        idle().await;
        assert_eq!(seen(), [(vec![(4, 6)], FlushReason::Full)], "the next one would be too much");
        c.push((6, 500)).await.unwrap();
        idle().await;
        assert_eq!(seen(), [(vec![(5, 5)], FlushReason::Full), (vec![(6, 500)], FlushReason::Full)], "alone");
        for i in 0..50 {
            c.push((i, 0)).await.unwrap();
        }
        idle().await;
        assert_eq!(seen().len(), 1, "50 items make a batch, whatever they weigh");
        weights(&c);
    });
}

#[test]
fn a_batch_that_is_full_by_weight_leaves_at_once_however_it_came_in() {
    paused(|| async {
        let log = Log::default();
        let c = builder(1000).max_item_weight(100).max_batch_weight(10).spawn(ok(&log)).unwrap();
        assert_eq!(c.push_all([(1, 4), (2, 6), (3, 1)]).await.unwrap(), 3);
        idle().await;
        assert_eq!(log.sizes(), [2]);
        let permit = c.reserve_weight(9).await.unwrap();
        idle().await;
        assert_eq!(log.sizes(), [2], "what is reserved is in no batch");
        permit.send((4, 9));
        idle().await;
        assert_eq!(log.sizes(), [2, 2]);
        let delivery = c.push_tracked((5, 10)).await.unwrap();
        idle().await;
        assert!(delivery.await.is_delivered());
        thread::scope(|scope| scope.spawn(|| c.blocking_push((6, 11)).unwrap()).join().unwrap());
        idle().await;
        assert_eq!(log.items().iter().map(|item| item.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn what_does_not_fit_is_a_reason_to_flush() {
    paused(|| async {
        for strategy in [Strategy::DropNewest, Strategy::DropOldest, Strategy::Block] {
            let log = Log::default();
            let c = builder(10).strategy(strategy.clone()).spawn(ok(&log)).unwrap();
            c.push((1, 4)).await.unwrap();
            c.push((2, 4)).await.unwrap();
            idle().await;
            assert_eq!(log.calls().len(), 0, "its linger is an hour");
            let start = support::now();
            let _ = c.push((3, 3)).await;
            idle().await;
            assert_eq!(log.calls().len(), 1, "{strategy:?}: not full, and too full for somebody");
            assert!(start.elapsed() <= ms(2));
            c.push((4, 4)).await.unwrap();
            idle().await;
            assert_eq!(log.calls().len(), 1, "{strategy:?}: there is room again");
        }
    });
}

#[test]
fn the_state_follows_the_weight() {
    paused(|| async {
        let (c, _flusher) = builder(1000).build(done).unwrap();
        let watch = c.watch();
        let mut seen = Vec::new();
        for (item, state) in [
            ((1, 499), State::Normal),
            ((2, 1), State::Elevated),
            ((3, 299), State::Elevated),
            ((4, 1), State::Critical),
            ((5, 199), State::Critical),
            ((6, 1), State::Blocked),
        ] {
            c.push(item).await.unwrap();
            assert_eq!(c.state(), state, "{item:?}");
            seen.push(c.pressure());
        }
        assert!(seen.is_sorted() && seen[5] == 1.0 && seen[1] == 0.0, "{seen:?}");
        assert_eq!(watch.current(), State::Blocked);
        assert_eq!(c.purge().len(), 6);
        assert_eq!((c.state(), c.pressure()), (State::Normal, 0.0));
        // By items, if those are the higher share.
        for i in 0..80 {
            c.push((i, 1)).await.unwrap();
        }
        assert_eq!(c.state(), State::Critical);
    });
}

#[test]
fn a_sample_shares_places_by_weight_too() {
    paused(|| async {
        let losses = Losses::default();
        let strategy = Strategy::Sample(Sample::new().elevated(1).critical(1).seed(1));
        let (c, _flusher) = builder(10).strategy(strategy).on_loss(losses.hook()).build(done).unwrap();
        c.push((1, 5)).await.unwrap();
        c.push((2, 2)).await.unwrap();
        // 3 are spare, 5 with the youngest one's: heavier ones cannot have its place.
        for i in 0..3 {
            assert_eq!(c.try_push((100 + i, 6)), Err(PushError::Sampled((100 + i, 6))));
        }
        let kept = (0..1000).filter(|i| c.try_push((1000 + i, 5)).is_ok()).count();
        assert!(kept > 0, "some take its place");
        let by_weight = weights(&c);
        assert_eq!((by_weight.depth, c.len()), (10, 2));
        assert_eq!(c.snapshot().evicted, kept as u64);
        assert_eq!(by_weight.evicted, 2 + 5 * (kept as u128 - 1));
        assert_eq!(c.purge()[0], (1, 5));
        assert_eq!(weights(&c).depth, 0);
    });
}

#[test]
fn a_decision_sees_the_weight() {
    paused(|| async {
        let (c, _flusher) = builder(10)
            .strategy(Strategy::custom(|item: &Item, pressure| {
                assert_eq!((pressure.weight, pressure.capacity_weight, pressure.is_full()), (8, Some(10), false));
                if item.0 % 2 == 0 { Admission::EvictOldest } else { Admission::Refuse }
            }))
            .build(done)
            .unwrap();
        c.push_all([(1, 4), (3, 4)]).await.unwrap();
        assert_eq!(c.push((5, 3)).await, Err(PushError::Full((5, 3))));
        c.push((6, 4)).await.unwrap();
        assert_eq!(c.purge(), [(3, 4), (6, 4)]);
    });
}

#[test]
fn batches_are_pulled_by_weight() {
    paused(|| async {
        let (c, mut batches) = builder(20).max_batch_weight(10).pull().unwrap();
        assert_eq!(c.push_all([(1, 6), (2, 4), (3, 10)]).await.unwrap(), 3);
        let mut waits = Box::pin(c.push((4, 1)));
        assert!(poll_once(&mut waits).is_pending());
        let batch = batches.next().await.unwrap();
        assert_eq!(*batch, [(1, 6), (2, 4)]);
        assert_eq!((weights(&c).in_flight, weights(&c).depth), (10, 20));
        drop(batch);
        let batch = batches.next().await.unwrap();
        assert_eq!((batch.len(), batch.attempt(), weights(&c).depth), (2, 2, 20));
        batch.done();
        assert!(poll_once(&mut waits).is_ready());
        assert_eq!((weights(&c).delivered, weights(&c).depth), (10, 11));
    });
}

#[test]
fn single_verdicts_and_halves_settle_what_they_weigh() {
    paused(|| async {
        let c = builder(100).fixed(4, HOUR).retry(Retry::default().max_attempts(2)).spawn(
            |mut batch: Batch<Item>| async move {
                if batch.len() == 4 {
                    return Err(FlushError::too_large("halves"));
                }
                for i in 0..batch.len() {
                    match batch[i].0 {
                        1 => batch.deliver(i),
                        2 => batch.fail(i, "no"),
                        _ => batch.retry(i),
                    }
                }
                Ok(())
            },
        );
        let c = c.unwrap();
        assert_eq!(c.push_all([(1, 1), (2, 10), (3, 20), (4, 30)]).await.unwrap(), 4);
        let _ = c.flush().await;
        let by_weight = weights(&c);
        assert_eq!((by_weight.delivered, by_weight.failed, by_weight.depth), (1, 60, 0));
    });
}

#[test]
fn the_capacity_in_items_changes_beside_the_weight() {
    paused(|| async {
        let (c, _flusher) = builder(10).max_item_weight(5).build(done).unwrap();
        c.push_all([(1, 2), (2, 2), (3, 2)]).await.unwrap();
        c.set_capacity(2).unwrap();
        assert_eq!(c.try_push((4, 0)), Err(PushError::Full((4, 0))));
        let mut waits = Box::pin(c.push((5, 5)));
        assert!(poll_once(&mut waits).is_pending());
        c.set_capacity(100).unwrap();
        assert!(poll_once(&mut waits).is_pending(), "there are places, and 4 of 5 are spare");
        c.reconfigure(|changes| changes.strategy(Strategy::DropOldest)).unwrap();
        assert_eq!(c.try_push((6, 3)), Ok(()));
        assert!(poll_once(&mut waits).is_ready(), "4 went for 3: that makes 5");
        assert_eq!((c.purge(), weights(&c).depth), (vec![(3, 2), (6, 3), (5, 5)], 0));
    });
}

#[test]
fn the_bound_and_the_order_hold_in_a_storm() {
    const PRODUCERS: u32 = 4;
    let each: u32 = rounds(50_000, 5_000);
    let (log, runtime) =
        (Log::default(), tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
    let calls = log.clone();
    let c = runtime.block_on(async {
        builder(64).max_item_weight(40).max_batch_weight(50).spawn(move |batch: Batch<Item>| {
            assert!(batch.len() == 1 || batch.iter().map(weigh).sum::<u64>() <= 50);
            calls.add(&batch);
            async { Ok(()) }
        })
    });
    let c = c.unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|p| {
                let c = &c;
                scope.spawn(move || {
                    let mut dice = Dice(u64::from(p));
                    for i in 0..each {
                        let item = (p * each + i, dice.up_to(40));
                        match dice.up_to(3) {
                            0 => {
                                while c.try_push(item).is_err() {
                                    thread::yield_now()
                                }
                            }
                            _ => c.blocking_push(item).unwrap(),
                        }
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let by_weight = weights_of(&c);
                assert!(by_weight.depth <= 64);
            }
        });
        let _ = producers.into_iter().map(|producer| producer.join().unwrap()).count();
        is_over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    let report = runtime.block_on(c.drain(secs(20)));
    assert_eq!(report.totals.delivered, u64::from(PRODUCERS * each));
    assert_eq!(weights(&c).depth, 0);
    for p in 0..PRODUCERS {
        let own = |item: &&Item| item.0 / each == p;
        let items = log.items();
        assert!(items.iter().filter(own).map(|item| item.0).eq(p * each..(p + 1) * each), "in order");
    }
}

/// Without the comparison with a second look.
fn weights_of(c: &BackpressureController<Item>) -> Weights {
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    snapshot.weights.unwrap()
}

#[test]
fn gauges_in_bytes_stand_beside_those_in_items() {
    let read = |is_weighed: bool| {
        let builder = BackpressureController::<Item>::builder(100).max_batch(50);
        let builder = if is_weighed { builder.weigher(weigh).capacity_weight(20) } else { builder };
        let (c, _flusher) = builder.build(done).unwrap();
        c.try_push((1, 3)).unwrap();
        c.try_push((2, 4)).unwrap();
        let permit = c.try_reserve_weight(5).unwrap();
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        with_local_recorder(&recorder, || c.publish());
        drop(permit);
        let mut bytes = Vec::new();
        for (key, unit, _, value) in snapshotter.snapshot().into_vec() {
            let name = key.key().name();
            if let (Some(name), DebugValue::Gauge(value)) = (name.strip_suffix("_bytes"), value) {
                assert_eq!(unit, Some(Unit::Bytes));
                bytes.push((name.strip_prefix("backpressure_").unwrap().to_owned(), value.into_inner()));
            }
        }
        bytes.sort_by(|a, b| a.0.cmp(&b.0));
        bytes
    };
    let expected = [("buffer", 7.0), ("buffer_capacity", 20.0), ("depth", 12.0), ("in_flight", 0.0)];
    assert_eq!(read(true), expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(read(false), []);
}

/// Most items are light enough for a place that was paid for in advance, some are not; the weight is what is short.
#[test]
fn a_storm_of_light_and_heavy_items_is_counted_by_weight() {
    const CAPACITY: u64 = 1_000;
    const MOST: u64 = 10 * CAPACITY;
    const PRODUCERS: u64 = 4;
    within(4 * GUARD, || {
        let runtime = workers(2);
        let delivered = Arc::new(AtomicU64::new(0));
        let sink = {
            let delivered = Arc::clone(&delivered);
            move |batch: Batch<Item>| {
                delivered.fetch_add(batch.iter().map(weigh).sum(), Ordering::Relaxed);
                async {
                    tokio::time::sleep(ms(1)).await;
                    Ok(())
                }
            }
        };
        let builder = BackpressureController::builder(CAPACITY as usize).weigher(weigh).capacity_weight(MOST);
        let c = builder.strategy(Strategy::DropNewest).fixed(300, ms(1)).spawn_on(runtime.handle(), sink).unwrap();
        let (is_over, accepted) = (AtomicBool::new(false), AtomicU64::new(0));
        let (is_over, accepted) = (&is_over, &accepted);
        thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let c = c.clone();
                scope.spawn(move || {
                    let mut dice = Dice(producer + 1);
                    while !is_over.load(Ordering::Relaxed) {
                        let weight = if dice.up_to(16) == 0 { dice.up_to(500) } else { dice.up_to(11) };
                        if c.try_push((producer as u32, weight)).is_ok() {
                            accepted.fetch_add(weight, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..rounds(20_000, 2_000) {
                // The bound is among the identities.
                c.snapshot().audit().unwrap();
                assert!(c.weight() <= MOST);
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let _ = runtime.block_on(c.drain(Duration::MAX));
        let (accepted, delivered) = (accepted.load(Ordering::Relaxed), delivered.load(Ordering::Relaxed));
        let weights = weights(&c);
        assert_eq!((weights.depth, weights.accepted, weights.delivered), (0, accepted.into(), delivered.into()));
        runtime.shutdown_background();
    });
}
