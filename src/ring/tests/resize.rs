//! A capacity that changes, against a `VecDeque`, from the start and across the wrap of the words.

use std::collections::VecDeque;

use super::super::{Popped, Ring};
use super::choices;

/// The ring and what it must be.
struct Pair {
    ring: Ring<u64, ()>,
    buffered: VecDeque<u64>,
    in_flight: u64,
    permits: u64,
    capacity: u64,
    next: u64,
}

impl Pair {
    fn new(built: u64, near_the_wrap: bool) -> Self {
        let ring = super::ring(built as usize);
        if near_the_wrap {
            ring.start_near_the_wrap();
        }
        Self { ring, buffered: VecDeque::new(), in_flight: 0, permits: 0, capacity: built, next: 0 }
    }

    fn depth(&self) -> u64 {
        self.buffered.len() as u64 + self.in_flight + self.permits
    }

    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.depth())
    }

    fn item(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn set_capacity(&mut self, to: u64) {
        self.capacity = to;
        let mut head = self.ring.lock();
        head.set_capacity(to);
        head.publish();
    }

    fn push(&mut self) {
        let (item, has_room) = (self.item(), self.room() > 0);
        assert_eq!(self.ring.push(item).is_ok(), has_room);
        if has_room {
            self.buffered.push_back(item);
        }
    }

    fn push_many(&mut self, n: u64) {
        let mut items: Vec<u64> = (0..n).map(|_| self.item()).collect();
        let fits = self.room().min(n) as usize;
        self.buffered.extend(&items[..fits]);
        let rest = items[fits..].to_vec();
        self.ring.push_many(&mut items);
        assert_eq!(items, rest);
    }

    fn reserve(&mut self, n: u64) {
        let has_room = self.room() >= n;
        assert_eq!(self.ring.reserve(n).is_some(), has_room);
        self.permits += if has_room { n } else { 0 };
    }

    fn send(&mut self) {
        if self.permits > 0 {
            let item = self.item();
            self.permits -= 1;
            self.buffered.push_back(item);
            self.ring.send(item);
        }
    }

    fn give_back(&mut self) {
        if self.permits > 0 {
            self.permits -= 1;
            self.ring.lock().give_back(1);
        }
    }

    fn take(&mut self, max: u64) {
        let mut out = Vec::new();
        self.ring.lock().take(max as usize, &mut out);
        self.in_flight += out.len() as u64;
        let expected: Vec<u64> = self.buffered.drain(..out.len()).collect();
        assert_eq!(out, expected, "in order, none torn");
    }

    fn settle(&mut self, n: u64) {
        let n = n.min(self.in_flight);
        self.in_flight -= n;
        let mut head = self.ring.lock();
        head.free(n);
        head.publish();
    }

    fn evict(&mut self) {
        let item = self.item();
        let mut head = self.ring.lock();
        if self.capacity > self.depth() {
            assert!(head.place(item, None).is_ok());
            self.buffered.push_back(item);
            return;
        }
        assert_eq!(head.place(item, None), Err(item));
        let Popped::Item(victim) = head.pop() else { return assert!(self.buffered.is_empty()) };
        head.free(1);
        assert!(head.place_instead(item, None).is_ok(), "one for one");
        head.publish();
        assert_eq!(self.buffered.pop_front(), Some(victim));
        self.buffered.push_back(item);
    }

    fn check(&self) {
        let (depth, buffered) = (self.depth(), self.buffered.len() as u64);
        assert_eq!((self.ring.depth(), self.ring.len()), (depth, buffered + self.in_flight), "of {}", self.capacity);
        assert_eq!(self.ring.capacity() as u64, self.capacity);
        let head = self.ring.lock();
        let word = head.tail_exact();
        assert_eq!((head.depth(word), head.spare(word)), (depth, self.room()));
        assert_eq!((head.excess(), head.has_spare(word)), (depth.saturating_sub(self.capacity), self.room() > 0));
        assert_eq!(head.level_at(depth), head.level(word), "the alarm counts as the figures do");
        let (target, limit) = (head.target(buffered + 1), head.head.limit);
        assert!(!limit.is_before(target) || target == head.target(1), "no sleep beyond the limit");
        assert_eq!(
            head.head.overhang == 0,
            self.ring.signals.ceiling.load(super::super::Ordering::Relaxed) == self.capacity
        );
    }
}

#[test]
fn after_a_shrink_an_item_comes_in_only_for_one_that_has_gone() {
    let ring = super::ring(3);
    assert!((0..3).all(|item| ring.push(item).is_ok()));
    let mut head = ring.lock();
    head.set_capacity(1);
    head.publish();
    assert_eq!(head.place_instead(7, None), Err(7));
    assert!(matches!(head.pop(), Popped::Item(0)));
    head.free(1);
    assert_eq!(head.place(7, None), Err(7));
    assert!(head.place_instead(7, None).is_ok());
    assert_eq!(head.place_instead(8, None), Err(8));
    head.publish();
    drop(head);
    assert_eq!(super::take(&ring, 9), [1, 2, 7]);
}

#[test]
fn every_change_of_a_small_capacity_bounds_what_comes_in_and_drops_nothing() {
    for built in 1..=8 {
        for (from, to, back) in
            (1..=built).flat_map(|a| (1..=built).flat_map(move |b| (1..=built).map(move |c| (a, b, c))))
        {
            for near_the_wrap in [false, true] {
                let mut pair = Pair::new(built, near_the_wrap);
                for capacity in [from, to, back, built] {
                    pair.set_capacity(capacity);
                    pair.check();
                    for _ in 0..=built {
                        pair.push();
                    }
                    pair.evict();
                    pair.check();
                    pair.take(built / 2);
                    pair.settle(1);
                    pair.check();
                }
                pair.take(built);
                pair.settle(built);
                pair.check();
                assert_eq!(pair.depth(), 0, "all came out again");
            }
        }
    }
}

#[test]
fn a_random_history_with_a_changing_capacity_is_that_of_a_deque() {
    let mut next = choices();
    for built in (1..=8).chain([1000]) {
        let mut pair = Pair::new(built, true);
        for _ in 0..30_000 {
            match next(11) {
                0 | 1 => pair.push(),
                2 => pair.push_many(next(5)),
                3 => pair.reserve(1 + next(2)),
                4 => pair.send(),
                5 => pair.give_back(),
                6 => pair.evict(),
                7 => pair.take(next(built + 1)),
                8 | 9 => pair.settle(next(built + 1)),
                _ => pair.set_capacity(1 + next(built)),
            }
            pair.check();
        }
    }
}

#[test]
fn after_a_shrink_the_ceiling_falls_by_what_is_settled_and_not_by_what_is_displaced() {
    let mut pair = Pair::new(8, false);
    pair.push_many(6);
    pair.set_capacity(2);
    let ceiling = |pair: &Pair| pair.ring.signals.ceiling.load(super::super::Ordering::Relaxed);
    assert_eq!(ceiling(&pair), 8, "a push that is under way may be judged by the old limit");
    pair.evict();
    assert_eq!((ceiling(&pair), pair.ring.depth()), (7, 6));
    pair.evict();
    pair.evict();
    assert_eq!((ceiling(&pair), pair.ring.depth()), (6, 6), "one for one");
    pair.take(3);
    pair.settle(3);
    assert_eq!((ceiling(&pair), pair.ring.depth()), (3, 3));
    pair.take(3);
    pair.settle(3);
    assert_eq!((ceiling(&pair), pair.ring.depth()), (2, 0));
}

#[test]
fn room_that_a_larger_capacity_brings_is_owed_first() {
    let ring = super::ring(3);
    let mut head = ring.lock();
    head.set_capacity(1);
    head.publish();
    assert_eq!(ring.push(0), Ok(false));
    head.set_capacity(3);
    assert_eq!(ring.push(9), Err(9), "not published yet");
    assert!(head.place(1, None).is_ok());
    assert_eq!(head.grant(5), 1);
    head.publish();
    assert_eq!(ring.push(9), Err(9), "all was handed over");
    drop(head);
    assert_eq!((ring.depth(), ring.len(), ring.capacity()), (3, 2, 3));
}
