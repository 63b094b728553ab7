//! Items whose destructor panics, and destructors that race with producers (I9).

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use backpressure::{BackpressureController, Batch, FlushError, Strategy};
use futures::StreamExt;
use tokio::runtime;

use self::support::{SEC, hung, idle, ms, paused, poll_once, within};

/// Panics in its destructor if it is the third.
struct Bomb(u32, Dropped);

#[derive(Clone, Default)]
struct Dropped(Arc<Mutex<Vec<u32>>>);

impl Dropped {
    fn bombs(&self, ids: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = Bomb> + use<> {
        let dropped = self.clone();
        ids.map(move |id| Bomb(id, dropped.clone()))
    }

    /// Each of 1 to 6 once, in whatever order.
    fn assert_each_once(&self) {
        let mut ids = self.0.lock().unwrap().clone();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        (self.1).0.lock().unwrap().push(self.0);
        assert_ne!(self.0, 3, "the destructor of the third");
    }
}

fn sinks_all(batch: Batch<Bomb>) -> std::future::Ready<Result<(), FlushError>> {
    drop(batch);
    std::future::ready(Ok(()))
}

#[test]
fn s_q01_an_undriven_flusher_and_all_handles_dropped() {
    for flusher_first in [false, true] {
        let dropped = Dropped::default();
        let (c, flusher) = BackpressureController::builder(10).build(sinks_all).unwrap();
        dropped.bombs(1..=6).for_each(|bomb| assert!(c.try_push(bomb).is_ok()));
        let (other, weak) = (c.clone(), c.downgrade());
        let result = catch_unwind(AssertUnwindSafe(|| {
            if flusher_first {
                drop(flusher);
                drop((c, other));
            } else {
                drop((c, other));
                drop(flusher);
            }
        }));
        assert!(result.is_ok(), "the crate catches it");
        assert!(weak.upgrade().is_none());
        dropped.assert_each_once();
    }
}

#[test]
fn s_q01_evicted() {
    for with_hook in [false, true] {
        let dropped = Dropped::default();
        let builder = BackpressureController::builder(3).strategy(Strategy::DropOldest);
        let builder = if with_hook { builder.on_loss(drop) } else { builder };
        let (c, flusher) = builder.build(sinks_all).unwrap();
        for bomb in dropped.bombs(1..=6) {
            // The third is evicted by the sixth.
            let pushed = catch_unwind(AssertUnwindSafe(|| c.try_push(bomb).is_ok()));
            assert!(matches!(pushed, Ok(true)));
        }
        let snapshot = c.snapshot();
        assert_eq!((snapshot.accepted, snapshot.evicted, snapshot.buffered, snapshot.panics), (6, 3, 3, 1));
        snapshot.audit().unwrap();
        assert_eq!(*dropped.0.lock().unwrap(), [1, 2, 3]);
        // It goes on working.
        let rest = paused(move || async move {
            tokio::spawn(flusher);
            c.drain(SEC).await
        });
        assert_eq!((rest.delivered(), rest.is_clean()), (3, true));
        dropped.assert_each_once();
    }
}

#[test]
fn s_q01_a_batch_cut_off_by_a_drain() {
    let dropped = Dropped::default();
    let log = dropped.clone();
    paused(move || async move {
        let c = BackpressureController::builder(10).fixed(4, ms(1)).spawn(hung).unwrap();
        dropped.bombs(1..=6).for_each(|bomb| assert!(c.try_push(bomb).is_ok()));
        idle().await;
        let report = c.drain(std::time::Duration::ZERO).await;
        assert_eq!((report.abandoned(), report.leftovers.len(), report.totals.panics), (6, 6, 0));
        report.totals.audit().unwrap();
        assert!(dropped.0.lock().unwrap().is_empty());
        // They are the caller's, and so is the panic.
        assert!(catch_unwind(AssertUnwindSafe(|| drop(report))).is_err());
    });
    log.assert_each_once();
    // Nobody waits for the report: the crate drops them, and catches the panic.
    let dropped = Dropped::default();
    let log = dropped.clone();
    paused(move || async move {
        let c = BackpressureController::builder(10).fixed(4, ms(1)).spawn(hung).unwrap();
        dropped.bombs(1..=6).for_each(|bomb| assert!(c.try_push(bomb).is_ok()));
        idle().await;
        assert!(poll_once(&mut Box::pin(c.drain(std::time::Duration::ZERO))).is_pending());
        idle().await;
        assert_eq!((c.snapshot().abandoned, c.snapshot().panics), (6, 1));
        c.snapshot().audit().unwrap();
    });
    log.assert_each_once();
}

#[test]
fn s_q01_delivered_failed_taken_purged_and_cancelled() {
    paused(|| async {
        // Delivered: the crate drops the batch.
        let dropped = Dropped::default();
        let c = BackpressureController::builder(10).fixed(3, ms(1)).spawn(sinks_all).unwrap();
        assert!(c.push_all(dropped.bombs(1..=6)).await.is_ok());
        assert_eq!(c.flush().await.delivered, 6);
        assert_eq!(c.snapshot().panics, 1);
        dropped.assert_each_once();

        // Failed: no hook, so the crate drops the items.
        let dropped = Dropped::default();
        let c = BackpressureController::builder(10)
            .fixed(3, ms(1))
            .spawn(|_: Batch<Bomb>| std::future::ready(Err(FlushError::permanent("never"))))
            .unwrap();
        assert!(c.push_all(dropped.bombs(1..=6)).await.is_ok());
        assert_eq!(c.flush().await.failed, 6);
        assert_eq!(c.snapshot().panics, 1);
        dropped.assert_each_once();

        // Taken: the sink drops the items, and its panic is a panic of the sink.
        let dropped = Dropped::default();
        let c = BackpressureController::builder(10)
            .fixed(3, ms(1))
            .spawn(|mut batch: Batch<Bomb>| async move {
                drop(batch.take());
                Ok(())
            })
            .unwrap();
        assert!(c.push_all(dropped.bombs(1..=6)).await.is_ok());
        let report = c.flush().await;
        assert_eq!((report.failed, report.delivered), (3, 3));
        assert_eq!((c.snapshot().panics, c.snapshot().flushes.panicked), (0, 1));
        c.snapshot().audit().unwrap();
        dropped.assert_each_once();

        // Purged: the caller's.
        let dropped = Dropped::default();
        let (c, flusher) = BackpressureController::builder(10).build(sinks_all).unwrap();
        dropped.bombs(1..=6).for_each(|bomb| assert!(c.try_push(bomb).is_ok()));
        let purged = c.purge();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(purged))).is_err());
        assert_eq!((c.snapshot().purged, c.snapshot().panics), (6, 0));
        dropped.assert_each_once();

        // Cancelled while they wait.
        let dropped = Dropped::default();
        assert_eq!(c.reserve_many(10).await.unwrap().len(), 10);
        let all = c.reserve_many(10).await.unwrap();
        let mut pushes: Vec<_> = dropped.bombs(1..=2).map(|bomb| Box::pin(c.push(bomb))).collect();
        let mut third = Box::pin(c.push_all(dropped.bombs(3..=6)));
        assert!(pushes.iter_mut().all(|push| poll_once(push).is_pending()));
        assert!(poll_once(&mut third).is_pending());
        assert_eq!(c.snapshot().waiting, 6);
        assert!(catch_unwind(AssertUnwindSafe(|| drop((pushes, third)))).is_ok());
        let snapshot = c.snapshot();
        assert_eq!((snapshot.cancelled, snapshot.waiting, snapshot.panics), (6, 0, 1));
        snapshot.audit().unwrap();
        dropped.assert_each_once();
        drop((all, flusher));
    });
}

/// Looks at its controller when it is dropped.
struct Curious(Arc<Mutex<Option<BackpressureController<Curious>>>>);

impl Drop for Curious {
    fn drop(&mut self) {
        let controller = self.0.lock().unwrap().clone();
        controller.inspect(|c| c.snapshot().audit().unwrap());
    }
}

#[test]
fn what_was_done_when_the_deadline_passed_is_dropped_outside_the_lock() {
    paused(|| async {
        let sink = |batch: Batch<Curious>| async move {
            batch.done();
            std::future::pending().await
        };
        let c = BackpressureController::builder(10).fixed(2, ms(1)).spawn(sink).unwrap();
        let own = Arc::new(Mutex::new(Some(c.clone())));
        (0..2).for_each(|_| assert!(c.try_push(Curious(Arc::clone(&own))).is_ok()));
        tokio::time::sleep(ms(10)).await;
        let report = c.drain(SEC).await;
        assert_eq!((report.totals.delivered, report.not_returned, report.leftovers.len()), (2, 0, 0));
        *own.lock().unwrap() = None;
    });
}

/// Its destructor waits for the lock.
struct Slow(Arc<Mutex<()>>);

impl Drop for Slow {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

#[test]
fn what_was_delivered_stays_so_if_the_end_comes_while_it_is_dropped() {
    within(30 * SEC, || {
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().unwrap();
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let report = runtime.block_on(async {
            let builder = BackpressureController::builder(10).fixed(2, ms(1));
            let c = builder.spawn(|_: Batch<Slow>| std::future::ready(Ok(()))).unwrap();
            (0..2).for_each(|_| assert!(c.try_push(Slow(Arc::clone(&gate))).is_ok()));
            // Long enough for the flusher to be in the first destructor.
            tokio::time::sleep(ms(100)).await;
            c.drain(ms(10)).await
        });
        drop(held);
        report.totals.audit().unwrap();
        let totals = report.totals;
        assert_eq!((totals.delivered, totals.failed, totals.abandoned), (2, 0, 0));
    });
}

#[test]
fn s_q03_watches_come_and_go_while_others_evict() {
    within(30 * SEC, || {
        let (c, flusher) = BackpressureController::builder(2)
            .strategy(Strategy::DropOldest)
            .build(|_: Batch<u64>| std::future::ready(Ok(())))
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let (c, is_over) = (c.clone(), Arc::clone(&is_over));
                thread::spawn(move || {
                    let mut offered = 0_u64;
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = c.try_push(offered);
                        offered += 1;
                        if offered.is_multiple_of(64) {
                            // Gives the states something to do, and the other threads a turn.
                            drop(c.purge());
                            thread::yield_now();
                        }
                    }
                    offered
                })
            })
            .collect();
        for i in 0..100_000 {
            let mut watch = c.watch();
            assert!(poll_once(&mut watch.next()).is_ready(), "the present state comes first");
            if i % 2 == 0 {
                let mut next = Box::pin(watch.changed());
                let _ = poll_once(&mut next);
            }
            let _ = watch.current();
        }
        is_over.store(true, Ordering::Relaxed);
        let offered: u64 = producers.into_iter().map(|producer| producer.join().expect("nobody panics")).sum();
        let snapshot = c.snapshot();
        assert_eq!((snapshot.offered, snapshot.panics), (offered, 0));
        snapshot.audit().unwrap();
        drop(flusher);
    });
}
