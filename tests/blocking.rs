//! Plain threads: they flush and drain as tasks do, and where they must not wait they are told.

#![allow(clippy::disallowed_methods, reason = "plain threads have the machine's clock")]

mod support;

use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use backpressure::{BackpressureController, Batch, WeakController, WouldDeadlock};

use self::support::{GUARD, Gate, HOUR, Log, SEC, gated, hung, ms, ok, within, workers};

#[test]
fn a_plain_thread_flushes_and_drains() {
    within(GUARD, || {
        let (runtime, log) = (workers(1), Log::default());
        let c = BackpressureController::builder(100).fixed(10, HOUR).spawn_on(runtime.handle(), ok(&log)).unwrap();
        assert_eq!(c.blocking_flush().unwrap().total(), 0);
        for i in 0..25 {
            c.blocking_push(i).unwrap();
        }
        let report = c.blocking_flush().unwrap();
        assert!(report.all_delivered());
        assert_eq!(log.items(), (0..25).collect::<Vec<_>>());
        c.try_push(25).unwrap();
        let report = c.blocking_drain(GUARD).unwrap();
        assert!(report.is_clean());
        assert_eq!((report.delivered(), report.totals.depth), (26, 0));
        report.totals.audit().unwrap();
        // A second one joins the first.
        assert_eq!(c.blocking_drain(HOUR).unwrap().delivered(), 26);
    });
}

#[test]
fn a_thread_that_flushes_waits_for_what_was_accepted_and_not_for_more() {
    within(GUARD, || {
        let (runtime, log, gate) = (workers(1), Log::default(), Gate::closed());
        let c =
            BackpressureController::builder(100).fixed(2, HOUR).spawn_on(runtime.handle(), gated(&gate, &log)).unwrap();
        c.try_push(1).unwrap();
        let (sender, receiver) = channel();
        let flushing = {
            let c = c.clone();
            thread::spawn(move || sender.send(c.blocking_flush()).unwrap())
        };
        assert!(receiver.recv_timeout(ms(50)).is_err(), "it waits for the sink");
        for i in 2..6 {
            c.try_push(i).unwrap();
        }
        gate.let_through(1);
        assert_eq!(receiver.recv_timeout(GUARD).unwrap().unwrap().delivered, 1);
        assert_eq!(log.items(), [1]);
        flushing.join().unwrap();
    });
}

#[test]
fn a_blocking_drain_ends_at_its_deadline_with_a_sink_that_hangs_and_without_a_flusher() {
    within(GUARD, || {
        let runtime = workers(1);
        let hanging = BackpressureController::builder(4).fixed(2, ms(1)).spawn_on(runtime.handle(), hung).unwrap();
        let (alone, flusher) = BackpressureController::builder(4).build(hung).unwrap();
        for c in [hanging, alone] {
            for i in 0..4_u64 {
                c.try_push(i).unwrap();
            }
            let start = Instant::now();
            let report = c.blocking_drain(ms(200)).unwrap();
            let took = start.elapsed();
            assert!((ms(200)..SEC).contains(&took), "{took:?}");
            assert_eq!((report.leftovers, report.not_returned), (vec![0, 1, 2, 3], 0));
            assert_eq!(report.totals.abandoned, 4);
            report.totals.audit().unwrap();
        }
        drop(flusher);
    });
}

#[test]
fn a_thread_that_runs_tasks_is_told_and_nothing_is_done() {
    within(GUARD, || {
        let runtime = workers(1);
        let c =
            BackpressureController::builder(4).fixed(1, HOUR).spawn_on(runtime.handle(), ok(&Log::default())).unwrap();
        runtime.block_on(async {
            assert_eq!(c.blocking_flush(), Err(WouldDeadlock));
            assert_eq!(c.blocking_drain(SEC).unwrap_err(), WouldDeadlock);
            let other = c.clone();
            let in_a_task = tokio::spawn(async move { other.blocking_flush() });
            assert_eq!(in_a_task.await.unwrap(), Err(WouldDeadlock));
            assert!(!c.is_closed());
            c.push(7).await.unwrap();
            let other = c.clone();
            let on_a_blocking_thread = tokio::task::spawn_blocking(move || other.blocking_drain(GUARD));
            assert_eq!(on_a_blocking_thread.await.unwrap().unwrap().delivered(), 1);
        });
    });
}

#[test]
fn a_sink_that_waits_for_itself_is_told() {
    within(GUARD, || {
        let runtime = workers(1);
        let own = Arc::new(OnceLock::<WeakController<u64>>::new());
        let (sender, receiver) = channel();
        let (c, flusher) = BackpressureController::builder(4)
            .fixed(1, HOUR)
            .build({
                let own = Arc::clone(&own);
                move |batch: Batch<u64>| {
                    let c = own.get().and_then(WeakController::upgrade).unwrap();
                    sender.send((c.blocking_flush(), c.blocking_drain(SEC).map(drop))).unwrap();
                    drop(batch);
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        own.set(c.downgrade()).unwrap();
        // On a thread where tokio itself would let it wait.
        let driver = {
            let handle = runtime.handle().clone();
            thread::spawn(move || {
                let _entered = handle.enter();
                futures::executor::block_on(flusher)
            })
        };
        c.try_push(1).unwrap();
        assert_eq!(receiver.recv_timeout(GUARD).unwrap(), (Err(WouldDeadlock), Err(WouldDeadlock)));
        assert!(!c.is_closed());
        assert_eq!(c.blocking_drain(GUARD).unwrap().delivered(), 1);
        driver.join().unwrap().unwrap();
    });
}
