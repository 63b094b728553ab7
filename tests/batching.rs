//! Scenarios E: timers and the bounds of batches.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushReason, PushError, Retry, Strategy};
use futures::poll;
use tokio::time::{Instant, advance, sleep, sleep_until};

use self::support::{Dice, GUARD, HOUR, Sink, ms, paused_for, secs, settled};

#[test]
fn s_e01_a_partial_batch_leaves_at_its_linger_from_its_first_item() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let start = Instant::now();
        let c = BackpressureController::<u64>::builder(10_000).fixed(1000, secs(5)).spawn(sink.clone()).unwrap();
        assert_eq!(c.push_all(0..123).await.unwrap(), 123);
        sleep_until(start + secs(65)).await;
        assert_eq!((sink.sizes(), sink.times()), (vec![123], vec![ms(5000)]));
        assert_eq!(sink.calls()[0].reason, FlushReason::Linger);
        c.push(123).await.unwrap();
        sleep_until(start + ms(65_100)).await;
        assert_eq!(sink.sizes(), [123], "the age clock starts at the first item of the batch");
        assert_eq!(c.push_all(124..1123).await.unwrap(), 999);
        settled().await;
        assert_eq!((sink.sizes(), sink.times()), (vec![123, 1000], vec![ms(5000), ms(65_100)]));
        assert_eq!(sink.calls()[1].reason, FlushReason::Full);
        sleep(HOUR).await;
        assert_eq!((sink.calls().len(), c.len()), (2, 0));
        assert_eq!(sink.delivered(), (0..1123).collect::<Vec<_>>());
    });
}

/// The wheel of tokio's timers rounds up to whole milliseconds; a linger says how long a batch may wait.
#[test]
fn s_e01_a_partial_batch_does_not_wait_for_the_tick_behind_its_linger() {
    for (linger, offset) in [2000, 5000].into_iter().flat_map(|linger| [0, 1, 400, 999].map(|at| (linger, at))) {
        let [linger, offset] = [linger, offset].map(Duration::from_micros);
        paused_for(GUARD, move || async move {
            let sink = Sink::ok();
            let c = BackpressureController::<u64>::builder(100).fixed(10, linger).spawn(sink.clone()).unwrap();
            settled().await;
            advance(offset).await;
            c.push(0).await.unwrap();
            sleep(ms(20)).await;
            let waited = sink.times()[0] - offset;
            assert!(waited <= linger && waited + ms(1) > linger, "{waited:?} of {linger:?}, {offset:?} after a tick");
        });
    }
}

/// Who was let in when there was room has more: a sink that is idle by then does not get a single item first.
#[test]
fn who_waited_for_room_fills_the_next_batch() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(4).fixed(4, Duration::ZERO).spawn(sink.clone()).unwrap();
        for item in 0..20 {
            c.push(item).await.unwrap();
        }
        assert!(c.flush().await.all_delivered());
        assert_eq!(sink.sizes(), [4; 5]);
        c.push(20).await.unwrap();
        settled().await;
        assert_eq!(sink.sizes().last(), Some(&1), "nobody waited: it leaves at once");
    });
}

/// Who is let in by a permit that comes back, again and again, puts a batch off once and not for ever.
#[test]
fn a_batch_is_put_off_once_whoever_is_let_in() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(2).fixed(2, Duration::ZERO).spawn(sink.clone()).unwrap();
        settled().await;
        c.try_push(0).unwrap();
        let mut turns = 0;
        while sink.calls().is_empty() {
            turns += 1;
            assert!(turns < 10, "the item never leaves");
            let permit = c.try_reserve().unwrap();
            let mut waiting = pin!(c.reserve());
            assert!(poll!(waiting.as_mut()).is_pending(), "there is no room");
            drop(permit);
            drop(waiting.await.unwrap());
            tokio::task::yield_now().await;
        }
        assert_eq!(sink.delivered(), [0]);
    });
}

/// An item that comes while the flusher is busy has its own age: what is left after a full batch does not leave early or
/// late by more than the time between two batches.
#[test]
fn s_e01_the_rest_of_a_full_batch_has_its_own_age() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let start = Instant::now();
        let c = BackpressureController::<u64>::builder(100).fixed(10, secs(5)).spawn(sink.clone()).unwrap();
        c.push(0).await.unwrap();
        sleep(secs(4)).await;
        assert_eq!(c.push_all(1..10).await.unwrap(), 9);
        settled().await;
        sleep(secs(1)).await;
        c.push(10).await.unwrap();
        sleep(secs(20)).await;
        assert_eq!((sink.sizes(), sink.times()), (vec![10, 1], vec![ms(4000), ms(10_000)]));
        assert_eq!(start.elapsed(), ms(25_000));
    });
}

/// An item that comes into an empty buffer while the sink is busy has its own age, too.
#[test]
fn s_e01_what_comes_while_the_sink_has_all_has_its_own_age() {
    paused_for(GUARD, || async {
        let start = Instant::now();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&sent);
        let sink = move |batch: Batch<u64>| {
            log.lock().unwrap().push((batch.len(), start.elapsed()));
            async {
                sleep(secs(10)).await;
                Ok(())
            }
        };
        let c = BackpressureController::builder(100).fixed(10, secs(5)).flush_timeout(HOUR).spawn(sink).unwrap();
        assert_eq!(c.push_all(0..10).await.unwrap(), 10);
        sleep(secs(9)).await;
        c.push(10).await.unwrap();
        sleep(secs(20)).await;
        assert_eq!(*sent.lock().unwrap(), [(10, ms(0)), (1, ms(14_000))]);
    });
}

/// When the items of a case come, in lingers.
const RHYTHMS: [&[u32]; 3] = [&[0], &[1], &[1, 0, 0, 2]];

#[test]
fn s_e03_nothing_is_lost_where_timer_push_and_close_meet() {
    paused_for(secs(60), || async {
        let linger = ms(10);
        let mut cases = 0;
        for n in [1, 2, 3, 7] {
            for items in 0..=50 {
                for rhythm in RHYTHMS {
                    // Closed with the last item, or when its linger ends. Who yields first acts after the timer of the
                    // same moment, who does not before it.
                    for (close_after, yields) in [(0, items % 2 == 0), (1, items % 2 == 1)] {
                        let sink = Sink::ok();
                        let start = Instant::now();
                        let c =
                            BackpressureController::<u64>::builder(100).fixed(n, linger).spawn(sink.clone()).unwrap();
                        let mut pushed = VecDeque::new();
                        for id in 0..items {
                            let pause = rhythm[id as usize % rhythm.len()];
                            if pause > 0 {
                                sleep(linger * pause).await;
                            }
                            if yields {
                                tokio::task::yield_now().await;
                            }
                            c.push(id).await.unwrap();
                            pushed.push_back(start.elapsed());
                        }
                        sleep(linger * close_after).await;
                        if yields {
                            tokio::task::yield_now().await;
                        }
                        let report = c.drain(secs(25)).await;
                        let case = format!("n {n}, {items} items, rhythm {rhythm:?}, {close_after}, {yields}");
                        assert_eq!(sink.delivered(), (0..items).collect::<Vec<_>>(), "{case}");
                        assert_eq!((report.delivered(), report.is_clean()), (items, true), "{case}");
                        for call in sink.calls() {
                            assert!((1..=n).contains(&call.items.len()), "{case}: {call:?}");
                            for _ in &call.items {
                                let at = pushed.pop_front().unwrap();
                                assert!(call.at >= at && call.at - at <= linger, "{case}: pushed {at:?}, {call:?}");
                            }
                        }
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, 4 * 51 * 3 * 2);
    });
}

#[test]
fn s_e05_no_empty_batch() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(10).fixed(2, ms(10)).spawn(sink.clone()).unwrap();
        sleep(secs(10)).await;
        let report = c.flush().await;
        assert_eq!(report.total(), 0);
        let report = c.drain(secs(25)).await;
        assert_eq!((sink.calls().len(), report.delivered()), (0, 0));
        assert_eq!(report.totals.flushes.total(), 0);

        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(10).fixed(2, ms(10)).spawn(sink.clone()).unwrap();
        for id in 1..=4 {
            c.push(id).await.unwrap();
        }
        let report = c.drain(secs(25)).await;
        sleep(secs(10)).await;
        assert_eq!(sink.batches(), [[1, 2], [3, 4]]);
        assert_eq!((report.delivered(), report.totals.flushes.total()), (4, 2));
    });
}

/// A batch of which nothing is left before it is taken (purged) makes no empty call either.
#[test]
fn s_e05_no_empty_batch_after_a_purge() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(10).fixed(5, ms(10)).spawn(sink.clone()).unwrap();
        assert_eq!(c.push_all([1, 2]).await.unwrap(), 2);
        settled().await;
        assert_eq!(c.purge(), [1, 2]);
        sleep(secs(1)).await;
        assert_eq!(sink.calls().len(), 0);
        // And the linger of what was purged is not held against what comes later.
        c.push(3).await.unwrap();
        sleep(secs(1)).await;
        assert_eq!((sink.batches(), sink.times()), (vec![vec![3]], vec![ms(1010)]));
        assert_eq!(c.drain(secs(25)).await.delivered(), 1);
    });
}

/// The other half of the gate is clippy.toml, which disallows all clocks outside src/time.rs.
#[test]
fn s_e07_no_wall_clock_in_the_source() {
    fn search(dir: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                search(&path, found);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter(|line| ["SystemTime", "UNIX_EPOCH"].iter().any(|w| line.contains(w)));
            let file = path.file_name().unwrap().display();
            found.extend(lines.map(|line| format!("{file}: {}", line.trim())));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    search(&root.join("src"), &mut found);
    // For a timestamp among the metrics, by which nothing is scheduled.
    let known = [
        "time.rs: use std::time::{Duration, SystemTime};",
        "time.rs: let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();",
    ];
    assert_eq!(found, known, "the wall clock can step: schedules are on the monotonic one");
    let clippy = fs::read_to_string(root.join("clippy.toml")).unwrap();
    for clock in ["std::time::Instant::now", "std::time::SystemTime::now", "tokio::time::Instant::now"] {
        let rule = format!("path = \"{clock}\"");
        assert!(clippy.contains(&rule), "clippy.toml does not disallow {clock}");
    }
}

#[test]
fn s_e07_all_schedules_are_on_tokios_clock() {
    paused_for(GUARD, || async {
        // A linger, a back-off, a time limit of a push, a flush timeout and a drain's deadline, each of 10 ms.
        let lingering = Sink::ok();
        let partial = BackpressureController::<u64>::builder(10).fixed(5, ms(10)).spawn(lingering.clone()).unwrap();
        let failing = Sink::fail(1);
        let outage = BackpressureController::<u64>::builder(10)
            .fixed(1, ms(10))
            .retry(Retry::exponential(ms(10), ms(10)).without_jitter())
            .spawn(failing.clone())
            .unwrap();
        let hung = Sink::gated();
        let full = BackpressureController::<u64>::builder(1)
            .fixed(1, ms(10))
            .strategy(Strategy::BlockFor(ms(10)))
            .flush_timeout(ms(10))
            .retry(Retry::exponential(HOUR, HOUR))
            .spawn(hung.clone())
            .unwrap();
        let held = BackpressureController::<u64>::builder(10).fixed(1, ms(10)).spawn(Sink::gated()).unwrap();
        for c in [&partial, &outage, &full, &held] {
            c.push(1).await.unwrap();
        }
        let blocked = tokio::spawn({
            let full = full.clone();
            async move { full.push(2).await }
        });
        let drain = tokio::spawn(async move { held.drain(ms(10)).await });
        settled().await;
        // A blocking task stops the clock's auto-advance.
        let start = Instant::now();
        tokio::task::spawn_blocking(|| std::thread::sleep(ms(50))).await.unwrap();
        settled().await;
        assert_eq!(start.elapsed(), Duration::ZERO, "the clock stood still");
        assert_eq!((lingering.calls().len(), failing.calls().len(), hung.calls().len()), (0, 1, 1));
        assert_eq!((full.snapshot().waiting, full.snapshot().flushes.timed_out), (1, 0));
        assert!(!blocked.is_finished() && !drain.is_finished());
        advance(ms(9)).await;
        settled().await;
        assert_eq!((lingering.calls().len(), failing.calls().len()), (0, 1));
        assert!(!blocked.is_finished() && !drain.is_finished());
        advance(ms(1)).await;
        settled().await;
        assert_eq!((lingering.batches(), failing.sizes()), (vec![vec![1]], vec![1, 1]));
        assert_eq!(full.snapshot().flushes.timed_out, 1);
        assert!(matches!(blocked.await.unwrap(), Err(PushError::TimedOut(2))));
        assert_eq!(drain.await.unwrap().leftovers, [1]);
        assert_eq!(start.elapsed(), ms(10));
    });
}

#[test]
fn s_e09_a_full_batch_leaves_at_once() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let c = BackpressureController::<u64>::builder(2048)
            .fixed(512, secs(5))
            .strategy(Strategy::DropNewest)
            .spawn(sink.clone())
            .unwrap();
        settled().await;
        assert_eq!(c.push_all(0..512).await.unwrap(), 512);
        settled().await;
        assert_eq!((sink.sizes(), sink.times()), (vec![512], vec![ms(0)]));
        for id in 512..2560 {
            c.try_push(id).unwrap();
        }
        settled().await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.refused.total(), snapshot.delivered, snapshot.depth), (0, 2560, 0));
        assert_eq!((sink.sizes(), sink.times()), (vec![512; 5], vec![ms(0); 5]));
        assert!(sink.calls().iter().all(|call| call.reason == FlushReason::Full));
        assert_eq!(sink.delivered(), (0..2560).collect::<Vec<_>>());
    });
}

#[test]
fn s_e11_timer_and_size_at_the_same_moment() {
    paused_for(secs(60), || async {
        let mut dice = Dice(11);
        let (mut full, mut lingered) = (0, 0);
        for schedule in 0..10_000 {
            let (batch, linger) = (1 + dice.up_to(4) as usize, ms(1 + dice.up_to(2)));
            let sink = Sink::ok();
            let c = BackpressureController::<u64>::builder(50).fixed(batch, linger).spawn(sink.clone()).unwrap();
            let mut id = 0;
            for _ in 0..2 {
                // All but one, then the last one when the first one's linger ends: before the timer, or after it.
                for _ in 1..batch {
                    c.push(id).await.unwrap();
                    id += 1;
                }
                sleep(linger.saturating_sub(ms(dice.up_to(1) * dice.up_to(1)))).await;
                for _ in 0..dice.up_to(3) {
                    tokio::task::yield_now().await;
                }
                for _ in 0..=dice.up_to(2) {
                    c.push(id).await.unwrap();
                    id += 1;
                }
            }
            if dice.up_to(1) == 0 {
                sleep(linger).await;
            }
            let report = c.drain(secs(25)).await;
            let seen = sink.delivered();
            assert_eq!(seen, (0..id).collect::<Vec<_>>(), "schedule {schedule}: each once, in order");
            assert_eq!((report.delivered(), sink.sizes().iter().sum::<usize>() as u64), (id, id));
            assert!(sink.sizes().iter().all(|size| (1..=batch).contains(size)), "schedule {schedule}");
            full += sink.calls().iter().filter(|call| call.reason == FlushReason::Full).count();
            lingered += sink.calls().iter().filter(|call| call.reason == FlushReason::Linger).count();
        }
        assert!(full > 1000 && lingered > 1000, "both triggers were there: {full}, {lingered}");
    });
}
