//! Batches that are settled in any order, by whoever ends them: the bound, the waiters and the barriers hold (I3, I5, I7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use super::{Flag, Parked, Rig, Wait, item, join, permits};
use crate::ledger::Outcome;
use crate::sync::{Fault, explore, must_fail};

impl Rig {
    /// Settles one item, whichever.
    fn settle_at(&self, position: u64) {
        let mut locked = self.gate.lock();
        locked.settle(position..position + 1, Outcome::Delivered);
        self.apply(locked.finish());
    }
}

/// The last batch is settled while the first one is out for good: its room and no more is there.
fn one_of_many(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let settler = rig.spawn(move |rig| rig.settle_at(capacity as u64 - 1));
        let early = u64::from(rig.push(8)) + u64::from(rig.push(9));
        join(settler);
        let late = (0..2).filter(|i| rig.push(10 + i)).count() as u64;
        assert_eq!(early + late, 1, "one item was settled, and one comes in");
        assert_eq!(rig.gate.lock().figures().depth(), capacity as u64);
    }
}

/// Two batches end on two threads, the later one perhaps first; a producer waits and another one passes by.
fn waiter_before_passer_by(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiter = rig.wait(item(9));
        let settler = rig.spawn(move |rig| rig.settle_at(capacity as u64 - 1));
        assert!(!rig.push(8), "the room of one batch is the waiter's");
        rig.settle_at(0);
        join(settler);
        assert!(waiter.is_woken(), "either of them has brought the room");
        assert!(matches!(rig.look(&waiter), Wait::Served(Parked::One(None))));
        assert!(rig.push(8), "the other one has brought room for who passes by");
        let figures = rig.gate.lock().figures();
        assert_eq!((figures.depth(), figures.buffered), (capacity as u64, 2));
        rig.settle_rest(capacity as u64 - 2);
        assert_eq!(rig.empty(), [9, 8], "who waits comes first");
    }
}

impl Rig {
    /// What the models leave in flight, counted only.
    fn settle_rest(&self, n: u64) {
        if n > 0 {
            self.settle(n);
        }
    }
}

/// A reservation of two places is granted by two batches that end in any order.
fn reservation(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiter = rig.wait(permits(2));
        let settler = rig.spawn(move |rig| rig.settle_at(capacity as u64 - 1));
        rig.settle_at(0);
        join(settler);
        assert!(waiter.is_woken());
        assert!(matches!(rig.look(&waiter), Wait::Served(Parked::Permits { granted: 2, .. })));
        let figures = rig.gate.lock().figures();
        assert_eq!((figures.reserved, figures.depth()), (2, capacity as u64));
    }
}

/// A flush waits for two batches, of which the later one may end first.
fn barrier(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let ended = Arc::new(AtomicU64::new(0));
        let id = rig.gate.lock().desk().ledger.open_barrier(2, 2);
        let count = Arc::clone(&ended);
        let settler = rig.spawn(move |rig| {
            count.fetch_add(1, Ordering::Relaxed);
            rig.settle_at(1);
        });
        let woken = Arc::new(Flag::default());
        let outstanding = |waker: Waker| rig.gate.lock().desk().ledger.poll_barrier(id, waker).1;
        let before = outstanding(Waker::from(Arc::clone(&woken)));
        assert!(before > 0, "the first batch is out");
        ended.fetch_add(1, Ordering::Relaxed);
        rig.settle_at(0);
        // Its last batch may end on the other thread.
        let is_woken = woken.0.load(Ordering::Relaxed);
        assert!(!is_woken || ended.load(Ordering::Relaxed) == 2, "woken before all is settled");
        join(settler);
        assert!(woken.0.load(Ordering::Relaxed), "whoever ends the last batch wakes the flush");
        assert_eq!(outstanding(Waker::noop().clone()), 0);
    }
}

#[test]
fn a_later_batch_that_is_settled_first_brings_its_own_room_only() {
    explore(one_of_many(2));
    explore(one_of_many(3));
}

#[test]
fn whichever_batch_ends_first_serves_who_waits() {
    explore(waiter_before_passer_by(2));
    explore(waiter_before_passer_by(3));
}

#[test]
fn a_reservation_is_granted_by_batches_in_any_order() {
    explore(reservation(2));
    explore(reservation(3));
}

#[test]
fn a_flush_waits_for_the_batch_that_ends_last() {
    explore(barrier(2));
}

#[test]
fn twin_room_by_position() {
    must_fail(Fault::RoomByPosition, one_of_many(2));
    must_fail(Fault::RoomByPosition, one_of_many(3));
    must_fail(Fault::RoomByPosition, waiter_before_passer_by(2));
    must_fail(Fault::RoomByPosition, reservation(3));
}

#[test]
fn twin_barrier_by_position() {
    must_fail(Fault::BarrierByPosition, barrier(2));
}

#[test]
fn twin_serve_nobody() {
    must_fail(Fault::ServeNobody, waiter_before_passer_by(2));
    must_fail(Fault::ServeNobody, reservation(2));
}
