//! Evictions: exact, in order, one for one whoever waits, and never after close.

use super::{Displaced, Rig, Wait, item, join};
use crate::gate::Parked;
use crate::sync::{Fault, explore, fault, must_fail};

/// As the crate evicts, or without the step that does what most evictions are.
type Evict = fn(&Rig, u32, &mut Vec<u32>) -> Displaced;

const WHOLE: Evict = Rig::evict;
const SLOW: Evict = Rig::evict_slow;

/// Two producers evict at the same time.
fn two_evictors(capacity: usize, by: [Evict; 2]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let evict = |by: Evict, item| {
            move |rig: &Rig| {
                let mut lost = Vec::new();
                assert_eq!(by(rig, item, &mut lost), Displaced::Stored);
                assert_eq!(lost.len(), 1);
                lost
            }
        };
        let other = rig.spawn(evict(by[0], 10));
        let mut all = [evict(by[1], 11)(&rig), join(other), rig.empty()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..capacity as u32).chain([10, 11]).collect::<Vec<_>>(), "each item is somewhere, once");
    }
}

/// One producer evicts while another sends by the permit that holds the last place.
fn evictor_and_permit(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        let holder = rig.spawn(|rig| rig.send(10));
        let mut lost = Vec::new();
        let displaced = rig.evict(11, &mut lost);
        join(holder);
        assert_eq!(rig.gate.lock().figures().reserved, 0);
        let mut rest = [lost, rig.empty()].concat();
        rest.sort_unstable();
        let stored = (displaced == Displaced::Stored).then_some(11);
        assert!(capacity == 1 || stored.is_some(), "there is something to displace");
        assert_eq!(rest, (0..capacity as u32 - 1).chain([10]).chain(stored).collect::<Vec<_>>());
    }
}

/// 100 waits. One producer evicts for 101 while another pushes 102.
fn evictor_and_waiter(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let waiter = rig.wait(item(100));
        let producer = rig.spawn(|rig| rig.push(102));
        let mut lost = Vec::new();
        assert_eq!(rig.evict(101, &mut lost), Displaced::Stored);
        assert!(!join(producer), "it stays full");
        assert!(!waiter.is_woken(), "one for one: no room came of it");
        assert_eq!([lost, rig.empty()].concat(), (0..capacity as u32).chain([101, 100]).collect::<Vec<_>>());
    }
}

/// 100 waits, and gives up while another producer evicts for 101.
fn evictor_and_cancel(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let waiter = rig.wait(item(100));
        let evictor = rig.spawn(|rig| {
            let mut lost = Vec::new();
            assert_eq!(rig.evict(101, &mut lost), Displaced::Stored);
            lost
        });
        let is_back = matches!(rig.leave(waiter.key), Wait::Left(Parked::One(Some((100, _)))));
        let all = [join(evictor), rig.empty()].concat();
        assert_eq!(all, (0..capacity as u32).chain((!is_back).then_some(100)).chain([101]).collect::<Vec<_>>());
    }
}

/// One producer evicts while the flusher takes and settles.
fn evictor_and_flusher(capacity: usize, by: Evict) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let evictor = rig.spawn(move |rig| {
            let mut lost = Vec::new();
            (by(rig, 10, &mut lost), lost)
        });
        let taken = rig.take(1);
        rig.settle(taken.len() as u64);
        let (displaced, lost) = join(evictor);
        let mut all = [lost, taken, rig.empty()].concat();
        all.sort_unstable();
        let stored = (displaced == Displaced::Stored).then_some(10);
        assert!(capacity == 1 || stored.is_some(), "only what is in flight cannot be displaced");
        assert_eq!(all, (0..capacity as u32).chain(stored).collect::<Vec<_>>());
    }
}

/// One producer evicts while the oldest place is claimed by another, which has perhaps not written it.
fn evictor_and_claim(by: Evict) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(1, 0);
        let producer = rig.spawn(|rig| rig.push(10));
        let mut lost = Vec::new();
        let displaced = by(&rig, 11, &mut lost);
        let is_in = join(producer);
        let mut all = [lost, rig.empty()].concat();
        all.sort_unstable();
        let stored = (displaced == Displaced::Stored).then_some(11);
        assert_eq!(all, is_in.then_some(10).into_iter().chain(stored).collect::<Vec<_>>());
        assert!(!all.is_empty());
    }
}

/// One producer evicts while another finds no room.
fn evictor_and_push(capacity: usize, by: Evict) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let producer = rig.spawn(|rig| rig.push(102));
        let mut lost = Vec::new();
        assert_eq!(by(&rig, 101, &mut lost), Displaced::Stored);
        assert!(!join(producer), "it stays full");
        assert_eq!([lost, rig.empty()].concat(), (0..capacity as u32).chain([101]).collect::<Vec<_>>());
    }
}

/// One producer evicts while the intake is shut.
fn evictor_and_close(capacity: usize, by: Evict) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let evictor = rig.spawn(move |rig| by(rig, 10, &mut Vec::new()));
        if fault(Fault::CloseUnlocked) {
            rig.gate.ring.close_unlocked();
        } else {
            rig.close();
        }
        let accepted = rig.gate.lock().figures().end;
        let displaced = join(evictor);
        let figures = rig.gate.lock().figures();
        assert!(figures.is_closed, "it stays shut");
        assert_eq!(figures.end, accepted, "nothing is accepted after the close");
        assert_eq!(accepted, capacity as u64 + u64::from(displaced == Displaced::Stored));
    }
}

#[test]
fn two_evictors_lose_nothing() {
    for by in [[WHOLE; 2], [SLOW; 2], [WHOLE, SLOW]] {
        explore(two_evictors(1, by));
        explore(two_evictors(2, by));
        explore(two_evictors(3, by));
    }
}

#[test]
fn an_eviction_leaves_a_permit_its_place() {
    explore(evictor_and_permit(1));
    explore(evictor_and_permit(2));
    explore(evictor_and_permit(3));
}

#[test]
fn an_eviction_makes_no_room_for_who_waits_nor_for_others() {
    explore(evictor_and_waiter(1));
    explore(evictor_and_waiter(2));
    explore(evictor_and_waiter(3));
}

#[test]
fn a_waiter_that_gives_up_during_an_eviction_is_in_or_gets_its_item_back() {
    explore(evictor_and_cancel(1));
    explore(evictor_and_cancel(2));
    explore(evictor_and_cancel(3));
}

#[test]
fn an_eviction_leaves_what_is_in_flight_alone() {
    for by in [WHOLE, SLOW] {
        explore(evictor_and_flusher(1, by));
        explore(evictor_and_flusher(2, by));
        explore(evictor_and_flusher(3, by));
    }
}

#[test]
fn a_victim_that_is_not_written_is_not_read() {
    explore(evictor_and_claim(WHOLE));
    explore(evictor_and_claim(SLOW));
}

#[test]
fn an_eviction_makes_no_room_for_others() {
    for by in [WHOLE, SLOW] {
        explore(evictor_and_push(1, by));
        explore(evictor_and_push(2, by));
        explore(evictor_and_push(3, by));
    }
}

#[test]
fn nothing_is_stored_by_eviction_after_close() {
    for by in [WHOLE, SLOW] {
        explore(evictor_and_close(1, by));
        explore(evictor_and_close(2, by));
        explore(evictor_and_close(3, by));
    }
}

#[test]
fn twin_store_with_permits() {
    must_fail(Fault::StoreWithPermits, evictor_and_permit(2));
}

#[test]
fn twin_limit_before_tail() {
    must_fail(Fault::LimitBeforeTail, evictor_and_waiter(1));
    must_fail(Fault::LimitBeforeTail, evictor_and_push(1, WHOLE));
    must_fail(Fault::LimitBeforeTail, evictor_and_push(2, SLOW));
}

#[test]
fn twin_evict_unwritten() {
    must_fail(Fault::EvictUnwritten, evictor_and_claim(WHOLE));
    must_fail(Fault::EvictUnwritten, evictor_and_claim(SLOW));
}

#[test]
fn twin_close_unlocked() {
    must_fail(Fault::CloseUnlocked, evictor_and_close(1, WHOLE));
    must_fail(Fault::CloseUnlocked, evictor_and_close(1, SLOW));
}

#[test]
fn twin_evict_ignores_closed() {
    must_fail(Fault::EvictIgnoresClosed, evictor_and_close(1, SLOW));
}

#[test]
fn twin_room_before_take() {
    must_fail(Fault::RoomBeforeTake, two_evictors(1, [SLOW; 2]));
    must_fail(Fault::RoomBeforeTake, two_evictors(2, [SLOW; 2]));
    must_fail(Fault::RoomBeforeTake, evictor_and_cancel(1));
    must_fail(Fault::RoomBeforeTake, evictor_and_flusher(2, SLOW));
}
