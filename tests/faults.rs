//! Sinks that panic, hang or fail, and code of the user's that comes back into the controller.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, BuildError, FlushError, PushError, Retry, State, Strategy};

use self::support::{GUARD, HOUR, Log, SEC, failing, hung, idle, ms, now, paused, rounds, within, workers};

#[test]
fn s_k01_a_panic_of_the_sink_loses_nothing() {
    paused(|| async {
        let log = Log::default();
        let mut calls = 0;
        let c = BackpressureController::builder(15)
            .fixed(5, SEC)
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    calls += 1;
                    let (log, call) = (log.clone(), calls);
                    async move {
                        assert_ne!(call, 2, "the sink's second call");
                        log.add(&batch);
                        Ok(())
                    }
                }
            })
            .unwrap();
        assert_eq!(c.push_all(0..15).await.unwrap(), 15);
        assert_eq!(c.flush().await.delivered, 15);
        assert_eq!(log.items(), (0..15).collect::<Vec<_>>());
        let snapshot = c.snapshot();
        assert_eq!((snapshot.flushes.panicked, snapshot.flushes.ok, snapshot.retried), (1, 3, 5));
        assert_eq!((snapshot.state, snapshot.panics, snapshot.depth), (State::Normal, 0, 0));
        snapshot.audit().unwrap();
        // The loop is alive.
        c.push(15).await.unwrap();
        assert_eq!(c.flush().await.delivered, 1);
        assert_eq!(c.drain(SEC).await.delivered(), 16);
    });
}

#[test]
fn s_k03_the_loop_outlives_a_slow_sink_and_a_long_outage() {
    paused(|| async {
        let c = BackpressureController::builder(10)
            .fixed(5, ms(1))
            .flush_timeout(Duration::MAX)
            .spawn(|batch: Batch<u32>| async move {
                tokio::time::sleep(HOUR).await;
                drop(batch);
                Ok(())
            })
            .unwrap();
        let start = now();
        c.push_all(0..5).await.unwrap();
        assert_eq!(c.flush().await.delivered, 5);
        assert_eq!(start.elapsed(), HOUR);

        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(5, ms(1)).spawn(failing(1000, &log)).unwrap();
        c.push_all(0..10).await.unwrap();
        assert_eq!(c.flush().await.delivered, 10);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.flushes.retry, snapshot.flushes.ok, snapshot.retried), (1000, 2, 5000));
        assert_eq!(log.items(), (0..10).collect::<Vec<_>>());
        assert!(c.drain(SEC).await.is_clean());
    });
}

/// A sink that tells when it is gone.
fn told(alive: &Arc<()>) -> impl FnMut(Batch<u32>) -> std::future::Ready<Result<(), FlushError>> + Send + use<> {
    let alive = Arc::clone(alive);
    move |_| {
        let _ = &alive;
        std::future::ready(Ok(()))
    }
}

#[test]
fn s_k05_a_start_is_all_or_nothing() {
    let alive = Arc::new(());
    let nowhere = BackpressureController::builder(10).spawn(told(&alive));
    assert_eq!(nowhere.err(), Some(BuildError::NoRuntime));
    assert_eq!(Arc::strong_count(&alive), 1, "nothing is left of it");

    let timeless = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let on = BackpressureController::builder(10).spawn_on(timeless.handle(), told(&alive));
    assert_eq!(on.err(), Some(BuildError::NoTimer));
    let inside = timeless.block_on(async { BackpressureController::builder(10).spawn(told(&alive)).err() });
    assert_eq!(inside, Some(BuildError::NoTimer));
    assert_eq!((Arc::strong_count(&alive), timeless.metrics().num_alive_tasks()), (1, 0));

    // A runtime that has gone down takes no task any more.
    let down = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = down.handle().clone();
    drop(down);
    let late = BackpressureController::builder(10).spawn_on(&handle, told(&alive));
    assert_eq!(late.err(), Some(BuildError::NoRuntime));
    assert_eq!(Arc::strong_count(&alive), 1);

    // Wrong settings are found before anything starts.
    let runtime = workers(1);
    let wrong = BackpressureController::builder(0).spawn_on(runtime.handle(), told(&alive));
    assert_eq!(wrong.err(), Some(BuildError::CapacityZero));
    assert_eq!((Arc::strong_count(&alive), runtime.metrics().num_alive_tasks()), (1, 0));
}

#[test]
fn s_l01_a_sink_that_pushes_into_its_own_full_controller_is_told() {
    paused(|| async {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let me = Arc::new(Mutex::new(None::<backpressure::WeakController<u32>>));
        let c = BackpressureController::builder(4)
            .fixed(2, ms(1))
            .spawn({
                let (refused, me) = (Arc::clone(&refused), Arc::clone(&me));
                move |batch: Batch<u32>| {
                    let (refused, me) = (Arc::clone(&refused), me.lock().unwrap().clone());
                    async move {
                        let c = me.unwrap().upgrade().unwrap();
                        // One new item for each call; at first the buffer is full.
                        if let Err(error) = c.push(100 + batch[0]).await {
                            refused.lock().unwrap().push(error);
                        }
                        if let Err(error) = c.try_push(200 + batch[0]) {
                            refused.lock().unwrap().push(error);
                        }
                        Ok(())
                    }
                }
            })
            .unwrap();
        *me.lock().unwrap() = Some(c.downgrade());
        assert_eq!(c.push_all(0..4).await.unwrap(), 4);
        // It goes on without end, and so the paused clock stands still.
        while c.snapshot().delivered < 1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(refused.lock().unwrap()[..2], [PushError::WouldDeadlock(100), PushError::Full(200)]);
        let snapshot = c.snapshot();
        assert_eq!(snapshot.refused.would_deadlock + snapshot.refused.full, refused.lock().unwrap().len() as u64);
        assert_eq!((snapshot.waiting, snapshot.flushes.timed_out, snapshot.flushes.panicked), (0, 0, 0));
        snapshot.audit().unwrap();
        assert!(c.drain(SEC).await.is_clean());
        assert_eq!(c.drain(SEC).await.totals.depth, 0);
    });
}

#[test]
fn s_l05_a_hook_may_wait_for_a_thread_that_pushes() {
    within(SEC, || {
        let me = Arc::new(Mutex::new(None::<backpressure::WeakController<u32>>));
        let is_first = AtomicBool::new(true);
        let lost = Arc::new(Mutex::new(Vec::new()));
        let (c, flusher) = BackpressureController::builder(1)
            .strategy(Strategy::DropOldest)
            .on_loss({
                let (me, lost) = (Arc::clone(&me), Arc::clone(&lost));
                move |loss| {
                    lost.lock().unwrap().extend(loss.item);
                    if is_first.swap(false, Ordering::Relaxed) {
                        let c = me.lock().unwrap().clone().unwrap().upgrade().unwrap();
                        assert_eq!(thread::spawn(move || c.try_push(3)).join().unwrap(), Ok(()));
                    }
                }
            })
            .build(|_: Batch<u32>| std::future::ready(Ok(())))
            .unwrap();
        *me.lock().unwrap() = Some(c.downgrade());
        c.try_push(1).unwrap();
        c.try_push(2).unwrap();
        assert_eq!(*lost.lock().unwrap(), [1, 2]);
        assert_eq!((c.snapshot().evicted, c.snapshot().panics), (2, 0));
        assert_eq!(c.purge(), [3]);
        c.snapshot().audit().unwrap();
        drop(flusher);
    });
}

/// A batch timer of 1 ms, full batches, retries with back-off and 8 blocked producers at once, for so long; the longest
/// time between two calls of the sink.
async fn storm(span: Duration, cap: Duration) -> Duration {
    let last = Arc::new(Mutex::new((now(), Duration::ZERO)));
    let calls = Arc::new(AtomicUsize::new(0));
    let c = BackpressureController::builder(64)
        .fixed(16, ms(1))
        .retry(Retry::exponential(ms(1), cap))
        .spawn({
            let (last, calls) = (Arc::clone(&last), Arc::clone(&calls));
            move |batch: Batch<u64>| {
                let at = now();
                let mut last = last.lock().unwrap();
                *last = (at, last.1.max(at - last.0));
                let call = calls.fetch_add(1, Ordering::Relaxed);
                // Half of the calls fail, in no simple pattern.
                let fails = (call as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1;
                async move {
                    tokio::time::sleep(ms(1)).await;
                    drop(batch);
                    if fails { Err(FlushError::retry("down")) } else { Ok(()) }
                }
            }
        })
        .unwrap();
    let producers: Vec<_> = (0..8)
        .map(|_| {
            let c = c.clone();
            tokio::spawn(async move {
                let mut i = 0;
                while c.push(i).await.is_ok() {
                    i += 1;
                }
            })
        })
        .collect();
    tokio::time::sleep(span).await;
    // All of them may have been let in just now; the guard of the test sees to it that they come back.
    while c.snapshot().waiting_producers == 0 {
        tokio::task::yield_now().await;
    }
    let report = c.drain(25 * SEC).await;
    for producer in producers {
        producer.await.unwrap();
    }
    assert_eq!((report.totals.delivered + report.totals.failed, report.failed()), (report.totals.accepted, 0));
    assert!(report.is_clean());
    assert!(report.totals.flushes.retry > 0 && report.totals.flushes.ok > 0);
    report.totals.audit().unwrap();
    last.lock().unwrap().1
}

/// 60 s with `BACKPRESSURE_FULL=1`.
#[test]
fn s_l07_timer_size_retries_and_blocked_producers_at_once() {
    let cap = ms(100);
    let span = SEC * rounds(60, 5);
    let stall = paused(move || storm(span, cap));
    assert!(stall < cap + ms(100), "{stall:?}");
    // On the machine's clock, and beside other work: a shorter run, and more patience with the scheduler.
    let (span, patience) = rounds((60 * SEC, ms(100)), (2 * SEC, SEC));
    let stall = within(span + 6 * GUARD, move || workers(2).block_on(storm(span, cap)));
    assert!(stall < cap + patience, "{stall:?}");
}

#[test]
fn a_hung_sink_is_cut_off_by_the_flush_timeout_and_the_loop_lives() {
    paused(|| async {
        let c = BackpressureController::builder(4)
            .fixed(2, ms(1))
            .flush_timeout(3 * SEC)
            .retry(Retry::never())
            .spawn(hung::<u32>)
            .unwrap();
        let start = now();
        c.push_all(0..4).await.unwrap();
        assert_eq!(c.flush().await.failed, 4);
        assert_eq!(start.elapsed(), 6 * SEC);
        idle().await;
        assert_eq!(c.snapshot().flushes.timed_out, 2);
    });
}
