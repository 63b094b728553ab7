//! The states: a margin on the way down, back to Normal each time, published by whatever crosses the mark (I6).

mod support;

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use backpressure::{BackpressureController, Batch, Permit, PushError, State, StateWatch, Watermarks};
use futures::{StreamExt, poll};

use self::support::{Dice, Gate, HOUR, Log, SEC, gated, idle, ms, ok, paused};

/// Brings the depth to so many permits.
fn hold(c: &BackpressureController<u32>, permits: &mut Vec<Permit<u32>>, depth: usize) {
    permits.truncate(depth);
    while permits.len() < depth {
        permits.push(c.try_reserve().unwrap());
    }
    assert_eq!(c.depth(), depth);
}

#[test]
fn s_n01_a_depth_that_swings_by_one_does_not_flap() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(100)
            .fixed(1, SEC)
            .watermarks(Watermarks::new(0.5, 0.8).unwrap())
            .spawn(ok(&log))
            .unwrap();
        let mut permits = Vec::new();
        hold(&c, &mut permits, 79);
        assert_eq!(c.state(), State::Elevated);
        let before = c.snapshot().transitions;
        for step in 0..1000 {
            hold(&c, &mut permits, if step % 2 == 0 { 79 } else { 80 });
        }
        let after = c.snapshot().transitions;
        assert_eq!(after.total() - before.total(), 1);
        assert_eq!(after.count(State::Elevated, State::Critical), 1);
        assert_eq!(c.state(), State::Critical);
        // The margin is 0.10: back at 69 and at 39.
        for depth in (39..=79).rev() {
            hold(&c, &mut permits, depth);
            let expected = match depth {
                70.. => State::Critical,
                40..70 => State::Elevated,
                _ => State::Normal,
            };
            assert_eq!(c.state(), expected, "at {depth}");
        }
        let back = c.snapshot().transitions;
        assert_eq!(back.total() - after.total(), 2);
        assert_eq!(back.count(State::Critical, State::Elevated), 1);
        assert_eq!(back.count(State::Elevated, State::Normal), 1);
    });
}

/// Every pair of marks on a grid of tenths, and the ends of what is legal.
fn legal_marks() -> Vec<(f64, f64)> {
    let tenths =
        (1..10).flat_map(|low| (low + 1..=10).map(move |high| (f64::from(low) / 10.0, f64::from(high) / 10.0)));
    tenths.chain([(f64::MIN_POSITIVE, 1.0), (0.001, 0.002), (0.999, 1.0), (1.0 - f64::EPSILON, 1.0)]).collect()
}

#[test]
fn s_n03_full_and_empty_again_ends_in_normal() {
    paused(|| async {
        for capacity in [1, 2, 3, 10] {
            for (low, high) in legal_marks() {
                let (gate, log) = (Gate::closed(), Log::default());
                let c = BackpressureController::builder(capacity)
                    .fixed(1, SEC)
                    .watermarks(Watermarks::new(low, high).unwrap())
                    .spawn(gated(&gate, &log))
                    .unwrap();
                let mut watch = c.watch();
                let seen = Arc::new(Mutex::new(Vec::new()));
                let watcher = tokio::spawn({
                    let seen = Arc::clone(&seen);
                    async move {
                        while let Some(state) = watch.next().await {
                            seen.lock().unwrap().push(state);
                        }
                    }
                });
                for i in 0..capacity {
                    c.try_push(i).unwrap();
                }
                assert_eq!(c.state(), State::Blocked);
                idle().await;
                let waiters: Vec<_> = (0..5)
                    .map(|_| {
                        let mut watch = c.watch();
                        tokio::spawn(async move { while watch.changed().await == Some(State::Blocked) {} })
                    })
                    .collect();
                idle().await;
                assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
                gate.open();
                idle().await;
                assert!(waiters.iter().all(|waiter| waiter.is_finished()), "capacity {capacity}, marks {low} {high}");
                assert_eq!((c.state(), c.depth()), (State::Normal, 0), "capacity {capacity}, marks {low} {high}");
                let seen_now = seen.lock().unwrap().clone();
                assert_eq!(seen_now.last(), Some(&State::Normal));
                assert!(seen_now.contains(&State::Blocked));
                c.close();
                watcher.await.unwrap();
                assert_eq!(seen.lock().unwrap().last(), Some(&State::Draining));
            }
        }
    });
}

#[test]
fn s_n05_the_sink_alone_brings_the_state_back() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10).fixed(1, HOUR).spawn(gated(&gate, &log)).unwrap();
        let mut watch = c.watch();
        for i in 0..10 {
            c.try_push(i).unwrap();
        }
        assert_eq!(watch.changed().await, Some(State::Blocked));
        assert_eq!(c.try_push(10), Err(PushError::Full(10)));
        idle().await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn({
            let (seen, log) = (Arc::clone(&seen), log.clone());
            async move {
                while let Some(state) = watch.changed().await {
                    seen.lock().unwrap().push((state, log.items().len()));
                }
            }
        });
        // Nobody pushes. With 10 places and batches of 1, h = 0.125: out of Blocked below 8.75, out of Critical below
        // 6.75, out of Elevated below 3.75.
        for delivered in 1..=10 {
            gate.let_through(1);
            idle().await;
            assert_eq!(log.items().len(), delivered);
            let expected = match 10 - delivered {
                9.. => State::Blocked,
                7..9 => State::Critical,
                4..7 => State::Elevated,
                _ => State::Normal,
            };
            assert_eq!(c.state(), expected, "after {delivered}");
        }
        assert_eq!(*seen.lock().unwrap(), [(State::Critical, 2), (State::Elevated, 4), (State::Normal, 7)]);
        let transitions = c.snapshot().transitions;
        assert_eq!((transitions.entered(State::Normal), transitions.entered(State::Blocked)), (1, 1));
        tokio::time::sleep(ms(1)).await;
    });
}

/// As long as nobody watches, nobody is told; whoever comes then has missed nothing.
#[test]
fn a_watcher_that_comes_late_begins_with_the_state_of_then() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10).fixed(10, HOUR).spawn(gated(&gate, &log)).unwrap();
        for i in 0..10 {
            c.try_push(i).unwrap();
        }
        let mut watch = c.watch();
        assert_eq!(watch.current(), State::Blocked);
        assert!(poll!(pin!(watch.changed())).is_pending(), "nothing has changed since");
        assert_eq!(c.watch().next().await, Some(State::Blocked));
        drop(watch);
        gate.let_through(1);
        idle().await;
        let mut watch = c.watch();
        assert_eq!((c.state(), watch.current()), (State::Normal, State::Normal));
        assert!(poll!(pin!(watch.changed())).is_pending());
        c.close();
        assert_eq!(watch.changed().await, Some(State::Draining));
        assert_eq!((c.watch().next().await, watch.changed().await), (Some(State::Draining), None));
    });
}

/// What the watch says when a task is woken.
struct Witness {
    watch: StateWatch,
    seen: Mutex<Vec<State>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.seen.lock().unwrap().push(self.watch.current());
    }
}

#[test]
fn whoever_is_woken_by_a_settle_finds_its_state_published() {
    paused(|| async {
        let c = BackpressureController::builder(10).fixed(10, HOUR).spawn(ok(&Log::<u64>::default())).unwrap();
        c.pause();
        c.push_all(0..6).await.unwrap();
        let (watch, seen) = (c.watch(), Mutex::default());
        assert_eq!(watch.current(), State::Elevated);
        let witness = Arc::new(Witness { watch, seen });
        let waker = Waker::from(Arc::clone(&witness));
        let (mut flush, mut delivery) = (c.flush(), Box::pin(c.push_tracked(6)));
        let Poll::Ready(Ok(mut delivery)) = delivery.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("there is room")
        };
        assert!(Pin::new(&mut flush).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Pin::new(&mut delivery).poll(&mut Context::from_waker(&waker)).is_pending());
        idle().await;
        assert_eq!(*witness.seen.lock().unwrap(), [State::Normal; 2]);
    });
}

/// The state follows a depth that hovers around the high mark, with batches that take a sixth of the buffer each.
#[test]
fn a_depth_that_hovers_at_a_mark_does_not_flap_with_each_batch() {
    const BATCH: u64 = 1_600;
    paused(|| async {
        let sink = |batch: Batch<u32>| async move {
            tokio::time::sleep(ms(240)).await;
            drop(batch);
            Ok(())
        };
        let c = BackpressureController::builder(10_000).fixed(BATCH as usize, ms(5)).spawn(sink).unwrap();
        (0..8_000).for_each(|i| c.try_push(i).unwrap());
        let mut dice = Dice(18);
        let (mut crossings, mut was_above) = (0, true);
        let before = c.snapshot().transitions;
        let mut load = 0;
        // A minute of as much as the sink takes, more or less by chance each half second and each 10 ms, and towards the mark.
        for step in 0..6_000 {
            if step % 50 == 0 {
                load = dice.up_to(60) + if c.depth() < 8_000 { 80 } else { 60 };
            }
            for i in 0..BATCH / 24 * load * dice.up_to(200) / 10_000 {
                let _ = c.try_push(i as u32);
            }
            tokio::time::sleep(ms(10)).await;
            let is_above = c.depth() >= 8_000;
            crossings += u64::from(is_above != std::mem::replace(&mut was_above, is_above));
        }
        let transitions = c.snapshot().transitions.total() - before.total();
        assert!(crossings > 200, "{crossings}: it hovers");
        assert!((5..=70).contains(&transitions), "{transitions} transitions, {crossings} crossings, at {}", c.depth());
        println!("{transitions} transitions, {crossings} crossings");
    });
}
