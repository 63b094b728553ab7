//! Scenarios A: what is lost at shutdown, and flushes and drains whose answer is a lie.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, BatchSink, FlushError, FlushReason, LossReason, Retry};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::support::{Drops, GUARD, HOUR, Sink, Token, Wakes, ms, paused_for, real, rounds, secs, settled, within};

/// 200 000 rounds with `BACKPRESSURE_FULL=1`.
#[test]
fn s_a01_flush_sees_every_accepted_push() {
    let n = rounds(200_000, 20_000);
    within(secs(600), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let delivered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&delivered);
        let inside = runtime.enter();
        let c = BackpressureController::<u64>::builder(64)
            .fixed(64, HOUR)
            .spawn(move |batch: Batch<u64>| {
                count.fetch_add(batch.len() as u64, Ordering::SeqCst);
                std::future::ready(Ok(()))
            })
            .unwrap();
        drop(inside);
        // The producer pushes when it is told the round, and says so when `try_push` has returned.
        let (round, pushed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let producer = {
            let (c, round, pushed) = (c.clone(), Arc::clone(&round), Arc::clone(&pushed));
            std::thread::spawn(move || {
                for i in 1..=n {
                    spin_until(&round, i);
                    c.try_push(i).unwrap();
                    pushed.store(i, Ordering::SeqCst);
                }
            })
        };
        let mut misses = 0;
        for i in 1..=n {
            round.store(i, Ordering::SeqCst);
            spin_until(&pushed, i);
            let report = runtime.block_on(c.flush());
            misses += u64::from(delivered.load(Ordering::SeqCst) != i);
            assert!(report.all_delivered());
        }
        assert_eq!(misses, 0);
        producer.join().unwrap();
        let report = runtime.block_on(c.drain(secs(25)));
        assert_eq!((report.totals.accepted, report.delivered()), (n, n));
        report.totals.audit().unwrap();
    });
}

fn spin_until(word: &AtomicU64, value: u64) {
    while word.load(Ordering::SeqCst) != value {
        std::thread::yield_now();
    }
}

#[test]
fn s_a01_drain_delivers_every_accepted_push() {
    real(secs(60), || async {
        for round in 0..rounds(10_000, 500) {
            let sink = Sink::ok();
            let c = BackpressureController::<u64>::builder(16).fixed(4, HOUR).spawn(sink.clone()).unwrap();
            let producers: Vec<_> = (0..3)
                .map(|_| {
                    let c = c.clone();
                    tokio::spawn(async move { (0..50).filter(|i| c.try_push(*i).is_ok()).count() as u64 })
                })
                .collect();
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            let report = c.drain(secs(25)).await;
            let mut accepted = 0;
            for producer in producers {
                accepted += producer.await.unwrap();
            }
            let totals = c.snapshot();
            totals.audit().unwrap();
            assert_eq!((totals.offered, totals.accepted, totals.delivered), (150, accepted, accepted));
            assert_eq!((report.delivered(), sink.delivered().len() as u64), (accepted, accepted));
            assert_eq!((report.totals.buffered, report.totals.in_flight), (0, 0));
            assert!(report.is_clean() && report.leftovers.is_empty());
        }
    });
}

#[test]
fn s_a03_an_outage_at_shutdown_is_no_verdict() {
    paused_for(GUARD, || async {
        let lost = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&lost);
        let sink = Sink::fail(u64::MAX);
        let c = BackpressureController::<u64>::builder(10)
            .fixed(5, ms(5))
            .on_loss(move |_| _ = count.fetch_add(1, Ordering::SeqCst))
            .spawn(sink.clone())
            .unwrap();
        assert_eq!(c.push_all(1..=10).await.unwrap(), 10);
        let start = Instant::now();
        let report = c.drain(secs(1)).await;
        assert_eq!(start.elapsed(), ms(1000));
        assert_eq!((report.delivered(), report.failed(), report.abandoned()), (0, 0, 10));
        assert_eq!(report.leftovers, (1..=10).collect::<Vec<_>>());
        assert_eq!((report.not_returned, report.permits_out), (0, 0));
        assert_eq!((report.totals.buffered, report.totals.in_flight), (0, 0));
        assert!(sink.batches().iter().all(|batch| *batch == [1, 2, 3, 4, 5]), "order holds through retries");
        assert_eq!(lost.load(Ordering::SeqCst), 0, "the caller has them");
        report.totals.audit().unwrap();
    });
}

#[test]
fn s_a03_a_permanent_refusal_is_a_verdict() {
    paused_for(GUARD, || async {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lost);
        let sink = Sink::refuse();
        let c = BackpressureController::<u64>::builder(10)
            .fixed(5, ms(5))
            .on_loss(move |loss| {
                assert_eq!(loss.reason, LossReason::Failed);
                assert_eq!(loss.error.unwrap().to_string(), "refused");
                log.lock().unwrap().extend(loss.item);
            })
            .spawn(sink.clone())
            .unwrap();
        assert_eq!(c.push_all(1..=10).await.unwrap(), 10);
        let start = Instant::now();
        let report = c.drain(secs(1)).await;
        assert_eq!(start.elapsed(), ms(0));
        assert_eq!((report.delivered(), report.failed(), report.abandoned()), (0, 10, 0));
        assert!(report.leftovers.is_empty());
        assert_eq!(report.totals.panics, 0, "the hook's asserts held");
        assert_eq!(*lost.lock().unwrap(), (1..=10).collect::<Vec<_>>());
        assert_eq!(sink.sizes(), [5, 5]);
        report.totals.audit().unwrap();
    });
}

type Events = Arc<Mutex<Vec<String>>>;

/// Owns the client; each call asserts that it is alive.
struct Client {
    alive: Arc<AtomicBool>,
    events: Events,
    gate: Arc<Semaphore>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::SeqCst);
        self.events.lock().unwrap().push("sink dropped".into());
    }
}

impl BatchSink<u64> for Client {
    async fn flush(&mut self, batch: Batch<u64>) -> Result<(), FlushError> {
        assert!(self.alive.load(Ordering::SeqCst), "a call after drop");
        self.events.lock().unwrap().push(format!("call {:?} {}", &*batch, batch.reason()));
        let _permit = self.gate.acquire().await;
        assert!(self.alive.load(Ordering::SeqCst), "dropped during the call");
        self.events.lock().unwrap().push(format!("end {:?}", &*batch));
        Ok(())
    }
}

#[test]
fn s_a05_the_sink_is_dropped_after_the_final_flush() {
    paused_for(GUARD, || async {
        let (alive, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(0)));
        let events = Events::default();
        let client = Client { alive: Arc::clone(&alive), events: Arc::clone(&events), gate: Arc::clone(&gate) };
        let c = BackpressureController::<u64>::builder(10).fixed(5, ms(5)).spawn(client).unwrap();
        c.push(0).await.unwrap();
        tokio::time::sleep(ms(6)).await;
        assert_eq!(c.push_all(1..=3).await.unwrap(), 3);
        let drainer = {
            let (c, events) = (c.clone(), Arc::clone(&events));
            tokio::spawn(async move {
                let report = c.drain(secs(25)).await;
                events.lock().unwrap().push("drained".into());
                report
            })
        };
        settled().await;
        assert_eq!(*events.lock().unwrap(), ["call [0] linger"], "the call in flight is waited for");
        gate.close();
        let report = drainer.await.unwrap();
        let order = ["call [0] linger", "end [0]", "call [1, 2, 3] drain", "end [1, 2, 3]", "sink dropped", "drained"];
        tokio::time::sleep(HOUR).await;
        assert_eq!(*events.lock().unwrap(), order);
        assert!(!alive.load(Ordering::SeqCst));
        assert_eq!((report.delivered(), report.totals.panics, report.totals.flushes.total()), (4, 0, 2));
        assert!(report.is_clean());
    });
}

/// Notes how often the caller of `drain` had been woken when the sink was dropped.
struct Late {
    woken: Arc<Mutex<Option<usize>>>,
    drainer: Arc<Wakes>,
}

impl Drop for Late {
    fn drop(&mut self) {
        *self.woken.lock().unwrap() = Some(self.drainer.count());
    }
}

impl BatchSink<u64> for Late {
    async fn flush(&mut self, batch: Batch<u64>) -> Result<(), FlushError> {
        drop(batch);
        Ok(())
    }
}

#[test]
fn s_a05_drain_answers_after_the_sink_is_dropped() {
    paused_for(GUARD, || async {
        let (woken, drainer) = (Arc::default(), Wakes::new());
        let sink = Late { woken: Arc::clone(&woken), drainer: Arc::clone(&drainer) };
        let (c, flusher) = BackpressureController::<u64>::builder(10).build(sink).unwrap();
        c.push(1).await.unwrap();
        let (mut drain, mut flusher) = (Box::pin(c.drain(secs(25))), Box::pin(flusher));
        assert!(drainer.poll(&mut drain).is_pending());
        assert!(Wakes::new().poll(&mut flusher).is_ready());
        assert_eq!((*woken.lock().unwrap(), drainer.count()), (Some(0), 1), "first the sink, then the answer");
        assert!(drainer.poll(&mut drain).is_ready());

        // And when the flusher is dropped on the way.
        let (woken, drainer) = (Arc::default(), Wakes::new());
        let sink = Late { woken: Arc::clone(&woken), drainer: Arc::clone(&drainer) };
        let (c, flusher) = BackpressureController::<u64>::builder(10).build(sink).unwrap();
        c.push(1).await.unwrap();
        let mut drain = Box::pin(c.drain(secs(25)));
        assert!(drainer.poll(&mut drain).is_pending());
        drop(flusher);
        assert_eq!((*woken.lock().unwrap(), drainer.count()), (Some(0), 1));
        let Poll::Ready(report) = drainer.poll(&mut drain) else { panic!("it has ended") };
        assert_eq!((report.abandoned(), report.leftovers), (1, vec![1]));
    });
}

/// Refuses batches of more than 2 and lets the others through the gate one by one; its own record of calls.
struct Narrow {
    calls: Arc<Mutex<Vec<Vec<u64>>>>,
    gate: Arc<Semaphore>,
}

impl BatchSink<u64> for Narrow {
    async fn flush(&mut self, batch: Batch<u64>) -> Result<(), FlushError> {
        self.calls.lock().unwrap().push(batch.to_vec());
        if batch.len() > 2 {
            return Err(FlushError::too_large("too large"));
        }
        if let Ok(permit) = self.gate.acquire().await {
            permit.forget();
        }
        Ok(())
    }
}

#[test]
fn s_a09_flush_waits_for_both_halves_of_a_split_batch() {
    paused_for(GUARD, || async {
        let (calls, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let sink = Narrow { calls: Arc::clone(&calls), gate: Arc::clone(&gate) };
        let c = BackpressureController::<u64>::builder(8).fixed(4, HOUR).spawn(sink).unwrap();
        assert_eq!(c.push_all(1..=4).await.unwrap(), 4);
        let start = Instant::now();
        let flush = tokio::spawn({
            let c = c.clone();
            async move { c.flush().await }
        });
        settled().await;
        assert_eq!(*calls.lock().unwrap(), [vec![1, 2, 3, 4], vec![1, 2]]);
        gate.add_permits(1);
        settled().await;
        assert_eq!(*calls.lock().unwrap(), [vec![1, 2, 3, 4], vec![1, 2], vec![3, 4]]);
        tokio::time::sleep(secs(1)).await;
        assert!(!flush.is_finished(), "the second half is still out");
        assert_eq!((c.snapshot().delivered, c.snapshot().in_flight), (2, 2));
        gate.add_permits(1);
        let report = flush.await.unwrap();
        assert_eq!((report.delivered, report.total()), (4, 4));
        assert_eq!((start.elapsed(), calls.lock().unwrap().len()), (secs(1), 3));
        let snapshot = c.snapshot();
        assert_eq!((snapshot.delivered, snapshot.flushes.too_large, snapshot.flushes.ok), (4, 1, 2));
        snapshot.audit().unwrap();
    });
}

/// Says when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn s_a11_a_sink_that_never_returns_is_cut_off_at_the_deadline() {
    paused_for(GUARD, || async {
        let (drops, dropped) = (Drops::default(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&dropped);
        let c = BackpressureController::<Token>::builder(10)
            .fixed(3, ms(5))
            .flush_timeout(Duration::MAX)
            .spawn(move |batch: Batch<Token>| {
                let flag = Flag(Arc::clone(&flag));
                async move {
                    std::future::pending::<()>().await;
                    drop((batch, flag));
                    Ok(())
                }
            })
            .unwrap();
        for id in 1..=3 {
            c.push(drops.token(id)).await.unwrap();
        }
        settled().await;
        assert_eq!(c.snapshot().in_flight, 3);
        let start = Instant::now();
        let report = c.drain(secs(2)).await;
        assert_eq!(start.elapsed(), ms(2000));
        assert!(dropped.load(Ordering::SeqCst), "the sink's future is dropped");
        assert_eq!((report.delivered(), report.abandoned(), report.not_returned), (0, 3, 0));
        assert_eq!(report.leftovers, [1, 2, 3]);
        assert_eq!(report.totals.flushes.cancelled, 1);
        report.totals.audit().unwrap();
        drop(report);
        drops.assert_each_once(3);
    });
}

#[test]
fn s_a11_an_endless_back_off_is_cut_short_at_the_deadline() {
    paused_for(GUARD, || async {
        let sink = Sink::fail(u64::MAX);
        let c = BackpressureController::<u64>::builder(10)
            .fixed(3, ms(5))
            .retry(Retry::exponential(secs(30), secs(30)).without_jitter())
            .spawn(sink.clone())
            .unwrap();
        assert_eq!(c.push_all(1..=3).await.unwrap(), 3);
        settled().await;
        assert_eq!((c.snapshot().retry_waiting, c.len()), (3, 3), "in the back-off");
        let start = Instant::now();
        let report = c.drain(secs(2)).await;
        assert_eq!(start.elapsed(), ms(2000));
        assert_eq!((report.delivered(), report.failed(), report.abandoned(), report.not_returned), (0, 0, 3, 0));
        assert_eq!(report.leftovers, [1, 2, 3]);
        let calls = sink.calls();
        assert_eq!((calls.len(), calls[0].attempt, calls[0].reason), (1, 1, FlushReason::Full));
        report.totals.audit().unwrap();
    });
}
