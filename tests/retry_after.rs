//! When a refused producer should come back: one after the other, as fast as the sink drains.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, Retry, State, Strategy, retry_after_secs};
use tokio::time::{Instant, sleep};

use self::support::{Dice, Gate, HOUR, Log, SEC, gated, idle, ms, paused, secs};

/// A sink that takes 1 000 items a second, in batches of 100, and adds up how long it was busy.
fn thousand_a_second(busy: &Arc<AtomicU64>) -> impl FnMut(Batch<u32>) -> support::Answer + Send + use<> {
    let busy = Arc::clone(busy);
    move |batch| {
        let busy = Arc::clone(&busy);
        Box::pin(async move {
            let took = batch.len() as u64;
            sleep(ms(took)).await;
            busy.fetch_add(took, Ordering::Relaxed);
            drop(batch);
            Ok(())
        })
    }
}

/// What became of a crowd.
#[derive(Debug)]
struct Crowd {
    rejections_per_accept: f64,
    idle_share: f64,
}

/// 400 producers, each with 100 items a second: 40 times what the sink takes. They submit 100 at a time, all or none; one that is
/// refused comes back after `wait`. Looked at for 4 minutes, after one to settle down.
fn crowd(wait: impl Fn(&BackpressureController<u32>) -> Duration + Copy + Send + Sync + 'static) -> Crowd {
    const ITEMS: usize = 100;
    paused(move || async move {
        let busy = Arc::new(AtomicU64::new(0));
        let c = BackpressureController::builder(10_000)
            .strategy(Strategy::DropNewest)
            .fixed(ITEMS, ms(5))
            .spawn(thousand_a_second(&busy))
            .unwrap();
        let tries = Arc::new(Mutex::new([0_u64; 2]));
        let mut dice = Dice(17);
        for _ in 0..400 {
            let (c, tries, mut dice) = (c.clone(), Arc::clone(&tries), Dice(dice.next()));
            tokio::spawn(async move {
                loop {
                    loop {
                        // One thread, and no wait between: nobody else gets in between.
                        let permits: Vec<_> = (0..ITEMS).map_while(|_| c.try_reserve().ok()).collect();
                        let is_accepted = permits.len() == ITEMS;
                        tries.lock().unwrap()[usize::from(is_accepted)] += 1;
                        if is_accepted {
                            permits.into_iter().for_each(|permit| permit.send(1));
                            break;
                        }
                        drop(permits);
                        sleep(wait(&c)).await;
                    }
                    sleep(ms(500 + dice.up_to(1_000))).await;
                }
            });
        }
        sleep(secs(60)).await;
        *tries.lock().unwrap() = [0; 2];
        let before = busy.load(Ordering::Relaxed);
        sleep(secs(240)).await;
        let [rejected, accepted] = *tries.lock().unwrap();
        let busy = (busy.load(Ordering::Relaxed) - before) as f64 / 240_000.0;
        assert_eq!(c.snapshot().audit(), Ok(()));
        Crowd { rejections_per_accept: rejected as f64 / accepted as f64, idle_share: 1.0 - busy }
    })
}

#[test]
fn a_crowd_that_keeps_to_it_comes_back_at_the_rate_of_the_sink() {
    let slots = crowd(|c| c.retry_after_for(100));
    assert!(slots.rejections_per_accept <= 1.6, "{slots:?}");
    assert!(slots.idle_share <= 0.005, "{slots:?}");
    // What everybody does without it.
    let fixed = crowd(|_| SEC);
    assert!(fixed.rejections_per_accept > 20.0 * slots.rejections_per_accept, "{fixed:?} against {slots:?}");
    println!("{slots:?}, with a fixed second {fixed:?}");
}

#[test]
fn whole_seconds_keep_the_crowd_apart_too() {
    let slots = crowd(|c| Duration::from_secs(retry_after_secs(c.retry_after_for(100))));
    assert!(slots.rejections_per_accept <= 1.6 && slots.idle_share <= 0.005, "{slots:?}");
}

/// A controller whose sink drains 1 000 a second, was measured, and is full.
async fn measured() -> BackpressureController<u32> {
    let c = BackpressureController::builder(2_000)
        .strategy(Strategy::DropNewest)
        .fixed(100, ms(5))
        .spawn(thousand_a_second(&Arc::default()))
        .unwrap();
    for _ in 0..300 {
        while c.try_push(1).is_ok() {}
        sleep(ms(10)).await;
    }
    while c.try_push(1).is_ok() {}
    assert_eq!(c.state(), State::Blocked);
    c
}

/// Whether a wait is so long, give or take 5 %.
fn is_about(wait: Duration, expected: Duration) -> bool {
    (expected.mul_f64(0.94)..=expected.mul_f64(1.06)).contains(&wait)
}

#[test]
fn each_refusal_books_the_next_place() {
    paused(|| async {
        let c = measured().await;
        // Down to the high mark, 400 items below, and then a millisecond for each.
        let waits: Vec<_> = (0..1_000).map(|_| c.retry_after()).collect();
        for (i, wait) in waits.iter().enumerate() {
            assert!(is_about(*wait, ms(402 + i as u64)), "{i}: {wait:?}");
        }
        assert!(is_about(c.retry_after_for(500), ms(1_900)), "behind all of them");
        assert_eq!(c.retry_after_for(0).min(secs(1)), secs(1));
    });
}

#[test]
fn no_wait_is_shorter_or_longer_than_it_says() {
    paused(|| async {
        let (c, _flusher) = BackpressureController::builder(10).build(|_: Batch<u32>| async { Ok(()) }).unwrap();
        for _ in 0..100 {
            assert!(is_about(c.retry_after(), SEC), "nothing is known");
        }
        let c = measured().await;
        for _ in 0..100_000 {
            assert!((ms(47)..=secs(63)).contains(&c.retry_after()));
        }
        assert!(is_about(c.retry_after(), secs(60)));
        assert!(is_about(c.retry_after_for(usize::MAX), secs(60)));
        // What was booked is forgotten with the time.
        sleep(secs(30)).await;
        assert!(is_about(c.retry_after(), secs(30)));
        sleep(secs(31)).await;
        assert!(c.is_empty());
        assert!(is_about(c.retry_after(), ms(50)), "there is room");
    });
}

#[test]
fn a_sink_that_fails_is_not_come_back_to_before_its_next_attempt() {
    paused(|| async {
        let up = Arc::new(AtomicU64::new(1));
        let is_up = Arc::clone(&up);
        let sink = move |batch: Batch<u32>| {
            let is_up = is_up.load(Ordering::Relaxed) == 1;
            async move {
                sleep(ms(10)).await;
                drop(batch);
                if is_up { Ok(()) } else { Err(FlushError::retry("down")) }
            }
        };
        let c = BackpressureController::builder(100)
            .strategy(Strategy::DropNewest)
            .fixed(10, ms(0))
            .retry(Retry::exponential(secs(20), secs(20)).without_jitter())
            .spawn(sink)
            .unwrap();
        for _ in 0..300 {
            while c.try_push(1).is_ok() {}
            sleep(ms(10)).await;
        }
        let known = c.retry_after();
        assert!(known < ms(100), "1 000 a second: {known:?}");
        up.store(0, Ordering::Relaxed);
        sleep(ms(50)).await;
        let before = Instant::now();
        let wait = c.retry_after();
        assert!((secs(18)..=secs(21)).contains(&wait), "{wait:?}");
        assert!((ms(18_500)..=secs(22)).contains(&c.retry_after_for(100)), "booked behind it");
        sleep(secs(12)).await;
        let wait = c.retry_after();
        assert!((secs(7)..=secs(9)).contains(&wait), "{wait:?} after {:?}", before.elapsed());
        // It goes on as it was: an outage is no measurement.
        up.store(1, Ordering::Relaxed);
        sleep(secs(12)).await;
        while c.try_push(1).is_ok() {}
        let wait = c.retry_after();
        assert!(wait < ms(100), "{wait:?}");
    });
}

#[test]
fn what_a_sink_takes_that_has_nothing_to_do_is_not_its_rate() {
    paused(|| async {
        let c = measured().await;
        while !c.is_empty() {
            sleep(ms(10)).await;
        }
        // One item each second, for a minute.
        for _ in 0..60 {
            c.try_push(1).unwrap();
            sleep(SEC).await;
        }
        while c.try_push(1).is_ok() {}
        let wait = c.retry_after();
        assert!(is_about(wait, ms(402)), "as it was measured: {wait:?}");
    });
}

#[test]
fn the_first_calls_are_a_first_idea() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(100)
            .strategy(Strategy::DropNewest)
            .fixed(10, ms(0))
            .flush_timeout(HOUR)
            .spawn(gated(&gate, &log))
            .unwrap();
        while c.try_push(1).is_ok() {}
        sleep(ms(500)).await;
        gate.let_through(1);
        idle().await;
        while c.try_push(1).is_ok() {}
        // 10 items in half a second: 20 are over the mark, and one wants in.
        let wait = c.retry_after();
        assert!(is_about(wait, ms(1_100)), "{wait:?}");
    });
}

#[test]
fn many_threads_book_different_places() {
    let (c, _flusher) = BackpressureController::builder(10).build(|_: Batch<u32>| async { Ok(()) }).unwrap();
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        let book = || (0..1_000).map(|_| c.retry_after()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(book)).collect();
        threads.into_iter().for_each(|thread| waits.extend(thread.join().unwrap()));
    });
    waits.sort_unstable();
    waits.dedup();
    // Jitter of nanoseconds: two may meet by chance.
    assert!(waits.len() > 3_980, "{}", waits.len());
}

#[test]
fn the_pause_counts_also_after_the_batch_that_was_throttled_has_failed() {
    paused(|| async {
        let sink = |_: Batch<u32>| std::future::ready(Err(FlushError::throttled("later", secs(30))));
        let builder = BackpressureController::builder(2).strategy(Strategy::DropNewest).fixed(1, ms(0));
        let c = builder.retry(Retry::never()).spawn(sink).unwrap();
        c.push(0).await.unwrap();
        sleep(ms(10)).await;
        assert_eq!(c.snapshot().failed, 1);
        (1..3).for_each(|i| c.try_push(i).unwrap());
        assert!(c.try_push(3).is_err());
        assert!(c.retry_after() > secs(25), "{:?}", c.retry_after());
    });
}
