//! What a section does in cases that a controller runs into only when something else happens just then. Loom explores
//! when they happen; here is what becomes of them.

use super::*;
use crate::state::Watermarks;

/// A gate with the items `0 .. items` inside, with marks that only a full buffer reaches.
fn gate(capacity: usize, items: u32) -> Gate<u32, ()> {
    let marks = Watermarks::new(0.99, 1.0).expect("valid");
    let gate = Gate::new(capacity, Levels::new(marks, capacity, 1), Stock::Minded, Clock::start(), ()).expect("memory");
    assert!((0..items).all(|item| gate.claim(Means::Room).map(|place| place.fill(item)).is_some()));
    let _ = gate.alarm();
    gate
}

/// An empty one that is bounded by size, too; its batches by 10.
fn sized(capacity: usize, size: u64) -> Gate<u32, ()> {
    let marks = Watermarks::new(0.99, 1.0).expect("valid");
    let limits = Limits { capacity: size, item: size, batch: Some(10) };
    Gate::new(capacity, Levels::new(marks, capacity, 1), Stock::Weighed(limits), Clock::start(), ()).expect("memory")
}

fn one(item: u32) -> Parked<u32> {
    Parked::single(item, Tag::PLAIN)
}

const fn places(wanted: u64, granted: u64) -> Parked<u32> {
    Parked::Permits { wanted, granted, size: 0 }
}

fn noop() -> Waker {
    Waker::noop().clone()
}

fn waits(locked: &mut Locked<'_, u32, ()>) -> usize {
    locked.desk().waits.means().map(|(_, number)| number).sum()
}

#[test]
fn a_last_try_has_what_there_is_and_nothing_when_shut() {
    let gate = gate(5, 1);
    assert_eq!(gate.reserve(1), Some(false));
    let mut locked = gate.lock();
    assert_eq!(locked.try_serve(&mut places(3, 1)), Ok(()));
    assert_eq!(locked.figures().reserved, 3);
    assert_eq!(locked.try_serve(&mut places(2, 0)), Err(NoRoom::Full), "in part");
    assert_eq!((locked.figures().reserved, locked.figures().is_full), (4, true));
    locked.release(1, 0);
    assert!(!locked.figures().is_full);
    locked.close();
    for mut parked in [one(7), places(1, 0), Parked::Many([7].into(), [].into())] {
        assert_eq!(locked.try_serve(&mut parked), Err(NoRoom::Closed));
        assert_eq!((locked.figures().reserved, locked.figures().buffered), (3, 1));
    }
}

#[test]
fn whoever_waits_wakes_the_flusher_also_where_nothing_is_buffered() {
    let gate = gate(1, 1);
    let mut locked = gate.lock();
    assert_eq!(locked.take(1, &mut Vec::new()), 1);
    locked.sleep(Some(1));
    assert!(!locked.finish().bell);
    let mut locked = gate.lock();
    locked.park(one(7), noop());
    assert!(locked.finish().bell);
}

#[test]
fn each_wait_is_counted_once_however_it_ends() {
    let gate = gate(1, 1);
    let mut locked = gate.lock();
    let [first, _, third] = [7, 8, 9].map(|item| locked.park(one(item), noop()));
    assert_eq!(waits(&mut locked), 0);
    let (_, waker) = locked.dequeue(first, None);
    assert!(waker.is_some(), "to be dropped outside the lock");
    assert_eq!(waits(&mut locked), 1);
    assert_eq!(locked.take(1, &mut Vec::new()), 1);
    locked.settle(0..1, Outcome::Delivered);
    assert_eq!(locked.finish().wakers.len(), 1);
    let mut locked = gate.lock();
    assert_eq!(waits(&mut locked), 2);
    locked.close();
    assert_eq!(waits(&mut locked), 3);
    locked.dequeue(third, None);
    assert_eq!(waits(&mut locked), 3, "it was over");
}

#[test]
fn a_place_that_comes_back_is_the_waiters_before_anyone_sees_it() {
    let gate = gate(1, 0);
    assert!(gate.reserve(1).is_some());
    let mut locked = gate.lock();
    locked.park(one(7), noop());
    locked.release(1, 0);
    assert!(gate.claim(Means::Room).is_none());
    let effects = locked.finish();
    assert_eq!((effects.wakers.len(), gate.len()), (1, 1));
}

#[test]
fn a_permit_that_comes_back_wakes_the_flusher_only_for_the_end() {
    let gate = gate(3, 0);
    assert!(gate.reserve(2).is_some());
    let mut locked = gate.lock();
    locked.release(1, 0);
    assert!(!locked.finish().bell);
    let mut locked = gate.lock();
    locked.close();
    assert!(locked.finish().bell);
    let mut locked = gate.lock();
    assert!(!locked.figures().is_drained());
    locked.release(1, 0);
    assert!(locked.figures().is_drained());
    assert!(locked.finish().bell);
}

#[test]
fn the_quick_eviction_leaves_alone_what_concerns_others() {
    let rotates = |gate: &Gate<u32, ()>| gate.eviction().map(|eviction| eviction.admit(9)).is_some();
    let plain = gate(2, 2);
    assert!(rotates(&plain) && rotates(&plain));
    assert_eq!(plain.lock().desk().ledger.total.lost.evicted, 2);
    let waited_for = gate(2, 2);
    let mut locked = waited_for.lock();
    locked.park(one(7), noop());
    let _ = locked.finish();
    assert!(!rotates(&waited_for));
    let watched = gate(2, 2);
    let mut locked = watched.lock();
    locked.desk().is_watched = true;
    let _ = locked.finish();
    assert!(!rotates(&watched));
    let flushed = gate(2, 2);
    let mut locked = flushed.lock();
    locked.desk().ledger.open_barrier(2, 2);
    let _ = locked.finish();
    assert!(!rotates(&flushed));
    let tagged = gate(2, 1);
    let mut locked = tagged.lock();
    assert!(locked.store(7, &mut Tag { weight: 2, ..Tag::PLAIN }).is_ok());
    let _ = locked.finish();
    assert!(!rotates(&tagged));
}

#[test]
fn a_loss_is_told_once_to_whoever_watches_and_a_delivery_is_not() {
    let gate = gate(3, 3);
    let mut locked = gate.lock();
    locked.desk().is_watched = true;
    assert_eq!((locked.about_buffered(), locked.take(3, &mut Vec::new()), locked.about_buffered()), (3, 3, 0));
    let _ = locked.finish();
    for (position, outcome, bell) in [(0, Outcome::Delivered, false), (1, Outcome::Failed, true)] {
        let mut locked = gate.lock();
        locked.desk().is_watched = true;
        locked.settle(position..position + 1, outcome);
        assert_eq!((locked.desk().is_watched, locked.leave().bell), (!bell, bell), "{outcome:?}");
    }
    let mut locked = gate.lock();
    locked.settle(2..3, Outcome::Failed);
    assert!(!locked.leave().bell, "nobody watches");
}

#[test]
fn nothing_is_displaced_when_shut() {
    let gate = gate(2, 2);
    let mut locked = gate.lock();
    locked.close();
    let (evicted, victim) = locked.evict(7, &mut Tag::of_size(0));
    assert!(matches!((evicted, victim), (Evicted::Closed(7), None)));
    assert!(matches!(locked.merge(7, &mut Tag::of_size(0), |_, _| true), Merged::Closed(7)));
    assert_eq!(locked.figures().buffered, 2);
    drop(locked);
    let gate = sized(2, 10);
    let mut locked = gate.lock();
    assert!(locked.store(0, &mut Tag::of_size(10)).is_ok());
    locked.close();
    let (evicted, victims) = locked.evict_sized(7, &mut Tag::of_size(1));
    assert!(matches!(evicted, Evicted::Closed(7)) && victims.is_empty());
}

#[test]
fn a_reservation_of_more_than_there_is_cannot_wait() {
    let gate = gate(4, 0);
    let mut locked = gate.lock();
    assert_eq!([4, 5].map(|wanted| locked.too_few_for(wanted)), [None, Some(4)]);
    locked.set_capacity(3);
    assert_eq!([3, 4].map(|wanted| locked.too_few_for(wanted)), [None, Some(3)]);
}

#[test]
fn a_last_try_of_many_ends_at_the_first_that_is_too_large() {
    let gate = sized(9, 10);
    let mut locked = gate.lock();
    let mut many = Parked::Many([1, 2, 3, 4].into(), [4, 4, 4, 1].into());
    assert_eq!(locked.try_serve(&mut many), Err(NoRoom::Full));
    assert!(matches!(many, Parked::Many(items, sizes) if items == [3, 4] && sizes == [4, 1]));
    assert_eq!((locked.figures().buffered, locked.inside()), (2, 8));
    assert_eq!(locked.try_serve(&mut Parked::Many([5].into(), [2].into())), Ok(()));
}

#[test]
fn places_of_a_size_are_reserved_all_or_none() {
    let gate = sized(3, 10);
    let mut locked = gate.lock();
    let reserved = |locked: &Locked<'_, u32, ()>| (locked.figures().reserved, locked.inside());
    assert!(!locked.reserve_sized(3, 4) && !locked.reserve_sized(4, 1));
    assert_eq!(reserved(&locked), (0, 0));
    assert!(locked.reserve_sized(1, 1), "there is room for more");
    assert!(locked.reserve_sized(2, 4));
    assert_eq!(reserved(&locked), (3, 9));
    assert!(!locked.reserve_sized(1, 1), "there is no place");
}

#[test]
fn a_batch_is_bounded_by_size_when_it_is_planned_and_when_it_is_taken() {
    // What is buffered, how many of up to 3 make a full batch, and how many are taken of 3: all, or cut.
    let cases: [(&[u64], usize, (usize, bool)); 7] = [
        (&[4, 5], 3, (2, false)),
        (&[5, 5], 2, (2, false)),
        (&[6, 6], 1, (1, true)),
        (&[4, 4, 4], 2, (2, true)),
        (&[11, 1], 1, (1, true)),
        (&[12], 1, (1, false)),
        (&[0, 10, 0, 1], 3, (3, false)),
    ];
    for (sizes, full, taken) in cases {
        let gate = sized(9, 99);
        let mut locked = gate.lock();
        for size in sizes {
            assert!(locked.store(0, &mut Tag::of_size(*size)).is_ok());
        }
        assert_eq!(locked.batch_limit(3), full, "{sizes:?}");
        assert_eq!(locked.take_batch(3, &mut Vec::new()), taken, "{sizes:?}");
    }
}

#[test]
fn with_sizes_nobody_passes_a_heavy_one_who_waits() {
    let gate = sized(9, 10);
    let mut locked = gate.lock();
    assert!(locked.store(0, &mut Tag::of_size(8)).is_ok());
    locked.park(Parked::single(1, Tag::of_size(5)), noop());
    let later = [
        Parked::single(2, Tag::of_size(1)),
        Parked::Many([2].into(), [1].into()),
        Parked::Permits { wanted: 1, granted: 0, size: 1 },
    ];
    for mut parked in later {
        assert_eq!(locked.try_serve(&mut parked), Err(NoRoom::Full), "{parked:?}");
    }
    assert!(locked.store(2, &mut Tag::of_size(1)).is_err() && !locked.reserve_sized(1, 1));
    assert_eq!((locked.inside(), locked.figures().reserved), (8, 0));
}

#[test]
fn a_flusher_that_sleeps_is_woken_by_size_and_not_before() {
    let sleep = |gate: &Gate<u32, ()>| {
        let mut locked = gate.lock();
        locked.sleep(Some(5));
        !locked.finish().bell
    };
    let wakes = |gate: &Gate<u32, ()>, size| {
        if let Ok(place) = gate.claim_sized(size) {
            return place.fill(0) && gate.alarm().bell;
        }
        let mut locked = gate.lock();
        assert!(locked.store(0, &mut Tag::of_size(size)).is_ok(), "there is room, if nothing is prepaid");
        locked.finish().bell
    };
    let gate = sized(9, 30);
    assert!(sleep(&gate));
    assert_eq!([4, 5, 1].map(|size| wakes(&gate, size)), [false, false, true], "a batch is full");
    let mut locked = gate.lock();
    assert_eq!(locked.take_batch(9, &mut Vec::new()), (3, false));
    let _ = locked.finish();
    assert!(sleep(&gate));
    assert_eq!([9, 1].map(|size| wakes(&gate, size)), [false, true], "beside what is in flight");
    let brimful = sized(9, 10);
    assert!(!brimful.lock().figures().is_full && !wakes(&brimful, 10) && brimful.lock().figures().is_full);
    assert_eq!(brimful.lock().take(1, &mut Vec::new()), 1);
    assert!(sleep(&brimful), "there is nothing to flush");
}

/// A prepaid place that is claimed for an item of this size, and not written yet. For 5 items of 10 in all the allowance is 2.
fn claimed(gate: &Gate<u32, ()>, size: u64) -> PrepaidClaim<'_, u32, ()> {
    let Some(place) = gate.claim_prepaid(size) else { panic!("it is prepaid") };
    place
}

#[test]
fn what_is_prepaid_and_not_claimed_is_nobodys_in_a_section() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    assert!(place.fill(0), "the first item is news");
    assert!(gate.claim_prepaid(3).is_none(), "heavier than the allowance");
    let mut locked = gate.lock();
    assert_eq!((locked.inside(), locked.is_unsettled()), (1, false));
    assert!(gate.claim_prepaid(1).is_none(), "none while somebody looks");
    assert!(locked.store(1, &mut Tag::of_size(9)).is_ok());
    assert_eq!(locked.inside(), 10);
    let _ = locked.finish();
    assert!(gate.claim_prepaid(0).is_none(), "none is paid for");
}

#[test]
fn others_may_go_further_than_what_is_prepaid() {
    let gate = sized(5, 10);
    for item in 0..5 {
        let Ok(place) = gate.claim_sized(0) else { panic!("there is room") };
        place.fill(item);
    }
    assert!(gate.claim_prepaid(0).is_none());
    let mut locked = gate.lock();
    assert_eq!((locked.inside(), locked.take(9, &mut Vec::new())), (0, 5));
}

#[test]
fn what_is_claimed_counts_by_the_allowance_until_it_is_written_and_nothing_else_does() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    for _ in 0..2 {
        let behind = claimed(&gate, 0);
        behind.fill(1);
    }
    for _ in 0..2 {
        let locked = gate.lock();
        assert_eq!((locked.inside(), locked.is_unsettled()), (2, true));
    }
    assert!(gate.claim_prepaid(0).is_none(), "there is one range");
    place.fill(0);
    let locked = gate.lock();
    assert_eq!((locked.inside(), locked.is_unsettled()), (1, false));
}

#[test]
fn what_may_fit_soon_is_not_refused_for_long() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    let mut locked = gate.lock();
    assert_eq!(locked.store(1, &mut Tag::of_size(9)), Err(1));
    assert!(locked.is_unsettled() && !locked.is_short(), "the next one is to look again");
    assert!(locked.finish().bell, "the flusher looks again");
    place.fill(0);
    assert!(matches!(gate.claim_sized(9), Err(Misfit::Short)), "to be tried again under the lock");
    assert_eq!(gate.lock().store(1, &mut Tag::of_size(9)), Ok(()));
}

#[test]
fn an_eviction_by_size_waits_for_what_is_not_written_yet() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    let mut locked = gate.lock();
    place.fill(0);
    let (evicted, victims) = locked.evict_sized(1, &mut Tag::of_size(10));
    assert!(matches!(evicted, Evicted::Unwritten(1)) && victims.is_empty(), "it has not looked again");
    drop(locked);
    let mut locked = gate.lock();
    let (evicted, victims) = locked.evict_sized(1, &mut Tag::of_size(10));
    assert!(matches!(evicted, Evicted::Stored) && victims == [0]);
    assert_eq!(locked.inside(), 10);
    drop(locked);
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    let mut locked = gate.lock();
    let (evicted, victims) = locked.evict_sized(1, &mut Tag::of_size(9));
    assert!(matches!(evicted, Evicted::Unwritten(1)) && victims.is_empty());
    drop(locked);
    place.fill(0);
    let mut locked = gate.lock();
    let (evicted, victims) = locked.evict_sized(1, &mut Tag::of_size(9));
    assert!(matches!(evicted, Evicted::Stored) && victims.is_empty(), "both fit");
}

#[test]
fn a_prepaid_place_that_two_share_is_settled_once() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    let youngest = claimed(&gate, 2);
    youngest.fill(1);
    let mut locked = gate.lock();
    assert_eq!(locked.inside(), 4);
    assert_eq!(locked.make_way(1, 9), None, "it may fit soon");
    assert_eq!(locked.make_way(1, 1), Some(true));
    drop(locked);
    for _ in 0..2 {
        assert_eq!(gate.lock().inside(), 3);
    }
    place.fill(0);
    assert_eq!(gate.lock().inside(), 2);
}

#[test]
fn whoever_waits_for_what_is_lighter_than_it_counts_is_served_by_the_next_take() {
    let gate = sized(5, 10);
    let place = claimed(&gate, 1);
    let behind = claimed(&gate, 1);
    behind.fill(1);
    let mut locked = gate.lock();
    assert_eq!(locked.try_serve(&mut Parked::single(2, Tag::of_size(8))), Err(NoRoom::Full));
    locked.park(Parked::single(2, Tag::of_size(8)), noop());
    let _ = locked.finish();
    place.fill(0);
    let mut locked = gate.lock();
    assert_eq!(locked.take(1, &mut Vec::new()), 1);
    assert_eq!(locked.finish_taking().wakers.len(), 1);
    assert_eq!(gate.lock().inside(), 10);
}
