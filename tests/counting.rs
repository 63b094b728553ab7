//! The figures are right at each instant (I1, I3): no gauge drifts, wraps or lies.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, PushError, State, Strategy};

use self::support::{Gate, Log, Losses, SEC, gated, idle, ms, paused, rounds, within, workers};

/// 16 producers x 100 000 with `BACKPRESSURE_FULL=1`.
#[test]
fn s_g01_no_sample_of_the_gauges_is_negative_or_above_the_capacity() {
    const C: usize = 64;
    let each = rounds(100_000, 5_000);
    within(rounds(120 * SEC, 30 * SEC), move || {
        let runtime = workers(1);
        let c = BackpressureController::builder(C)
            .fixed(16, ms(1))
            .spawn_on(runtime.handle(), |batch: Batch<usize>| {
                drop(batch);
                std::future::ready(Ok(()))
            })
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let sampler = thread::spawn({
            let (c, is_over) = (c.clone(), Arc::clone(&is_over));
            move || {
                let mut samples = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let (len, depth) = (c.len(), c.depth());
                    assert!(len <= C && depth <= C, "len {len}, depth {depth}");
                    assert!((0.0..=1.0).contains(&c.pressure()));
                    let snapshot = c.snapshot();
                    snapshot.audit().unwrap();
                    assert!(snapshot.depth <= C as u64);
                    samples += 1;
                    thread::yield_now();
                }
                samples
            }
        });
        let producers: Vec<_> = (0..16)
            .map(|_| {
                let c = c.clone();
                thread::spawn(move || (0..each).for_each(|i| c.blocking_push(i).unwrap()))
            })
            .collect();
        for producer in producers {
            producer.join().expect("no producer panics");
        }
        runtime.block_on(async {
            let _ = c.flush().await;
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(sampler.join().expect("no sample is wrong") > 0);
        let total = 16 * each as u64;
        let snapshot = c.snapshot();
        assert_eq!((c.len(), c.depth()), (0, 0));
        assert_eq!((snapshot.offered, snapshot.accepted, snapshot.delivered), (total, total, total));
        assert_eq!((snapshot.refused.total(), snapshot.cancelled, snapshot.waiting), (0, 0, 0));
        assert!(snapshot.peak_depth <= C as u64);
    });
}

/// What `refuse` makes of items 1 to 10 at a closed gate with room for four, and what the sink has in the end.
fn ten_into_four(
    strategy: Strategy<u64>,
    timeout: Option<Duration>,
) -> (Vec<PushError<u64>>, backpressure::Snapshot, Vec<u64>, Vec<u64>) {
    paused(move || async move {
        let (gate, log, losses) = (Gate::closed(), Log::default(), Losses::default());
        let c = BackpressureController::builder(4)
            .fixed(1, SEC)
            .strategy(strategy)
            .on_loss(losses.hook())
            .spawn(gated(&gate, &log))
            .unwrap();
        let mut refused = Vec::new();
        for i in 1..=10 {
            let answer = match timeout {
                Some(limit) => c.push_timeout(i, limit).await,
                None => c.push(i).await,
            };
            refused.extend(answer.err());
            // Item 1 is in flight before the others come.
            idle().await;
            c.snapshot().audit().unwrap();
        }
        let full = c.snapshot();
        assert_eq!((full.offered, full.depth, c.depth(), c.len()), (10, 4, 4, 4));
        gate.open();
        idle().await;
        assert_eq!((c.snapshot().depth, c.depth(), c.len()), (0, 0, 0));
        c.snapshot().audit().unwrap();
        (refused, full, log.items(), losses.items())
    })
}

#[test]
fn s_g03_a_refused_item_never_moves_the_depth() {
    let (refused, full, delivered, evicted) = ten_into_four(Strategy::DropNewest, None);
    assert_eq!(refused, (5..=10).map(PushError::Full).collect::<Vec<_>>());
    assert_eq!((full.accepted, full.refused.total(), full.refused.full, full.depth), (4, 6, 6, 4));
    assert_eq!(delivered, [1, 2, 3, 4]);
    assert!(evicted.is_empty());

    let (refused, full, delivered, evicted) = ten_into_four(Strategy::DropOldest, None);
    assert!(refused.is_empty());
    assert_eq!((full.accepted, full.evicted, full.refused.total()), (10, 6, 0));
    assert_eq!(evicted, [2, 3, 4, 5, 6, 7]);
    assert_eq!(delivered, [1, 8, 9, 10]);

    let (refused, full, delivered, _) = ten_into_four(Strategy::Block, Some(Duration::ZERO));
    assert_eq!(refused, (5..=10).map(PushError::TimedOut).collect::<Vec<_>>());
    assert_eq!((full.accepted, full.refused.total(), full.refused.timed_out, full.depth), (4, 6, 6, 4));
    assert_eq!(delivered, [1, 2, 3, 4]);

    let (refused, full, delivered, _) = ten_into_four(Strategy::BlockFor(Duration::ZERO), None);
    assert_eq!(refused, (5..=10).map(PushError::TimedOut).collect::<Vec<_>>());
    assert_eq!((full.accepted, full.refused.total(), full.depth), (4, 6, 4));
    assert_eq!(delivered, [1, 2, 3, 4]);
}

#[test]
fn s_g05_a_burst_between_two_scrapes_leaves_its_peak() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(100)
            .fixed(10, ms(5))
            .strategy(Strategy::DropNewest)
            .spawn(gated(&gate, &log))
            .unwrap();
        let refused = (0..250).filter(|i| c.try_push(*i).is_err()).count();
        idle().await;
        gate.open();
        tokio::time::sleep(15 * SEC).await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.depth, snapshot.peak_depth), (0, 100));
        assert_eq!(snapshot.transitions.entered(State::Blocked), 1);
        assert_eq!((refused, snapshot.refused.full, snapshot.delivered), (150, 150, 100));
        assert_eq!(log.items(), (0..100).collect::<Vec<_>>());
        assert_eq!((snapshot.state, snapshot.offered), (State::Normal, 250));
        snapshot.audit().unwrap();
    });
}
