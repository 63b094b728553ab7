//! What goes on by itself once its reason is over: after a throttling, beside a bad item, beside a call that hangs, at the end.

#![allow(clippy::disallowed_methods, reason = "some of it is about threads and real time")]

mod support;

use std::future::{Future, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BatchSink, FlushError, HealthStatus, Loss, PushError, Retry, WeakController,
};
use tokio::runtime;
use tokio::time::{Instant, sleep};

use self::support::{HOUR, SEC, ms, paused, secs};

/// A sink that takes all, but for one call that it throttles without naming a pause.
fn throttles_once(
    is_next: &Arc<AtomicBool>,
) -> impl FnMut(Batch<u64>) -> std::future::Ready<Result<(), FlushError>> + Send + 'static + use<> {
    let is_next = Arc::clone(is_next);
    move |batch| {
        drop(batch);
        let is_throttled = is_next.swap(false, Ordering::Relaxed);
        ready(if is_throttled { Err(FlushError::throttled("429", Duration::ZERO)) } else { Ok(()) })
    }
}

/// One item after the other, so far apart, and then one that is throttled.
async fn throttled_after_quiet(apart: Duration) -> BackpressureController<u64> {
    let throttle = Arc::default();
    let c = BackpressureController::builder(1000).spawn(throttles_once(&throttle)).unwrap();
    for i in 0..20 {
        c.push(i).await.unwrap();
        sleep(apart).await;
    }
    assert_eq!(c.snapshot().delivered, 20);
    throttle.store(true, Ordering::Relaxed);
    c.push(99).await.unwrap();
    c
}

#[test]
fn one_throttling_does_not_stop_a_quiet_controller_for_long() {
    paused(|| async {
        for (apart, most) in [(SEC, 2), (secs(10), 3), (secs(60), 8), (secs(600), 13)] {
            let c = throttled_after_quiet(apart).await;
            let start = Instant::now();
            assert!(c.flush().await.all_delivered());
            assert!(start.elapsed() < secs(most), "one item in {apart:?}: sent again after {:?}", start.elapsed());
        }
    });
}

#[test]
fn a_drain_does_not_leave_behind_what_a_sink_would_take() {
    paused(|| async {
        let c = throttled_after_quiet(secs(60)).await;
        sleep(SEC).await;
        let report = c.drain(secs(25)).await;
        assert_eq!((report.leftovers, report.totals.delivered), (vec![], 21));
    });
}

#[test]
fn a_pause_that_the_sink_asked_for_is_no_flusher_that_stands_still() {
    paused(|| async {
        let sink =
            |batch: Batch<u64>| ready(if batch[0] == 0 { Err(FlushError::throttled("429", secs(60))) } else { Ok(()) });
        let retry = Retry::default().give_up_after(secs(10));
        let c = BackpressureController::builder(1000).retry(retry).spawn(sink).unwrap();
        c.push(0).await.unwrap();
        sleep(SEC).await;
        assert_eq!(c.snapshot().failed, 1);
        c.push(1).await.unwrap();
        sleep(secs(20)).await;
        assert_ne!(c.health().status, HealthStatus::Unhealthy, "{}", c.health());
    });
}

#[test]
fn a_batch_that_waits_goes_by_the_schedule_that_has_replaced_its_own() {
    paused(|| async {
        let retry = |wait| Retry::schedule(move || std::iter::repeat(wait));
        let builder = BackpressureController::builder(10).fixed(1, Duration::ZERO).retry(retry(HOUR));
        let c = builder.spawn(|_: Batch<u64>| ready(Err(FlushError::retry("no")))).unwrap();
        c.push(1).await.unwrap();
        sleep(secs(10)).await;
        c.reconfigure(|changes| changes.retry(retry(SEC))).unwrap();
        // The moment that it was given before stays.
        sleep(HOUR - secs(11)).await;
        assert_eq!(c.snapshot().flushes.retry, 1);
        sleep(secs(30)).await;
        assert!(c.snapshot().flushes.retry > 20, "{}", c.snapshot().flushes.retry);
    });
}

/// Waits of an hour, whose end is not an orderly one.
struct Brittle;

impl Iterator for Brittle {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(HOUR)
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(thread::panicking(), "as the test wants it");
    }
}

#[test]
fn a_schedule_that_panics_as_it_is_replaced_condemns_no_batch() {
    paused(|| async {
        let builder = BackpressureController::builder(10).fixed(1, Duration::ZERO).retry(Retry::schedule(|| Brittle));
        let c = builder.spawn(|_: Batch<u64>| ready(Err(FlushError::retry("no")))).unwrap();
        c.push(1).await.unwrap();
        sleep(secs(10)).await;
        c.reconfigure(|changes| changes.retry(Retry::schedule(|| std::iter::repeat(SEC)))).unwrap();
        sleep(HOUR + secs(30)).await;
        assert_eq!((c.snapshot().failed, c.snapshot().in_flight), (0, 1));
    });
}

#[test]
fn nothing_waits_for_an_item_that_one_slot_is_to_send_again() {
    paused(|| async {
        let sink = |mut batch: Batch<u64>| async move {
            sleep(ms(10)).await;
            if let Some(bad) = batch.iter().position(|item| *item == 0) {
                batch.retry(bad);
            }
            Ok(())
        };
        let c = BackpressureController::builder(10_000).max_batch(10).spawn_concurrent(8, sink).unwrap();
        c.push(0).await.unwrap();
        for i in 1..1000 {
            let start = Instant::now();
            c.push_tracked(i).await.unwrap().await;
            assert!(start.elapsed() < SEC, "item {i} took {:?}", start.elapsed());
            sleep(ms(10)).await;
        }
    });
}

#[test]
fn an_age_that_is_set_later_judges_what_is_inside() {
    paused(|| async {
        let ages = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&ages);
        let hook = move |loss: Loss<Instant>| note.lock().unwrap().push(loss.item.unwrap().elapsed());
        let builder = BackpressureController::builder(1000).fixed(1000, HOUR).on_loss(hook);
        let c = builder.spawn(|_: Batch<Instant>| ready(Ok(()))).unwrap();
        for _ in 0..60 {
            c.push(Instant::now()).await.unwrap();
            sleep(ms(500)).await;
        }
        c.reconfigure(|changes| changes.max_age(secs(10))).unwrap();
        sleep(secs(20)).await;
        let ages = ages.lock().unwrap();
        assert!(ages.iter().all(|age| *age >= secs(10)), "{ages:?}");
        assert!(ages.len() >= 35, "40 of them were too old, and it looks once a second: {}", ages.len());
    });
}

fn each_runtime(test: impl Fn(&runtime::Runtime)) {
    let kinds = [runtime::Builder::new_current_thread(), runtime::Builder::new_multi_thread()];
    kinds.into_iter().for_each(|mut kind| test(&kind.worker_threads(2).enable_all().build().unwrap()));
}

async fn at_once_or_never(is_never: bool) -> Result<(), FlushError> {
    if is_never { pending().await } else { Ok(()) }
}

#[test]
fn a_call_that_hangs_is_cut_off_beside_slots_that_are_always_ready() {
    each_runtime(|runtime| {
        runtime.block_on(async {
            let is_first = AtomicBool::new(true);
            let sink = move |_: Batch<u64>| at_once_or_never(is_first.swap(false, Ordering::Relaxed));
            let builder = BackpressureController::builder(10_000).fixed(10, Duration::ZERO).flush_timeout(ms(100));
            let c = builder.spawn_concurrent(4, Shared(Arc::new(Mutex::new(sink)))).unwrap();
            let producers: Vec<_> = (0..4).map(|_| tokio::spawn(keep_full(c.clone()))).collect();
            let start = Instant::now();
            while c.snapshot().flushes.timed_out == 0 {
                assert!(start.elapsed() < secs(5), "it hangs for ever");
                sleep(ms(20)).await;
            }
            producers.iter().for_each(|producer| producer.abort());
        });
    });
}

#[test]
fn a_call_that_asks_for_more_time_in_its_last_moment_gets_it() {
    paused(|| async {
        let sink = |batch: Batch<u64>| async move {
            sleep(ms(100)).await;
            if batch[0] == 1 {
                batch.extend(SEC);
                sleep(ms(500)).await;
            }
            Ok(())
        };
        let builder = BackpressureController::builder(10).fixed(1, Duration::ZERO).flush_timeout(ms(100));
        let c = builder.spawn_concurrent(2, sink).unwrap();
        // The other one ends at that moment, and is looked at first.
        (0..2).for_each(|i| c.try_push(i).unwrap());
        assert!(c.flush().await.all_delivered());
        let flushes = c.snapshot().flushes;
        assert_eq!((flushes.ok, flushes.timed_out), (2, 0));
    });
}

#[test]
fn a_batch_that_is_due_waits_for_no_other_that_is_not() {
    paused(|| async {
        let failures = Arc::new(AtomicUsize::new(0));
        let sink = move |mut batch: Batch<u64>| {
            let is_bad = batch[0] == 0 || failures.fetch_add(1, Ordering::Relaxed) == 0;
            if is_bad {
                batch.retry(0);
            }
            drop(batch);
            ready(Ok(()))
        };
        let retry = Retry::exponential(ms(50), secs(10)).without_jitter();
        let builder = BackpressureController::builder(10).max_batch(1).retry(retry);
        let c = builder.spawn_concurrent(2, Shared(Arc::new(Mutex::new(sink)))).unwrap();
        c.push(0).await.unwrap();
        // Its next attempt is due in almost six seconds.
        sleep(secs(7)).await;
        let pushed = Instant::now();
        c.push_tracked(1).await.unwrap().await;
        assert!(pushed.elapsed() < ms(200), "{:?}", pushed.elapsed());
    });
}

async fn keep_full(c: BackpressureController<u64>) {
    while c.push_all(0..1000).await.is_ok() {}
}

/// One sink for all slots.
struct Shared<F>(Arc<Mutex<F>>);

impl<F> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F, A> BatchSink<u64> for Shared<F>
where
    F: FnMut(Batch<u64>) -> A + Send,
    A: Future<Output = Result<(), FlushError>> + Send,
{
    fn flush(&mut self, batch: Batch<u64>) -> impl Future<Output = Result<(), FlushError>> + Send {
        self.0.lock().unwrap()(batch)
    }
}

/// A sink that never answers, and pushes into its own full controller when it is dropped.
struct Parting {
    home: Arc<Mutex<Option<WeakController<u64>>>>,
    answer: mpsc::Sender<Result<(), PushError<u64>>>,
}

impl BatchSink<u64> for Parting {
    async fn flush(&mut self, _: Batch<u64>) -> Result<(), FlushError> {
        pending().await
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        let home = self.home.lock().unwrap().take();
        if let Some(c) = home.and_then(|home| home.upgrade()) {
            self.answer.send(c.blocking_push(7)).unwrap();
        }
    }
}

fn parting() -> (Parting, mpsc::Receiver<Result<(), PushError<u64>>>) {
    let (answer, answers) = mpsc::channel();
    (Parting { home: Arc::default(), answer }, answers)
}

#[test]
fn a_sink_that_pushes_as_it_is_dropped_is_refused() {
    let refused = |answers: mpsc::Receiver<_>| {
        let answer = answers.recv_timeout(secs(5)).expect("it hangs for ever");
        assert!(matches!(answer, Err(PushError::Closed(7) | PushError::WouldDeadlock(7))), "{answer:?}");
    };
    let (sink, answers) = parting();
    thread::spawn(move || {
        let home = Arc::clone(&sink.home);
        let (c, flusher) = BackpressureController::builder(1).fixed(1, HOUR).build(sink).unwrap();
        *home.lock().unwrap() = Some(c.downgrade());
        c.try_push(1).unwrap();
        drop(flusher);
    });
    refused(answers);

    let (sink, answers) = parting();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let home = Arc::clone(&sink.home);
        let c = BackpressureController::builder(1).fixed(1, HOUR).spawn_on(runtime.handle(), sink).unwrap();
        *home.lock().unwrap() = Some(c.downgrade());
        c.try_push(1).unwrap();
        runtime.block_on(async { sleep(ms(20)).await });
        drop(runtime);
    });
    refused(answers);
}
