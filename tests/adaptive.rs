//! The pace that adapts, in the controller: what a user sees of it. How well it does is judged where it lives, in simulations.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BuildError, Builder, DecisionReason, FlushError, FlushReason, Retry,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use self::support::{GUARD, HOUR, SEC, Sink, ms, paused, paused_for, secs, settled};

type Controller = BackpressureController<u64>;

/// A sink of which a call takes `a` and for each item `b` microseconds, the latter on one of so many servers.
#[derive(Clone)]
struct Store {
    a: Duration,
    b: u64,
    servers: Arc<Semaphore>,
    most: Arc<AtomicUsize>,
}

impl Store {
    fn new(a: Duration, b: u64, servers: usize) -> Self {
        Self { a, b, servers: Arc::new(Semaphore::new(servers)), most: Arc::default() }
    }

    async fn write(self, batch: Batch<u64>) -> Result<(), FlushError> {
        self.most.fetch_max(batch.len(), Ordering::Relaxed);
        sleep(self.a).await;
        let _server = self.servers.acquire().await;
        sleep(Duration::from_micros(self.b * batch.len() as u64)).await;
        Ok(())
    }
}

/// Pushes without an end.
fn feed(c: &Controller) {
    let c = c.clone();
    tokio::spawn(async move { while c.push_all(0..1000).await.is_ok() {} });
}

fn reasons(c: &Controller) -> Vec<DecisionReason> {
    c.explain().decisions.iter().map(|past| past.decision.reason).collect()
}

fn builder(capacity: usize) -> Builder<u64> {
    Controller::builder(capacity)
}

#[test]
fn an_idle_sink_gets_the_first_item_at_once_and_others_five_milliseconds_apart() {
    paused(|| async {
        let sink = Sink::ok();
        let c = builder(100).spawn(sink.clone()).unwrap();
        for i in 0..5 {
            c.push(i).await.unwrap();
            sleep(ms(2)).await;
        }
        sleep(ms(10)).await;
        assert_eq!(sink.batches(), [vec![0], vec![1, 2], vec![3, 4]]);
        assert_eq!(sink.times(), [0, 5, 10].map(ms));
        assert!(sink.calls().iter().all(|call| call.reason == FlushReason::Idle));
        // A full batch does not wait.
        c.push_all(0..50).await.unwrap();
        settled().await;
        assert_eq!(sink.calls().last().map(|call| (call.items.len(), call.reason)), Some((50, FlushReason::Full)));
    });
}

#[test]
fn the_batch_grows_to_what_the_sink_takes_within_the_target() {
    paused_for(secs(60), || async {
        let store = Store::new(ms(8), 50, 1);
        let c = builder(10_000).spawn_with(store.clone(), Store::write).unwrap();
        feed(&c);
        assert_eq!(c.explain().batch_limit, 100);
        sleep(secs(3)).await;
        let before = c.snapshot().delivered;
        sleep(secs(5)).await;
        let (told, rate) = (c.explain(), (c.snapshot().delivered - before) / 5);
        assert!((1_300..=1_900).contains(&told.batch_limit), "{told}");
        assert!(rate >= 17_000, "{rate}/s");
        assert!(reasons(&c).contains(&DecisionReason::Grow), "{told}");
        let drain_rate = told.drain_rate.unwrap();
        assert!((drain_rate / rate as f64 - 1.0).abs() < 0.1, "{drain_rate}");
        assert!((ms(70)..=ms(105)).contains(&told.latency.unwrap()), "{told}");
        // Another target, another batch; and without adapting the one that is set.
        c.reconfigure(|changes| changes.target_latency(ms(30))).unwrap();
        sleep(secs(5)).await;
        assert!((300..=480).contains(&c.explain().batch_limit), "{}", c.explain());
        c.reconfigure(|changes| changes.fixed(77, ms(5))).unwrap();
        sleep(secs(1)).await;
        store.most.store(0, Ordering::Relaxed);
        sleep(secs(1)).await;
        assert_eq!((store.most.load(Ordering::Relaxed), c.explain().batch_limit), (77, 77));
        c.reconfigure(|changes| changes.adaptive().max_batch(5_000)).unwrap();
        sleep(secs(3)).await;
        assert!((300..=480).contains(&c.explain().batch_limit), "{}", c.explain());
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_batch_that_takes_too_long_is_made_smaller() {
    paused_for(secs(60), || async {
        let store = Store::new(Duration::ZERO, 1000, 1);
        let c = builder(10_000).initial_batch(5_000).spawn_with(store.clone(), Store::write).unwrap();
        feed(&c);
        sleep(secs(60)).await;
        assert!((60..=100).contains(&c.explain().batch_limit), "{}", c.explain());
        assert_eq!(store.most.load(Ordering::Relaxed), 5_000);
        assert!(reasons(&c).contains(&DecisionReason::Shrink), "{}", c.explain());
    });
}

#[test]
fn slots_that_bring_something_are_used() {
    paused_for(secs(120), || async {
        let store = Store::new(ms(20), 200, 8);
        let write = move |batch| store.clone().write(batch);
        let c = builder(100_000).spawn_concurrent(64, write).unwrap();
        feed(&c);
        sleep(secs(3)).await;
        let before = c.snapshot().delivered;
        sleep(secs(3)).await;
        let (told, rate) = (c.explain(), (c.snapshot().delivered - before) / 3);
        assert!(rate >= 36_000, "{rate}/s: {told}");
        assert!((8..=20).contains(&told.concurrency_limit), "{told}");
        assert!(reasons(&c).contains(&DecisionReason::SlotsReverted), "{told}");
        c.snapshot().audit().unwrap();
    });
}

/// A call takes 5 ms. Counts the calls, and those that it refuses.
async fn write_or_refuse(
    batch: Batch<u64>,
    calls: Arc<Mutex<(usize, usize)>>,
    is_too_large: impl Fn(&[u64]) -> bool,
) -> Result<(), FlushError> {
    sleep(ms(5)).await;
    let is_refused = is_too_large(&batch);
    let mut calls = calls.lock().unwrap();
    *calls = (calls.0 + 1, calls.1 + usize::from(is_refused));
    if is_refused { Err(FlushError::too_large("413")) } else { Ok(()) }
}

#[test]
fn a_sink_that_refuses_large_batches_is_hardly_asked_for_them() {
    for slots in [1, 4] {
        paused_for(secs(60), move || async move {
            let calls = Arc::<Mutex<_>>::default();
            let log = Arc::clone(&calls);
            let sink = move |batch| write_or_refuse(batch, Arc::clone(&log), |batch| batch.len() > 137);
            let c = builder(20_000).spawn_concurrent(slots, sink).unwrap();
            feed(&c);
            sleep(SEC).await;
            assert!(reasons(&c).contains(&DecisionReason::TooLarge), "{}", c.explain());
            sleep(secs(9)).await;
            let (all, refused) = *calls.lock().unwrap();
            assert!(refused * 25 < all, "{refused} of {all} calls: {}", c.explain());
            assert!((124..=137).contains(&c.explain().batch_limit), "{}", c.explain());
            let rate = c.snapshot().delivered / 10;
            assert!(rate > 20_000, "{rate}/s");
            assert_eq!(c.snapshot().failed, 0);
        });
    }
}

#[test]
fn an_item_that_is_too_large_leaves_the_batch_as_it_is() {
    for slots in [1, 4] {
        paused_for(secs(60), move || async move {
            let delivered = |has_bad: bool| async move {
                let is_bad = move |batch: &[u64]| has_bad && batch.contains(&999);
                let sink = move |batch| write_or_refuse(batch, Arc::default(), is_bad);
                let c = builder(20_000).max_batch(1000).spawn_concurrent(slots, sink).unwrap();
                let producer = c.clone();
                tokio::spawn(async move { while producer.push_all(0..50_001).await.is_ok() {} });
                sleep(secs(6)).await;
                assert_eq!(c.snapshot().failed > 4, has_bad, "{} {}", c.snapshot().failed, c.explain());
                (c.snapshot().delivered, c.explain())
            };
            let (plain, _) = delivered(false).await;
            let (with, told) = delivered(true).await;
            // One of fifty batches takes twenty calls.
            assert!(with * 2 > plain, "{with} of {plain} on {slots} slots: {told}");
        });
    }
}

#[test]
fn a_target_out_of_reach_is_told() {
    paused_for(secs(60), || async {
        let c = builder(10_000).spawn_with(Store::new(ms(200), 100, 1), Store::write).unwrap();
        feed(&c);
        sleep(secs(10)).await;
        assert!(c.explain().is_target_unreachable, "{}", c.explain());
        assert!(c.explain().batch_limit >= 800, "{}", c.explain());
    });
}

#[test]
fn a_sink_that_is_down_is_asked_by_the_retry_schedule_and_recovers() {
    paused_for(secs(60), || async {
        let (is_down, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let sink = {
            let (is_down, calls) = (Arc::clone(&is_down), Arc::clone(&calls));
            move |batch: Batch<u64>| {
                calls.fetch_add(1, Ordering::Relaxed);
                let answer = if is_down.load(Ordering::Relaxed) { Err(FlushError::retry("down")) } else { Ok(()) };
                drop(batch);
                async { answer }
            }
        };
        let retry = Retry::exponential(ms(50), SEC).without_jitter();
        let c = builder(10_000).max_batch(10).retry(retry).spawn_concurrent(8, sink).unwrap();
        c.push_all(0..1000).await.unwrap();
        // At 0, 0.05, 0.15, 0.35, 0.75, 1.55, and then each second.
        sleep(secs(10)).await;
        assert!(c.explain().is_down, "{}", c.explain());
        let attempts = calls.load(Ordering::Relaxed);
        assert!((12..=24).contains(&attempts), "{attempts}");
        let told = c.explain();
        let last = told.decisions.first().unwrap();
        assert!(last.decision.reason == DecisionReason::Failed && last.times >= 8, "an outage is one entry: {told}");
        assert!(last.age <= SEC && (secs(8)..=secs(10)).contains(&last.first_age), "{told}");
        is_down.store(false, Ordering::Relaxed);
        sleep(secs(2)).await;
        assert!(!c.explain().is_down);
        assert!(reasons(&c).contains(&DecisionReason::Recovered), "{}", c.explain());
        assert_eq!((c.snapshot().delivered, c.len()), (1000, 0));
    });
}

/// Pressure overrides latency: calls that take ten times the target follow each other without a pause as long as there is a
/// backlog; an error is followed by one; and an interval of zero is no reason to call more often than there are items.
#[test]
fn s_z11_no_interval_holds_a_backlog_nor_spins_nor_hammers() {
    paused_for(HOUR, || async {
        let (sink, slow) = (Arc::new(Mutex::new(Vec::new())), secs(1));
        let (calls, start) = (Arc::clone(&sink), Instant::now());
        let c = builder(1_000)
            .max_interval(HOUR)
            .retry(Retry::exponential(ms(100), secs(10)).without_jitter())
            .spawn(move |batch: Batch<u64>| {
                let calls = Arc::clone(&calls);
                async move {
                    let began = start.elapsed();
                    let is_down = (secs(20)..secs(40)).contains(&began);
                    if !is_down {
                        sleep(slow).await;
                    }
                    calls.lock().unwrap().push((began, start.elapsed(), is_down));
                    drop(batch);
                    if is_down { Err(FlushError::retry("down")) } else { Ok(()) }
                }
            })
            .unwrap();
        feed(&c);
        sleep(secs(60)).await;
        let calls = sink.lock().unwrap().clone();
        for pair in calls.windows(2) {
            let [(_, ended, failed), (began, ..)] = [pair[0], pair[1]];
            let (pause, least) = (began - ended, if failed { ms(100) } else { Duration::ZERO });
            assert!(pause >= least && (failed || pause <= ms(1)), "{pause:?} after a call that failed: {failed}");
        }
        let failed = calls.iter().filter(|call| call.2).count();
        assert!((3..=9).contains(&failed), "{failed} calls of a sink that is down");

        let sink = Sink::ok();
        let c = builder(100).min_interval(Duration::ZERO).max_interval(Duration::ZERO).spawn(sink.clone()).unwrap();
        for i in 0..10 {
            c.push(i).await.unwrap();
            sleep(secs(10)).await;
        }
        assert_eq!(sink.sizes(), [1; 10], "one call for each item, and none without");
    });
}

#[test]
fn flush_and_drain_do_not_wait_for_the_interval() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = builder(100).min_interval(HOUR).max_interval(HOUR).spawn(sink.clone()).unwrap();
        let start = Instant::now();
        c.push(1).await.unwrap();
        settled().await;
        c.push(2).await.unwrap();
        settled().await;
        assert_eq!(sink.sizes(), [1]);
        assert!(c.flush().await.all_delivered());
        c.push(3).await.unwrap();
        assert!(c.drain(SEC).await.leftovers.is_empty());
        let reasons: Vec<_> = sink.calls().iter().map(|call| call.reason).collect();
        assert_eq!(reasons, [FlushReason::Idle, FlushReason::Flush, FlushReason::Drain]);
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn once_idle_it_never_wakes() {
    paused_for(GUARD, || async {
        let (c, mut flusher) = builder(100).build(Sink::ok()).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&polls);
        tokio::spawn(poll_fn(move |cx| {
            counter.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut flusher).poll(cx)
        }));
        c.push(1).await.unwrap();
        sleep(SEC).await;
        let before = polls.load(Ordering::Relaxed);
        sleep(1000 * HOUR).await;
        assert_eq!(polls.load(Ordering::Relaxed), before);
    });
}

#[test]
fn what_cannot_work_is_found_at_the_build_and_later() {
    paused(|| async {
        let error = |builder: Builder<u64>| builder.build(Sink::ok()).err();
        assert_eq!(error(builder(10).target_latency(Duration::ZERO)), Some(BuildError::TargetLatencyZero));
        assert_eq!(error(builder(10).initial_batch(0)), Some(BuildError::InitialBatchZero));
        let above = BuildError::InitialBatchAboveMax { initial: 6, max: 5 };
        assert_eq!(error(builder(10).initial_batch(6)), Some(above));
        let crossed = BuildError::IntervalsCrossed { min: ms(1001), max: SEC };
        assert_eq!(error(builder(10).min_interval(ms(1001))), Some(crossed));
        let c = builder(10).spawn(Sink::ok()).unwrap();
        assert_eq!(c.reconfigure(|changes| changes.min_interval(ms(1001))), Err(crossed));
        let zero = c.reconfigure(|changes| changes.capacity(5).target_latency(Duration::ZERO));
        assert_eq!((zero, c.capacity()), (Err(BuildError::TargetLatencyZero), 10));
        c.reconfigure(|changes| changes.min_interval(ms(1001)).max_interval(HOUR)).unwrap();
    });
}

#[test]
fn extreme_settings_deliver_all() {
    paused_for(secs(60), || async {
        let spans = [Duration::ZERO, Duration::from_nanos(1), ms(5), Duration::MAX];
        for target in &spans[1..] {
            for (i, min) in spans.iter().enumerate() {
                for max in &spans[i..] {
                    for (capacity, batch) in [(1, 1), (7, 7), (100, 1), (1000, 500)] {
                        let sink = Sink::ok();
                        let c = builder(capacity).max_batch(batch).target_latency(*target);
                        let c = c.min_interval(*min).max_interval(*max).spawn(sink.clone()).unwrap();
                        c.push_all(0..300).await.unwrap();
                        let report = c.drain(SEC).await;
                        assert_eq!(report.delivered(), 300, "{target:?} {min:?} {max:?} {capacity} {batch}");
                        assert_eq!(sink.delivered(), (0..300).collect::<Vec<_>>());
                    }
                }
            }
        }
    });
}
