//! Evictions on credit, of items that nobody minds: what is left is what came last, in order, and the rest is counted.

use super::{Displaced, Rig, Wait, item, join};
use crate::gate::Parked;
use crate::sync::{Fault, Model, explore, must_fail};
use std::sync::Arc;

/// A full gate with the items `1 .. capacity` and 9, and with credit, unless the capacity is 1.
fn with_credit(capacity: usize) -> Arc<Model<Rig>> {
    let rig = Rig::unminded(capacity, capacity as u32);
    evict(&rig, 9);
    rig
}

fn evict(rig: &Rig, item: u32) {
    assert_eq!(offer(rig, item), Displaced::Stored);
}

/// As a producer does it: by an ordinary claim, on credit or not, before anything else.
fn offer(rig: &Rig, item: u32) -> Displaced {
    if rig.push(item) { Displaced::Stored } else { rig.evict(item, &mut Vec::new()) }
}

fn evicted(rig: &Rig) -> u64 {
    rig.gate.lock().desk().ledger.total.lost.evicted
}

/// Two producers evict, by one swap each or under the lock.
fn two_evictors(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = with_credit(capacity);
        let before = evicted(&rig);
        let other = rig.spawn(|rig| evict(rig, 10));
        evict(&rig, 11);
        join(other);
        assert_eq!(evicted(&rig), before + 2);
        let rest = rig.empty();
        assert_eq!(rest.len(), capacity);
        assert!(rest.contains(&11) || capacity == 1, "the youngest stay");
        assert!(rest.contains(&10) || capacity == 1, "the youngest stay");
    }
}

/// A producer evicts twice while the flusher takes and settles.
fn evictor_and_flusher(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = with_credit(capacity);
        let evictor = rig.spawn(|rig| [10, 11].map(|item| offer(rig, item) == Displaced::Stored));
        let mut taken = rig.take(1);
        let figures = rig.gate.lock().figures();
        assert!(figures.depth() <= capacity as u64, "the bound holds: {figures:?}");
        assert_eq!(figures.in_flight, 1);
        rig.settle(1);
        let stored = join(evictor);
        assert!(capacity == 1 || stored == [true; 2], "only what is in flight cannot be displaced");
        let end = rig.gate.lock().figures().end;
        taken.extend(rig.empty());
        assert_eq!(taken.len() as u64 + evicted(&rig), end, "each item was taken or evicted");
        let age = |item: &u32| [0, 1, 2, 9, 10, 11].iter().position(|known| known == item);
        assert!(taken.is_sorted_by_key(age), "in order: {taken:?}");
    }
}

/// A producer evicts while the intake is shut.
fn evictor_and_close() {
    let rig = with_credit(2);
    let evictor = rig.spawn(|rig| offer(rig, 10));
    rig.close();
    let accepted = rig.gate.lock().figures().end;
    let displaced = join(evictor);
    assert_eq!(rig.gate.lock().figures().end, accepted, "nothing is accepted after the close");
    assert_eq!(accepted, 3 + u64::from(displaced == Displaced::Stored));
}

/// A producer wants a permit, or room for many, while somebody calls the credit in: it is none for them.
fn credit_is_no_room() {
    let rig = with_credit(2);
    let other = rig.spawn(|rig| {
        let mut items = vec![10, 11];
        rig.push_many(&mut items);
        (rig.reserve(1), items)
    });
    let _ = rig.gate.lock().leave();
    assert_eq!(join(other), (false, vec![10, 11]));
}

/// A producer evicts while another thread reads the figures without the lock.
fn evictor_and_reader(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = with_credit(capacity);
        let evictor = rig.spawn(|rig| [10, 11].map(|item| evict(rig, item)));
        assert_eq!((rig.gate.depth(), rig.gate.len()), (capacity as u64, capacity as u64));
        join(evictor);
    }
}

/// 100 comes to wait while another producer evicts twice, and is served by the first room there is.
fn evictor_and_waiter() {
    let rig = with_credit(2);
    let evictor = rig.spawn(|rig| [10, 11].map(|item| evict(rig, item)));
    let waiter = rig.wait(item(100));
    join(evictor);
    assert!(!waiter.is_woken(), "no room has come of it");
    let mut all = rig.take(1);
    rig.settle(1);
    assert!(matches!(rig.look(&waiter), Wait::Served(Parked::One(None))));
    all.extend(rig.empty());
    assert_eq!(all, [10, 11, 100]);
}

#[test]
fn two_evictors_on_credit_displace_one_each() {
    explore(two_evictors(1));
    explore(two_evictors(2));
    explore(two_evictors(3));
}

#[test]
fn evictions_on_credit_are_in_order_beside_the_flusher() {
    explore(evictor_and_flusher(1));
    explore(evictor_and_flusher(2));
    explore(evictor_and_flusher(3));
}

#[test]
fn evictions_on_credit_that_the_flusher_ignores() {
    must_fail(Fault::CreditKept, evictor_and_flusher(2));
}

#[test]
fn evictions_on_credit_that_is_called_in_by_a_load() {
    must_fail(Fault::CreditByLoad, evictor_and_flusher(2));
}

#[test]
fn evictions_on_credit_whose_limit_stays_published() {
    must_fail(Fault::CreditLimitKept, evictor_and_flusher(2));
}

#[test]
fn evictions_on_credit_that_do_not_see_its_end() {
    must_fail(Fault::CreditRelaxed, evictor_and_flusher(2));
}

#[test]
fn credit_ends_with_the_close() {
    explore(evictor_and_close);
}

#[test]
fn an_eviction_on_credit_after_a_close_that_it_ignores() {
    must_fail(Fault::EvictIgnoresClosed, evictor_and_close);
}

#[test]
fn permits_and_bulk_claims_leave_credit_alone() {
    explore(credit_is_no_room);
}

#[test]
fn permits_and_bulk_claims_that_do_not_see_the_end_of_credit() {
    must_fail(Fault::CreditRelaxed, credit_is_no_room);
}

#[test]
fn a_buffer_that_is_evicted_from_on_credit_stays_full() {
    explore(evictor_and_reader(1));
    explore(evictor_and_reader(2));
    explore(evictor_and_reader(3));
}

#[test]
fn credit_that_is_taken_for_room() {
    must_fail(Fault::CreditAsRoom, evictor_and_reader(2));
}

#[test]
fn nobody_overtakes_a_waiter_on_credit() {
    explore(evictor_and_waiter);
}
