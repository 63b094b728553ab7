//! Faults of earlier designs that must not come back.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BuildError, FlushError, LossReason, PushError, Retry, State, Strategy, Watermarks,
};
use futures::StreamExt;

use self::support::{
    Drops, GUARD, Gate, HOUR, Log, Losses, SEC, failing, gated, hung, idle, ms, now, ok, paused, poll_once, rounds,
    within, workers,
};

#[test]
fn s_z01_a_batch_that_fails_is_in_a_counter_and_in_somebodys_hands() {
    paused(|| async {
        // A passing failure: kept, and sent again.
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(5, ms(1)).spawn(failing(2, &log)).unwrap();
        c.push_all(0..5).await.unwrap();
        idle().await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.retry_waiting, snapshot.delivered), (5, 5, 0));
        assert_eq!(c.flush().await.delivered, 5);
        assert_eq!((log.items(), c.snapshot().retried), ((0..5).collect(), 10));
        // A final one: failed, with the items and the error.
        let losses = Losses::default();
        let c = BackpressureController::builder(10)
            .fixed(5, ms(1))
            .on_loss(losses.hook())
            .spawn(|_: Batch<u32>| std::future::ready(Err(FlushError::permanent("no such table"))))
            .unwrap();
        c.push_all(0..5).await.unwrap();
        let report = c.flush().await;
        assert_eq!((report.failed, report.delivered, report.total()), (5, 0, 5));
        let error = Some("no such table".to_owned());
        assert_eq!(losses.lines(), (0..5).map(|i| (Some(i), LossReason::Failed, error.clone())).collect::<Vec<_>>());
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn s_z02_each_item_of_a_partial_flush_is_counted() {
    paused(|| async {
        for answers_ok in [true, false] {
            let (log, losses) = (Log::default(), Losses::default());
            let c = BackpressureController::builder(6)
                .fixed(6, ms(1))
                .retry(Retry::exponential(SEC, SEC).without_jitter())
                .on_loss(losses.hook())
                .spawn({
                    let log = log.clone();
                    move |mut batch: Batch<u32>| {
                        log.add(&batch);
                        if batch.attempt() > 1 {
                            return std::future::ready(Ok(()));
                        }
                        batch.deliver(0);
                        batch.fail(1, "bad row");
                        batch.retry(2);
                        std::future::ready(if answers_ok { Ok(()) } else { Err(FlushError::retry("down")) })
                    }
                })
                .unwrap();
            c.push_all(0..6).await.unwrap();
            idle().await;
            let snapshot = c.snapshot();
            let (delivered, again) = if answers_ok { (4, vec![2]) } else { (1, vec![2, 3, 4, 5]) };
            assert_eq!((snapshot.delivered, snapshot.failed), (delivered, 1));
            assert_eq!(snapshot.delivered + snapshot.failed + snapshot.retry_waiting, 6);
            assert_eq!(c.flush().await.delivered, again.len() as u64);
            let snapshot = c.snapshot();
            assert_eq!(delivered + snapshot.failed + snapshot.retried, 6);
            assert_eq!((snapshot.delivered, snapshot.failed), (5, 1));
            assert_eq!(log.calls(), [vec![0, 1, 2, 3, 4, 5], again]);
            assert_eq!(losses.lines(), [(Some(1), LossReason::Failed, Some("bad row".to_owned()))]);
            snapshot.audit().unwrap();
        }
    });
}

#[test]
fn s_z03_flushes_do_not_overlap_and_drain_waits_for_the_one_in_flight() {
    paused(|| async {
        let gate = Gate::closed();
        let (running, most) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let c = BackpressureController::builder(100)
            .fixed(10, ms(5))
            .spawn({
                let (gate, running, most) = (gate.clone(), Arc::clone(&running), Arc::clone(&most));
                move |batch: Batch<u32>| {
                    let (gate, running, most) = (gate.clone(), Arc::clone(&running), Arc::clone(&most));
                    async move {
                        most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        gate.pass().await;
                        running.fetch_sub(1, Ordering::Relaxed);
                        drop(batch);
                        Ok(())
                    }
                }
            })
            .unwrap();
        c.push_all(0..3).await.unwrap();
        // The timer's batch is in flight, and the buffer is empty.
        tokio::time::sleep(ms(10)).await;
        assert_eq!((c.snapshot().in_flight, c.snapshot().buffered), (3, 0));
        let mut flush = Box::pin(c.flush());
        let mut drain = Box::pin(c.drain(HOUR));
        assert!(poll_once(&mut flush).is_pending());
        assert!(poll_once(&mut drain).is_pending());
        tokio::time::sleep(SEC).await;
        assert!(poll_once(&mut flush).is_pending());
        assert!(poll_once(&mut drain).is_pending());
        gate.open();
        assert_eq!(flush.await.delivered, 3);
        let report = drain.await;
        assert_eq!((report.delivered(), report.totals.in_flight, report.is_clean()), (3, 0, true));
        assert_eq!(most.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn s_z04_draining_accepts_nothing_more() {
    paused(|| async {
        for strategy in [Strategy::Block, Strategy::DropOldest, Strategy::DropNewest, Strategy::BlockFor(SEC)] {
            let (gate, log) = (Gate::closed(), Log::default());
            let c = BackpressureController::builder(4).fixed(2, ms(1)).strategy(strategy);
            let c = c.spawn(gated(&gate, &log)).unwrap();
            c.push_all(0..4).await.unwrap();
            idle().await;
            // Steady producers.
            let producers: Vec<_> = (0..3)
                .map(|_| {
                    let c = c.clone();
                    tokio::spawn(async move {
                        let mut i = 100;
                        loop {
                            match c.push(i).await {
                                Err(PushError::Closed(back)) => return assert_eq!(back, i),
                                _ => i += 1,
                            }
                            tokio::time::sleep(ms(1)).await;
                        }
                    })
                })
                .collect();
            tokio::time::sleep(ms(10)).await;
            let mut drain = Box::pin(c.drain(25 * SEC));
            assert!(poll_once(&mut drain).is_pending());
            assert_eq!(c.state(), State::Draining);
            let accepted = c.snapshot().accepted;
            assert_eq!(c.push(7).await, Err(PushError::Closed(7)));
            assert_eq!(c.try_push(8), Err(PushError::Closed(8)));
            gate.open();
            let report = drain.await;
            assert_eq!((report.totals.accepted, report.is_clean()), (accepted, true));
            assert_eq!(report.delivered() + report.evicted(), accepted);
            for producer in producers {
                producer.await.unwrap();
            }
        }
    });
}

#[test]
fn s_z05_draining_is_the_last_state_and_the_report_says_when_it_is_over() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(4)
            .fixed(2, ms(1))
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    let log = log.clone();
                    async move {
                        tokio::time::sleep(SEC).await;
                        log.add(&batch);
                        Ok(())
                    }
                }
            })
            .unwrap();
        let states = tokio::spawn(c.watch().collect::<Vec<_>>());
        idle().await;
        c.push_all(0..4).await.unwrap();
        idle().await;
        let start = now();
        let report = c.drain(25 * SEC).await;
        assert_eq!((start.elapsed(), report.delivered(), log.items().len()), (ms(1999), 4, 4));
        assert_eq!((report.totals.state, c.state(), c.depth()), (State::Draining, State::Draining, 0));
        tokio::time::sleep(HOUR).await;
        assert_eq!(c.state(), State::Draining);
        let states = states.await.unwrap();
        assert_eq!((states[0], states.last()), (State::Normal, Some(&State::Draining)));
        assert_eq!(c.snapshot().transitions.entered(State::Draining), 1);
        assert_eq!(c.push(9).await, Err(PushError::Closed(9)));
    });
}

#[test]
fn s_z06_a_blocked_push_is_served_at_the_release_and_never_dropped() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(1).fixed(1, SEC).spawn(gated(&gate, &log)).unwrap();
        c.push(0).await.unwrap();
        let start = now();
        let mut tasks = Vec::new();
        for i in 1..=20 {
            let c = c.clone();
            tasks.push(tokio::spawn(async move { (c.push(i).await, start.elapsed()) }));
            idle().await;
        }
        assert_eq!(c.snapshot().waiting, 20);
        // Odd times, which a poll each 50 ms would miss.
        for _ in 0..=20 {
            tokio::time::sleep(ms(37)).await;
            gate.let_through(1);
        }
        for (i, task) in (1..=20_u32).zip(tasks) {
            let (answer, at) = task.await.unwrap();
            assert_eq!(answer, Ok(()));
            assert_eq!(at, ms(20) + i * ms(37), "0 ms after the release");
        }
        idle().await;
        assert_eq!(log.items(), (0..=20).collect::<Vec<_>>());
        assert_eq!((c.snapshot().refused.total(), c.snapshot().cancelled), (0, 0));
    });
}

#[test]
fn s_z07_the_slot_decides_and_not_the_state() {
    paused(|| async {
        // Nobody drives the flusher, so nobody updates the state but the pushes themselves.
        for capacity in [1, 2, 3, 10, 100] {
            let log = Log::default();
            let (c, flusher) = BackpressureController::builder(capacity).build(ok(&log)).unwrap();
            for i in 0..capacity {
                assert_ne!(c.state(), State::Blocked, "{i} of {capacity}");
                c.push(i).await.unwrap();
            }
            assert_eq!(c.state(), State::Blocked, "at once");
            let mut push = Box::pin(c.push(capacity));
            assert!(poll_once(&mut push).is_pending());
            assert_eq!(c.snapshot().waiting, 1);
            tokio::spawn(flusher);
            assert_eq!(push.await, Ok(()));
            let _ = c.flush().await;
            assert_eq!((c.snapshot().delivered, c.depth()), (capacity as u64 + 1, 0));
            assert_eq!(log.items(), (0..=capacity).collect::<Vec<_>>());
        }
    });
}

#[test]
fn s_z09_the_evicted_item_is_handed_back_and_capacity_0_is_an_error() {
    let losses = Losses::default();
    let (c, flusher) = BackpressureController::builder(3)
        .strategy(Strategy::DropOldest)
        .on_loss(losses.hook())
        .build(|_: Batch<u32>| std::future::ready(Ok(())))
        .unwrap();
    for i in 0..8 {
        c.try_push(i).unwrap();
        assert!(c.len() <= 3);
    }
    assert_eq!(losses.lines(), (0..5).map(|i| (Some(i), LossReason::Evicted, None)).collect::<Vec<_>>());
    assert_eq!((c.snapshot().evicted, c.purge()), (5, vec![5, 6, 7]));
    drop(flusher);
    let none = BackpressureController::<u32>::builder(0)
        .strategy(Strategy::DropOldest)
        .build(|_: Batch<u32>| std::future::ready(Ok(())));
    assert_eq!(none.err(), Some(BuildError::CapacityZero));
}

#[test]
fn s_z10_a_full_buffer_is_emptied_batch_after_batch_without_waiting_for_the_interval() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(10_050).fixed(100, ms(100)).spawn(gated(&gate, &log)).unwrap();
        c.push_all(0..10_050).await.unwrap();
        let start = now();
        gate.open();
        while log.items().len() < 10_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        tokio::time::sleep(ms(99)).await;
        assert_eq!(log.sizes(), [100; 100], "what is below a batch waits for its linger");
        tokio::time::sleep(ms(2)).await;
        assert_eq!(log.sizes().last(), Some(&50));
    });
}

#[test]
fn s_z12_one_item_across_the_mark_does_not_flip_the_state_and_nonsense_is_refused() {
    let log = Log::default();
    let (c, flusher) = BackpressureController::builder(100).max_batch(1).build(ok(&log)).unwrap();
    let eighty = (0..80).map(|i| c.try_push(i)).filter(Result::is_ok).count();
    assert_eq!((eighty, c.state()), (80, State::Critical));
    let before = c.snapshot().transitions.total();
    for _ in 0..1000 {
        let permit = c.try_reserve().unwrap();
        drop(permit);
    }
    assert_eq!((c.snapshot().transitions.total(), c.state()), (before, State::Critical));
    drop(flusher);
    let nonsense = [
        (f64::NAN, 0.8),
        (0.5, f64::NAN),
        (0.8, 0.5),
        (0.5, 0.5),
        (0.5, 1.1),
        (0.0, 0.5),
        (-0.1, 0.5),
        (0.5, f64::INFINITY),
        (f64::NEG_INFINITY, 1.0),
    ];
    for (low, high) in nonsense {
        let refused = Watermarks::new(low, high);
        assert!(matches!(refused, Err(BuildError::Watermarks { .. })), "{low} {high}");
    }
}

#[test]
fn s_z13_every_wait_is_on_the_monotonic_clock() {
    // tokio's clock is paused, and the machine's goes on: whatever mixed the two would be off.
    paused(|| async {
        let c = BackpressureController::builder(1).fixed(1, SEC).flush_timeout(2 * HOUR).spawn(hung::<u32>).unwrap();
        c.push(0).await.unwrap();
        let start = now();
        assert_eq!(c.push_timeout(1, HOUR).await, Err(PushError::TimedOut(1)));
        assert_eq!(start.elapsed(), HOUR);
        assert_eq!(c.oldest_age(), Some(HOUR));
        tokio::time::sleep(HOUR + ms(1)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 1);
        let start = now();
        assert_eq!(c.drain(HOUR).await.leftovers, [0]);
        assert_eq!(start.elapsed(), HOUR);
    });
    // And nothing else could be asked: the wall clock stands in no other file than the one that makes timestamps of moments.
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut uses = Vec::new();
    let mut folders = vec![std::path::PathBuf::from(sources)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                if path.ends_with("src/time.rs") {
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                uses.extend(text.lines().filter(|line| line.contains("SystemTime")).map(str::to_owned));
            }
        }
    }
    assert!(uses.is_empty(), "{uses:?}");
}

#[test]
fn s_z14_the_batch_in_flight_takes_room() {
    paused(|| async {
        let (gate, tokens) = (Gate::closed(), Drops::default());
        let c = BackpressureController::builder(10)
            .fixed(5, ms(1))
            .spawn({
                let gate = gate.clone();
                move |batch| {
                    let gate = gate.clone();
                    async move {
                        gate.pass().await;
                        drop(batch);
                        Ok(())
                    }
                }
            })
            .unwrap();
        for _ in 0..10 {
            c.push(tokens.next()).await.unwrap();
        }
        idle().await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.buffered, snapshot.depth, c.len()), (5, 5, 10, 10));
        assert!(matches!(c.try_push(tokens.next()), Err(PushError::Full(_))));
        assert_eq!((tokens.alive(), c.state()), (10, State::Blocked));
        gate.let_through(1);
        idle().await;
        assert_eq!((c.snapshot().in_flight, c.len(), tokens.alive()), (5, 5, 5));
        gate.open();
        assert_eq!(c.drain(SEC).await.delivered(), 10);
        tokens.assert_each_once(11);
    });
}

/// 8 x 100 000 pushes with `BACKPRESSURE_FULL=1`.
#[test]
fn s_z15_concurrent_submitters_never_overshoot() {
    const C: usize = 100;
    // Nothing leaves: exactly C get in, as items or permits.
    within(GUARD, || {
        for _ in 0..50 {
            let (c, flusher) =
                BackpressureController::builder(C).build(|_: Batch<u32>| std::future::ready(Ok(()))).unwrap();
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let c = c.clone();
                    thread::spawn(move || {
                        let mut permits = Vec::new();
                        let mut pushed = 0;
                        for _ in 0..C {
                            if i % 2 == 0 {
                                pushed += usize::from(c.try_push(i).is_ok());
                            } else {
                                permits.extend(c.try_reserve());
                            }
                        }
                        (pushed, permits)
                    })
                })
                .collect();
            let admitted: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let total: usize = admitted.iter().map(|(pushed, permits)| pushed + permits.len()).sum();
            assert_eq!((total, c.depth(), c.snapshot().peak_depth), (C, C, C as u64));
            c.snapshot().audit().unwrap();
            drop((admitted, flusher));
        }
    });
    // The sink is busy: at no instant are there more than C, what it holds included.
    let each = rounds(100_000, 3_000);
    within(rounds(120 * SEC, 30 * SEC), move || {
        let runtime = workers(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let c = BackpressureController::builder(C)
            .fixed(16, ms(1))
            .spawn_on(runtime.handle(), {
                let inside = Arc::clone(&inside);
                move |batch: Batch<u32>| {
                    inside.fetch_add(batch.len(), Ordering::Relaxed);
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let (c, is_over) = (c.clone(), Arc::clone(&is_over));
                thread::spawn(move || {
                    for _ in 0..each {
                        c.blocking_push(i).unwrap();
                        assert!(c.depth() <= C && !is_over.load(Ordering::Relaxed));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        let report = runtime.block_on(c.drain(25 * SEC));
        assert_eq!((report.delivered(), inside.load(Ordering::Relaxed)), (8 * each as u64, 8 * each));
        assert!(report.totals.peak_depth <= C as u64);
        report.totals.audit().unwrap();
    });
}
