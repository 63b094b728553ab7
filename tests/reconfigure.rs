//! Settings that change while all goes on: at one instant, all or none, and nothing inside is touched.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, BuildError, Changes, FlushError, LossReason, Pressure, PushError, Retry,
    Sample, State, Strategy, Watermarks,
};

use self::support::{Drops, HOUR, Log, Losses, SEC, Token, hung, idle, ms, now, paused, poll_once, real, rounds, secs};

type Change = fn(Changes<u64>) -> Changes<u64>;

fn marks(low: f64, high: f64) -> Watermarks {
    Watermarks::new(low, high).unwrap()
}

#[test]
fn all_or_none() {
    paused(|| async {
        let c = BackpressureController::builder(10).fixed(5, HOUR).spawn(hung::<u64>).unwrap();
        c.pause();
        let wrong: [(Change, BuildError); 6] = [
            (|c| c.capacity(0), BuildError::CapacityZero),
            (|c| c.capacity(11), BuildError::CapacityTooLarge { max: 10 }),
            (|c| c.max_batch(0), BuildError::BatchZero),
            (|c| c.max_batch(11), BuildError::BatchAboveCapacity { batch: 11, capacity: 10 }),
            (|c| c.flush_timeout(Duration::ZERO), BuildError::FlushTimeoutZero),
            (|c| c.retry(Retry::default().max_attempts(0)), BuildError::RetryAttemptsZero),
        ];
        for (change, error) in wrong {
            let all = |changes| change(changes).strategy(Strategy::DropOldest).watermarks(marks(0.1, 0.2));
            // A wrong capacity that is named with a right one: the last word counts.
            assert_eq!(c.reconfigure(all), Err(error));
        }
        let zero = c.reconfigure(|c| c.capacity(3).strategy(Strategy::Sample(Sample::new().normal(0))));
        assert_eq!(zero, Err(BuildError::SampleRateZero));
        assert_eq!((c.capacity(), c.snapshot().capacity), (10, 10));
        c.push_all(0..10).await.unwrap();
        assert_eq!(c.try_push(10), Err(PushError::Full(10)), "the strategy is the old one");
        assert_eq!(c.reconfigure(|changes| changes), Ok(()), "nothing to change is no error");
    });
}

#[test]
fn a_strategy_counts_from_the_next_push_on_and_who_waits_goes_on_waiting() {
    paused(|| async {
        let lost = Losses::default();
        let c = BackpressureController::builder(2).fixed(2, HOUR).on_loss(lost.hook()).spawn(hung).unwrap();
        c.pause();
        c.push_all(0..2_u64).await.unwrap();
        let mut waiting = Box::pin(c.push(2));
        assert!(poll_once(&mut waiting).is_pending());
        c.reconfigure(|changes| changes.strategy(Strategy::DropOldest)).unwrap();
        c.push(3).await.unwrap();
        c.try_push(4).unwrap();
        assert_eq!(lost.items(), [0, 1]);
        assert!(poll_once(&mut waiting).is_pending());
        c.reconfigure(|changes| changes.strategy(Strategy::DropNewest)).unwrap();
        assert_eq!(c.push(5).await, Err(PushError::Full(5)));
        c.reconfigure(|changes| changes.strategy(Strategy::BlockFor(ms(3)))).unwrap();
        let start = now();
        assert_eq!(c.push(6).await, Err(PushError::TimedOut(6)));
        assert_eq!(start.elapsed(), ms(3));
        assert_eq!(c.purge(), [3, 4]);
        waiting.await.unwrap();
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_strategy_that_is_asked_from_a_state_on_is_asked_at_once_and_the_old_one_is_dropped() {
    paused(|| async {
        let c = BackpressureController::builder(10).fixed(1, HOUR).spawn(hung::<u64>).unwrap();
        c.pause();
        c.push_all(0..6).await.unwrap();
        assert_eq!(c.state(), State::Elevated);
        let witness = Arc::new(());
        let held = Arc::clone(&witness);
        let refusing = Strategy::custom_from(State::Elevated, move |_: &u64, _: &Pressure| {
            let _ = &held;
            Admission::Refuse
        });
        c.reconfigure(|changes| changes.strategy(refusing)).unwrap();
        assert_eq!(c.try_push(6), Err(PushError::Full(6)));
        assert_eq!(Arc::strong_count(&witness), 2);
        // With other marks the state is Normal again, and nobody is asked.
        c.reconfigure(|changes| changes.watermarks(marks(0.9, 1.0))).unwrap();
        assert_eq!(c.state(), State::Normal);
        c.try_push(6).unwrap();
        c.reconfigure(|changes| changes.strategy(Strategy::Block)).unwrap();
        assert_eq!(Arc::strong_count(&witness), 1);
    });
}

#[test]
fn the_state_follows_new_marks_and_a_new_capacity_and_watchers_see_it() {
    paused(|| async {
        let c = BackpressureController::builder(100).fixed(1, HOUR).spawn(hung::<u64>).unwrap();
        c.pause();
        c.push_all(0..39).await.unwrap();
        let mut watch = c.watch();
        assert_eq!(watch.current(), State::Normal);
        c.reconfigure(|changes| changes.watermarks(marks(0.2, 0.3))).unwrap();
        assert_eq!((c.state(), watch.changed().await), (State::Critical, Some(State::Critical)));
        c.reconfigure(|changes| changes.watermarks(marks(0.5, 0.9)).capacity(39)).unwrap();
        assert_eq!((c.state(), watch.changed().await), (State::Blocked, Some(State::Blocked)));
        c.reconfigure(|changes| changes.capacity(100)).unwrap();
        assert_eq!((c.state(), watch.changed().await), (State::Normal, Some(State::Normal)));
        assert_eq!(c.snapshot().buffered, 39);
    });
}

#[test]
fn a_shorter_linger_and_a_smaller_batch_count_for_what_is_buffered() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(100).fixed(50, HOUR).spawn(support::ok(&log)).unwrap();
        c.push_all(0..10_u64).await.unwrap();
        idle().await;
        assert!(log.sizes().is_empty());
        c.reconfigure(|changes| changes.max_batch(4)).unwrap();
        idle().await;
        assert_eq!(log.sizes(), [4, 4]);
        c.reconfigure(|changes| changes.linger(ms(5))).unwrap();
        tokio::time::sleep(ms(6)).await;
        assert_eq!(log.sizes(), [4, 4, 2]);
        c.reconfigure(|changes| changes.max_batch(50).linger(HOUR)).unwrap();
        c.push_all(0..49).await.unwrap();
        tokio::time::sleep(SEC).await;
        assert_eq!(log.sizes(), [4, 4, 2]);
    });
}

#[test]
fn a_retry_policy_counts_from_the_next_failure_on() {
    paused(|| async {
        let lost = Losses::default();
        let c = BackpressureController::builder(10)
            .fixed(1, ms(1))
            .retry(Retry::exponential(ms(100), ms(100)).without_jitter())
            .on_loss(lost.hook())
            .spawn(|_: Batch<u64>| async { Err(FlushError::retry("down")) })
            .unwrap();
        c.push(1).await.unwrap();
        tokio::time::sleep(ms(350)).await;
        assert_eq!(c.snapshot().flushes.retry, 4);
        c.reconfigure(|changes| changes.retry(Retry::never())).unwrap();
        tokio::time::sleep(ms(100)).await;
        assert_eq!(c.snapshot().flushes.retry, 5);
        assert_eq!(lost.lines(), [(Some(1), LossReason::Failed, Some("down".to_owned()))]);
    });
}

#[test]
fn a_flush_timeout_counts_from_the_next_call_on() {
    paused(|| async {
        let c = BackpressureController::builder(10)
            .fixed(1, ms(1))
            .flush_timeout(SEC)
            .retry(Retry::exponential(Duration::ZERO, Duration::ZERO))
            .spawn(hung::<u64>)
            .unwrap();
        c.push(1).await.unwrap();
        idle().await;
        c.reconfigure(|changes| changes.flush_timeout(ms(100))).unwrap();
        tokio::time::sleep(ms(990)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 0);
        tokio::time::sleep(ms(65)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 1);
        tokio::time::sleep(ms(100)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 2);
    });
}

#[test]
fn a_sample_that_comes_later_leaves_a_unit_to_the_overflow() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(10, HOUR).spawn(support::ok(&log)).unwrap();
        let all = Sample::new().elevated(1).critical(1);
        c.reconfigure(|changes| changes.strategy(Strategy::Sample(all))).unwrap();
        c.push_all(0..10_u64).await.unwrap();
        idle().await;
        assert_eq!(log.sizes(), [9]);
        c.reconfigure(|changes| changes.strategy(Strategy::Block)).unwrap();
        c.push_all(0..9).await.unwrap();
        idle().await;
        assert_eq!(log.sizes(), [9, 10]);
    });
}

#[test]
fn a_strategy_is_the_new_one_on_every_thread() {
    let decides = |admission| Strategy::custom(move |_: &u64, _: &Pressure| admission);
    let (c, _flusher) =
        BackpressureController::builder(1).strategy(decides(Admission::Refuse)).build(hung::<u64>).unwrap();
    c.try_push(0).unwrap();
    for (admission, is_in) in [(Admission::EvictOldest, true), (Admission::Refuse, false)] {
        c.reconfigure(|changes| changes.strategy(decides(admission))).unwrap();
        // More of them than there are copies of a strategy.
        for _ in 0..40 {
            let c = c.clone();
            assert_eq!(thread::spawn(move || c.try_push(1).is_ok()).join().unwrap(), is_in);
        }
    }
}

#[test]
fn under_load_nothing_is_lost_whatever_is_changed() {
    let drops = Drops::default();
    let tokens = drops.clone();
    real(secs(60), move || async move {
        let c = BackpressureController::builder(64)
            .fixed(8, ms(1))
            .retry(Retry::exponential(Duration::ZERO, ms(1)))
            .spawn(|batch: Batch<Token>| async move {
                if batch.seq(0) % 7 == 0 && batch.attempt() == 1 {
                    return Err(FlushError::retry("now and then"));
                }
                tokio::task::yield_now().await;
                Ok(())
            })
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let producers: Vec<_> = (0..3)
            .map(|kind| {
                let (c, tokens, stop) = (c.clone(), tokens.clone(), Arc::clone(&stop));
                thread::spawn(move || {
                    let mut offers = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        offers += 1;
                        match kind {
                            0 => drop(c.try_push(tokens.next())),
                            1 => drop(c.blocking_push_timeout(tokens.next(), ms(2))),
                            _ => drop(c.blocking_push(tokens.next())),
                        }
                    }
                    offers
                })
            })
            .collect();
        for i in 0..rounds(5_000, 500_usize) {
            c.reconfigure(|changes| {
                let changes = changes.capacity(1 + i * 7 % 64).max_batch(1 + i % 9).linger(ms(i as u64 % 3));
                let changes = changes.watermarks(marks(0.1, 0.2 + (i % 8) as f64 / 10.0));
                changes.strategy(match i % 6 {
                    0 => Strategy::Block,
                    1 => Strategy::DropOldest,
                    2 => Strategy::DropNewest,
                    3 => Strategy::Sample(Sample::new()),
                    4 => Strategy::BlockFor(ms(1)),
                    _ => Strategy::custom_from(State::Elevated, |_: &Token, _: &Pressure| Admission::EvictOldest),
                })
            })
            .unwrap();
            let s = c.snapshot();
            s.audit().unwrap();
            assert!(s.depth <= 64);
            if i % 16 == 0 {
                tokio::time::sleep(ms(1)).await;
            }
        }
        stop.store(true, Ordering::Relaxed);
        c.reconfigure(|changes| changes.strategy(Strategy::DropNewest).capacity(64)).unwrap();
        let offers: u64 =
            tokio::task::spawn_blocking(move || producers.into_iter().map(|producer| producer.join().unwrap()).sum())
                .await
                .unwrap();
        let report = c.drain(secs(10)).await;
        report.totals.audit().unwrap();
        assert!(report.is_clean());
        assert_eq!(report.totals.offered, offers);
    });
    assert_eq!(drops.alive(), 0);
}
