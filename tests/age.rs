//! The age of the items: what is too old is shed and nothing else is, and a queue that stands is told.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BuildError, Delivery, Fate, FlushError, FlushReason, LossReason, Retry, State,
    Strategy, WeakController,
};
use tokio::time::{Instant, advance, sleep};

use self::support::{
    Dice, Drops, Gate, HOUR, Log, Losses, SEC, Token, gated, hung, idle, ms, ok, paused, poll_once, secs,
};

/// Fails each call.
fn down(_: Batch<u64>) -> std::future::Ready<Result<(), FlushError>> {
    std::future::ready(Err(FlushError::retry("down")))
}

fn every(wait: Duration) -> Retry {
    Retry::exponential(wait, wait).without_jitter()
}

fn expired<T: Clone>(items: impl IntoIterator<Item = T>) -> Vec<support::Line<T>> {
    items.into_iter().map(|item| (Some(item), LossReason::Expired, None)).collect()
}

#[test]
fn unless_somebody_says_so_nothing_is_ever_too_old() {
    paused(|| async {
        for critical_age in [None, Some(SEC)] {
            let (gate, log) = (Gate::closed(), Log::default());
            let mut builder = BackpressureController::builder(10).fixed(1, ms(0)).flush_timeout(Duration::MAX);
            if let Some(age) = critical_age {
                builder = builder.critical_age(age);
            }
            let c = builder.spawn(gated(&gate, &log)).unwrap();
            for i in 0..10_u64 {
                c.try_push(i).unwrap();
            }
            sleep(HOUR).await;
            gate.open();
            let _ = c.flush().await;
            assert_eq!((log.items(), c.snapshot().expired), ((0..10).collect(), 0));
        }
    });
}

#[test]
fn an_age_of_zero_is_refused() {
    let build = |age: Duration| {
        let builders =
            [BackpressureController::builder(1).max_age(age), BackpressureController::builder(1).critical_age(age)];
        builders.map(|builder| builder.build(down).map(drop))
    };
    assert_eq!(build(Duration::ZERO), [Err(BuildError::AgeZero); 2]);
    assert_eq!(build(Duration::from_nanos(1)), [Ok(()); 2]);
    assert_eq!(build(Duration::MAX), [Ok(()); 2]);
    let (c, _flusher) = BackpressureController::builder(1).build(down).unwrap();
    assert_eq!(c.reconfigure(|changes| changes.max_age(Duration::ZERO)), Err(BuildError::AgeZero));
    assert_eq!(c.reconfigure(|changes| changes.critical_age(Duration::ZERO)), Err(BuildError::AgeZero));
}

/// An item that waits for the sink alone, which comes back after so long.
async fn waits_for(age: Duration) -> (Vec<u64>, Vec<support::Line<u64>>) {
    let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
    let c = BackpressureController::builder(10)
        .fixed(1, ms(0))
        .max_age(ms(500))
        .on_loss(losses.hook())
        .spawn(gated(&gate, &log))
        .unwrap();
    c.try_push(1).unwrap();
    idle().await;
    c.try_push(2).unwrap();
    sleep(age).await;
    gate.open();
    let _ = c.flush().await;
    assert_eq!(c.snapshot().audit(), Ok(()));
    (log.items(), losses.lines())
}

#[test]
fn the_limit_is_exact_for_the_first_item_of_an_empty_buffer() {
    paused(|| async {
        assert_eq!(waits_for(ms(499)).await, (vec![1, 2], vec![]));
        assert_eq!(waits_for(ms(500)).await, (vec![1], expired([2])), "what is with the sink is left alone");
    });
}

#[test]
fn no_item_is_shed_too_early_and_none_is_sent_much_too_late() {
    paused(|| async {
        const LIMIT: Duration = ms(500);
        let start = Instant::now();
        let (young, old) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (shed, sent) = (Arc::clone(&young), Arc::clone(&old));
        let c = BackpressureController::builder(10_000)
            .strategy(Strategy::DropOldest)
            .fixed(10, ms(5))
            .max_age(LIMIT)
            .on_loss(move |loss| {
                if loss.reason == LossReason::Expired {
                    shed.lock().unwrap().push(start.elapsed() - loss.item.unwrap());
                }
            })
            .spawn(move |batch: Batch<Duration>| {
                sent.lock().unwrap().extend(batch.iter().map(|at| start.elapsed() - *at));
                async move {
                    sleep(ms(100)).await;
                    drop(batch);
                    Ok(())
                }
            })
            .unwrap();
        // 1 000 come in a second, 100 leave.
        for _ in 0..5_000 {
            c.try_push(start.elapsed()).unwrap();
            sleep(ms(1)).await;
        }
        let snapshot = c.snapshot();
        assert_eq!(snapshot.audit(), Ok(()));
        assert!((3_800..4_200).contains(&snapshot.expired), "{snapshot:?}");
        let (shed, sent) = (young.lock().unwrap(), old.lock().unwrap());
        assert_eq!(shed.len() as u64, snapshot.expired);
        assert!(shed.iter().all(|age| *age >= LIMIT), "{:?}", shed.iter().min());
        // Late by a call of the sink, and by an eighth of the age.
        let oldest = sent.iter().max().unwrap();
        assert!(*oldest <= LIMIT + ms(100) + LIMIT / 8, "{oldest:?}");
        assert!(sent.iter().any(|age| *age > LIMIT - ms(150)), "it sheds no more than it must");
    });
}

#[test]
fn a_batch_is_looked_at_before_each_further_attempt() {
    paused(|| async {
        let (losses, calls) = (Losses::default(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&calls);
        let c = BackpressureController::builder(3)
            .fixed(3, ms(0))
            .max_age(ms(250))
            .retry(every(ms(100)))
            .on_loss(losses.hook())
            .spawn(move |batch| {
                counted.fetch_add(1, Ordering::Relaxed);
                down(batch)
            })
            .unwrap();
        let mut deliveries: Vec<Delivery<u64>> = Vec::new();
        for i in 0..3 {
            deliveries.push(c.push_tracked(i).await.unwrap());
        }
        sleep(ms(299)).await;
        assert_eq!((calls.load(Ordering::Relaxed), c.snapshot().expired, c.len()), (3, 0, 3), "at 0, 100 and 200 ms");
        assert_eq!(c.ages().retry_waiting, Some(ms(299)));
        sleep(ms(2)).await;
        let snapshot = c.snapshot();
        assert_eq!(
            (calls.load(Ordering::Relaxed), snapshot.expired, snapshot.depth, c.state()),
            (3, 3, 0, State::Normal)
        );
        assert_eq!((snapshot.audit(), snapshot.retried, snapshot.retry_waiting), (Ok(()), 6, 0));
        assert_eq!(losses.lines(), expired(0..3), "an age is no error of the sink");
        for mut delivery in deliveries {
            let Poll::Ready(fate) = poll_once(&mut delivery) else { panic!("it is over") };
            assert!(matches!(fate, Fate::Lost { reason: LossReason::Expired, error: None }));
        }
        c.try_push(9).unwrap();
        idle().await;
        assert_eq!(calls.load(Ordering::Relaxed), 4, "it goes on");
    });
}

#[test]
fn the_young_part_of_a_failed_batch_is_sent_again_as_another_batch() {
    paused(|| async {
        let (losses, seen) = (Losses::default(), Arc::new(Mutex::new(Vec::new())));
        let calls = Arc::clone(&seen);
        let c = BackpressureController::builder(10)
            .fixed(10, ms(200))
            .max_age(SEC)
            .retry(every(ms(850)))
            .on_loss(losses.hook())
            .spawn(move |batch: Batch<u64>| {
                calls.lock().unwrap().push((
                    batch.to_vec(),
                    batch.attempt(),
                    batch.id().part(),
                    batch.seq(0),
                    batch.lost_before(),
                ));
                let is_first = batch.attempt() == 1;
                std::future::ready(if is_first { Err(FlushError::retry("down")) } else { Ok(()) })
            })
            .unwrap();
        c.try_push(1).unwrap();
        sleep(ms(100)).await;
        c.try_push(2).unwrap();
        sleep(SEC).await;
        let seen = seen.lock().unwrap().clone();
        let short: Vec<_> =
            seen.iter().map(|(items, attempt, part, seq, _)| (items.clone(), *attempt, *part, *seq)).collect();
        assert_eq!(short, [(vec![1, 2], 1, 0, 0), (vec![2], 2, 1, 1)]);
        assert_eq!(losses.lines(), expired([1]));
        let snapshot = c.snapshot();
        assert_eq!((snapshot.audit(), snapshot.delivered, snapshot.expired, snapshot.depth), (Ok(()), 1, 1, 0));
    });
}

#[test]
fn what_is_too_old_is_shed_before_a_batch_is_formed() {
    paused(|| async {
        let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
        let c = BackpressureController::builder(100)
            .fixed(10, ms(0))
            .max_age(secs(5))
            .flush_timeout(HOUR)
            .on_loss(losses.hook())
            .spawn(gated(&gate, &log))
            .unwrap();
        (0..25_u64).for_each(|i| c.try_push(i).unwrap());
        sleep(secs(3)).await;
        (25..45).for_each(|i| c.try_push(i).unwrap());
        sleep(secs(3)).await;
        assert_eq!(c.state(), State::Critical);
        gate.let_through(1);
        idle().await;
        assert_eq!(losses.lines(), expired(10..25));
        assert_eq!((c.snapshot().in_flight, c.snapshot().buffered), (10, 10), "a whole batch of young ones");
        gate.open();
        let _ = c.flush().await;
        assert_eq!(log.calls(), [(0..10).collect::<Vec<_>>(), (25..35).collect(), (35..45).collect()]);
    });
}

#[test]
fn while_items_expire_the_state_is_critical() {
    paused(|| async {
        let sink = |batch: Batch<u64>| async move {
            sleep(ms(200)).await;
            drop(batch);
            Ok(())
        };
        let c = BackpressureController::builder(10_000).fixed(10, ms(0)).max_age(secs(2)).spawn(sink).unwrap();
        // 50 leave in a second: what is sent is young, and much is lost.
        let mut states = load(&c, &[2; 400]).await;
        let expired = c.snapshot().expired;
        assert!(expired > 100, "{expired}");
        assert_eq!(c.state(), State::Critical);
        // No more than leave: nothing is lost any more, and that shows.
        states.extend(load(&c, &[vec![0; 200], [0, 1].repeat(50)].concat()).await);
        states.dedup();
        assert_eq!(states, [State::Normal, State::Elevated, State::Critical, State::Normal]);
    });
}

#[test]
fn the_halves_of_a_batch_are_as_old_as_it_was() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let calls = log.clone();
        let c = BackpressureController::builder(4)
            .fixed(4, ms(0))
            .max_age(SEC)
            .retry(every(ms(600)))
            .on_loss(losses.hook())
            .spawn(move |batch: Batch<u64>| {
                calls.add(&batch);
                std::future::ready(Err(match batch.len() {
                    4 => FlushError::too_large("too large"),
                    _ => FlushError::retry("down"),
                }))
            })
            .unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        sleep(secs(3)).await;
        assert_eq!(log.sizes(), [4, 2, 2], "the first half twice; then both are too old");
        assert_eq!((losses.lines(), c.snapshot().audit(), c.depth()), (expired(0..4), Ok(()), 0));
    });
}

#[test]
fn the_room_of_what_is_shed_is_the_waiters() {
    paused(|| async {
        let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
        let c = BackpressureController::builder(4)
            .fixed(1, ms(0))
            .max_age(SEC)
            .on_loss(losses.hook())
            .spawn(gated(&gate, &log))
            .unwrap();
        for i in 0..4_u64 {
            c.try_push(i).unwrap();
            idle().await;
        }
        let waiters: Vec<_> = (4..8)
            .map(|i| {
                tokio::spawn({
                    let c = c.clone();
                    async move { c.push(i).await }
                })
            })
            .collect();
        // After two looks, a second apart, they are old enough for sure; the waiters' items are young.
        sleep(ms(2_500)).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        gate.let_through(1);
        idle().await;
        assert!(waiters.iter().all(|waiter| waiter.is_finished()));
        assert_eq!(losses.lines(), expired(1..4));
        assert_eq!((c.len(), c.snapshot().audit()), (4, Ok(())));
        gate.open();
        let _ = c.flush().await;
        assert_eq!(log.items(), [0, 4, 5, 6, 7]);
    });
}

#[test]
fn what_expires_during_a_drain_counts_as_expired() {
    paused(|| async {
        let losses = Losses::default();
        let c = BackpressureController::builder(10)
            .fixed(2, HOUR)
            .max_age(SEC)
            .retry(every(ms(300)))
            .on_loss(losses.hook())
            .spawn(down)
            .unwrap();
        for i in 0..5 {
            c.try_push(i).unwrap();
        }
        let start = Instant::now();
        let report = c.drain(secs(25)).await;
        assert!(start.elapsed() < secs(3), "{:?}", start.elapsed());
        assert!(report.to_string().contains("expired 5"), "a loss is in the line that is logged: {report}");
        assert_eq!((report.totals.expired, report.totals.abandoned, report.leftovers), (5, 0, vec![]));
        assert_eq!((report.totals.audit(), losses.lines()), (Ok(()), expired(0..5)));
    });
}

#[test]
fn a_partial_batch_leaves_before_it_is_too_old() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(10, HOUR).max_age(SEC).spawn(ok(&log)).unwrap();
        c.try_push(1_u64).unwrap();
        sleep(ms(499)).await;
        assert_eq!(log.items(), []);
        sleep(ms(2)).await;
        assert_eq!((log.items(), c.snapshot().expired), (vec![1], 0));
    });
}

#[test]
fn a_consumer_that_pulls_gets_nothing_that_is_too_old() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = BackpressureController::<u64>::builder(10)
            .fixed(2, ms(0))
            .max_age(SEC)
            .retry(every(ms(600)))
            .on_loss(losses.hook())
            .pull()
            .unwrap();
        c.try_push(1).unwrap();
        drop(batches.next().await.unwrap());
        sleep(ms(300)).await;
        c.try_push(2).unwrap();
        let again = batches.next().await.unwrap();
        assert_eq!((&*again, again.attempt()), (&[1][..], 2));
        drop(again);
        // The next attempt would be at 1.2 s; 2 is younger.
        let next = batches.next().await.unwrap();
        assert_eq!((&*next, next.reason()), (&[2][..], FlushReason::Linger));
        next.done();
        assert_eq!(losses.lines(), expired([1]));
        assert_eq!((c.snapshot().audit(), c.snapshot().expired, c.is_empty()), (Ok(()), 1, true));
    });
}

#[test]
fn age_can_be_set_and_lifted_while_it_runs() {
    paused(|| async {
        let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
        let c = BackpressureController::builder(100)
            .fixed(1, ms(0))
            .flush_timeout(HOUR)
            .on_loss(losses.hook())
            .spawn(gated(&gate, &log))
            .unwrap();
        (0..3_u64).for_each(|i| c.try_push(i).unwrap());
        c.reconfigure(|changes| changes.max_age(secs(2))).unwrap();
        sleep(secs(4)).await;
        assert_eq!(c.state(), State::Critical);
        c.reconfigure(|changes| changes.max_age(Duration::MAX)).unwrap();
        assert_eq!(c.state(), State::Normal);
        gate.let_through(1);
        sleep(secs(4)).await;
        assert_eq!((c.snapshot().expired, c.state()), (0, State::Normal));
        c.reconfigure(|changes| changes.max_age(secs(2))).unwrap();
        gate.open();
        let _ = c.flush().await;
        assert_eq!((log.items(), losses.lines()), (vec![0, 1], expired([2])));
    });
}

/// A sink that takes 10 items each 10 ms, with so many items put into the buffer each 10 ms for a second; the states that followed.
async fn load(c: &BackpressureController<u64>, each: &[u64]) -> Vec<State> {
    let mut states = vec![c.state()];
    for n in each {
        for i in 0..*n {
            c.try_push(i).unwrap();
        }
        sleep(ms(10)).await;
        if states.last() != Some(&c.state()) {
            states.push(c.state());
        }
    }
    states
}

fn steady(critical_age: Duration) -> BackpressureController<u64> {
    let sink = |batch: Batch<u64>| async move {
        sleep(ms(10)).await;
        drop(batch);
        Ok(())
    };
    BackpressureController::builder(100_000).fixed(10, ms(0)).critical_age(critical_age).spawn(sink).unwrap()
}

#[test]
fn a_queue_that_stands_is_told_however_large_the_buffer_is() {
    paused(|| async {
        let c = steady(ms(1_000));
        // 2 000 items are 2 s of work, and stay.
        let standing = [vec![2_000], vec![10; 400]].concat();
        assert_eq!(load(&c, &standing).await, [State::Normal, State::Elevated, State::Critical]);
        assert!(c.depth() < 5_000, "far below the low mark: {}", c.depth());
        // Without more it clears, and is told so, level by level, at the latest when nothing is inside.
        assert_eq!(load(&c, &[0; 300]).await, [State::Critical, State::Normal]);
        assert!(c.is_empty());
        let snapshot = c.snapshot();
        assert_eq!((snapshot.expired, snapshot.losses().total()), (0, 0));
        assert_eq!(snapshot.transitions.total(), 3);
    });
}

#[test]
fn a_burst_that_clears_is_not_told() {
    paused(|| async {
        let c = steady(ms(100));
        // The last of a burst wait for 90 ms, more than the mark; the buffer is empty again within the interval.
        let bursts: Vec<_> = (0..200).map(|i| if i % 20 == 0 { 90 } else { 0 }).collect();
        assert_eq!(load(&c, &bursts).await, [State::Normal]);
    });
}

#[test]
fn the_state_falls_with_the_sojourn_also_while_there_is_work() {
    paused(|| async {
        let c = steady(ms(1_000));
        load(&c, &[vec![1_300], vec![10; 200]].concat()).await;
        assert_eq!(c.state(), State::Critical);
        // Half of what the sink takes: it catches up, and is never idle.
        let mut states = load(&c, &[5; 250]).await;
        states.dedup();
        assert_eq!(states, [State::Critical, State::Elevated, State::Normal]);
        assert!(!c.is_empty());
    });
}

#[test]
fn a_sink_that_hangs_makes_the_buffer_old_and_watchers_are_told() {
    paused(|| async {
        let c = BackpressureController::builder(100)
            .fixed(1, ms(0))
            .critical_age(secs(8))
            .flush_timeout(HOUR)
            .spawn(hung)
            .unwrap();
        let mut watch = c.watch();
        c.try_push(1_u64).unwrap();
        c.try_push(2).unwrap();
        let start = Instant::now();
        assert_eq!(watch.changed().await, Some(State::Elevated));
        assert!((secs(4)..=secs(5)).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(watch.changed().await, Some(State::Critical));
        assert!((secs(8)..=secs(9)).contains(&start.elapsed()), "{:?}", start.elapsed());
        // Depth and age, whichever is worse; and in the end neither.
        (0..98).for_each(|i| c.try_push(i).unwrap());
        assert_eq!(c.state(), State::Blocked);
        drop(c.purge());
        assert_eq!(c.state(), State::Critical, "the age of the call is unknown still");
        c.close();
        assert_eq!(c.state(), State::Draining);
    });
}

#[test]
fn what_is_taken_is_old_in_the_state_before_the_sink_is_called() {
    paused(|| async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let states = Arc::clone(&seen);
        let weak = Arc::new(OnceLock::<WeakController<u64>>::new());
        let handle = Arc::clone(&weak);
        let sink = move |_: Batch<u64>| {
            let state = handle.get().and_then(WeakController::upgrade).map(|c| c.state());
            states.lock().unwrap().extend(state);
            async {
                sleep(ms(50)).await;
                Ok(())
            }
        };
        let c = BackpressureController::builder(1_000).fixed(1, ms(0)).critical_age(ms(1_000)).spawn(sink).unwrap();
        weak.set(c.downgrade()).unwrap();
        (0..40).for_each(|i| c.try_push(i).unwrap());
        assert!(c.flush().await.all_delivered());
        let calls = |state| seen.lock().unwrap().iter().filter(|seen| **seen == state).count();
        // Item n waits for 50 n ms; an interval of 100 ms has to be over in which none waited for less.
        assert_eq!([State::Normal, State::Elevated, State::Critical].map(calls), [12, 10, 18]);
    });
}

#[test]
fn an_empty_buffer_is_normal_at_once() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10)
            .fixed(1, ms(0))
            .critical_age(ms(500))
            .spawn(gated(&gate, &log))
            .unwrap();
        (0..3_u64).for_each(|i| c.try_push(i).unwrap());
        sleep(secs(3)).await;
        assert_eq!(c.state(), State::Critical);
        let mut watch = c.watch();
        gate.open();
        assert!(c.flush().await.all_delivered());
        assert_eq!((c.state(), watch.changed().await), (State::Normal, Some(State::Normal)), "I6");
    });
}

#[test]
fn ages_are_told_apart() {
    paused(|| async {
        let c = BackpressureController::builder(10)
            .fixed(1, ms(0))
            .retry(every(secs(10)))
            .spawn(|batch: Batch<u64>| async move {
                sleep(secs(2)).await;
                drop(batch);
                Err(FlushError::retry("down"))
            })
            .unwrap();
        let ages = |c: &BackpressureController<u64>| {
            let ages = c.ages();
            [ages.buffered, ages.in_flight, ages.retry_waiting].map(|age| age.map(|age| age.as_millis()))
        };
        assert_eq!(ages(&c), [None; 3]);
        c.try_push(1).unwrap();
        sleep(ms(1_500)).await;
        c.try_push(2).unwrap();
        sleep(ms(400)).await;
        assert_eq!(ages(&c), [Some(400), Some(1_900), None]);
        sleep(ms(200)).await;
        assert_eq!(ages(&c), [Some(600), None, Some(2_100)]);
        assert_eq!(c.oldest_age(), Some(ms(2_100)));
        drop(c.purge());
        assert_eq!(ages(&c), [None, None, Some(2_100)]);
    });
}

#[test]
fn age_wakes_nobody_when_nothing_is_inside() {
    paused(|| async {
        let (c, flusher) =
            BackpressureController::builder(10).max_age(ms(100)).build(|_: Batch<u64>| async { Ok(()) }).unwrap();
        let (wakes, mut flusher) = (support::Wakes::new(), Box::pin(flusher));
        c.try_push(1).unwrap();
        for _ in 0..20 {
            assert!(wakes.poll(&mut flusher).is_pending());
            advance(ms(100)).await;
        }
        assert!(c.is_empty());
        let before = wakes.count();
        advance(HOUR).await;
        assert_eq!(wakes.count(), before);
    });
}

/// Pushes, waits, failures, purges and evictions at random.
async fn storm(seed: u64) -> u64 {
    const LIMIT: Duration = ms(300);
    let mut dice = Dice(seed);
    let (drops, start, fates) = (Drops::default(), Instant::now(), Arc::new(AtomicU64::new(0)));
    let lost = Arc::clone(&fates);
    let born = Arc::new(Mutex::new(Vec::<Duration>::new()));
    let births = Arc::clone(&born);
    let sink_dice = Arc::new(Mutex::new(Dice(seed ^ 1)));
    let c = BackpressureController::builder(16)
        .strategy(if seed % 2 == 0 { Strategy::DropOldest } else { Strategy::DropNewest })
        .fixed(1 + (seed % 5) as usize, ms(seed % 40))
        .max_age(LIMIT)
        .retry(every(ms(70)))
        .on_loss(move |loss| {
            let token: Token = loss.item.unwrap();
            if loss.reason == LossReason::Expired {
                lost.fetch_add(1, Ordering::Relaxed);
                // A panic in here is caught, and counted.
                assert!(start.elapsed() - births.lock().unwrap()[token.id() as usize] >= LIMIT);
            }
        })
        .spawn(move |mut batch: Batch<Token>| {
            let dice = Arc::clone(&sink_dice);
            async move {
                let (wait, fails, marked) = {
                    let mut dice = dice.lock().unwrap();
                    (dice.up_to(60), dice.up_to(2) == 0, dice.up_to(batch.len() as u64 - 1))
                };
                sleep(ms(wait)).await;
                if fails {
                    batch.deliver(marked as usize);
                    return Err(FlushError::retry("down"));
                }
                Ok(())
            }
        })
        .unwrap();
    for _ in 0..400 {
        match dice.up_to(9) {
            0..7 => {
                let token = drops.next();
                born.lock().unwrap().push(start.elapsed());
                drop(c.try_push(token));
            }
            7 => sleep(ms(dice.up_to(100))).await,
            8 if dice.up_to(19) == 0 => drop(c.purge()),
            _ => sleep(ms(dice.up_to(7))).await,
        }
        assert_eq!(c.snapshot().audit(), Ok(()), "seed {seed}");
    }
    let report = c.drain(secs(20)).await;
    assert_eq!((report.totals.audit(), report.totals.depth), (Ok(()), 0), "seed {seed}");
    assert_eq!((report.totals.expired, report.totals.panics), (fates.load(Ordering::Relaxed), 0), "seed {seed}");
    drop(report);
    drops.assert_each_once(born.lock().unwrap().len() as u64);
    fates.load(Ordering::Relaxed)
}

#[test]
fn whatever_happens_what_is_shed_was_old_and_the_accounts_hold() {
    paused(|| async {
        let mut shed = 0;
        for seed in 0..40 {
            shed += storm(seed).await;
        }
        assert!(shed > 400, "{shed}");
    });
}

#[test]
fn producers_on_many_threads_lose_nothing_that_is_young() {
    const LIMIT: Duration = ms(20);
    support::real(60 * SEC, || async {
        let shed = Arc::new(Mutex::new(Vec::new()));
        let ages = Arc::clone(&shed);
        let c = BackpressureController::builder(4_000)
            .strategy(Strategy::DropNewest)
            .fixed(50, ms(1))
            .max_age(LIMIT)
            .on_loss(move |loss| {
                if loss.reason == LossReason::Expired {
                    let pushed: std::time::Instant = loss.item.unwrap();
                    ages.lock().unwrap().push(pushed.elapsed());
                }
            })
            .spawn(|batch: Batch<std::time::Instant>| async move {
                sleep(ms(3)).await;
                drop(batch);
                Ok(())
            })
            .unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let c = c.clone();
                std::thread::spawn(move || {
                    for i in 0..20_000 {
                        let _ = c.try_push(std::time::Instant::now());
                        if i % 50 == 0 {
                            std::thread::sleep(ms(2));
                        }
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            sleep(ms(10)).await;
            assert_eq!(c.snapshot().audit(), Ok(()));
        }
        let report = c.drain(30 * SEC).await;
        let shed = shed.lock().unwrap();
        assert_eq!((report.totals.audit(), report.totals.expired), (Ok(()), shed.len() as u64));
        assert!(shed.len() > 1_000, "{}", shed.len());
        // From before its push on: no less than since it was accepted.
        assert!(shed.iter().all(|age| *age >= LIMIT), "{:?}", shed.iter().min());
    });
}

#[test]
fn the_pace_hears_of_what_was_sent_and_not_of_what_had_expired() {
    paused(|| async {
        let sink = |batch: Batch<u64>| async move {
            sleep(ms(100)).await;
            if batch.attempt() == 1 { Err(FlushError::retry("no")) } else { Ok(()) }
        };
        let builder = BackpressureController::builder(1000).initial_batch(10).max_batch(10).max_age(SEC);
        let c = builder.retry(Retry::schedule(|| [ms(500)])).spawn(sink).unwrap();
        c.pause();
        (0..5).for_each(|i| c.try_push(i).unwrap());
        sleep(ms(600)).await;
        (5..10).for_each(|i| c.try_push(i).unwrap());
        c.resume();
        // The first five are too old when the batch is sent again, which takes from 1.2 to 1.3 s, with a backlog behind it.
        sleep(ms(550)).await;
        (10..40).for_each(|i| c.try_push(i).unwrap());
        sleep(ms(200)).await;
        assert_eq!((c.snapshot().delivered, c.snapshot().expired), (5, 5));
        let rate = c.explain().drain_rate.unwrap();
        assert!((45.0..=55.0).contains(&rate), "5 items in 100 ms: {rate}/s");
    });
}
