//! Scenarios J: batches that the store takes in part, or not at all.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, LossReason, Retry};
use tokio::time::sleep;

use self::support::{HOUR, Log, Losses, SEC, idle, ms, paused, secs};

fn every(wait: Duration) -> Retry {
    Retry::exponential(wait, wait).without_jitter()
}

#[test]
fn s_j03_a_batch_that_is_too_large_is_halved_until_one_item_is_left() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let calls = log.clone();
        let c = BackpressureController::builder(1_024)
            .fixed(1_024, HOUR)
            .on_loss(losses.hook())
            .spawn(move |batch: Batch<u64>| {
                calls.add(&batch);
                let is_bad = batch.contains(&7);
                std::future::ready(if is_bad { Err(FlushError::too_large("too large")) } else { Ok(()) })
            })
            .unwrap();
        (0..1_024).for_each(|i| c.try_push(i).unwrap());
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (1_023, 1));
        assert_eq!(log.calls().len(), 21, "1, and 2 for each of 10 levels");
        assert_eq!(losses.lines(), [(Some(7), LossReason::Failed, Some("too large".to_owned()))]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.audit(), snapshot.flushes.too_large, snapshot.flushes.ok), (Ok(()), 11, 10));
        // In order, all of them once.
        let mut delivered: Vec<_> = log.calls().into_iter().filter(|call| !call.contains(&7)).flatten().collect();
        assert!(delivered.is_sorted());
        delivered.dedup();
        assert_eq!(delivered.len(), 1_023);
    });
}

#[test]
fn s_j05_attempts_are_a_batchs_own() {
    paused(|| async {
        const POISON: u64 = 345;
        let tries = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&tries);
        let sink = move |batch: Batch<u64>| {
            let seen = Arc::clone(&seen);
            async move {
                sleep(ms(10)).await;
                if batch.contains(&POISON) {
                    seen.lock().unwrap().push((batch.id(), batch.attempt(), batch.len()));
                    return Err(FlushError::retry("poison"));
                }
                Ok(())
            }
        };
        let c = BackpressureController::builder(2_000)
            .fixed(10, ms(1))
            .retry(every(ms(20)).max_attempts(5))
            .spawn_concurrent(4, sink)
            .unwrap();
        for i in 0..1_000 {
            c.push(i).await.unwrap();
        }
        let report = c.flush().await;
        let tries = tries.lock().unwrap().clone();
        assert_eq!(tries.iter().map(|(_, attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(tries.iter().all(|(id, _, len)| (*id, *len) == (tries[0].0, 10)));
        assert_eq!((report.delivered, report.failed), (990, 10));
        assert_eq!((c.snapshot().audit(), c.snapshot().retried), (Ok(()), 40));
    });
}

#[test]
fn s_j07_each_item_of_a_batch_has_its_own_fate() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let calls = log.clone();
        let c = BackpressureController::builder(10)
            .fixed(5, HOUR)
            .retry(every(ms(100)))
            .on_loss(losses.hook())
            .spawn(move |mut batch: Batch<char>| {
                calls.add(&batch);
                if batch.len() == 5 {
                    batch.retry(1);
                    batch.fail(3, "duplicate key");
                }
                std::future::ready(Ok(()))
            })
            .unwrap();
        for item in 'a'..='e' {
            c.try_push(item).unwrap();
        }
        idle().await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.delivered, snapshot.failed, snapshot.retry_waiting), (3, 1, 1));
        assert!(c.flush().await.failed == 0);
        assert_eq!(log.calls(), [vec!['a', 'b', 'c', 'd', 'e'], vec!['b']], "c never twice");
        assert_eq!(losses.lines(), [(Some('d'), LossReason::Failed, Some("duplicate key".to_owned()))]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.audit(), snapshot.delivered, snapshot.failed, snapshot.retried), (Ok(()), 4, 1, 1));
    });
}

#[test]
fn s_j09_a_batch_that_fails_does_not_keep_the_next_from_its_turn() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let calls = log.clone();
        let c = BackpressureController::builder(30)
            .fixed(10, HOUR)
            .on_loss(losses.hook())
            .spawn(move |batch: Batch<u64>| {
                calls.add(&batch);
                let is_middle = batch[0] == 10;
                std::future::ready(if is_middle { Err(FlushError::permanent("no such table")) } else { Ok(()) })
            })
            .unwrap();
        (0..30).for_each(|i| c.try_push(i).unwrap());
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (20, 10));
        assert_eq!(log.sizes(), [10; 3]);
        assert_eq!(losses.items(), (10..20).collect::<Vec<_>>());
        assert_eq!((c.snapshot().audit(), c.snapshot().flushes.permanent), (Ok(()), 1));
    });
}

#[test]
fn s_j11_a_late_answer_gives_the_room_of_a_batch_free_once() {
    paused(|| async {
        const CAPACITY: u64 = 20;
        let log = Log::default();
        let calls = log.clone();
        let c = BackpressureController::builder(CAPACITY as usize)
            .fixed(10, ms(0))
            .flush_timeout(SEC)
            .retry(every(ms(100)))
            .spawn(move |batch: Batch<u64>| {
                calls.add(&batch);
                let is_first = log_is_first(&calls);
                async move {
                    if is_first {
                        // A task of its own, which goes on after the timeout and acknowledges what it has written.
                        tokio::spawn(async move {
                            sleep(secs(3)).await;
                            batch.done();
                        });
                        sleep(HOUR).await;
                    }
                    Ok(())
                }
            })
            .unwrap();
        (0..10).for_each(|i| c.try_push(i).unwrap());
        sleep(ms(1_500)).await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.flushes.timed_out, snapshot.in_flight), (1, 10), "the task holds it");
        sleep(secs(10)).await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.audit(), snapshot.delivered, snapshot.failed, snapshot.depth), (Ok(()), 10, 0, 0));
        // As documented: what was acknowledged is delivered, and not sent again.
        assert_eq!(log.sizes(), [10]);
        c.pause();
        let fits = (0..).take_while(|i| c.try_push(*i).is_ok()).count() as u64;
        assert_eq!(fits, CAPACITY, "not one batch more");
    });
}

fn log_is_first(log: &Log<u64>) -> bool {
    log.calls().len() == 1
}
