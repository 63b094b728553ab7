//! User code in the new places that calls back, or panics: strategies, keys, schedules, wakers of deliveries (I2, I9).

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, Fate, FlushError, LossReason, Pressure, PushError, Retry, Sample,
    Strategy, WeakController,
};

use self::support::{Drops, HOUR, SEC, Token, hung, idle, ms, paused, poll_once, within, workers};

type Weak<T> = Arc<OnceLock<WeakController<T>>>;

/// Panics when it is dropped, once it is armed.
struct Bomb(Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::Relaxed), "the destructor of what a strategy holds");
    }
}

#[test]
fn a_strategy_that_replaces_itself_is_dropped_with_care_and_costs_no_item() {
    paused(|| async {
        let (weak, armed, drops) = (Weak::<Token>::default(), Arc::new(AtomicBool::new(true)), Drops::default());
        let (inner, bomb) = (Arc::clone(&weak), Bomb(Arc::clone(&armed)));
        let strategy = Strategy::custom(move |_: &Token, _: &Pressure| {
            let _ = &bomb;
            let c = inner.get().and_then(WeakController::upgrade).expect("it is in use");
            c.reconfigure(|changes| changes.strategy(Strategy::DropNewest)).expect("valid");
            Admission::EvictOldest
        });
        let c = BackpressureController::builder(1).strategy(strategy).spawn(hung).unwrap();
        weak.set(c.downgrade()).unwrap();
        c.pause();
        c.try_push(drops.next()).unwrap();
        // It is the last one to hold the strategy: what the strategy said counts all the same.
        let pushed = catch_unwind(AssertUnwindSafe(|| c.try_push(drops.next()).is_ok()));
        assert!(matches!(pushed, Ok(true)), "the crate catches it, and the item is in");
        let s = c.snapshot();
        assert_eq!((s.offered, s.accepted, s.evicted, s.panics), (2, 2, 1, 1));
        assert!(matches!(c.try_push(drops.next()), Err(PushError::Full(_))), "the new strategy");
        s.audit().unwrap();
    });
}

#[test]
fn a_schedule_that_is_replaced_is_dropped_with_care_and_the_flusher_goes_on() {
    paused(|| async {
        let armed = Arc::new(AtomicBool::new(true));
        let bomb = Bomb(Arc::clone(&armed));
        let schedule = Retry::schedule(move || {
            let _ = &bomb;
            std::iter::repeat(ms(10))
        });
        let answers = Arc::new(AtomicU64::new(0));
        let c = BackpressureController::builder(10)
            .fixed(1, ms(1))
            .retry(schedule)
            .spawn(move |_: Batch<u64>| {
                let fails = answers.fetch_add(1, Ordering::Relaxed) < 3;
                async move { if fails { Err(FlushError::retry("down")) } else { Ok(()) } }
            })
            .unwrap();
        c.push(1).await.unwrap();
        tokio::time::sleep(ms(5)).await;
        assert_eq!(c.snapshot().flushes.retry, 1);
        // The flusher holds the old settings until the next failure.
        let every = Retry::exponential(ms(10), ms(10)).without_jitter();
        c.reconfigure(|changes| changes.retry(every)).unwrap();
        tokio::time::sleep(ms(100)).await;
        let s = c.snapshot();
        assert_eq!((s.delivered, s.flushes.retry, s.flushes.ok), (1, 3, 1));
    });
}

/// Does something when it is woken.
struct Calls<F>(F, AtomicU64);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        (self.0)();
    }
}

#[test]
fn a_waker_may_change_settings_while_they_change() {
    within(10 * SEC, || {
        let (c, _flusher) = BackpressureController::builder(2).build(hung::<u64>).unwrap();
        c.set_capacity(1).unwrap();
        c.try_push(0).unwrap();
        let mut waiting = Box::pin(c.push(1));
        let inner = c.clone();
        let calls = Arc::new(Calls(
            move || inner.reconfigure(|changes| changes.strategy(Strategy::DropNewest)).expect("valid"),
            AtomicU64::new(0),
        ));
        let waker = Waker::from(Arc::clone(&calls));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // Room for who waits: it is woken inside this call, and sees the strategy of the call.
        c.reconfigure(|changes| changes.capacity(2).strategy(Strategy::DropOldest)).unwrap();
        assert_eq!(calls.1.load(Ordering::Relaxed), 1);
        assert_eq!(poll_once(&mut waiting), Poll::Ready(Ok(())));
        assert_eq!(c.try_push(2), Err(PushError::Full(2)), "the waker's word was the last one");
    });
}

/// Each way in which an item can be settled wakes whoever waits for its fate outside all locks.
#[test]
fn whoever_is_woken_for_a_fate_may_push_purge_flush_reconfigure_and_close() {
    paused(|| async {
        let told = Arc::new(AtomicU64::new(0));
        let c = BackpressureController::builder(4)
            .strategy(Strategy::DropOldest)
            .fixed(2, ms(1))
            .retry(Retry::never())
            .spawn(|mut batch: Batch<u64>| async move {
                match batch[0] % 4 {
                    0 => Ok(()),
                    1 => Err(FlushError::retry("no")),
                    2 => {
                        batch.fail(0, "bad");
                        Ok(())
                    }
                    _ => panic!("as asked"),
                }
            })
            .unwrap();
        let mut deliveries = Vec::new();
        for i in 0..40 {
            let mut delivery = Box::pin(c.push_tracked(i).await.unwrap());
            let (inner, told) = (c.clone(), Arc::clone(&told));
            let waker = Waker::from(Arc::new(Calls(
                move || {
                    told.fetch_add(1, Ordering::Relaxed);
                    inner.snapshot().audit().unwrap();
                    let _ = inner.try_push(1_000);
                    inner.reconfigure(|changes| changes.linger(ms(i % 3))).unwrap();
                    if i == 39 {
                        inner.close();
                    }
                    drop(inner.purge());
                    let _ = poll_once(&mut Box::pin(inner.flush()));
                    assert!(i % 3 > 0, "a waker that panics");
                },
                AtomicU64::new(0),
            )));
            match delivery.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => deliveries.push(delivery),
                // By the waker of the one that it has displaced.
                Poll::Ready(fate) => assert!(fate.loss().is_some(), "{fate}"),
            }
            if i % 5 == 4 {
                idle().await;
                tokio::time::sleep(ms(3)).await;
            }
        }
        let report = c.drain(SEC).await;
        report.totals.audit().unwrap();
        assert!(deliveries.len() > 20);
        assert_eq!(told.load(Ordering::Relaxed), deliveries.len() as u64, "each is told, once");
        assert!(deliveries.iter_mut().all(|delivery| poll_once(delivery).is_ready()));
    });
}

#[test]
fn a_flush_is_over_when_the_last_item_before_it_is_displaced_and_counts_no_later_one() {
    paused(|| async {
        let all = Sample::new().elevated(1).critical(1).seed(1);
        let c = BackpressureController::builder(1).strategy(Strategy::Sample(all)).fixed(1, HOUR).spawn(hung).unwrap();
        c.pause();
        let mut first = c.push_tracked(0).await.unwrap();
        let wakes = support::Wakes::new();
        let mut flush = Box::pin(c.flush());
        assert!(wakes.poll(&mut flush).is_pending());
        let mut next = 1..;
        while c.snapshot().evicted == 0 {
            let _ = c.try_push(next.next().unwrap());
        }
        assert_eq!(poll_once(&mut first).map(|fate| fate.loss()), Poll::Ready(Some(LossReason::Evicted)));
        assert_eq!(wakes.count(), 1);
        let Poll::Ready(report) = wakes.poll(&mut flush) else { panic!("nothing is left to wait for") };
        assert_eq!((report.evicted, report.total()), (1, 1));
        idle().await;
        assert_eq!(c.snapshot().buffered, 1, "what came later was not flushed: the buffer is paused");
    });
}

#[test]
fn a_place_is_shared_by_items_without_a_size_too() {
    paused(|| async {
        for capacity in [1, 2, 7] {
            let weights = Arc::new(Mutex::new(0));
            let sink = Arc::clone(&weights);
            let c = BackpressureController::builder(capacity)
                .strategy(Strategy::Sample(Sample::new().elevated(1).critical(1)))
                .fixed(capacity, HOUR)
                .spawn(move |batch: Batch<()>| {
                    *sink.lock().unwrap() += batch.weighted().map(|((), weight)| weight).sum::<u64>();
                    std::future::ready(Ok(()))
                })
                .unwrap();
            c.pause();
            for _ in 0..100 {
                let _ = c.try_push(());
            }
            let report = c.drain(SEC).await;
            report.totals.audit().unwrap();
            assert_eq!((report.delivered(), *weights.lock().unwrap()), (capacity as u64, 100));
        }
    });
}

#[test]
fn a_fate_is_told_on_whatever_runtime_and_on_none() {
    within(20 * SEC, || {
        let (producers, consumers) = (workers(1), workers(1));
        let (c, flusher) = BackpressureController::builder(4)
            .fixed(2, ms(1))
            .build(|batch: Batch<u64>| async move {
                tokio::time::sleep(ms(1)).await;
                if batch.contains(&7) { Err(FlushError::permanent("no")) } else { Ok(()) }
            })
            .unwrap();
        let flusher = consumers.spawn(flusher);
        for i in 0..20 {
            let delivery = producers.block_on(c.push_tracked(i)).unwrap();
            let fate = if i % 2 == 0 {
                futures::executor::block_on(delivery)
            } else {
                producers.block_on(producers.spawn(delivery)).unwrap()
            };
            assert_eq!(fate.is_delivered(), i != 7, "{fate}");
        }
        let waiting = c.push_tracked(99);
        let delivery = futures::executor::block_on(waiting).unwrap();
        consumers.shutdown_timeout(Duration::from_secs(5));
        drop(flusher);
        let fate: Fate = futures::executor::block_on(delivery);
        assert!(fate.is_delivered() || fate.loss() == Some(LossReason::Abandoned), "{fate}");
    });
}

#[test]
fn a_key_function_may_push_and_panic() {
    paused(|| async {
        let weak = Weak::<u64>::default();
        let inner = Arc::clone(&weak);
        let sample = Sample::new().normal(1).elevated(2).critical(2).by_key(move |item| {
            let c = inner.get().and_then(WeakController::upgrade).expect("it is in use");
            c.snapshot().audit().unwrap();
            // An offer inside an offer: it is asked about, too.
            if *item < 100 {
                let _ = c.try_push(item + 100);
            }
            assert!(item % 5 != 0, "no key");
            *item
        });
        let c =
            BackpressureController::builder(8).strategy(Strategy::Sample(sample)).fixed(8, HOUR).spawn(hung).unwrap();
        weak.set(c.downgrade()).unwrap();
        c.pause();
        let mut given_back = 0;
        for item in 0..20 {
            given_back += u64::from(c.try_push(item).is_err());
        }
        let s = c.snapshot();
        s.audit().unwrap();
        assert_eq!(s.depth, 8);
        assert_eq!(s.offered, s.accepted + s.refused.total());
        assert!(given_back <= s.refused.total() && s.panics > 0);
    });
}

#[test]
fn a_push_from_a_hook_evicts_from_no_controller_not_even_from_one_without_a_hook() {
    paused(|| async {
        let other = BackpressureController::builder(1).strategy(Strategy::DropOldest).spawn(hung).unwrap();
        other.pause();
        other.try_push(0).unwrap();
        let (inner, answers) = (other.clone(), Arc::new(Mutex::new(Vec::new())));
        let told = Arc::clone(&answers);
        let c = BackpressureController::builder(1)
            .strategy(Strategy::DropOldest)
            .on_loss(move |loss| {
                told.lock().unwrap().push(inner.try_push(loss.item.unwrap()).map_err(PushError::into_inner))
            })
            .spawn(hung)
            .unwrap();
        c.pause();
        c.try_push(1).unwrap();
        c.try_push(2).unwrap();
        assert_eq!(*answers.lock().unwrap(), [Err(1)], "it comes back");
        assert_eq!((other.snapshot().evicted, other.snapshot().refused.full, c.snapshot().evicted), (0, 1, 1));
    });
}
