//! Wrong settings, wrong places and wrong moments: a typed error or a documented answer, never a hang, never a loss.

mod support;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, BuildError, DriveError, FlushError, LossReason, MAX_CAPACITY, Pressure,
    PushError, RefuseReason, ReserveError, Retry, Strategy, WeakController,
};

use self::support::{
    Answer, Drops, GUARD, Gate, HOUR, Log, Losses, SEC, Token, gated, hung, idle, ids, ms, now, ok, paused, poll_once,
    within, workers,
};

fn sink<T>(batch: Batch<T>) -> std::future::Ready<Result<(), FlushError>> {
    drop(batch);
    std::future::ready(Ok(()))
}

fn builder(capacity: usize) -> backpressure::Builder<u32> {
    BackpressureController::builder(capacity)
}

#[test]
fn wrong_settings_are_typed_errors_when_built() {
    type Build = backpressure::Builder<u32>;
    let wrong: [(Build, BuildError); 15] = [
        (builder(0), BuildError::CapacityZero),
        (builder(0).max_batch(1), BuildError::CapacityZero),
        (builder(MAX_CAPACITY + 1), BuildError::CapacityTooLarge { max: MAX_CAPACITY }),
        (builder(usize::MAX), BuildError::CapacityTooLarge { max: MAX_CAPACITY }),
        (builder(10).max_batch(0), BuildError::BatchZero),
        (builder(10).fixed(0, SEC), BuildError::BatchZero),
        (builder(10).max_batch(11), BuildError::BatchAboveCapacity { batch: 11, capacity: 10 }),
        (builder(10).fixed(usize::MAX, SEC), BuildError::BatchAboveCapacity { batch: usize::MAX, capacity: 10 }),
        (builder(10).flush_timeout(Duration::ZERO), BuildError::FlushTimeoutZero),
        (builder(10).max_age(Duration::ZERO), BuildError::AgeZero),
        (builder(10).critical_age(Duration::ZERO), BuildError::AgeZero),
        (builder(10).max_delay(Duration::ZERO), BuildError::AgeZero),
        (builder(10).retry(Retry::default().factor(0.5)), BuildError::RetryFactor(0.5)),
        (builder(10).retry(Retry::default().factor(f64::INFINITY)), BuildError::RetryFactor(f64::INFINITY)),
        (builder(10).retry(Retry::default().max_attempts(0)), BuildError::RetryAttemptsZero),
    ];
    for (builder, error) in wrong {
        let shown = format!("{builder:?}");
        assert_eq!(builder.build(sink).err(), Some(error), "{shown}");
        assert!(!error.to_string().is_empty());
    }
    let nan = builder(10).retry(Retry::default().factor(f64::NAN)).build(sink).err();
    assert!(matches!(nan, Some(BuildError::RetryFactor(factor)) if factor.is_nan()));
    let largest = builder(MAX_CAPACITY).build(sink).map(|(c, _flusher)| c.capacity());
    assert_eq!(largest.ok(), Some(MAX_CAPACITY));
}

#[test]
fn memory_that_cannot_be_had_is_a_typed_error() {
    // 2^48 bytes: more than a process can map.
    let vast = BackpressureController::<[u8; 1 << 24]>::builder(MAX_CAPACITY).build(sink);
    assert_eq!(vast.err(), Some(BuildError::OutOfMemory));
}

#[test]
fn a_flusher_in_the_wrong_place_says_so_and_may_be_polled_again_elsewhere() {
    let log = Log::default();
    let (c, mut flusher) = builder(10).fixed(2, ms(1)).build(ok(&log)).unwrap();
    for i in 0..4 {
        c.try_push(i).unwrap();
    }
    assert_eq!(poll_once(&mut flusher), Poll::Ready(Err(DriveError::NoRuntime)));
    let flusher = within(GUARD, move || {
        let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(timeless.block_on(&mut flusher), Err(DriveError::NoTimer));
        flusher
    });
    assert_eq!((c.snapshot().buffered, c.is_closed(), log.items().len()), (4, false, 0));
    let report = paused(move || async move {
        let task = tokio::spawn(flusher);
        idle().await;
        let report = c.drain(SEC).await;
        assert_eq!(task.await.unwrap(), Ok(()));
        report
    });
    assert_eq!((report.delivered(), report.is_clean()), (4, true));
    assert_eq!(log.items(), [0, 1, 2, 3]);
}

#[test]
fn a_flusher_that_has_run_says_so_too_and_loses_nothing() {
    let log = Log::default();
    let (c, mut flusher) = builder(10).fixed(2, HOUR).build(ok(&log)).unwrap();
    let runtime = workers(1);
    runtime.block_on(async { assert!(poll_once(&mut flusher).is_pending()) });
    for i in 0..5 {
        c.try_push(i).unwrap();
    }
    assert_eq!(poll_once(&mut flusher), Poll::Ready(Err(DriveError::NoRuntime)));
    let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(timeless.block_on(async { poll_once(&mut flusher) }), Poll::Ready(Err(DriveError::NoTimer)));
    assert_eq!((c.snapshot().abandoned, c.is_closed()), (0, false));
    let report = within(GUARD, move || {
        runtime.block_on(async move {
            tokio::spawn(flusher);
            c.drain(SEC).await
        })
    });
    assert_eq!((report.delivered(), report.is_clean()), (5, true));
    assert_eq!(log.items(), [0, 1, 2, 3, 4]);
}

#[test]
fn after_close_every_kind_of_push_gives_the_same_item_back() {
    let strategies: [Strategy<Token>; 5] = [
        Strategy::Block,
        Strategy::BlockFor(SEC),
        Strategy::DropOldest,
        Strategy::DropNewest,
        Strategy::Custom(Arc::new(|_: &Token, _: &Pressure| Admission::EvictOldest)),
    ];
    for (strategy, full) in strategies.into_iter().flat_map(|strategy| [(strategy.clone(), false), (strategy, true)]) {
        paused(move || async move {
            let tokens = Drops::default();
            let (c, flusher) = BackpressureController::builder(2).strategy(strategy).build(sink).unwrap();
            let inside = if full { 2 } else { 0 };
            for _ in 0..inside {
                c.try_push(tokens.next()).unwrap();
            }
            c.close();
            let next = tokens.next();
            let back = |answer: Result<(), PushError<Token>>| match answer {
                Err(PushError::Closed(token)) => token,
                other => panic!("{other:?}"),
            };
            let next = back(c.try_push(next));
            let next = back(c.push(next).await);
            let next = back(c.push_timeout(next, SEC).await);
            let next = back(c.push_timeout(next, Duration::ZERO).await);
            let next = back(c.blocking_push(next));
            let next = back(c.blocking_push_timeout(next, SEC));
            assert_eq!(next.id(), inside);
            assert_eq!(c.reserve().await.err(), Some(ReserveError::Closed));
            assert_eq!(c.try_reserve().err(), Some(ReserveError::Closed));
            assert_eq!(c.reserve_many(2).await.err(), Some(ReserveError::Closed));
            let many: Vec<_> = (0..200).map(|_| tokens.next()).collect();
            let error = c.push_all(many).await.unwrap_err();
            assert_eq!((error.reason(), error.accepted()), (RefuseReason::Closed, 0));
            let rest: Vec<_> = error.into_rest().collect();
            assert_eq!(ids(&rest), (inside + 1..inside + 201).collect::<Vec<_>>());
            let snapshot = c.snapshot();
            // Six pushes, and the 64 that push_all had pulled.
            assert_eq!((snapshot.refused.closed, snapshot.accepted), (70, inside));
            snapshot.audit().unwrap();
            drop((next, rest, c, flusher));
            tokens.assert_each_once(inside + 201);
        });
    }
}

#[test]
fn a_push_all_that_is_shut_out_half_way_gives_the_rest_back_in_order() {
    paused(|| async {
        let tokens = Drops::default();
        let (c, flusher) = BackpressureController::builder(100).build(sink).unwrap();
        let many: Vec<_> = (0..300).map(|_| tokens.next()).collect();
        let push = tokio::spawn({
            let c = c.clone();
            async move { c.push_all(many).await }
        });
        idle().await;
        assert_eq!((c.len(), c.snapshot().waiting), (100, 28));
        c.close();
        let error = push.await.unwrap().unwrap_err();
        assert_eq!((error.reason(), error.accepted()), (RefuseReason::Closed, 100));
        let rest: Vec<_> = error.into_rest().collect();
        assert_eq!(ids(&rest), (100..300).collect::<Vec<_>>());
        assert_eq!(c.snapshot().refused.closed, 28);
        c.snapshot().audit().unwrap();
        drop((rest, c, flusher));
        tokens.assert_each_once(300);
    });
}

#[test]
fn a_hook_that_panics_harms_nobody() {
    paused(|| async {
        let tokens = Drops::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let hook_calls = Arc::clone(&calls);
        let c = BackpressureController::builder(2)
            .fixed(1, HOUR)
            .strategy(Strategy::DropOldest)
            .on_loss(move |loss| {
                hook_calls.fetch_add(1, Ordering::Relaxed);
                panic!("the hook, for {:?}", loss.reason);
            })
            .spawn(|_: Batch<Token>| async {
                tokio::time::sleep(ms(10)).await;
                Err(FlushError::permanent("never"))
            })
            .unwrap();
        for _ in 0..5 {
            // Evicts, on the producer.
            c.push(tokens.next()).await.unwrap();
            idle().await;
        }
        // Fails, on the flusher.
        tokio::time::sleep(SEC).await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.evicted + snapshot.failed, snapshot.depth), (5, 0));
        assert!(snapshot.evicted > 0 && snapshot.failed > 0);
        assert_eq!((snapshot.panics, calls.load(Ordering::Relaxed)), (5, 5));
        // Abandoned, on whoever drops the flusher.
        c.pause();
        c.push(tokens.next()).await.unwrap();
        assert!(poll_once(&mut Box::pin(c.drain(Duration::ZERO))).is_pending());
        idle().await;
        assert_eq!((c.snapshot().abandoned, c.snapshot().panics), (1, 6));
        c.snapshot().audit().unwrap();
        drop(c);
        tokens.assert_each_once(6);
    });
}

/// Gives `good` tokens, then panics, then would go on.
struct PanicsAfter(u64, Drops);

impl Iterator for PanicsAfter {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        assert!(self.0 > 0, "the iterator");
        self.0 -= 1;
        Some(self.1.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[test]
fn an_iterator_that_panics_has_pushed_what_it_gave_before() {
    for good in [0, 1, 63, 64, 65, 130] {
        let tokens = Drops::default();
        let (c, flusher) = BackpressureController::builder(200).build(sink).unwrap();
        let mut push = Box::pin(c.push_all(PanicsAfter(good, tokens.clone())));
        let panic = catch_unwind(AssertUnwindSafe(|| poll_once(&mut push))).expect_err("it goes on in the producer");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the iterator"));
        drop(push);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.accepted, snapshot.cancelled, snapshot.offered), (good, 0, good));
        assert_eq!(ids(&c.purge()), (0..good).collect::<Vec<_>>());
        c.snapshot().audit().unwrap();
        drop(flusher);
        tokens.assert_each_once(good);
    }
}

#[test]
fn an_iterator_with_a_wrong_or_panicking_hint_is_pushed_all_the_same() {
    type Give = fn() -> (usize, Option<usize>);
    struct Hint(u32, Give);
    impl Iterator for Hint {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            self.0 = self.0.checked_sub(1)?;
            Some(self.0)
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.1)()
        }
    }
    let hints: [Give; 4] =
        [|| (0, Some(0)), || (usize::MAX, Some(usize::MAX)), || (usize::MAX, None), || panic!("the hint")];
    for hint in hints {
        let (c, _flusher) = builder(100).build(sink).unwrap();
        let accepted = futures::executor::block_on(c.push_all(Hint(100, hint)));
        assert_eq!(accepted.unwrap(), 100);
        assert_eq!(c.purge(), (0..100).rev().collect::<Vec<_>>());
    }
}

#[test]
fn a_strategy_that_panics_refuses() {
    paused(|| async {
        let tokens = Drops::default();
        let (c, flusher) = BackpressureController::builder(1)
            .strategy(Strategy::Custom(Arc::new(|_: &Token, _: &Pressure| -> Admission { panic!("the strategy") })))
            .build(sink)
            .unwrap();
        c.push(tokens.next()).await.unwrap();
        let back = |answer: Result<(), PushError<Token>>| match answer {
            Err(PushError::Full(token)) => token,
            other => panic!("{other:?}"),
        };
        let token = back(c.push(tokens.next()).await);
        let token = back(c.try_push(token));
        let token = back(c.blocking_push(token));
        let token = back(c.push_timeout(token, SEC).await);
        let error = c.push_all([token, tokens.next()]).await.unwrap_err();
        assert_eq!((error.reason(), error.accepted()), (RefuseReason::Full, 0));
        assert_eq!(ids(&error.into_rest().collect::<Vec<_>>()), [1, 2]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.panics, snapshot.refused.full, snapshot.accepted), (5, 6, 1));
        snapshot.audit().unwrap();
        // With room it is not asked.
        assert_eq!(c.purge().len(), 1);
        c.push(tokens.next()).await.unwrap();
        drop((c, flusher));
        tokens.assert_each_once(4);
    });
}

/// Runs `inside` in the sink of a full controller of four with batches of two, and returns what it says.
fn in_the_sink_of_a_full_one<R: Send + 'static>(
    inside: impl Fn(BackpressureController<u32>) -> Pin<Box<dyn Future<Output = R> + Send>> + Send + 'static,
) -> (R, backpressure::DrainReport<u32>) {
    paused(move || async move {
        let me = Arc::new(Mutex::new(None::<WeakController<u32>>));
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let c = builder(4)
            .fixed(2, ms(1))
            .spawn({
                let me = Arc::clone(&me);
                let mut is_first = true;
                move |batch: Batch<u32>| -> Answer {
                    let c = me.lock().unwrap().as_ref().and_then(WeakController::upgrade);
                    let (Some(c), true) = (c, std::mem::take(&mut is_first)) else {
                        return Box::pin(std::future::ready(Ok(())));
                    };
                    let (inside, sender) = (inside(c), sender.clone());
                    Box::pin(async move {
                        let _ = sender.send(inside.await);
                        drop(batch);
                        Ok(())
                    })
                }
            })
            .unwrap();
        *me.lock().unwrap() = Some(c.downgrade());
        c.push_all(0..4).await.unwrap();
        let answer = tokio::time::timeout(GUARD, receiver.recv()).await.expect("no hang").unwrap();
        let report = c.drain(SEC).await;
        assert!(report.is_clean());
        assert_eq!((report.delivered(), report.totals.flushes.timed_out), (4, 0));
        report.totals.audit().unwrap();
        (answer, report)
    })
}

#[test]
fn a_sink_that_would_wait_for_itself_is_told() {
    let (answer, report) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.push(9).await }));
    assert_eq!((answer, report.totals.refused.would_deadlock), (Err(PushError::WouldDeadlock(9)), 1));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.push_timeout(9, HOUR).await }));
    assert_eq!(answer, Err(PushError::WouldDeadlock(9)));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.blocking_push(9) }));
    assert_eq!(answer, Err(PushError::WouldDeadlock(9)));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.blocking_push_timeout(9, HOUR) }));
    assert_eq!(answer, Err(PushError::WouldDeadlock(9)));
    let (answer, report) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.try_push(9) }));
    assert_eq!((answer, report.totals.refused.full), (Err(PushError::Full(9)), 1));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.reserve().await.err() }));
    assert_eq!(answer, Some(ReserveError::WouldDeadlock));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.reserve_many(3).await.err() }));
    assert_eq!(answer, Some(ReserveError::WouldDeadlock));
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.try_reserve().err() }));
    assert_eq!(answer, Some(ReserveError::Full));
    let (answer, report) = in_the_sink_of_a_full_one(|c| {
        Box::pin(async move {
            let error = c.push_all(10..20).await.unwrap_err();
            (error.reason(), error.accepted(), error.into_rest().collect::<Vec<_>>())
        })
    });
    assert_eq!(answer, (RefuseReason::WouldDeadlock, 0, (10..20).collect()));
    assert_eq!(report.totals.refused.would_deadlock, 10);
    // A flush waits for the call that it is made in: it answers, and does not say that all was delivered.
    let (answer, _) = in_the_sink_of_a_full_one(|c| Box::pin(async move { c.flush().await }));
    assert_eq!((answer.unsettled, answer.total(), answer.all_delivered()), (4, 4, false));
}

#[test]
fn a_task_that_the_sink_waits_for_is_cut_off_by_the_flush_timeout() {
    paused(|| async {
        let me = Arc::new(Mutex::new(None::<WeakController<u32>>));
        let c = builder(2)
            .fixed(1, ms(1))
            .flush_timeout(3 * SEC)
            .retry(Retry::never())
            .spawn({
                let me = Arc::clone(&me);
                move |batch: Batch<u32>| {
                    let c = me.lock().unwrap().as_ref().and_then(WeakController::upgrade).unwrap();
                    async move {
                        let item = batch[0] + 100;
                        let _ = tokio::spawn(async move { c.push(item).await }).await;
                        Ok(())
                    }
                }
            })
            .unwrap();
        *me.lock().unwrap() = Some(c.downgrade());
        c.push_all(0..2).await.unwrap();
        tokio::time::sleep(3 * SEC + ms(10)).await;
        assert_eq!((c.snapshot().failed, c.snapshot().flushes.timed_out), (1, 1));
        let report = c.drain(60 * SEC).await;
        assert!(report.is_clean());
        report.totals.audit().unwrap();
    });
}

#[test]
fn a_blocking_push_on_a_runtime_thread_is_told_and_on_a_blocking_thread_waits() {
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (runtime, threads) in [(current, 1), (workers(2), 2)] {
        within(GUARD, move || {
            runtime.block_on(async move {
                let (gate, log) = (Gate::closed(), Log::default());
                let c = builder(1).fixed(1, ms(1)).spawn(gated(&gate, &log)).unwrap();
                // With room it does not wait, and so it works anywhere.
                assert_eq!(c.blocking_push(0), Ok(()));
                assert_eq!(c.blocking_push(1), Err(PushError::WouldDeadlock(1)));
                assert_eq!(c.blocking_push_timeout(1, SEC), Err(PushError::WouldDeadlock(1)));
                let other = c.clone();
                let in_a_task = tokio::spawn(async move { other.blocking_push(2) }).await.unwrap();
                assert_eq!(in_a_task, Err(PushError::WouldDeadlock(2)));
                assert_eq!(c.snapshot().refused.would_deadlock, 3);
                let other = c.clone();
                let on_a_blocking_thread = tokio::task::spawn_blocking(move || other.blocking_push(3));
                let (other, handle) = (c.clone(), tokio::runtime::Handle::current());
                let on_a_plain_thread = thread::spawn(move || {
                    // It knows the runtime, but runs none of its tasks.
                    let _inside = handle.enter();
                    other.blocking_push(4)
                });
                let other = c.clone();
                let in_place = tokio::spawn(async move {
                    if threads > 1 {
                        tokio::task::block_in_place(|| other.blocking_push(5))
                    } else {
                        other.push(5).await
                    }
                });
                while c.snapshot().waiting < 3 {
                    tokio::task::yield_now().await;
                }
                gate.open();
                assert_eq!(on_a_blocking_thread.await.unwrap(), Ok(()));
                assert_eq!(in_place.await.unwrap(), Ok(()));
                while !on_a_plain_thread.is_finished() {
                    tokio::task::yield_now().await;
                }
                assert_eq!(on_a_plain_thread.join().unwrap(), Ok(()));
                assert_eq!(c.drain(SEC).await.delivered(), 4);
            });
        });
    }
}

#[test]
fn a_batch_kept_for_ever_or_forgotten_is_named_at_the_deadline() {
    for forget in [false, true] {
        paused(move || async move {
            let tokens = Drops::default();
            let losses = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::new(Mutex::new(Vec::new()));
            let c = BackpressureController::builder(6)
                .fixed(2, ms(1))
                .on_loss({
                    let losses = Arc::clone(&losses);
                    move |loss| losses.lock().unwrap().push((loss.item.map(|t: Token| t.id()), loss.reason))
                })
                .spawn({
                    let kept = Arc::clone(&kept);
                    move |batch: Batch<Token>| {
                        if forget {
                            std::mem::forget(batch);
                        } else {
                            kept.lock().unwrap().push(batch);
                        }
                        std::future::ready(Err(FlushError::retry("elsewhere")))
                    }
                })
                .unwrap();
            for _ in 0..6 {
                c.push(tokens.next()).await.unwrap();
            }
            tokio::time::sleep(HOUR).await;
            // It stays in flight, nothing else is flushed meanwhile, and its room is not given to anybody.
            let snapshot = c.snapshot();
            assert_eq!((snapshot.in_flight, snapshot.buffered, snapshot.flushes.total()), (2, 4, 1));
            assert!(c.try_push(tokens.next()).is_err());
            let start = now();
            let report = c.drain(5 * SEC).await;
            assert_eq!(start.elapsed(), 5 * SEC);
            assert_eq!((report.not_returned, report.abandoned()), (2, 6));
            assert_eq!(ids(&report.leftovers), [2, 3, 4, 5]);
            assert_eq!((report.is_clean(), report.totals.depth), (false, 0));
            report.totals.audit().unwrap();
            assert!(losses.lock().unwrap().is_empty());
            // What comes home later goes to the hook; it was counted.
            kept.lock().unwrap().clear();
            let late = if forget { vec![] } else { vec![0, 1] };
            let expected: Vec<_> = late.into_iter().map(|id| (Some(id), LossReason::Abandoned)).collect();
            assert_eq!(*losses.lock().unwrap(), expected);
            assert_eq!(c.snapshot().abandoned, 6);
            c.snapshot().audit().unwrap();
            drop(report);
            drop(c);
            idle().await;
            if forget {
                assert_eq!(tokens.alive(), 2, "only what was forgotten is left");
            } else {
                tokens.assert_each_once(7);
            }
        });
    }
}

#[test]
fn a_limited_wait_without_a_timer_gives_the_item_back() {
    within(GUARD, || {
        let (c, mut flusher) = builder(1).build(sink).unwrap();
        let block_on = futures::executor::block_on::<futures::future::BoxFuture<'_, Result<(), PushError<u32>>>>;
        assert_eq!(block_on(Box::pin(c.push_timeout(0, SEC))), Ok(()), "with room it needs no timer");
        assert_eq!(block_on(Box::pin(c.push_timeout(1, SEC))), Err(PushError::NoTimer(1)));
        assert_eq!(block_on(Box::pin(c.push_timeout(1, Duration::ZERO))), Err(PushError::TimedOut(1)));
        let snapshot = c.snapshot();
        assert_eq!((snapshot.refused.no_timer, snapshot.refused.timed_out, snapshot.waiting), (1, 1, 0));
        // A wait for ever needs none.
        let pusher = thread::spawn({
            let c = c.clone();
            move || futures::executor::block_on(c.push_timeout(2, Duration::MAX))
        });
        while c.snapshot().waiting == 0 {
            thread::yield_now();
        }
        assert_eq!(c.purge(), [0]);
        assert_eq!(pusher.join().unwrap(), Ok(()));
        assert_eq!(poll_once(&mut flusher), Poll::Ready(Err(DriveError::NoRuntime)));

        let (c, _flusher) = builder(1).strategy(Strategy::BlockFor(SEC)).build(sink).unwrap();
        assert_eq!(block_on(Box::pin(c.push(0))), Ok(()));
        assert_eq!(block_on(Box::pin(c.push(1))), Err(PushError::NoTimer(1)));
        let error = futures::executor::block_on(c.push_all(1..5)).unwrap_err();
        assert_eq!((error.reason(), error.accepted()), (RefuseReason::NoTimer, 0));
        assert_eq!(error.into_rest().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(c.snapshot().refused.no_timer, 5);
        c.snapshot().audit().unwrap();
        // A runtime without time is no better.
        let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(timeless.block_on(c.push(6)), Err(PushError::NoTimer(6)));
    });
}

#[test]
fn a_runtime_that_goes_down_abandons_by_the_hook() {
    let losses = Losses::default();
    let c = within(GUARD, {
        let hook = losses.hook();
        move || {
            let runtime = workers(1);
            let c = builder(10).fixed(2, ms(1)).on_loss(hook).spawn_on(runtime.handle(), hung).unwrap();
            for i in 0..5 {
                c.try_push(i).unwrap();
            }
            while c.snapshot().in_flight == 0 {
                thread::yield_now();
            }
            drop(runtime);
            c
        }
    });
    assert_eq!(losses.lines(), (0..5).map(|i| (Some(i), LossReason::Abandoned, None)).collect::<Vec<_>>());
    assert_eq!((c.snapshot().abandoned, c.snapshot().flushes.cancelled, c.depth()), (5, 1, 0));
    assert_eq!(c.try_push(9), Err(PushError::Closed(9)));
    c.snapshot().audit().unwrap();
}
