//! Extreme durations and items of no size: zero is at once, `MAX` is never, nothing overflows.

mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, BuildError, FlushError, Pressure, PushError, Retry, Snapshot, Strategy,
};

use self::support::{
    GUARD, Gate, Log, Losses, SEC, YEAR, failing, gated, hung, idle, ms, now, ok, paused, rounds, within,
};

const NANO: Duration = Duration::from_nanos(1);
/// Far, but not `MAX`: 58 milliards of years.
const FAR: Duration = Duration::from_secs(u64::MAX / 10);
const NEVER: [Duration; 2] = [Duration::MAX, FAR];
const SOON: [Duration; 2] = [Duration::ZERO, NANO];

async fn ten_years() {
    tokio::time::advance(10 * YEAR).await;
    idle().await;
}

/// Counts the polls of a flusher: one that spins has many.
struct Counted<F>(F, Arc<AtomicUsize>);

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(cx)
    }
}

#[test]
fn s_p01_linger() {
    paused(|| async {
        for linger in SOON {
            let (log, polls) = (Log::default(), Arc::new(AtomicUsize::new(0)));
            let (c, flusher) = BackpressureController::builder(100).fixed(10, linger).build(ok(&log)).unwrap();
            tokio::spawn(Counted(flusher, Arc::clone(&polls)));
            let start = now();
            c.push_all([1, 2, 3]).await.unwrap();
            while log.items().len() < 3 {
                tokio::task::yield_now().await;
                tokio::time::sleep(NANO).await;
            }
            // The finest step of tokio's timers is a millisecond.
            assert!(start.elapsed() <= if linger.is_zero() { ms(1) } else { ms(2) }, "{:?}", start.elapsed());
            tokio::time::sleep(100 * SEC).await;
            let polls = polls.load(Ordering::Relaxed);
            assert!(polls < 20, "{polls} polls for a batch and an idle time");
        }
        for linger in NEVER {
            let log = Log::default();
            let c = BackpressureController::builder(100).fixed(10, linger).spawn(ok(&log)).unwrap();
            c.push_all([1, 2, 3]).await.unwrap();
            ten_years().await;
            assert!(log.items().is_empty());
            assert_eq!(c.flush().await.delivered, 3);
            // A full batch leaves all the same.
            c.push_all(0..10).await.unwrap();
            idle().await;
            assert_eq!(log.sizes(), [3, 10]);
        }
    });
}

#[test]
fn s_p01_waits_of_producers() {
    paused(|| async {
        for limit in SOON.into_iter().chain(NEVER) {
            for by_strategy in [false, true] {
                let strategy = if by_strategy { Strategy::BlockFor(limit) } else { Strategy::Block };
                let (gate, log) = (Gate::closed(), Log::default());
                let c =
                    BackpressureController::builder(1).fixed(1, SEC).strategy(strategy).flush_timeout(Duration::MAX);
                let c = c.spawn(gated(&gate, &log)).unwrap();
                c.push(0).await.unwrap();
                let push = tokio::spawn({
                    let c = c.clone();
                    async move { if by_strategy { c.push(1).await } else { c.push_timeout(1, limit).await } }
                });
                let start = now();
                if SOON.contains(&limit) {
                    assert_eq!(push.await.unwrap(), Err(PushError::TimedOut(1)));
                    assert!(start.elapsed() <= if limit.is_zero() { Duration::ZERO } else { ms(1) });
                    continue;
                }
                idle().await;
                ten_years().await;
                assert!(!push.is_finished());
                assert_eq!(c.snapshot().waiting, 1);
                gate.open();
                assert_eq!(push.await.unwrap(), Ok(()));
            }
        }
    });
}

#[test]
fn s_p01_waits_of_threads() {
    within(GUARD, || {
        let (c, flusher) =
            BackpressureController::builder(1).build(|_: Batch<u32>| std::future::ready(Ok(()))).unwrap();
        c.try_push(0).unwrap();
        for limit in SOON {
            assert_eq!(c.blocking_push_timeout(1, limit), Err(PushError::TimedOut(1)));
        }
        for limit in NEVER {
            let producer = std::thread::spawn({
                let c = c.clone();
                move || c.blocking_push_timeout(1, limit)
            });
            while c.snapshot().waiting == 0 {
                std::thread::yield_now();
            }
            assert_eq!(c.purge().len(), 1);
            assert_eq!(producer.join().unwrap(), Ok(()));
        }
        drop(flusher);
    });
}

#[test]
fn s_p01_back_off() {
    paused(|| async {
        for wait in SOON {
            let log = Log::default();
            let c = BackpressureController::builder(10)
                .fixed(5, ms(1))
                .retry(Retry::exponential(wait, wait))
                .spawn(failing(5, &log))
                .unwrap();
            let start = now();
            c.push_all(0..5).await.unwrap();
            assert_eq!(c.flush().await.delivered, 5);
            assert!(start.elapsed() <= if wait.is_zero() { Duration::ZERO } else { ms(5) }, "{:?}", start.elapsed());
            assert_eq!((c.snapshot().flushes.total(), c.snapshot().retried), (6, 25));
        }
        for wait in NEVER {
            let retries = [
                Retry::exponential(wait, Duration::MAX),
                Retry::exponential(wait, wait).without_jitter(),
                Retry::schedule(move || [wait]),
                Retry::exponential(ms(1), ms(1)).give_up_after(wait),
            ];
            for (i, retry) in retries.into_iter().enumerate() {
                let log = Log::default();
                let c =
                    BackpressureController::builder(10).fixed(5, ms(1)).retry(retry).spawn(failing(1, &log)).unwrap();
                c.push_all(0..5).await.unwrap();
                idle().await;
                ten_years().await;
                let is_in_time = i == 3;
                assert_eq!(log.items().len(), if is_in_time { 5 } else { 0 }, "schedule {i} of {wait:?}");
                assert_eq!(c.snapshot().retry_waiting, if is_in_time { 0 } else { 5 });
                // A wait without end does not outlast drain's deadline.
                let (start, report) = (now(), c.drain(SEC).await);
                assert_eq!(report.leftovers, if is_in_time { vec![] } else { vec![0, 1, 2, 3, 4] });
                assert_eq!(start.elapsed(), if is_in_time { Duration::ZERO } else { SEC });
            }
        }
    });
}

#[test]
fn s_p01_pauses_that_a_sink_asks_for() {
    paused(|| async {
        for after in SOON.into_iter().chain(NEVER) {
            let log = Log::default();
            let mut is_first = true;
            let c = BackpressureController::builder(10)
                .fixed(5, ms(1))
                .retry(Retry::exponential(Duration::ZERO, Duration::ZERO))
                .spawn({
                    let log = log.clone();
                    move |batch: Batch<u32>| {
                        batch.extend(after);
                        batch.extend(after);
                        if std::mem::take(&mut is_first) {
                            return std::future::ready(Err(FlushError::throttled("busy", after)));
                        }
                        log.add(&batch);
                        std::future::ready(Ok(()))
                    }
                })
                .unwrap();
            c.push_all(0..5).await.unwrap();
            idle().await;
            idle().await;
            if NEVER.contains(&after) {
                ten_years().await;
                assert_eq!((log.items().len(), c.snapshot().flushes.throttled), (0, 1));
            } else {
                assert_eq!((log.items().len(), c.snapshot().flushes.throttled), (5, 1));
            }
        }
    });
}

#[test]
fn s_p01_flush_timeout() {
    paused(|| async {
        let zero = BackpressureController::<u32>::builder(10).flush_timeout(Duration::ZERO).build(hung);
        assert_eq!(zero.err(), Some(BuildError::FlushTimeoutZero));
        // Whoever answers at once is in time even for a nanosecond.
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(5, ms(1)).flush_timeout(NANO).spawn(ok(&log)).unwrap();
        c.push_all(0..5).await.unwrap();
        assert_eq!(c.flush().await.delivered, 5);
        let c = BackpressureController::builder(10)
            .fixed(5, ms(1))
            .flush_timeout(NANO)
            .retry(Retry::never())
            .spawn(hung)
            .unwrap();
        let start = now();
        c.push_all(0..5).await.unwrap();
        assert_eq!(c.flush().await.failed, 5);
        assert!(start.elapsed() <= ms(1));
        assert_eq!(c.snapshot().flushes.timed_out, 1);
        for limit in NEVER {
            let (gate, log) = (Gate::closed(), Log::default());
            let c = BackpressureController::builder(10).fixed(5, ms(1)).flush_timeout(limit);
            let c = c.spawn(gated(&gate, &log)).unwrap();
            c.push_all(0..5).await.unwrap();
            idle().await;
            ten_years().await;
            assert_eq!((c.snapshot().in_flight, c.snapshot().flushes.total()), (5, 0));
            gate.open();
            idle().await;
            assert_eq!(log.sizes(), [5]);
        }
    });
}

#[test]
fn s_p01_drains() {
    paused(|| async {
        for limit in SOON.into_iter().chain(NEVER) {
            let (gate, log) = (Gate::closed(), Log::default());
            let c = BackpressureController::builder(10).fixed(5, ms(1)).flush_timeout(Duration::MAX);
            let c = c.spawn(gated(&gate, &log)).unwrap();
            c.push_all(0..8).await.unwrap();
            idle().await;
            let start = now();
            let drain = tokio::spawn({
                let c = c.clone();
                async move { c.drain(limit).await }
            });
            if SOON.contains(&limit) {
                let report = drain.await.unwrap();
                assert!(start.elapsed() <= if limit.is_zero() { Duration::ZERO } else { ms(1) });
                assert_eq!((report.leftovers, report.totals.abandoned), ((0..8).collect(), 8));
                continue;
            }
            idle().await;
            ten_years().await;
            assert!(!drain.is_finished());
            gate.open();
            let report = drain.await.unwrap();
            assert_eq!((report.delivered(), report.is_clean()), (8, true));
        }
    });
}

#[test]
fn s_p01_the_default_deadline() {
    paused(|| async {
        for limit in SOON.into_iter().chain(NEVER) {
            let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
            let c = BackpressureController::builder(10)
                .fixed(5, ms(1))
                .drain_on_drop(limit)
                .flush_timeout(Duration::MAX)
                .on_loss(losses.hook())
                .spawn(gated(&gate, &log))
                .unwrap();
            c.push_all(0..8).await.unwrap();
            idle().await;
            drop(c);
            if SOON.contains(&limit) {
                idle().await;
                idle().await;
                assert_eq!(losses.items(), (0..8).collect::<Vec<_>>());
                continue;
            }
            ten_years().await;
            assert!(losses.items().is_empty());
            gate.open();
            idle().await;
            assert_eq!(log.items(), (0..8).collect::<Vec<_>>());
        }
    });
}

static DROPS: AtomicU64 = AtomicU64::new(0);

/// No size, but a destructor.
struct Nothing;

impl Drop for Nothing {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Pushes `n` items of which the last 500 stay behind in a half-full buffer that is dropped; a figure of each kind.
fn life<T: Send + 'static>(strategy: Strategy<T>, n: usize, make: fn(usize) -> T) -> Snapshot {
    const C: usize = 1000;
    paused(move || async move {
        let (c, flusher) = BackpressureController::builder(C)
            .fixed(100, ms(1))
            .strategy(strategy)
            .build(|batch: Batch<T>| {
                drop(batch);
                std::future::ready(Ok(()))
            })
            .unwrap();
        let flusher = tokio::spawn(flusher);
        for i in 0..n - C / 2 {
            let _ = c.push(make(i)).await;
        }
        let _ = c.flush().await;
        c.pause();
        idle().await;
        for i in n - C / 2..n {
            assert!(c.try_push(make(i)).is_ok());
        }
        assert_eq!((c.len(), c.capacity()), (C / 2, C));
        flusher.abort();
        idle().await;
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.offered, snapshot.abandoned, snapshot.depth), (n as u64, C as u64 / 2, 0));
        snapshot
    })
}

fn custom<T>() -> Strategy<T> {
    Strategy::Custom(Arc::new(
        |_: &T, pressure: &Pressure| {
            if pressure.depth % 2 == 0 { Admission::EvictOldest } else { Admission::Refuse }
        },
    ))
}

/// 1 000 000 pushes with `BACKPRESSURE_FULL=1`.
#[test]
fn s_p05_items_of_no_size_have_the_same_ledger() {
    let n = rounds(1_000_000, 50_000);
    fn all<T>() -> [Strategy<T>; 5] {
        [Strategy::Block, Strategy::BlockFor(SEC), Strategy::DropOldest, Strategy::DropNewest, custom()]
    }
    for ((plain, unit), nothing) in all().into_iter().zip(all()).zip(all()) {
        let name = format!("{plain:?}");
        let expected = life::<u64>(plain, n, |i| i as u64);
        assert_eq!(life::<()>(unit, n, |_| ()), expected, "{name}");
        let before = DROPS.load(Ordering::Relaxed);
        assert_eq!(life(nothing, n, |_| Nothing), expected, "{name}");
        assert_eq!(DROPS.load(Ordering::Relaxed) - before, n as u64, "{name}");
    }
}
