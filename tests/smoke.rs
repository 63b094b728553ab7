//! The main road: build, push, flush, drain.

#![allow(clippy::disallowed_methods, reason = "the paused clock tells how long a drain took")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Retry, State, Strategy};

type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

fn collect(seen: &Seen) -> impl FnMut(Batch<u32>) -> std::future::Ready<Result<(), FlushError>> + Send + 'static {
    let seen = Arc::clone(seen);
    move |batch: Batch<u32>| {
        seen.lock().unwrap().push(batch.to_vec());
        std::future::ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_leaves_at_once_and_a_partial_one_at_its_linger() {
    let seen = Seen::default();
    let c = BackpressureController::builder(100).fixed(10, Duration::from_secs(1)).spawn(collect(&seen)).unwrap();
    for i in 0..25 {
        c.push(i).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(999)).await;
    assert_eq!(seen.lock().unwrap().len(), 2);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(seen.lock().unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let report = c.drain(Duration::from_secs(1)).await;
    assert_eq!(report.delivered(), 25);
    assert!(report.is_clean());
    report.totals.audit().unwrap();
    assert_eq!(c.state(), State::Draining);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_ridden_out_in_order() {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let mut failures = 5;
    let c = BackpressureController::builder(100)
        .fixed(10, Duration::from_millis(10))
        .retry(Retry::default().without_jitter())
        .spawn(move |batch: Batch<u32>| {
            failures -= 1;
            let down = failures >= 0;
            let log = Arc::clone(&log);
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if down {
                    Err(std::io::Error::other("down"))?;
                }
                log.lock().unwrap().push(batch.to_vec());
                Ok(())
            }
        })
        .unwrap();
    let report = {
        for i in 0..300 {
            c.push(i).await.unwrap();
            c.snapshot().audit().unwrap();
        }
        c.flush().await
    };
    assert!(report.all_delivered());
    assert_eq!(seen.lock().unwrap().concat(), (0..300).collect::<Vec<_>>());
    let report = c.drain(Duration::from_secs(1)).await;
    assert_eq!((report.delivered(), report.totals.retried), (300, 50));
}

#[tokio::test(start_paused = true)]
async fn drop_oldest_tells_what_it_lost() {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lost);
    let seen = Seen::default();
    let (c, flusher) = BackpressureController::builder(3)
        .strategy(Strategy::DropOldest)
        .on_loss(move |loss| log.lock().unwrap().extend(loss.item))
        .build(collect(&seen))
        .unwrap();
    for i in 1..=5 {
        c.push(i).await.unwrap();
        c.snapshot().audit().unwrap();
    }
    assert_eq!(*lost.lock().unwrap(), [1, 2]);
    tokio::spawn(flusher);
    assert_eq!(c.drain(Duration::from_secs(1)).await.evicted(), 2);
    assert_eq!(seen.lock().unwrap().concat(), [3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn blocked_producers_are_served_in_order() {
    let seen = Seen::default();
    let (c, flusher) = BackpressureController::builder(1).build(collect(&seen)).unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|i| {
            let c = c.clone();
            tokio::spawn(async move { c.push(i).await })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(c.snapshot().waiting, 9);
    tokio::spawn(flusher);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let report = c.drain(Duration::from_secs(1)).await;
    assert_eq!(seen.lock().unwrap().concat(), (0..10).collect::<Vec<_>>());
    report.totals.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hung_sink_gives_the_leftovers_back_at_the_deadline() {
    let c = BackpressureController::builder(10)
        .fixed(2, Duration::ZERO)
        .spawn(|batch: Batch<u32>| async move {
            std::future::pending::<()>().await;
            drop(batch);
            Ok(())
        })
        .unwrap();
    let rest = c.push_all(0..5).await.unwrap();
    assert_eq!(rest, 5);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = tokio::time::Instant::now();
    let report = c.drain(Duration::from_secs(2)).await;
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(report.leftovers, [0, 1, 2, 3, 4]);
    assert_eq!((report.abandoned(), report.not_returned), (5, 0));
    report.totals.audit().unwrap();
}
