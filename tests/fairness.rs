//! Blocked producers are served in turn (I7), are seen, and block nobody else.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use backpressure::{BackpressureController, PushError, State, Strategy};

use self::support::{GUARD, Gate, HOUR, Log, SEC, gated, hung, idle, ms, now, ok, paused, poll_once, within};

#[test]
fn s_m01_blocked_pushers_are_served_in_order_of_arrival() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(1).fixed(1, SEC).spawn(gated(&gate, &log)).unwrap();
        c.push(0).await.unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 1..=10_u64 {
            let (producer, told) = (c.clone(), Arc::clone(&told));
            tasks.push(tokio::spawn(async move {
                producer.push(i).await.unwrap();
                told.lock().unwrap().push(i);
            }));
            idle().await;
            assert_eq!((c.snapshot().waiting, c.snapshot().accepted), (i, 1));
        }
        assert_eq!((c.snapshot().waiting, c.snapshot().waiting_producers), (10, 10));
        for i in 0..=10_u64 {
            gate.let_through(1);
            idle().await;
            assert_eq!(log.items(), (0..=i).collect::<Vec<_>>());
            let snapshot = c.snapshot();
            assert_eq!((snapshot.accepted, snapshot.waiting), ((i + 2).min(11), 9_u64.saturating_sub(i)));
            snapshot.audit().unwrap();
            // The room that was made is the next waiter's: a newcomer does not overtake.
            if i < 10 {
                assert_eq!(c.try_push(99), Err(PushError::Full(99)));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*told.lock().unwrap(), (1..=10).collect::<Vec<_>>());
    });
}

#[test]
fn s_m03_a_stalled_sink_blocks_only_who_asked_to_wait_and_is_seen() {
    paused(|| async {
        let c = BackpressureController::builder(2)
            .fixed(1, SEC)
            .strategy(Strategy::BlockFor(5 * SEC))
            .flush_timeout(std::time::Duration::MAX)
            .spawn(hung)
            .unwrap();
        assert_eq!(c.push_all([1, 2]).await.unwrap(), 2);
        let ticks = Arc::new(AtomicU32::new(0));
        let ticker = tokio::spawn({
            let ticks = Arc::clone(&ticks);
            async move {
                loop {
                    tokio::time::sleep(ms(100)).await;
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let start = now();
        let tasks: Vec<_> = (3..6)
            .map(|i| {
                let c = c.clone();
                tokio::spawn(async move { (c.push(i).await, now()) })
            })
            .collect();
        tokio::time::sleep(ms(4990)).await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.waiting_producers, snapshot.waiting, snapshot.refused.timed_out), (3, 3, 0));
        assert_eq!(snapshot.state, State::Blocked);
        for (i, task) in (3..6).zip(tasks) {
            let (answer, at) = task.await.unwrap();
            assert_eq!(answer, Err(PushError::TimedOut(i)));
            assert_eq!(at - start, 5 * SEC);
        }
        let ticks = ticks.load(Ordering::Relaxed);
        assert!((49..=50).contains(&ticks), "other tasks of the thread go on: {ticks} ticks");
        ticker.abort();
        let snapshot = c.snapshot();
        assert_eq!((snapshot.waiting_producers, snapshot.waiting, snapshot.refused.timed_out), (0, 0, 3));
        snapshot.audit().unwrap();
    });
}

#[test]
fn s_m03_block_waits_as_it_says() {
    paused(|| async {
        let c = BackpressureController::builder(1)
            .fixed(1, SEC)
            .flush_timeout(std::time::Duration::MAX)
            .spawn(hung)
            .unwrap();
        c.push(0).await.unwrap();
        let tasks: Vec<_> = (1..=4)
            .map(|i| {
                let c = c.clone();
                tokio::spawn(async move { c.push(i).await })
            })
            .collect();
        tokio::time::sleep(HOUR).await;
        assert_eq!((c.snapshot().waiting_producers, c.snapshot().waiting), (4, 4));
        assert!(tasks.iter().all(|task| !task.is_finished()));
        c.close();
        for (i, task) in (1..=4).zip(tasks) {
            assert_eq!(task.await.unwrap(), Err(PushError::Closed(i)));
        }
        assert_eq!(c.snapshot().waiting_producers, 0);
    });
}

#[test]
fn s_m05_steady_traffic_does_not_hide_the_shutdown() {
    let (accepted, report, refused) = within(GUARD, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let log = Log::default();
            // More than the flusher takes in one turn.
            let c = BackpressureController::builder(4096)
                .fixed(8, SEC)
                .strategy(Strategy::DropNewest)
                .spawn(ok(&log))
                .unwrap();
            let producer = tokio::spawn({
                let c = c.clone();
                async move {
                    let (mut i, mut refused) = (0_u64, 0_u64);
                    loop {
                        match c.push(i).await {
                            Ok(()) => {}
                            Err(PushError::Full(_)) => refused += 1,
                            Err(error) => return (error, i, refused),
                        }
                        i += 1;
                    }
                }
            });
            let before = loop {
                tokio::task::yield_now().await;
                let snapshot = c.snapshot();
                snapshot.audit().unwrap();
                if snapshot.refused.full > 10_000 && snapshot.buffered > 0 {
                    break snapshot;
                }
            };
            let mut drain = Box::pin(c.drain(25 * SEC));
            assert!(poll_once(&mut drain).is_pending());
            assert_eq!(c.state(), State::Draining);
            assert_eq!(c.try_push(7), Err(PushError::Closed(7)));
            let report = drain.await;
            let (error, item, refused) = producer.await.unwrap();
            assert_eq!(error, PushError::Closed(item));
            assert_eq!(log.items().len() as u64, before.accepted);
            (before.accepted, report, refused)
        })
    });
    assert_eq!((report.delivered(), report.totals.accepted), (accepted, accepted));
    assert!(report.is_clean());
    assert_eq!(report.totals.refused.full, refused);
    report.totals.audit().unwrap();
}
