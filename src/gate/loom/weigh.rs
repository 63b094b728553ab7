//! Sizes: the bound is exact, nobody overtakes a heavy waiter, nobody waits for a size that was given back, and a batch that
//! is full by size wakes the flusher.

use std::task::Waker;

use super::{Arc, Displaced, Model, Rig, Wait, join, thread};
use crate::gate::{Evicted, Limits, Misfit, Parked, Stock, Tag};
use crate::ledger::Weights;
use crate::state::{State, Watermarks};
use crate::sync::{Fault, explore, explore_wide, must_fail};

/// So much may be inside by size.
const MOST: u64 = 10;

impl Rig {
    /// A gate with the items `0 ..` of these sizes inside.
    pub(super) fn with_sizes(capacity: usize, sizes: &[u64], batch: Option<u64>) -> Arc<Model<Self>> {
        let limits = Limits { capacity: MOST, item: MOST, batch };
        let marks = Watermarks::new(0.99, 1.0).expect("valid");
        let rig = Self::build(capacity, 0, marks, Stock::Weighed(limits));
        for (item, size) in (0..).zip(sizes) {
            assert!(rig.push_sized(item, *size));
        }
        rig
    }

    /// The same, with all of it in flight.
    fn weighed_in_flight(capacity: usize, sizes: &[u64]) -> Arc<Model<Self>> {
        let rig = Self::with_sizes(capacity, sizes, None);
        assert_eq!(rig.take(capacity).len(), sizes.len());
        rig
    }

    /// As the core does it: in a prepaid place, if it is light enough; or by a claim of its own; or under the lock.
    pub(super) fn push_sized(&self, item: u32, size: u64) -> bool {
        let alarm = match self.gate.claim_prepaid(size) {
            Some(place) => place.fill(item),
            None => match self.gate.claim_sized(size) {
                Ok(place) => place.fill(item),
                Err(Misfit::Short) => {
                    let mut locked = self.gate.lock();
                    let is_in = locked.store(item, &mut Tag::of_size(size)).is_ok();
                    self.apply(locked.finish());
                    return is_in;
                }
                Err(misfit) => {
                    self.apply(self.gate.tell_misfit(misfit, size));
                    return false;
                }
            },
        };
        if alarm {
            self.apply(self.gate.alarm());
        }
        true
    }

    pub(super) fn evict_sized(&self, mut item: u32, size: u64, lost: &mut Vec<u32>) -> Displaced {
        for _ in 0..2 {
            let mut locked = self.gate.lock();
            let (evicted, victims) = locked.evict_sized(item, &mut Tag::of_size(size));
            self.apply(locked.finish());
            lost.extend(victims);
            match evicted {
                Evicted::Stored => return Displaced::Stored,
                Evicted::Closed(_) => return Displaced::Closed,
                Evicted::Full(_) => return Displaced::Full,
                Evicted::Unwritten(back) => item = back,
            }
            thread::yield_now();
        }
        Displaced::Full
    }

    pub(super) fn send_sized(&self, item: u32, size: u64, held: u64) {
        let mut locked = self.gate.lock();
        locked.send(item, size, held);
        self.apply(locked.finish());
    }

    pub(super) fn end(&self) -> u64 {
        self.gate.lock().figures().end
    }

    pub(super) fn reserve_sized(&self, size: u64) -> bool {
        self.gate.lock().reserve_sized(1, size)
    }

    /// Goes to sleep until a batch of `items` is full, unless it is; `false` if it is.
    pub(super) fn sleep_for_batch(&self, items: usize) -> bool {
        let mut locked = self.gate.lock();
        let figures = locked.figures();
        let sleeps = figures.buffered < locked.batch_limit(items) as u64 && !figures.is_full;
        if sleeps {
            locked.sleep(Some(items as u64));
        }
        self.apply(locked.finish());
        sleeps
    }

    pub(super) fn by_weight(&self) -> Weights {
        let by_weight = self.gate.lock().by_weight().expect("weighed");
        assert!(by_weight.depth <= MOST, "the bound holds");
        by_weight
    }

    /// Everything comes out, and the accounts by weight are those of what went in.
    pub(super) fn empty_by_weight(&self) -> Vec<u32> {
        self.by_weight();
        let all = self.empty();
        let by_weight = self.by_weight();
        let gone = by_weight.delivered + by_weight.evicted;
        assert_eq!((by_weight.depth, by_weight.in_flight, by_weight.accepted), (0, 0, gone));
        all
    }
}

pub(super) fn sized(item: u32, size: u64) -> Parked<u32> {
    Parked::single(item, Tag::of_size(size))
}

/// 1 takes its size in and finds no place, since 0 has it; 2 sees the size inside and waits for it, with a place free.
fn returned_size() {
    let rig = Rig::with_sizes(1, &[], None);
    let producer = rig.spawn(|rig| rig.push_sized(1, 6));
    let is_first = rig.push_sized(0, 0);
    let mut all = rig.take(1);
    rig.settle(all.len() as u64);
    let _ = rig.enqueue(sized(2, 6), Waker::noop().clone());
    let is_in = join(producer);
    all.extend(rig.empty_by_weight());
    all.sort_unstable();
    let expected = [(0, is_first), (1, is_in), (2, true)].into_iter().filter(|(_, is_in)| *is_in);
    assert_eq!(all, expected.map(|(item, _)| item).collect::<Vec<_>>(), "nobody waits for ever");
}

/// 100 waits, too heavy for what is spare, while a light one is pushed and what is inside is settled.
fn heavy_head(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::weighed_in_flight(capacity, &[6]);
        let waiter = rig.wait(sized(100, 6));
        let producer = rig.spawn(|rig| rig.push_sized(101, 2));
        rig.settle(1);
        let is_in = join(producer);
        assert!(waiter.is_woken());
        assert_eq!(rig.empty_by_weight(), [100, 101][..1 + usize::from(is_in)], "in order of arrival");
    }
}

/// A producer finds too little and queues, while room comes and somebody else pushes.
fn enqueue_against_settle() {
    let rig = Rig::weighed_in_flight(3, &[MOST]);
    let settler = rig.spawn(|rig| rig.settle(1));
    let producer = rig.spawn(|rig| rig.push_sized(101, 6));
    let _ = rig.enqueue(sized(100, 6), Waker::noop().clone());
    join(settler);
    let is_in = join(producer);
    let waits = rig.gate.lock().waiting() == (1, 1);
    assert!(!waits || is_in, "who waits has found too little");
    let mut all = rig.empty_by_weight();
    all.sort_unstable();
    assert_eq!(all, [100, 101][..1 + usize::from(is_in)]);
}

/// A heavy one and a light one wait; the heavy one gives up while something is settled.
fn cancel_against_settle() {
    let rig = Rig::weighed_in_flight(3, &[5, 1]);
    let [heavy, light] = [(100, 9), (101, 4)].map(|(item, size)| rig.wait(sized(item, size)));
    let settler = rig.spawn(|rig| rig.settle(1));
    let wait = rig.leave(heavy.key);
    join(settler);
    let is_back = matches!(wait, Wait::Left(_));
    assert!(is_back == light.is_woken(), "what does not fit behind the one fits without it");
    assert_eq!(rig.empty_by_weight(), if is_back { vec![101] } else { vec![100, 101] });
}

/// Two producers want what is enough for one of them.
fn two_producers() {
    let rig = Rig::with_sizes(3, &[], None);
    let other = rig.spawn(|rig| rig.push_sized(1, 6));
    let is_in = [rig.push_sized(0, 6), join(other)];
    assert_eq!(is_in.iter().filter(|is_in| **is_in).count(), 1);
    assert_eq!(rig.empty_by_weight().len(), 1);
}

/// One producer evicts as many as it needs while another pushes.
fn evictor_and_producer(capacity: usize, size: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::with_sizes(capacity, &[2, 3, 4], None);
        let producer = rig.spawn(|rig| rig.push_sized(100, 1));
        let mut lost = Vec::new();
        assert_eq!(rig.evict_sized(101, size, &mut lost), Displaced::Stored);
        let is_in = join(producer);
        // 1 is spare, unless the other one has it.
        let needed = 2 + usize::from(size == 6 && is_in);
        assert_eq!(lost, [0, 1, 2][..needed], "as many as it needs");
        let mut all = [lost, rig.empty_by_weight()].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2].into_iter().chain(is_in.then_some(100)).chain([101]).collect::<Vec<_>>());
    }
}

/// A permit that holds all is sent with a light item, while 100 waits and somebody pushes.
fn send_to_waiter() {
    let rig = Rig::with_sizes(3, &[], None);
    assert!(rig.gate.lock().reserve_sized(1, MOST));
    let waiter = rig.wait(sized(100, 8));
    let producer = rig.spawn(|rig| rig.push_sized(101, 1));
    rig.send_sized(0, 1, MOST);
    let is_in = join(producer);
    assert!(waiter.is_woken(), "what the item did not need is the waiter's");
    assert_eq!(rig.empty_by_weight(), [0, 100, 101][..2 + usize::from(is_in)]);
}

/// The flusher goes to sleep until a batch is full, while the item comes that makes it so by size.
fn batch_by_size(sizes: &'static [u64], last: u64) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::with_sizes(4, sizes, Some(8));
        let producer = rig.spawn(move |rig| rig.push_sized(100, last));
        let sleeps = rig.sleep_for_batch(4);
        assert!(join(producer));
        assert!(!sleeps || rig.is_rung(), "a batch that is full by size wakes the flusher");
    }
}

/// The flusher goes to sleep while something is tried that does not fit.
fn short_against_sleep() {
    let rig = Rig::with_sizes(4, &[6], None);
    let producer = rig.spawn(|rig| rig.push_sized(100, 5));
    let mut locked = rig.gate.lock();
    let sleeps = !locked.is_short();
    if sleeps {
        locked.sleep(Some(4));
    }
    rig.apply(locked.finish());
    assert!(!join(producer));
    assert!(!sleeps || rig.is_rung(), "what does not fit is a reason to flush");
}

/// The last of the size is taken in while somebody looks.
fn state_by_size() {
    let rig = Rig::with_sizes(4, &[4], None);
    let producer = rig.spawn(|rig| rig.push_sized(100, 6));
    rig.apply(rig.gate.alarm());
    assert!(join(producer));
    assert_eq!(rig.gate.state(), State::Blocked, "the state converges");
}

#[test]
fn a_size_that_found_no_place_is_given_to_who_waits_for_it() {
    explore_wide(returned_size);
}

#[test]
fn a_heavy_waiter_is_not_overtaken() {
    explore(heavy_head(2));
    explore(heavy_head(3));
}

#[test]
fn enqueueing_by_size_misses_no_room() {
    explore_wide(enqueue_against_settle);
}

#[test]
fn a_heavy_waiter_that_gives_up_lets_the_next_one_go() {
    explore(cancel_against_settle);
}

#[test]
fn the_bound_by_size_is_exact() {
    explore(two_producers);
}

#[test]
fn an_eviction_by_size_is_exact() {
    explore(evictor_and_producer(3, 5));
    explore(evictor_and_producer(4, 5));
    explore(evictor_and_producer(4, 6));
}

#[test]
fn what_an_item_does_not_need_of_its_permit_is_the_waiters() {
    explore(send_to_waiter);
}

#[test]
fn a_batch_that_is_full_by_size_wakes_the_flusher() {
    explore(batch_by_size(&[4], 4));
    explore(batch_by_size(&[4, 3], 2));
    explore(batch_by_size(&[1], MOST - 1));
}

#[test]
fn what_does_not_fit_wakes_the_flusher() {
    explore(short_against_sleep);
}

#[test]
fn the_state_by_size_converges() {
    explore(state_by_size);
}

#[test]
fn twin_size_return_silent() {
    must_fail(Fault::SizeReturnSilent, returned_size);
}

#[test]
fn twin_shut_ignored() {
    must_fail(Fault::ShutIgnored, heavy_head(2));
    must_fail(Fault::ShutIgnored, heavy_head(3));
    must_fail(Fault::ShutIgnored, send_to_waiter);
}

#[test]
fn twin_size_swap_in_two_steps() {
    must_fail(Fault::SizeSwapInTwoSteps, evictor_and_producer(4, 6));
}

#[test]
fn twin_volume_alarm_early() {
    must_fail(Fault::VolumeAlarmEarly, batch_by_size(&[4], 4));
}

#[test]
fn twin_sleep_by_load_by_size() {
    must_fail(Fault::SleepByLoad, batch_by_size(&[4], 4));
}

#[test]
fn twin_size_claimed_blind() {
    must_fail(Fault::SizeClaimedBlind, two_producers);
}

#[test]
fn twin_short_silent() {
    must_fail(Fault::ShortSilent, short_against_sleep);
}

#[test]
fn twin_serve_nobody_by_size() {
    must_fail(Fault::ServeNobody, cancel_against_settle);
    must_fail(Fault::ServeNobody, send_to_waiter);
}
