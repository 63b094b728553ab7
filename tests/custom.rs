//! Decisions of the user's own.

mod support;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backpressure::{Admission, Admit, BackpressureController, Batch, Pressure, PushError, State, Strategy, Watermarks};

use self::support::{Losses, ms, paused};

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Level {
    Debug,
    Info,
    Error,
}

type Record = (Level, u32);

/// Debug goes first, then all but one in ten of Info; errors displace the oldest.
fn by_level(record: &Record, pressure: &Pressure) -> Admission {
    match record.0 {
        Level::Error => Admission::EvictOldest,
        Level::Debug => Admission::Refuse,
        Level::Info if pressure.state >= State::Critical => Admission::Sample(NonZeroU32::new(10).unwrap()),
        Level::Info => Admission::Admit,
    }
}

fn logger(capacity: usize, strategy: Strategy<Record>) -> BackpressureController<Record> {
    let c = BackpressureController::builder(capacity)
        .strategy(strategy)
        .watermarks(Watermarks::new(0.5, 0.8).unwrap())
        .fixed(1, Duration::MAX)
        .spawn(|_: Batch<Record>| async { Ok(()) })
        .unwrap();
    c.pause();
    c
}

#[test]
fn drops_by_level_as_the_pressure_rises() {
    paused(|| async {
        let c = logger(1_000, Strategy::custom_from(State::Elevated, by_level));
        for i in 0..500 {
            c.push((Level::Debug, i)).await.unwrap();
        }
        assert_eq!(c.state(), State::Elevated);
        assert_eq!(c.push((Level::Debug, 500)).await, Err(PushError::Full((Level::Debug, 500))));
        for i in 0..300 {
            c.push((Level::Info, i)).await.unwrap();
        }
        assert_eq!(c.state(), State::Critical);
        let kept = (0..1_000).filter(|i| c.try_push((Level::Info, *i)).is_ok()).count();
        assert!(kept.abs_diff(100) < 40, "{kept}");
        c.push((Level::Error, 1)).await.unwrap();
        assert_eq!(c.snapshot().evicted, 0, "there was room");
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn ordinary_events_are_refused_and_terminal_ones_evict_and_who_loses_is_told() {
    paused(|| async {
        let lost = Losses::default();
        let terminal = |event: &&str, _: &Pressure| {
            if event.starts_with("end") { Admission::EvictOldest } else { Admission::Refuse }
        };
        let c = BackpressureController::builder(2)
            .strategy(Strategy::custom(terminal))
            .fixed(2, ms(1))
            .on_loss(lost.hook())
            .spawn(support::hung)
            .unwrap();
        c.pause();
        for event in ["a", "b"] {
            c.try_push(event).unwrap();
        }
        assert_eq!(c.try_push("c"), Err(PushError::Full("c")));
        assert_eq!(c.try_push("end"), Ok(()));
        assert_eq!(lost.items(), ["a"]);
        // All is in flight: nothing can be displaced, and the caller has it back.
        c.resume();
        support::idle().await;
        assert_eq!(c.snapshot().in_flight, 2);
        assert_eq!(c.try_push("end of that"), Err(PushError::Full("end of that")));
        c.snapshot().audit().unwrap();
    });
}

struct Counting {
    asked: AtomicUsize,
    from: Option<State>,
}

impl Admit<u64> for Counting {
    fn admit(&self, item: &u64, pressure: &Pressure) -> Admission {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(pressure.capacity, 10);
        match item % 3 {
            0 => Admission::Wait,
            1 => Admission::WaitFor(ms(5)),
            _ => Admission::Admit,
        }
    }

    fn ask_from(&self) -> Option<State> {
        self.from
    }
}

#[test]
fn asked_from_its_state_on_and_about_no_item_before() {
    for (from, asked) in [(None, [0, 0]), (Some(State::Normal), [5, 10]), (Some(State::Elevated), [0, 5])] {
        paused(move || async move {
            let custom = Arc::new(Counting { asked: AtomicUsize::new(0), from });
            let c = BackpressureController::builder(10)
                .strategy(Strategy::Custom(custom.clone()))
                .fixed(1, Duration::MAX)
                .spawn(|_: Batch<u64>| async { Ok(()) })
                .unwrap();
            c.pause();
            for i in 0..5 {
                c.push(i).await.unwrap();
            }
            assert_eq!(custom.asked.load(Ordering::Relaxed), asked[0], "{from:?}");
            assert_eq!(c.state(), State::Elevated);
            assert_eq!(c.push_all(5..10).await.unwrap(), 5);
            assert_eq!(custom.asked.load(Ordering::Relaxed), asked[1], "{from:?}");
            // Full: asked whatever the state.
            assert_eq!(c.push(10).await, Err(PushError::TimedOut(10)));
            assert_eq!(c.push(11).await, Err(PushError::Full(11)));
            assert_eq!(c.try_push(12), Err(PushError::Full(12)));
            assert_eq!(custom.asked.load(Ordering::Relaxed), asked[1] + 3);
            c.snapshot().audit().unwrap();
        });
    }
}

#[test]
fn a_wait_that_was_decided_with_room_there_is_no_wait() {
    paused(|| async {
        let c = BackpressureController::builder(2)
            .strategy(Strategy::custom_from(State::Normal, |_: &u64, _: &Pressure| Admission::WaitFor(Duration::ZERO)))
            .spawn(|_: Batch<u64>| async { Ok(()) })
            .unwrap();
        c.pause();
        c.push(1).await.unwrap();
        c.try_push(2).unwrap();
        assert_eq!(c.push(3).await, Err(PushError::TimedOut(3)));
    });
}
