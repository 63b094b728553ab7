//! A capacity that follows the sink: a queue is as long as it is wanted, whatever the sink does.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Builder, PushError, Sample, State, Strategy};
use tokio::time::sleep;

use self::support::{SEC, idle, ms, paused, secs};

/// What the sink takes for an item.
type Pace = Arc<AtomicU64>;

fn sink<T: Send + 'static>(micros: &Pace) -> impl FnMut(Batch<T>) -> support::Answer + Send + use<T> {
    let micros = Arc::clone(micros);
    move |batch| {
        let took = Duration::from_micros(batch.len() as u64 * micros.load(Ordering::Relaxed));
        Box::pin(async move {
            sleep(took).await;
            drop(batch);
            Ok(())
        })
    }
}

/// 10 000 places, batches of 50, a queue of 2 s.
fn builder() -> Builder<u64> {
    BackpressureController::builder(10_000).strategy(Strategy::DropNewest).fixed(50, ms(5)).max_delay(secs(2))
}

/// Keeps it full for so long.
async fn overload(c: &BackpressureController<u64>, time: Duration) {
    for _ in 0..time.as_millis() / 10 {
        while c.try_push(1).is_ok() {}
        sleep(ms(10)).await;
    }
}

#[test]
fn the_capacity_is_what_the_sink_drains_in_the_largest_delay() {
    paused(|| async {
        let pace = Pace::new(1_000.into());
        let c = builder().spawn(sink(&pace)).unwrap();
        assert_eq!((c.capacity(), c.max_capacity()), (10_000, 10_000));
        overload(&c, secs(3)).await;
        assert!((1_950..=2_050).contains(&c.capacity()), "1 000 a second: {}", c.capacity());
        assert_eq!((c.state(), c.snapshot().audit(), c.snapshot().losses().total()), (State::Blocked, Ok(()), 0));
        // Nothing is dropped; what was inside is delivered, and from then on the queue is as long as it is to be.
        overload(&c, secs(15)).await;
        assert!(c.depth() <= 2_050, "{}", c.depth());
        // Twice as fast, and then four times slower than that.
        pace.store(500, Ordering::Relaxed);
        overload(&c, secs(4)).await;
        assert!((3_900..=4_100).contains(&c.capacity()), "{}", c.capacity());
        pace.store(2_000, Ordering::Relaxed);
        overload(&c, secs(8)).await;
        assert!((950..=1_050).contains(&c.capacity()), "{}", c.capacity());
        assert_eq!(c.snapshot().audit(), Ok(()));
    });
}

#[test]
fn a_small_change_of_the_rate_is_not_passed_on() {
    paused(|| async {
        let pace = Pace::new(1_000.into());
        let c = builder().spawn(sink(&pace)).unwrap();
        overload(&c, secs(3)).await;
        let before = c.capacity();
        for micros in [1_150, 900, 1_200, 850] {
            pace.store(micros, Ordering::Relaxed);
            overload(&c, secs(4)).await;
            assert_eq!(c.capacity(), before, "{micros}");
        }
    });
}

#[test]
fn it_is_never_too_small_to_keep_the_sink_busy_nor_larger_than_it_was_set() {
    paused(|| async {
        let pace = Pace::new(100_000.into());
        let c = builder().max_delay(ms(1)).spawn(sink(&pace)).unwrap();
        overload(&c, secs(30)).await;
        assert_eq!(c.capacity(), 100, "two batches");
        // So it is measured again when the sink recovers.
        c.reconfigure(|changes| changes.max_delay(secs(2))).unwrap();
        pace.store(100, Ordering::Relaxed);
        overload(&c, secs(30)).await;
        assert_eq!(c.capacity(), 10_000);
        c.set_capacity(500).unwrap();
        overload(&c, secs(5)).await;
        assert_eq!(c.capacity(), 500, "the user's is the largest");
    });
}

#[test]
fn an_idle_sink_changes_nothing_and_lifting_it_gives_all_back() {
    paused(|| async {
        let pace = Pace::new(1_000.into());
        let c = builder().spawn(sink(&pace)).unwrap();
        overload(&c, secs(3)).await;
        let before = c.capacity();
        sleep(secs(60)).await;
        for _ in 0..60 {
            c.try_push(1).unwrap();
            sleep(SEC).await;
        }
        assert_eq!((c.capacity(), c.depth()), (before, 0));
        c.reconfigure(|changes| changes.max_delay(Duration::MAX)).unwrap();
        assert_eq!(c.capacity(), 10_000);
        overload(&c, secs(5)).await;
        assert_eq!(c.capacity(), 10_000);
    });
}

#[test]
fn waiters_have_the_room_that_it_brings_first() {
    paused(|| async {
        let pace = Pace::new(1_000.into());
        let c = builder().strategy(Strategy::Block).spawn(sink(&pace)).unwrap();
        (0..10_000).for_each(|i| c.try_push(i).unwrap());
        // The capacity falls below what is inside: nobody gets in, nothing is lost.
        sleep(secs(3)).await;
        assert!(c.capacity() < 2_100 && c.depth() > 6_000);
        let waiting = tokio::spawn({
            let c = c.clone();
            async move { c.push(1).await }
        });
        sleep(secs(3)).await;
        assert!(!waiting.is_finished());
        sleep(secs(3)).await;
        waiting.await.unwrap().unwrap();
        assert!(c.flush().await.all_delivered());
        assert_eq!((c.snapshot().delivered, c.snapshot().audit()), (10_001, Ok(())));
    });
}

#[test]
fn a_sample_keeps_a_place_for_its_overflow() {
    paused(|| async {
        let pace = Pace::new(10_000.into());
        let c = BackpressureController::builder(1_000)
            .strategy(Strategy::Sample(Sample::default()))
            .fixed(400, ms(5))
            .max_delay(ms(1))
            .spawn(sink(&pace))
            .unwrap();
        for _ in 0..3_000 {
            match c.try_push(1) {
                Ok(()) | Err(PushError::Sampled(1)) => {}
                Err(error) => panic!("{error}"),
            }
            sleep(ms(10)).await;
        }
        idle().await;
        assert!(c.capacity() <= 1_000 && c.snapshot().batch_limit < c.capacity() as u64);
        assert_eq!(c.snapshot().audit(), Ok(()));
    });
}
