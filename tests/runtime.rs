//! Scenarios B: one-thread runtimes, runtimes that go down, no runtime at all.

#![allow(clippy::disallowed_methods, reason = "these scenarios run in real time")]

mod support;

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use backpressure::{
    BackpressureController, Batch, BuildError, DriveError, LossReason, PushError, RefuseReason, Retry, State, Strategy,
};
use tokio::runtime::{Builder, Runtime};

use self::support::{Drops, GUARD, HOUR, Sink, Token, ms, paused_for, secs, settled, within};

#[tokio::test(flavor = "current_thread")]
async fn s_b01_drain_on_one_thread() {
    // The flusher has not run yet, or sleeps.
    for sleeps in [false, true] {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(10).fixed(10, HOUR).spawn(sink.clone()).unwrap();
        assert_eq!(c.push_all(1..=5).await.unwrap(), 5);
        if sleeps {
            settled().await;
        }
        let start = Instant::now();
        let report = tokio::time::timeout(secs(5), c.drain(secs(25))).await.expect("a hang");
        assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
        assert_eq!((report.delivered(), report.is_clean()), (5, true));
        assert_eq!(sink.batches(), [[1, 2, 3, 4, 5]]);
    }
}

#[test]
fn s_b01_the_last_handle_dropped_on_one_thread() {
    within(GUARD, || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let sink = Sink::gated();
            let c = BackpressureController::<u64>::builder(10).fixed(5, HOUR).spawn(sink.clone()).unwrap();
            assert_eq!(c.push_all(1..=4).await.unwrap(), 4);
            c.push(5).await.unwrap();
            let (mut watch, weak) = (c.watch(), c.downgrade());
            let start = Instant::now();
            drop(c);
            assert!(start.elapsed() < ms(100), "it blocks: {:?}", start.elapsed());
            assert_eq!(sink.calls().len(), 0, "nothing has run meanwhile");
            settled().await;
            sink.open();
            // The watch ends with the intake; the detached drain goes on.
            while let Some(state) = watch.changed().await {
                assert_ne!(state, State::Blocked);
            }
            assert!(weak.upgrade().is_none());
            settled().await;
            assert_eq!(sink.delivered(), [1, 2, 3, 4, 5]);
        });
    });
}

/// Panics that came to the panic hook, on any thread: they would stand on stderr.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Tests that count panics; they run one at a time, also where the tests of this file share a process.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `test` and returns how many panics came to the hook meanwhile, from whatever thread.
fn panics_during(test: impl FnOnce()) -> usize {
    static HOOK: Once = Once::new();
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(info);
        }));
    });
    let before = PANICS.load(Ordering::SeqCst);
    test();
    PANICS.load(Ordering::SeqCst) - before
}

/// A runtime goes down under a controller with a batch in back-off and a partial one at its linger.
fn runtime_goes_down(workers: usize, down: impl FnOnce(Runtime) + Send + 'static) {
    within(secs(10), move || {
        let drops = Drops::default();
        let lost = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lost);
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_time().build().unwrap(),
            n => Builder::new_multi_thread().worker_threads(n).enable_time().build().unwrap(),
        };
        let sink = Sink::fail(u64::MAX);
        let c = BackpressureController::<Token>::builder(8)
            .fixed(4, ms(50))
            .retry(Retry::exponential(ms(20), ms(20)))
            .on_loss(move |loss| log.lock().unwrap().push((loss.item.unwrap().id(), loss.reason)))
            .spawn_on(runtime.handle(), sink.clone())
            .unwrap();
        for id in 1..=8 {
            c.try_push(drops.token(id)).unwrap();
        }
        // Blocked producers: a task of the runtime that goes down, and a plain thread.
        let task = runtime.spawn({
            let (c, item) = (c.clone(), drops.token(9));
            async move { c.push(item).await }
        });
        runtime.block_on(async {
            while sink.calls().len() < 2 || c.snapshot().waiting < 1 {
                tokio::time::sleep(ms(1)).await;
            }
        });
        let blocked = thread::spawn({
            let (c, item) = (c.clone(), drops.token(10));
            move || c.blocking_push(item).map_err(|error| (error.reason(), error.into_inner().id()))
        });
        while c.snapshot().waiting < 2 {
            thread::yield_now();
        }
        let start = Instant::now();
        down(runtime);
        assert_eq!(blocked.join().unwrap(), Err((RefuseReason::Closed, 10)));
        assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
        let Err(PushError::Closed(back)) = c.try_push(drops.token(11)) else { panic!("not closed") };
        assert_eq!(back.id(), 11);
        // The counters move first, then the hook runs, on a thread of the runtime.
        while lost.lock().unwrap().len() < 8 {
            thread::yield_now();
        }
        // The task may still be on its way out, with its item.
        while !task.is_finished() {
            thread::yield_now();
        }
        drop((back, task));
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.accepted, snapshot.delivered, snapshot.abandoned), (8, 0, 8));
        assert_eq!((snapshot.offered, snapshot.waiting, snapshot.depth), (11, 0, 0));
        assert_eq!(snapshot.refused.closed + snapshot.cancelled, 3);
        assert_eq!(*lost.lock().unwrap(), (1..=8).map(|id| (id, LossReason::Abandoned)).collect::<Vec<_>>());
        drop(c);
        drops.assert_each_once(11);
    });
}

#[test]
fn s_b03_a_runtime_shut_down_in_the_background() {
    for workers in [0, 1, 2] {
        let panics = panics_during(|| runtime_goes_down(workers, Runtime::shutdown_background));
        assert_eq!(panics, 0, "{workers} workers");
    }
}

#[test]
fn s_b03_a_runtime_dropped() {
    for workers in [0, 1, 2] {
        let panics = panics_during(|| runtime_goes_down(workers, drop));
        assert_eq!(panics, 0, "{workers} workers");
    }
}

#[test]
fn s_b03_a_runtime_gone_while_somebody_drains() {
    let panics = panics_during(|| {
        within(GUARD, || {
            let drops = Drops::default();
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
            let c = BackpressureController::<Token>::builder(8)
                .fixed(4, ms(50))
                .spawn_on(runtime.handle(), Sink::fail(u64::MAX))
                .unwrap();
            for id in 1..=3 {
                c.try_push(drops.token(id)).unwrap();
            }
            let drainer = thread::spawn(move || futures::executor::block_on(c.drain(secs(25))));
            thread::sleep(ms(20));
            let start = Instant::now();
            runtime.shutdown_background();
            let report = drainer.join().unwrap();
            assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
            assert_eq!((report.delivered(), report.abandoned()), (0, 3));
            assert_eq!(report.leftovers, [1, 2, 3]);
            report.totals.audit().unwrap();
            drop(report);
            drops.assert_each_once(3);
        });
    });
    assert_eq!(panics, 0);
}

#[test]
fn s_b03_a_time_limit_on_a_thread_without_a_runtime() {
    let panics = panics_during(|| {
        within(GUARD, || {
            let (c, flusher) = BackpressureController::<u64>::builder(1)
                .strategy(Strategy::BlockFor(secs(1)))
                .build(Sink::ok())
                .unwrap();
            c.try_push(1).unwrap();
            let waits = [c.push(2), c.push_timeout(2, ms(5))];
            for wait in waits {
                assert!(matches!(futures::executor::block_on(wait), Err(PushError::NoTimer(2))));
            }
            let rest = futures::executor::block_on(c.push_all([2, 3])).unwrap_err();
            assert_eq!((rest.accepted(), rest.reason()), (0, RefuseReason::NoTimer));
            assert_eq!(rest.into_rest().collect::<Vec<_>>(), [2, 3]);
            let mut flusher = flusher;
            assert_eq!(futures::executor::block_on(&mut flusher), Err(DriveError::NoRuntime));
            assert_eq!(c.blocking_push(2).unwrap_err().reason(), RefuseReason::TimedOut);
            let snapshot = c.snapshot();
            snapshot.audit().unwrap();
            assert_eq!((snapshot.refused.no_timer, snapshot.refused.timed_out, snapshot.accepted), (4, 1, 1));
        });
    });
    assert_eq!(panics, 0, "a panic that is caught still stands on stderr");
}

#[test]
fn s_b03_a_time_limit_whose_runtime_goes_down() {
    let panics = panics_during(|| {
        within(GUARD, || {
            let sink = Sink::gated();
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            let c = BackpressureController::<u64>::builder(1).spawn_on(runtime.handle(), sink.clone()).unwrap();
            c.try_push(1).unwrap();
            // The push has its timer in another runtime than the flusher.
            let other = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
            let blocked = thread::spawn({
                let (c, handle) = (c.clone(), other.handle().clone());
                move || {
                    let _inside = handle.enter();
                    futures::executor::block_on(c.push_timeout(2, HOUR))
                }
            });
            while c.snapshot().waiting < 1 {
                thread::yield_now();
            }
            thread::sleep(ms(20));
            drop(other);
            assert!(matches!(blocked.join().unwrap(), Err(PushError::NoTimer(2))));
            sink.open();
            let report = runtime.block_on(c.drain(secs(25)));
            assert_eq!((report.delivered(), report.totals.refused.no_timer), (1, 1));
            report.totals.audit().unwrap();
        });
    });
    assert_eq!(panics, 0, "a panic that is caught still stands on stderr");
}

#[test]
fn s_b05_built_on_a_plain_thread_and_driven_later() {
    within(GUARD, || {
        let sink = Sink::ok();
        let (c, mut flusher) =
            BackpressureController::<u64>::builder(10).fixed(3, HOUR).build(sink.clone()).expect("needs no runtime");
        c.try_push(1).unwrap();
        let outside = BackpressureController::<u64>::builder(10).spawn(Sink::ok());
        assert_eq!(outside.unwrap_err(), BuildError::NoRuntime);
        assert_eq!(futures::executor::block_on(&mut flusher), Err(DriveError::NoRuntime));
        let report = Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            let driver = tokio::spawn(flusher);
            c.push(2).await.unwrap();
            c.push(3).await.unwrap();
            let report = c.drain(secs(25)).await;
            driver.await.unwrap().unwrap();
            report
        });
        assert_eq!((report.delivered(), report.totals.accepted), (3, 3));
        assert_eq!(sink.batches(), [[1, 2, 3]]);
    });
}

#[test]
fn s_b05_a_runtime_without_a_timer_is_a_typed_error() {
    // tokio has no question for it, only a panic: it is caught, and must not be counted elsewhere.
    panics_during(|| within(GUARD, without_a_timer));
    assert!(!ALONE.is_poisoned());
}

fn without_a_timer() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let spawned = BackpressureController::<u64>::builder(10).spawn_on(runtime.handle(), Sink::ok());
    assert_eq!(spawned.unwrap_err(), BuildError::NoTimer);
    let (c, mut flusher) = BackpressureController::<u64>::builder(10).fixed(3, HOUR).build(Sink::ok()).unwrap();
    c.try_push(1).unwrap();
    assert_eq!(runtime.block_on(&mut flusher), Err(DriveError::NoTimer));
    // Nothing was lost by it: elsewhere it goes on.
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.spawn(flusher);
    let report = runtime.block_on(c.drain(secs(25)));
    assert_eq!((report.delivered(), report.is_clean()), (1, true));
}

static FORGOTTEN: OnceLock<BackpressureController<u64>> = OnceLock::new();

#[test]
fn s_b07_a_forgotten_handle_keeps_nothing_open() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let (c, flusher) = BackpressureController::builder(10).fixed(5, HOUR).build(sink.clone()).unwrap();
        let driver = tokio::spawn(flusher);
        FORGOTTEN.set(c.clone()).unwrap();
        assert_eq!(c.push_all(1..=3).await.unwrap(), 3);
        let start = tokio::time::Instant::now();
        let report = c.drain(secs(25)).await;
        assert_eq!(start.elapsed(), ms(0));
        assert_eq!((report.delivered(), report.is_clean()), (3, true));
        driver.await.unwrap().unwrap();
        let forgotten = FORGOTTEN.get().unwrap();
        assert!(matches!(forgotten.try_push(4), Err(PushError::Closed(4))));
        assert!(matches!(forgotten.push(5).await, Err(PushError::Closed(5))));
        assert_eq!((forgotten.snapshot().refused.closed, forgotten.is_empty()), (2, true));
    });
}

#[test]
fn s_b07_weak_and_watching_handles_keep_no_loop_alive() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let (c, flusher) = BackpressureController::<u64>::builder(10).fixed(5, HOUR).build(sink.clone()).unwrap();
        let driver = tokio::spawn(flusher);
        let (weak, watch) = (c.downgrade(), c.watch());
        let second = weak.upgrade().expect("a handle is there");
        c.push(1).await.unwrap();
        drop(c);
        settled().await;
        assert!(!driver.is_finished(), "the upgraded handle keeps it open");
        second.push(2).await.unwrap();
        let start = tokio::time::Instant::now();
        drop(second);
        driver.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(sink.batches(), [[1, 2]]);
        assert!(weak.upgrade().is_none());
        assert_eq!(watch.current(), State::Draining);
    });
}

#[test]
fn s_b07_a_closed_loop_ends_whoever_holds_a_handle() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let (c, flusher) = BackpressureController::<u64>::builder(10).fixed(5, HOUR).build(sink.clone()).unwrap();
        let driver = tokio::spawn(flusher);
        c.push(1).await.unwrap();
        settled().await;
        assert!(!driver.is_finished());
        let start = tokio::time::Instant::now();
        c.close();
        driver.await.unwrap().unwrap();
        assert_eq!((start.elapsed(), sink.delivered()), (Duration::ZERO, vec![1]));
        assert!(matches!(c.try_push(2), Err(PushError::Closed(2))));
    });
}

/// The kept-back batch of a sink that moved it elsewhere keeps the loop alive only until the deadline.
#[test]
fn s_b07_a_batch_held_elsewhere_keeps_no_loop_alive() {
    paused_for(GUARD, || async {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let c = BackpressureController::<u64>::builder(10)
            .fixed(2, HOUR)
            .spawn(move |batch: Batch<u64>| {
                keep.lock().unwrap().push(batch);
                std::future::ready(Err(backpressure::FlushError::retry("kept")))
            })
            .unwrap();
        assert_eq!(c.push_all(1..=3).await.unwrap(), 3);
        let start = tokio::time::Instant::now();
        let report = c.drain(secs(2)).await;
        assert_eq!(start.elapsed(), ms(2000));
        assert_eq!((report.abandoned(), report.not_returned, report.leftovers), (3, 2, vec![3]));
        assert_eq!(kept.lock().unwrap()[0][..], [1, 2]);
        report.totals.audit().unwrap();
    });
}
