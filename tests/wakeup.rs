//! Scenarios D: wake-ups that are lost or reach the wrong one, and items that wait for the next item.

#![allow(clippy::disallowed_methods, reason = "some of these scenarios run in real time")]

mod support;

use std::future::poll_fn;
use std::hint::spin_loop;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushReason, State};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use self::support::{Dice, GUARD, HOUR, Sink, Wakes, ms, paused_for, real, rounds, secs, settled};

/// Polls a future once, and drops it.
async fn poll_once<F: Future>(future: F) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// What the churn pushes; the sink says nothing of it.
const CHURN: u64 = u64::MAX;

/// A sink that tells the ids that it gets.
fn telling() -> (impl FnMut(Batch<u64>) -> std::future::Ready<Result<(), backpressure::FlushError>> + Send, Told) {
    let (sender, told) = mpsc::unbounded_channel();
    let sink = move |batch: Batch<u64>| {
        for id in batch.iter().filter(|id| **id != CHURN) {
            sender.send(*id).unwrap();
        }
        std::future::ready(Ok(()))
    };
    (sink, told)
}

type Told = mpsc::UnboundedReceiver<u64>;

/// 100 000 rounds with `BACKPRESSURE_FULL=1`.
#[test]
fn s_d01_no_item_waits_for_the_next_while_others_cancel_their_waits() {
    real(secs(300), || async {
        let (sink, mut told) = telling();
        let c = BackpressureController::<u64>::builder(2).fixed(1, HOUR).spawn(sink).unwrap();
        // One burst of cancelled waits for each item, before, during or after its push; then nothing comes to its help.
        let round = Arc::new(AtomicU64::new(0));
        let n = rounds(100_000, 20_000);
        let churn = tokio::spawn({
            let (c, round) = (c.clone(), Arc::clone(&round));
            async move {
                let mut cancelled = 0_u64;
                for seen in 1..=n {
                    while round.load(Ordering::SeqCst) < seen {
                        tokio::task::yield_now().await;
                    }
                    match seen % 4 {
                        0 => poll_once(c.flush()).await,
                        1 => poll_once(c.push(CHURN)).await,
                        2 => poll_once(c.reserve_many(2)).await,
                        _ => poll_once(c.reserve()).await,
                    }
                    poll_once(c.watch().changed()).await;
                    cancelled += 2;
                }
                cancelled
            }
        });
        let mut dice = Dice(1);
        for id in 0..n {
            round.store(id + 1, Ordering::SeqCst);
            for _ in 0..dice.up_to(3000) {
                spin_loop();
            }
            c.push(id).await.unwrap();
            assert_eq!(timeout(secs(1), told.recv()).await, Ok(Some(id)), "a guard fired");
        }
        assert_eq!(churn.await.unwrap(), 2 * n);
        let report = c.drain(secs(25)).await;
        report.totals.audit().unwrap();
        assert_eq!((report.totals.waiting, report.totals.reserved, report.abandoned()), (0, 0, 0));
        assert!(report.delivered() >= n);
    });
}

#[test]
fn s_d03_one_release_wakes_the_pusher_and_the_flush() {
    paused_for(GUARD, || async {
        let sink = Sink::gated();
        let c = BackpressureController::<u64>::builder(1).fixed(1, HOUR).spawn(sink.clone()).unwrap();
        c.push(1).await.unwrap();
        settled().await;
        let spawned = (c.clone(), c.clone());
        let pusher = tokio::spawn(async move { spawned.0.push(2).await });
        let flusher = tokio::spawn(async move { spawned.1.flush().await });
        settled().await;
        assert_eq!((c.snapshot().waiting, pusher.is_finished(), flusher.is_finished()), (1, false, false));
        sink.open_one();
        settled().await;
        assert!(pusher.is_finished() && flusher.is_finished());
        pusher.await.unwrap().unwrap();
        let report = flusher.await.unwrap();
        assert_eq!((report.delivered, report.total()), (1, 1));
        assert_eq!((c.snapshot().accepted, c.snapshot().waiting_producers), (2, 0));
        sink.open();
        assert_eq!(c.drain(secs(25)).await.delivered(), 2);
    });
}

#[test]
fn s_d03_two_releases_back_to_back_wake_two() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(2).fixed(2, HOUR).spawn(sink.clone()).unwrap();
        let (one, two) = (c.reserve().await.unwrap(), c.reserve().await.unwrap());
        let (wakes1, wakes2) = (Wakes::new(), Wakes::new());
        let (mut first, mut second) = (Box::pin(c.push(1)), Box::pin(c.push(2)));
        assert!(wakes1.poll(&mut first).is_pending() && wakes2.poll(&mut second).is_pending());
        drop(one);
        drop(two);
        assert_eq!((wakes1.count(), wakes2.count()), (1, 1), "before anybody polls");
        assert!(matches!(wakes1.poll(&mut first), Poll::Ready(Ok(()))));
        assert!(matches!(wakes2.poll(&mut second), Poll::Ready(Ok(()))));
        assert_eq!(c.drain(secs(25)).await.delivered(), 2);
        assert_eq!(sink.delivered(), [1, 2]);
    });
}

/// The same with the sink as the one that makes room, two batches in one turn of the flusher.
#[test]
fn s_d03_two_settled_batches_back_to_back_wake_two() {
    paused_for(GUARD, || async {
        let sink = Sink::gated();
        let c = BackpressureController::<u64>::builder(2).fixed(1, HOUR).spawn(sink.clone()).unwrap();
        assert_eq!(c.push_all([1, 2]).await.unwrap(), 2);
        settled().await;
        let (wakes1, wakes2) = (Wakes::new(), Wakes::new());
        let (mut first, mut second) = (Box::pin(c.push(3)), Box::pin(c.push(4)));
        assert!(wakes1.poll(&mut first).is_pending() && wakes2.poll(&mut second).is_pending());
        sink.open_one();
        sink.open_one();
        settled().await;
        assert_eq!((wakes1.count(), wakes2.count()), (1, 1));
        assert!(matches!(wakes1.poll(&mut first), Poll::Ready(Ok(()))));
        assert!(matches!(wakes2.poll(&mut second), Poll::Ready(Ok(()))));
        sink.open();
        assert_eq!(c.drain(secs(25)).await.delivered(), 4);
        assert_eq!(sink.delivered(), [1, 2, 3, 4]);
    });
}

#[test]
fn s_d05_a_single_item_leaves_at_its_linger() {
    paused_for(secs(60), || async {
        let (sink, mut told) = telling();
        let c = BackpressureController::<u64>::builder(1000).fixed(100, ms(10)).spawn(sink).unwrap();
        let mut dice = Dice(5);
        for id in 0..20_000 {
            // The flusher is anywhere between the end of the last flush and its sleep.
            for _ in 0..dice.up_to(6) {
                tokio::task::yield_now().await;
            }
            if dice.up_to(7) == 0 {
                sleep(Duration::from_micros(dice.up_to(30_000))).await;
            }
            let pushed = Instant::now();
            c.push(id).await.unwrap();
            assert_eq!(told.recv().await, Some(id));
            let waited = pushed.elapsed();
            assert!((ms(10)..=ms(11)).contains(&waited), "item {id}: {waited:?}");
        }
        assert_eq!(c.snapshot().flushes.ok, 20_000);
        c.snapshot().audit().unwrap();
    });
}

/// In real time, with the producer on another thread than the flusher. 20 000 rounds with `BACKPRESSURE_FULL=1`.
#[test]
fn s_d05_a_single_item_leaves_at_its_linger_from_another_thread() {
    real(secs(300), || async {
        let (sink, mut told) = telling();
        let c = BackpressureController::<u64>::builder(1000).fixed(100, ms(1)).spawn(sink).unwrap();
        let mut dice = Dice(6);
        for id in 0..rounds(20_000, 500) {
            for _ in 0..dice.up_to(2000) {
                spin_loop();
            }
            c.push(id).await.unwrap();
            assert_eq!(timeout(secs(1), told.recv()).await, Ok(Some(id)), "it waits for the next one");
        }
    });
}

#[test]
fn s_d07_what_came_during_a_flush_triggers_the_next() {
    paused_for(GUARD, || async {
        let sink = Sink::gated();
        let c = BackpressureController::<u64>::builder(1000).fixed(10, HOUR).spawn(sink.clone()).unwrap();
        assert_eq!(c.push_all(0..10).await.unwrap(), 10);
        settled().await;
        assert_eq!((sink.sizes(), c.snapshot().in_flight), (vec![10], 10));
        assert_eq!(c.push_all(10..45).await.unwrap(), 35);
        sleep(ms(100)).await;
        assert_eq!(sink.sizes(), [10], "one flush in flight");
        sink.open();
        settled().await;
        assert_eq!(sink.sizes(), [10, 10, 10, 10]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.buffered, snapshot.in_flight, snapshot.delivered), (5, 0, 40));
        assert_eq!(sink.times(), [ms(0), ms(100), ms(100), ms(100)], "never idle while a batch is full");
        assert!(sink.calls().iter().all(|call| call.reason == FlushReason::Full));
        sleep(secs(600)).await;
        assert_eq!((sink.calls().len(), c.snapshot().buffered), (4, 5));
        assert_eq!(sink.delivered(), (0..40).collect::<Vec<_>>());
        assert_eq!(c.drain(secs(25)).await.delivered(), 45);
    });
}

/// 60 s with `BACKPRESSURE_FULL=1`.
#[test]
fn s_d09_writers_and_the_loop_under_cpu_contention() {
    let run = secs(rounds(60, 2));
    real(run + secs(60), move || async move {
        let delivered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&delivered);
        let c = BackpressureController::<u64>::builder(100)
            .fixed(20, ms(5))
            .spawn(move |batch: Batch<u64>| {
                count.fetch_add(batch.len() as u64, Ordering::SeqCst);
                std::future::ready(Ok(()))
            })
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let busy: Vec<_> = (0..4 * cores)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        let writers: Vec<_> = (0..10)
            .map(|_| {
                let (c, stop) = (c.clone(), Arc::clone(&stop));
                thread::spawn(move || {
                    let mut pushed = 0;
                    while !stop.load(Ordering::Relaxed) {
                        c.blocking_push(pushed).unwrap();
                        pushed += 1;
                        thread::sleep(ms(1));
                    }
                    pushed
                })
            })
            .collect();
        let start = Instant::now();
        let mut oldest = Duration::ZERO;
        while start.elapsed() < run {
            sleep(ms(10)).await;
            oldest = oldest.max(c.oldest_age().unwrap_or_default());
            c.snapshot().audit().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let mut accepted = 0;
        for writer in writers {
            accepted += tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
        }
        for thread in busy {
            thread.join().unwrap();
        }
        assert!(oldest <= secs(1), "the oldest item was {oldest:?} old");
        let report = c.drain(secs(25)).await;
        assert!(accepted > 100, "{accepted} items are no stress");
        assert_eq!((report.totals.accepted, report.delivered()), (accepted, accepted));
        assert_eq!((delivered.load(Ordering::SeqCst), c.state()), (accepted, State::Draining));
        report.totals.audit().unwrap();
    });
}
