//! A capacity that changes while others push, wait, evict and hold permits.

use std::sync::Arc;
use std::task::Waker;

use super::{Displaced, Flag, Rig, Wait, Waiter, item, join, permits};
use crate::state::State;
use crate::sync::{Fault, explore, explore_wide, must_fail};

impl Rig {
    fn resize(&self, to: usize) {
        let mut locked = self.gate.lock();
        locked.set_capacity(to);
        self.apply(locked.finish());
    }

    /// Queues a reservation as the floor above does; `Err` if there are fewer places.
    fn reserve_or_wait(&self, wanted: u64) -> Result<Waiter, u64> {
        let mut locked = self.gate.lock();
        if let Some(most) = locked.too_few_for(wanted) {
            return Err(most);
        }
        let mut parked = permits(wanted);
        assert!(locked.try_serve(&mut parked).is_err(), "there is no room");
        let woken = Arc::new(Flag::default());
        let key = locked.park(parked, Waker::from(Arc::clone(&woken)));
        self.apply(locked.finish());
        Ok(Waiter { key, woken })
    }
}

/// A producer pushes 10 and 11 while the capacity falls to 1; then 12 is pushed.
fn shrink_against_push(built: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(built, 0);
        let producer = rig.spawn(|rig| [10, 11].into_iter().filter(|item| rig.push(*item)).collect::<Vec<u32>>());
        rig.resize(1);
        let is_in = rig.push(12);
        let mut expected = join(producer);
        let (figures, depth) = (rig.gate.lock().figures(), rig.gate.depth());
        assert_eq!(figures.depth(), depth, "exact when all is quiet");
        assert!(depth <= built as u64, "a slot for each");
        assert!(depth <= 2, "one claim that was under way, and no more");
        assert_eq!(rig.gate.state() == State::Blocked, depth > 0, "the state is that of the buffer");
        let taken = rig.take(usize::MAX);
        if is_in {
            assert_eq!(taken.first(), Some(&12), "it has seen the new limit");
            expected.insert(0, 12);
        }
        assert_eq!(taken, expected, "each item that was accepted, once");
        rig.settle(depth);
        assert!(rig.push(13) && !rig.push(14), "the bound holds again");
    }
}

/// The ring has room for one; a producer pushes 10 while the capacity falls, so that it is full, and 11 displaces the oldest.
fn shrink_against_push_and_evict(built: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(built, built as u32 - 1);
        let producer = rig.spawn(|rig| rig.push(10));
        rig.resize(built - 1);
        let mut lost = Vec::new();
        assert_eq!(rig.evict(11, &mut lost), Displaced::Stored);
        assert_eq!(lost, [0], "one for one");
        let is_in = join(producer);
        let depth = rig.gate.depth();
        assert_eq!(depth, built as u64 - 1 + u64::from(is_in));
        let mut all = [lost, rig.take(usize::MAX)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..built as u32 - 1).chain(is_in.then_some(10)).chain([11]).collect::<Vec<_>>());
    }
}

/// It is full, and the capacity falls to 1 while one producer evicts and another sends by its permit.
fn shrink_against_evict_and_send(built: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(built);
        let holder = rig.spawn(|rig| rig.send(10));
        rig.resize(1);
        let mut lost = Vec::new();
        let displaced = rig.evict(11, &mut lost);
        join(holder);
        let stored = (displaced == Displaced::Stored).then_some(11);
        assert_eq!(rig.gate.depth(), built as u64, "one for one");
        let mut all = [lost, rig.take(usize::MAX)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..built as u32 - 1).chain([10]).chain(stored).collect::<Vec<_>>());
    }
}

/// It is full, and 100 waits. Somebody pushes 102 while the capacity grows by one.
fn grow_against_push(built: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(built, 0);
        rig.resize(built - 1);
        assert!((0..built as u32 - 1).all(|item| rig.push(item)));
        let waiter = rig.wait(item(100));
        let producer = rig.spawn(|rig| rig.push(102));
        rig.resize(built);
        assert!(!join(producer), "the place is the waiter's");
        assert!(waiter.is_woken());
        assert!(matches!(rig.look(&waiter), Wait::Served(_)));
        assert_eq!(rig.take(usize::MAX), (0..built as u32 - 1).chain([100]).collect::<Vec<_>>());
    }
}

/// A producer finds it full and queues while the capacity grows.
fn grow_against_enqueue(built: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(built, 0);
        rig.resize(1);
        assert!(rig.push(0));
        let grower = rig.spawn(move |rig| rig.resize(built));
        let queued = rig.enqueue(item(100), Waker::noop().clone());
        join(grower);
        assert_eq!(rig.gate.lock().waiting(), (0, 0), "{queued:?}: there is room for it");
        assert_eq!(rig.take(usize::MAX), [0, 100]);
    }
}

/// Two places are reserved, and 100 waits. One is given back while the capacity falls to 1.
fn shrink_against_release() {
    let rig = Rig::new(2, 0);
    assert!(rig.reserve(2));
    let waiter = rig.wait(item(100));
    let holder = rig.spawn(|rig| rig.release(1));
    let mut locked = rig.gate.lock();
    locked.set_capacity(1);
    let waits = locked.waiting() == (1, 1);
    rig.apply(locked.finish());
    join(holder);
    assert_eq!(rig.gate.lock().waiting() == (1, 1), waits, "a place above the capacity is nobody's");
    rig.release(1);
    assert!(waiter.is_woken() && matches!(rig.look(&waiter), Wait::Served(_)));
    let figures = rig.gate.lock().figures();
    assert_eq!((figures.depth(), figures.buffered), (1, 1));
}

/// Two places are asked for while the capacity falls to 1.
fn shrink_against_reservation() {
    let rig = Rig::in_flight(2);
    let producer = rig.spawn(|rig| rig.reserve_or_wait(2));
    rig.resize(1);
    match join(producer) {
        Err(most) => assert_eq!(most, 1),
        Ok(waiter) => {
            assert!(waiter.is_woken(), "it would wait for ever");
            assert!(matches!(rig.look(&waiter), Wait::Unfit { most: 1 }));
        }
    }
    assert_eq!(rig.gate.lock().figures().reserved, 0);
}

/// The flusher sleeps until two items are there, while the capacity falls to 1 and a producer brings one.
fn shrink_against_sleep() {
    let rig = Rig::new(2, 0);
    assert!(rig.sleep(2));
    let producer = rig.spawn(|rig| rig.push(1));
    rig.resize(1);
    rig.rung.store(0, std::sync::atomic::Ordering::Relaxed);
    // It looks again, and all there is room for is a batch.
    let sleeps = rig.sleep(2);
    assert!(join(producer));
    assert!(!sleeps || rig.is_rung(), "no more can come");
}

/// Two items are inside; figures are read while the capacity goes from one value to another.
fn figures_against_resize(from: usize, to: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(3, 2);
        rig.resize(from);
        let resizer = rig.spawn(move |rig| rig.resize(to));
        let depth = rig.gate.depth();
        assert!((2..=3).contains(&depth), "{depth} of 2: too high by the change, never too low");
        assert!((0.0..=1.0).contains(&rig.gate.pressure()));
        join(resizer);
        assert_eq!((rig.gate.len(), rig.gate.depth(), rig.gate.capacity()), (2, 2, to), "exact when all is quiet");
        assert_eq!(rig.push(9), to == 3);
    }
}

#[test]
fn figures_are_never_too_low_while_the_capacity_changes() {
    explore(figures_against_resize(3, 1));
    explore(figures_against_resize(1, 3));
    explore(figures_against_resize(2, 1));
    explore(figures_against_resize(1, 2));
}

#[test]
fn twin_capacity_read_once() {
    must_fail(Fault::CapacityReadOnce, figures_against_resize(1, 3));
}

#[test]
fn a_push_that_was_under_way_may_pass_a_shrink_and_no_other() {
    explore(shrink_against_push(2));
    explore(shrink_against_push(3));
}

#[test]
fn an_eviction_after_a_shrink_leaves_a_push_that_was_under_way_its_place() {
    explore(shrink_against_push_and_evict(2));
    explore(shrink_against_push_and_evict(3));
}

#[test]
fn a_permit_keeps_its_place_through_a_shrink_and_an_eviction() {
    explore(shrink_against_evict_and_send(2));
    explore(shrink_against_evict_and_send(3));
}

#[test]
fn a_larger_capacity_serves_who_waits_first() {
    explore(grow_against_push(2));
    explore(grow_against_push(3));
}

#[test]
fn nobody_waits_beside_the_room_of_a_larger_capacity() {
    explore(grow_against_enqueue(2));
    explore(grow_against_enqueue(3));
}

#[test]
fn a_place_given_back_above_the_capacity_is_gone() {
    explore(shrink_against_release);
}

#[test]
fn a_reservation_that_does_not_fit_any_more_is_told() {
    explore(shrink_against_reservation);
}

#[test]
fn a_smaller_capacity_is_a_full_batch() {
    explore_wide(shrink_against_sleep);
}

#[test]
fn twin_shrink_unpublished() {
    must_fail(Fault::ShrinkUnpublished, shrink_against_push(2));
}

#[test]
fn twin_frozen_by_limit() {
    must_fail(Fault::FrozenByLimit, shrink_against_push_and_evict(2));
}

#[test]
fn twin_len_unclamped() {
    must_fail(Fault::LenUnclamped, figures_against_resize(3, 1));
}

#[test]
fn twin_store_with_permits() {
    must_fail(Fault::StoreWithPermits, shrink_against_evict_and_send(2));
}

#[test]
fn twin_grow_silent() {
    must_fail(Fault::GrowSilent, grow_against_push(2));
}

#[test]
fn twin_release_above_capacity() {
    must_fail(Fault::ReleaseAboveCapacity, shrink_against_release);
}

#[test]
fn twin_unfit_queued() {
    must_fail(Fault::UnfitQueued, shrink_against_reservation);
}
