//! Figures that are read while others push and settle, and the barrier of a flush.

use std::sync::Arc;
use std::task::Waker;

use super::{Rig, join, thread};
use crate::ledger::Outcome;
use crate::state::Watermarks;
use crate::sync::{AtomicU64, Fault, Ordering, explore, explore_wide, must_fail};

fn check_figures(rig: &Rig) {
    let capacity = rig.gate.capacity() as u64;
    let (len, depth, pressure) = (rig.gate.len(), rig.gate.depth(), rig.gate.pressure());
    assert!(len <= capacity, "len is {len} of {capacity}");
    assert!(depth <= capacity, "depth is {depth} of {capacity}");
    assert!((0.0..=1.0).contains(&pressure), "pressure is {pressure}");
}

/// A push and a settle.
fn figures_against_push_and_settle(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::with_marks(capacity, capacity as u32, Watermarks::default());
        rig.take(1);
        let producer = rig.spawn(|rig| rig.push(10));
        let settler = rig.spawn(|rig| rig.settle(1));
        check_figures(&rig);
        join(settler);
        let is_in = join(producer);
        check_figures(&rig);
        let expected = capacity as u64 - u64::from(!is_in);
        assert_eq!((rig.gate.len(), rig.gate.depth()), (expected, expected), "exact when all is quiet");
    }
}

/// An eviction, during which the tail stands above the limit for a moment.
fn figures_against_eviction(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let evictor = rig.spawn(|rig| {
            rig.evict(10, &mut Vec::new());
        });
        check_figures(&rig);
        join(evictor);
        assert_eq!((rig.gate.len(), rig.gate.depth()), (capacity as u64, capacity as u64));
    }
}

/// A producer pushes; what it had pushed before the flush began is in the sink when the barrier is complete.
fn push_then_flush(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32 - 1);
        let is_in = Arc::new(AtomicU64::new(0));
        let producer = {
            let is_in = Arc::clone(&is_in);
            rig.spawn(move |rig| {
                assert!(rig.push(10));
                is_in.store(1, Ordering::Release);
            })
        };
        let was_in = is_in.load(Ordering::Acquire) == 1;
        let sink = flush(&rig);
        let expected = capacity - usize::from(!sink.contains(&10));
        assert_eq!(sink.len(), expected, "the older ones are all there");
        assert!(!was_in || sink.contains(&10), "pushed before the flush, and not in the sink");
        join(producer);
        assert_eq!(sink.len() + rig.empty().len(), capacity);
    }
}

/// As `flush()` does it: a barrier, and batches until it is complete.
fn flush(rig: &Rig) -> Vec<u32> {
    let mut locked = rig.gate.lock();
    let figures = locked.figures();
    let outstanding = figures.buffered + figures.in_flight;
    let id = locked.desk().ledger.open_barrier(figures.end, outstanding);
    rig.apply(locked.finish());
    let mut sink = Vec::new();
    loop {
        let mut locked = rig.gate.lock();
        let (tally, left, _) = locked.desk().ledger.poll_barrier(id, Waker::noop().clone());
        if left == 0 {
            assert_eq!(tally.delivered, outstanding);
            return sink;
        }
        let first = locked.taken();
        let count = locked.take(1, &mut sink) as u64;
        locked.settle(first..first + count, Outcome::Delivered);
        rig.apply(locked.finish());
        if count == 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn s_g07_len_depth_and_pressure_stay_in_range_while_others_push_and_settle() {
    explore_wide(figures_against_push_and_settle(1));
    explore_wide(figures_against_push_and_settle(2));
    explore_wide(figures_against_push_and_settle(3));
    explore_wide(|| {
        let rig = Rig::new(1, 1);
        rig.take(1);
        let producer = rig.spawn(|rig| rig.push(10));
        let settler = rig.spawn(|rig| rig.settle(1));
        assert!(rig.gate.len() <= 1);
        assert!((0.0..=1.0).contains(&rig.gate.pressure()));
        join(settler);
        let is_in = join(producer);
        assert_eq!(rig.gate.len(), u64::from(is_in));
    });
}

#[test]
fn figures_stay_in_range_during_an_eviction() {
    explore(figures_against_eviction(1));
    explore(figures_against_eviction(2));
    explore(figures_against_eviction(3));
}

#[test]
fn s_a01_what_was_pushed_before_the_flush_is_in_the_sink_after_it() {
    explore(push_then_flush(1));
    explore(push_then_flush(2));
    explore(|| {
        let rig = Rig::new(1, 0);
        assert!(rig.push(7));
        let other = rig.spawn(|rig| rig.push(8));
        let sink = flush(&rig);
        let is_in = join(other);
        assert_eq!(sink.first(), Some(&7));
        rig.close();
        let all = [sink, rig.flush_until_drained()].concat();
        assert_eq!(all.len(), 1 + usize::from(is_in), "the shutdown delivers all that was accepted");
    });
}

#[test]
fn twin_len_unclamped() {
    must_fail(Fault::LenUnclamped, figures_against_eviction(1));
}

#[test]
fn twin_turn_relaxed() {
    must_fail(Fault::TurnRelaxed, push_then_flush(1));
}
