//! Scenarios F: a flusher that has nothing to do does nothing, whatever keeps it from its work.

#![allow(clippy::disallowed_methods, reason = "some of these scenarios run in real time")]

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Builder, FlushError, Flusher, Retry, State};
use tokio::time::{Instant, sleep};

use self::support::{Gate, HOUR, Log, SEC, gated, idle, ms, ok, paused, secs};

/// A flusher whose polls are counted.
struct Counted {
    flusher: Flusher,
    polls: Arc<AtomicUsize>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.flusher).poll(cx).map(drop)
    }
}

/// Spawns a flusher, and counts its polls.
fn counted(built: (BackpressureController<u64>, Flusher)) -> (BackpressureController<u64>, Arc<AtomicUsize>) {
    let (c, flusher) = built;
    let polls = Arc::<AtomicUsize>::default();
    tokio::spawn(Counted { flusher, polls: Arc::clone(&polls) });
    (c, polls)
}

/// A builder of batches of 10 in a buffer of 100.
fn tens() -> Builder<u64> {
    BackpressureController::builder(100).fixed(10, ms(5)).flush_timeout(HOUR)
}

#[test]
fn s_f01_a_full_batch_that_waits_for_a_busy_sink_costs_no_polls() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let (c, polls) = counted(tens().build(gated(&gate, &log)).unwrap());
        (0..100).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        let before = polls.load(Ordering::Relaxed);
        sleep(secs(10)).await;
        // It publishes its metrics each second while the sink is busy, and is woken for nothing else.
        let during = polls.load(Ordering::Relaxed) - before;
        assert!(during <= 10 + 3, "{during}");
        gate.open();
        idle().await;
        assert_eq!(log.sizes(), [10; 10]);
    });
}

/// Nanoseconds for which this thread has had a processor.
#[cfg(target_os = "linux")]
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn s_f01_a_second_of_a_busy_sink_costs_no_processor_time() {
    support::within(30 * SEC, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let gate = Gate::closed();
            let c = tens().spawn(gated(&gate, &Log::default())).unwrap();
            (0..100).for_each(|i| c.try_push(i).unwrap());
            sleep(ms(50)).await;
            let before = processor_time();
            sleep(SEC).await;
            let used = Duration::from_nanos(processor_time() - before);
            assert!(used < ms(20), "{used:?}");
        });
    });
}

#[test]
fn s_f03_an_input_whose_other_end_is_gone_is_not_always_ready() {
    paused(|| async {
        for when in ["before", "during", "after"] {
            let log = Log::default();
            let (c, polls) = counted(tens().build(ok(&log)).unwrap());
            // All that can stand beside the handle that pushes, and be let go.
            let others =
                (c.clone(), c.downgrade(), c.watch(), c.try_reserve().unwrap(), c.push_tracked(1_000).await.unwrap());
            let mut others = Some(others);
            if when == "before" {
                others = None;
            }
            for i in 0..50 {
                c.push(i).await.unwrap();
                if when == "during" && i == 25 {
                    others = None;
                    c.reconfigure(|changes| changes.linger(ms(6))).unwrap();
                }
            }
            assert!(c.flush().await.all_delivered());
            drop(others);
            idle().await;
            assert_eq!((c.snapshot().delivered, c.depth(), c.state()), (51, 0, State::Normal), "{when}");
            let before = polls.load(Ordering::Relaxed);
            sleep(secs(60)).await;
            let during = polls.load(Ordering::Relaxed) - before;
            assert!(during <= 2, "{when}: {during} polls in a minute");
        }
    });
}

/// When each slot has called a sink that always fails, in its first minute.
fn outage(slots: usize) -> Vec<Vec<Duration>> {
    paused(move || async move {
        let start = Instant::now();
        let calls = Arc::new(Mutex::new(vec![Vec::new(); slots]));
        let log = Arc::clone(&calls);
        let sink = move |batch: Batch<u64>| {
            log.lock().unwrap()[(batch.seq(0) / 10) as usize].push(start.elapsed());
            async move {
                // So long that the other slots begin, too.
                sleep(ms(1)).await;
                drop(batch);
                Err(FlushError::retry("down"))
            }
        };
        let retry = Retry::exponential(ms(100), secs(10)).without_jitter();
        let c =
            BackpressureController::builder(500).fixed(10, ms(0)).retry(retry).spawn_concurrent(slots, sink).unwrap();
        (0..500).for_each(|i| c.try_push(i).unwrap());
        sleep(secs(60)).await;
        assert_eq!((c.len(), c.snapshot().audit()), (500, Ok(())));
        calls.lock().unwrap().clone()
    })
}

#[test]
fn s_f05_a_backlog_does_not_make_an_outage_a_storm() {
    for slots in [1, 3] {
        for calls in outage(slots) {
            let expected = [0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 22_700, 32_700, 42_700, 52_700];
            // A call takes a millisecond, and tokio's timer rounds up to one.
            let millis: Vec<_> = calls.iter().map(|at| at.as_millis() as u64).collect();
            assert_eq!(millis.len(), expected.len(), "{slots} slots: {millis:?}");
            for (at, expected) in millis.iter().zip(expected) {
                assert!((expected..=expected + 24).contains(at), "{slots} slots: {millis:?}");
            }
            assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= ms(100)));
        }
    }
}
