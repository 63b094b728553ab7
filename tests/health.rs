//! `health()`: whether a controller does what it is for, and why not.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, FlushError, Health, HealthReason, HealthStatus, Retry, State, Strategy,
};

use self::support::{Gate, HOUR, Log, SEC, failing, gated, hung, idle, ms, ok, paused, secs};

/// The names of what is wrong.
fn names(health: &Health) -> Vec<&'static str> {
    health.reasons.iter().map(name).collect()
}

/// The names of what was wrong.
fn recent(health: &Health) -> Vec<&'static str> {
    assert_eq!((names(health).len(), health.status), (0, HealthStatus::Degraded));
    health.recent.iter().map(name).collect()
}

fn name(reason: &HealthReason) -> &'static str {
    match reason {
        HealthReason::Retrying { .. } => "retrying",
        HealthReason::SinkHangs { .. } => "hangs",
        HealthReason::BlockedProducers { .. } => "blocked",
        HealthReason::Losing { .. } => "losing",
        HealthReason::Full { .. } => "full",
        HealthReason::Throttled { .. } => "throttled",
        HealthReason::Paused { .. } => "paused",
        HealthReason::FlusherStalled { .. } => "stalled",
        HealthReason::FlusherGone => "gone",
        HealthReason::Draining => "draining",
        HealthReason::Ended => "ended",
        _ => "unknown",
    }
}

fn builder(capacity: usize) -> backpressure::Builder<u64> {
    BackpressureController::builder(capacity).fixed(capacity.min(4), ms(5))
}

static KEPT: Mutex<Vec<Health>> = Mutex::new(Vec::new());

#[test]
fn from_the_fifth_attempt_on_it_is_degraded_and_names_the_error() {
    paused(|| async {
        let log = Log::default();
        let retry = Retry::exponential(SEC, SEC).without_jitter();
        let c = builder(10).retry(retry).spawn(failing(6, &log)).unwrap();
        c.try_push(1).unwrap();
        // Attempts at 0, 1, 2, 3, 4 s; the seventh, at 6 s, works.
        tokio::time::sleep(ms(3_500)).await;
        assert!(c.health().is_healthy(), "{}", c.health());
        tokio::time::sleep(SEC).await;
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Degraded, vec!["retrying"]));
        let [HealthReason::Retrying { attempts: 5, items: 1, error: Some(error), .. }] = &health.reasons[..] else {
            panic!("{health:?}")
        };
        assert_eq!(error.to_string(), "down");
        assert!(health.to_string().ends_with("sent 5 times, last error: down"), "{health}");
        tokio::time::sleep(secs(4)).await;
        assert_eq!(log.items(), [1]);
        assert_eq!(recent(&c.health()), ["retrying"], "it does not flap");
        assert_eq!(
            c.health().to_string(),
            "degraded; over by now: 1 items wait for the sink, sent 5 times, last error: down"
        );
        tokio::time::sleep(secs(6)).await;
        assert!(c.health().is_healthy(), "{}", c.health());
    });
}

#[test]
fn producers_that_wait_for_more_than_a_second_are_seen() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(4).spawn(gated(&gate, &log)).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        let pushes: Vec<_> = (4..6)
            .map(|i| {
                let c = c.clone();
                tokio::spawn(async move { c.push(i).await })
            })
            .collect();
        tokio::time::sleep(ms(900)).await;
        assert!(c.health().is_healthy());
        tokio::time::sleep(ms(600)).await;
        let health = c.health();
        let [HealthReason::BlockedProducers { producers: 2, longest, .. }] = &health.reasons[..] else {
            panic!("{health:?}")
        };
        assert_eq!((*longest, health.status), (ms(1500), HealthStatus::Degraded));
        gate.open();
        for push in pushes {
            push.await.unwrap().unwrap();
        }
        tokio::time::sleep(secs(10)).await;
        assert!(c.health().is_healthy());
    });
}

#[test]
fn a_sink_that_hangs_and_a_buffer_that_stays_full_are_seen() {
    paused(|| async {
        let c = builder(4).flush_timeout(HOUR).spawn(hung).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(4)).await;
        assert!(c.health().is_healthy());
        tokio::time::sleep(secs(4)).await;
        assert_eq!(names(&c.health()), ["full"]);
        tokio::time::sleep(secs(4)).await;
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Degraded, vec!["hangs", "full"]));
        let HealthReason::Full { state: State::Blocked, since, .. } = &health.reasons[1] else { panic!("{health:?}") };
        assert_eq!(*since, secs(12));
        assert_eq!(
            health.to_string(),
            "degraded: the sink has not answered for 12.0 s; the buffer has been blocked for 12.0 s"
        );
    });
}

/// The batch is settled then, and the call is not over.
#[test]
fn a_sink_that_hangs_without_its_batch_is_seen() {
    for slots in [1, 3] {
        for is_done in [true, false] {
            paused(move || async move {
                let sink = move |batch: Batch<u64>| async move {
                    if is_done {
                        batch.done()
                    } else {
                        drop(batch)
                    }
                    std::future::pending::<Result<(), FlushError>>().await
                };
                let c = builder(20).flush_timeout(HOUR).spawn_concurrent(slots, sink).unwrap();
                for i in 0..slots as u64 {
                    c.push(i).await.unwrap();
                    tokio::time::sleep(SEC).await;
                }
                c.push(9).await.unwrap();
                tokio::time::sleep(secs(11)).await;
                let (health, told) = (c.health(), c.explain());
                assert_eq!((names(&health), told.calls), (vec!["hangs"], slots as u64), "{health}, {told}");
                assert_eq!(told.longest_call, Some(ms(11_000 - 5) + slots as u32 * SEC));
                assert!(c.drain(Duration::ZERO).await.leftovers.ends_with(&[9]));
                assert_eq!((c.explain().calls, c.explain().longest_call), (0, None));
            });
        }
    }
}

#[test]
fn a_sink_that_asks_to_be_left_alone_for_long_is_seen() {
    paused(|| async {
        for (asked, told) in [(secs(30), "for another 30.0 s"), (Duration::MAX, "for ever")] {
            let is_first = AtomicBool::new(true);
            let c = builder(10)
                .spawn(move |batch: Batch<u64>| {
                    drop(batch);
                    std::future::ready(if is_first.swap(false, Ordering::Relaxed) {
                        Err(FlushError::throttled("quota", asked))
                    } else {
                        Ok(())
                    })
                })
                .unwrap();
            (0..4).for_each(|i| c.try_push(i).unwrap());
            idle().await;
            c.try_push(4).unwrap();
            let health = c.health();
            assert_eq!((health.status, names(&health)), (HealthStatus::Degraded, vec!["throttled"]));
            let text = format!("degraded: 5 items wait, the sink is to be left alone {told}, last error: quota");
            assert_eq!(health.to_string(), text);
            if asked == Duration::MAX {
                tokio::time::sleep(HOUR).await;
                assert_eq!(names(&c.health()), ["throttled"]);
                continue;
            }
            tokio::time::sleep(secs(29)).await;
            assert_eq!(names(&c.health()), ["throttled"]);
            tokio::time::sleep(secs(2)).await;
            assert_eq!((recent(&c.health()), c.len()), (vec!["throttled"], 0), "it does not flap");
            tokio::time::sleep(secs(8)).await;
            assert!(c.is_empty() && c.health().is_healthy(), "{}", c.health());
        }
    });
}

#[test]
fn a_pause_that_was_forgotten_is_seen_once_items_wait() {
    paused(|| async {
        let c = builder(10).spawn(ok(&Log::default())).unwrap();
        c.pause();
        tokio::time::sleep(HOUR).await;
        assert!(c.health().is_healthy(), "nothing waits");
        c.try_push(1).unwrap();
        c.pause();
        let health = c.health();
        let [HealthReason::Paused { since, items: 1, .. }] = &health.reasons[..] else { panic!("{health:?}") };
        assert_eq!((*since, health.status), (HOUR, HealthStatus::Degraded));
        assert_eq!(health.to_string(), "degraded: 1 items wait, paused for 3600.0 s");
        c.resume();
        tokio::time::sleep(secs(10)).await;
        assert!(c.health().is_healthy(), "{}", c.health());
        c.pause();
        c.try_push(2).unwrap();
        tokio::time::sleep(secs(10)).await;
        assert!(c.health().is_healthy(), "not for long");
        tokio::time::sleep(ms(1)).await;
        assert_eq!(names(&c.health()), ["paused"]);
    });
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(8).spawn(gated(&gate, &log)).unwrap();
        c.pause();
        (0..8).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(11)).await;
        c.close();
        idle().await;
        assert_eq!(c.snapshot().buffered, 4);
        assert!(!names(&c.health()).contains(&"paused"), "an end does not wait for it");
    });
}

#[test]
fn the_halves_of_a_batch_wait_for_a_sink_that_is_to_be_left_alone() {
    paused(|| async {
        let c = builder(10)
            .bisect(true)
            .retry(Retry::never())
            .spawn(|batch: Batch<u64>| {
                drop(batch);
                std::future::ready(Err(FlushError::throttled("quota", HOUR)))
            })
            .unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(60)).await;
        let health = c.health();
        assert!(matches!(&health.reasons[..], [HealthReason::Throttled { items: 4, .. }]), "{health}");
    });
}

/// Two calls at once, of which the first asks for six seconds at once, and the other for some more after five.
#[test]
fn pauses_that_overlap_are_one() {
    for (second, left, is_long) in [(ms(100), ms(500), false), (secs(6), ms(5_500), true)] {
        paused(move || async move {
            let turn = Arc::new(AtomicU32::new(0));
            let sink = move |batch: Batch<u64>| {
                let turn = turn.fetch_add(1, Ordering::Relaxed);
                async move {
                    drop(batch);
                    tokio::time::sleep(ms(1) + secs(5) * turn).await;
                    Err(FlushError::throttled("quota", if turn == 0 { secs(6) } else { second }))
                }
            };
            let c = builder(20).fixed(2, ms(1)).spawn_concurrent(2, sink).unwrap();
            (0..4).for_each(|i| c.try_push(i).unwrap());
            tokio::time::sleep(ms(5_500)).await;
            let (health, told) = (c.health(), c.explain());
            assert_eq!(names(&health).contains(&"throttled"), is_long, "{health}");
            assert!(told.pause.unwrap().abs_diff(left) <= ms(10), "{told}");
        });
    }
}

#[cfg(feature = "test-util")]
#[test]
fn a_pipeline_that_is_stepped_by_hand_has_not_stalled() {
    use backpressure::test_util::{Pipeline, ScriptedSink};
    let p = Pipeline::new(builder(10).fixed(4, HOUR), ScriptedSink::new()).unwrap();
    p.controller().try_push(1).unwrap();
    p.advance(secs(6));
    assert!(p.controller().health().is_healthy(), "{}", p.controller().health());
}

#[test]
fn losses_are_seen_for_ten_seconds() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(4).strategy(Strategy::DropOldest).spawn(gated(&gate, &log)).unwrap();
        (0..7).for_each(|i| c.try_push(i).unwrap());
        gate.open();
        // The flusher notes them, whether anybody asks or not.
        tokio::time::sleep(secs(9)).await;
        let health = c.health();
        let [HealthReason::Losing { lost, since, .. }] = &health.reasons[..] else { panic!("{health:?}") };
        assert!((secs(8)..=secs(9)).contains(since), "{since:?}");
        assert_eq!((lost.evicted, lost.total()), (3, 3));
        tokio::time::sleep(secs(2)).await;
        assert!(c.health().is_healthy());
    });
}

#[test]
fn a_flusher_that_nobody_drives_is_seen_and_one_that_is_gone() {
    paused(|| async {
        let (c, flusher) = builder(4).build(ok(&Log::default())).unwrap();
        tokio::time::sleep(HOUR).await;
        assert!(c.health().is_healthy(), "nothing is outstanding");
        c.try_push(1).unwrap();
        tokio::time::sleep(secs(6)).await;
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Unhealthy, vec!["stalled"]));
        let flusher = tokio::spawn(flusher);
        assert!(c.flush().await.all_delivered());
        tokio::time::sleep(secs(10)).await;
        assert!(c.health().is_healthy());
        flusher.abort();
        idle().await;
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Unhealthy, vec!["gone"]));
    });
}

#[test]
fn the_end_is_seen() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(4).spawn(gated(&gate, &log)).unwrap();
        c.try_push(1).unwrap();
        idle().await;
        c.close();
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Degraded, vec!["draining"]));
        gate.open();
        assert!(c.drain(SEC).await.is_clean());
        let health = c.health();
        assert_eq!((health.status, names(&health)), (HealthStatus::Unhealthy, vec!["ended"]));
    });
}

#[test]
fn a_busy_and_an_idle_controller_are_healthy() {
    paused(|| async {
        let sink = |batch: Batch<u64>| async move {
            tokio::time::sleep(ms(10)).await;
            drop(batch);
            Ok::<(), FlushError>(())
        };
        let c = builder(64).spawn(sink).unwrap();
        for i in 0..10_000 {
            c.push(i).await.unwrap();
            if i % 1000 == 0 {
                let health = c.health();
                assert!(names(&health).iter().all(|name| *name == "full"), "{health}");
            }
        }
        tokio::time::sleep(HOUR).await;
        assert!(c.health().is_healthy(), "{}", c.health());
    });
}

/// The error of a sink may do what it likes when it is dropped.
#[test]
fn an_error_whose_destructor_panics_harms_nobody() {
    #[derive(Debug)]
    struct Grenade;
    impl std::fmt::Display for Grenade {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a grenade")
        }
    }
    impl std::error::Error for Grenade {}
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }
    paused(|| async {
        let mut calls = 0;
        let c = builder(4)
            .retry(Retry::exponential(ms(1), ms(1)))
            .spawn(move |batch: Batch<u64>| {
                calls += 1;
                drop(batch);
                std::future::ready(if calls < 7 { Err(FlushError::retry(Grenade)) } else { Ok(()) })
            })
            .unwrap();
        c.try_push(1).unwrap();
        tokio::time::sleep(ms(6)).await;
        // Kept for good, since what it holds panics when it is dropped; from a static it is no leak.
        KEPT.lock().unwrap().push(c.health());
        assert!(c.flush().await.all_delivered());
        assert!(c.drain(SEC).await.is_clean());
    });
}
