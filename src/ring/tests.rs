//! The ring on one thread and on several, against a `VecDeque`; loom explores the interleavings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::splitmix::mix;

mod credit;
mod resize;

const CAPACITIES: [usize; 6] = [1, 2, 3, 5, 7, 1000];

fn ring<T>(capacity: usize) -> Ring<T, ()> {
    Ring::new(capacity, ()).expect("memory")
}

/// Choices that can be repeated: each below what is asked for.
fn choices() -> impl FnMut(u64) -> u64 {
    let mut number = 0;
    move |below| {
        number += 1;
        mix(number) % below
    }
}

/// Takes up to `max` and gives their room free.
fn take<T>(ring: &Ring<T, ()>, max: usize) -> Vec<T> {
    let mut out = Vec::new();
    let mut head = ring.lock();
    let n = head.take(max, &mut out);
    head.free(n as u64);
    head.publish();
    out
}

#[test]
fn holds_exactly_its_capacity_and_keeps_the_order() {
    for capacity in CAPACITIES {
        let ring = ring(capacity);
        let mut next = 0;
        let mut expected = 0;
        for round in 0..50 {
            while ring.push(next).is_ok() {
                next += 1;
            }
            assert_eq!(next - expected, capacity, "capacity {capacity}");
            assert_eq!((ring.len(), ring.depth()), (capacity as u64, capacity as u64));
            for item in take(&ring, 1 + round % capacity) {
                assert_eq!(item, expected);
                expected += 1;
            }
        }
    }
}

#[test]
fn room_ends_at_free_not_at_take() {
    let ring = ring(3);
    assert!((0..3).all(|i| ring.push(i).is_ok()));
    let mut out = Vec::new();
    let mut head = ring.lock();
    assert_eq!(head.take(2, &mut out), 2);
    head.publish();
    drop(head);
    assert_eq!(ring.push(3), Err(3));
    let mut head = ring.lock();
    head.free(1);
    head.publish();
    drop(head);
    assert_eq!(ring.push(3), Ok(false));
    assert_eq!(ring.push(4), Err(4));
}

#[test]
fn a_random_history_is_that_of_a_deque() {
    let mut next = choices();
    for capacity in CAPACITIES {
        let (ring, mut model, mut permits) = (ring(capacity), VecDeque::new(), 0_usize);
        for i in 0..20_000_u64 {
            let depth = model.len() + permits;
            match next(6) {
                0 | 1 => assert_eq!(
                    ring.push(i).is_ok(),
                    depth < capacity && {
                        model.push_back(i);
                        true
                    }
                ),
                2 => {
                    let mut items: Vec<u64> = (0..next(5)).map(|k| i * 10 + k).collect();
                    let fits = items.len().min(capacity - depth);
                    model.extend(&items[..fits]);
                    let rest = items[fits..].to_vec();
                    ring.push_many(&mut items);
                    assert_eq!(items, rest);
                }
                3 => {
                    let n = next(3);
                    if ring.reserve(n).is_some() {
                        assert!(depth + n as usize <= capacity);
                        permits += n as usize;
                    }
                }
                4 if permits > 0 => {
                    permits -= 1;
                    if next(2) == 0 {
                        ring.send(i);
                        model.push_back(i);
                    } else {
                        ring.lock().give_back(1);
                    }
                }
                _ => {
                    let max = next(capacity as u64 + 1) as usize;
                    let expected: Vec<u64> = model.drain(..max.min(model.len())).collect();
                    assert_eq!(take(&ring, max), expected);
                }
            }
            assert_eq!(ring.len(), model.len() as u64);
            assert_eq!(ring.depth(), (model.len() + permits) as u64);
        }
    }
}

#[test]
fn displacing_keeps_the_bound_and_the_order() {
    for capacity in CAPACITIES {
        let ring = ring(capacity);
        assert!((0..capacity).all(|i| ring.push(i).is_ok()));
        for i in capacity..10 * capacity {
            let mut head = ring.lock();
            assert_eq!(head.place(i, None), Err(i));
            let Popped::Item(victim) = head.pop() else { panic!("there is one") };
            assert_eq!(victim, i - capacity);
            head.free(1);
            assert!(head.place(i, None).is_ok());
            head.publish();
        }
        assert_eq!(take(&ring, usize::MAX), (9 * capacity..10 * capacity).collect::<Vec<_>>());
    }
}

#[test]
fn a_rotation_displaces_the_oldest_of_a_full_ring_and_keeps_the_order() {
    for capacity in CAPACITIES {
        let ring = ring(capacity);
        assert!((0..capacity).all(|i| ring.push(i).is_ok()));
        for i in capacity..3 * capacity {
            assert!(ring.lock().rotate(i).is_ok());
            assert_eq!(ring.push(i), Err(i));
            assert_eq!((ring.len(), ring.depth()), (capacity as u64, capacity as u64));
        }
        assert_eq!(take(&ring, usize::MAX), (2 * capacity..3 * capacity).collect::<Vec<_>>());
    }
}

#[test]
fn a_rotation_is_for_a_full_ring_without_anything_else_to_do() {
    let full = || {
        let ring = ring(3);
        assert!((0..3).all(|i| ring.push(i).is_ok()));
        ring
    };
    let rotates = |ring: &Ring<u32, ()>| ring.lock().rotate(9).is_ok();
    let with_room = ring(3);
    assert!(!rotates(&with_room), "empty");
    assert!((0..2).all(|i| with_room.push(i).is_ok()) && !rotates(&with_room), "there is room");
    assert!(with_room.reserve(1).is_some() && !rotates(&with_room), "a permit is out");
    let shut = full();
    assert!(shut.lock().close() && !rotates(&shut));
    let busy = full();
    assert!(busy.lock().take(3, &mut Vec::new()) == 3 && !rotates(&busy), "all are in flight");
    let owing = full();
    let mut head = owing.lock();
    assert_eq!(head.take(1, &mut Vec::new()), 1);
    head.free(1);
    assert!(head.rotate(9).is_err(), "room that is not published");
    drop(head);
    let resized = full();
    let set = |to| {
        let mut head = resized.lock();
        head.set_capacity(to);
        head.publish();
    };
    set(2);
    assert!(!rotates(&resized), "more is inside than the capacity");
    set(3);
    assert!(rotates(&resized), "and no longer");
}

#[test]
fn what_is_claimed_and_not_written_yet_is_left_alone() {
    for capacity in CAPACITIES {
        let ring = ring(capacity);
        let (first, _) = ring.claim_many(1).expect("room");
        assert!((1..capacity).all(|i| ring.push(i).is_ok()));
        let mut head = ring.lock();
        assert_eq!((head.take(capacity, &mut Vec::new()), head.buffered(head.tail())), (0, capacity as u64));
        assert!(matches!(head.pop(), Popped::Unwritten));
        assert_eq!(head.exchange(0, 9), Err(9));
        assert!(head.rotate(9).is_err());
        drop(head);
        ring.write(first, 0);
        assert_eq!(take(&ring, usize::MAX), (0..capacity).collect::<Vec<_>>());
    }
}

#[test]
fn closed_refuses_pushes_but_not_permits() {
    let ring = ring(3);
    assert_eq!(ring.push(1), Ok(false));
    assert_eq!(ring.reserve(1), Some(false));
    assert!(ring.lock().close());
    assert!(!ring.lock().close());
    assert_eq!(ring.push(2), Err(2));
    assert_eq!(ring.reserve(1), None);
    let mut items = vec![3];
    assert!(!ring.push_many(&mut items) && items == [3]);
    let (_, word) = ring.send(4);
    assert!(word.is_closed() && word.reserved() == 0);
    assert_eq!(take(&ring, 9), [1, 4]);
}

#[test]
fn an_alarm_is_raised_once_at_its_level() {
    let ring = ring(5);
    let mut head = ring.lock();
    let at = head.target(3);
    head.arm(Some(at));
    drop(head);
    assert_eq!((0..5).map(|i| ring.push(i) == Ok(true)).collect::<Vec<_>>(), [false, false, true, false, false]);
}

#[test]
fn an_alarm_counts_what_permits_hold() {
    let ring = ring(5);
    let mut head = ring.lock();
    let at = head.level_at(3);
    head.arm(Some(at));
    drop(head);
    assert_eq!(ring.reserve(2), Some(false));
    assert_eq!(ring.push(0), Ok(true));
}

#[test]
fn the_last_lap_wraps_into_the_first() {
    for capacity in [1, 2, 3, 1000] {
        let ring = ring(capacity);
        ring.start_near_the_wrap();
        let start = ring.lock().tail();
        for i in 0..4 * capacity {
            assert!(ring.push(i).is_ok());
            if i % 2 == 1 || capacity == 1 {
                let all = take(&ring, capacity);
                assert_eq!(all.last(), Some(&i));
            }
        }
        let end = ring.lock().tail();
        assert!(start.is_before(end) && end.raw() < start.raw(), "the word has wrapped");
    }
}

#[test]
fn zero_sized_items_are_counted_like_others() {
    let ring = ring(1000);
    assert!((0..1000).all(|_| ring.push(()).is_ok()));
    assert_eq!(ring.push(()), Err(()));
    assert_eq!(take(&ring, usize::MAX).len(), 1000);
}

/// Items of a few words move word by word, the others as the compiler likes it: to an empty slot, and to that of an older item.
#[test]
fn items_of_any_shape_come_out_as_they_went_in() {
    fn check<T: fmt::Debug + PartialEq>(make: impl Fn(u8) -> T) {
        let ring = ring(3);
        for n in 0..5 {
            assert!(ring.push(make(n)).is_ok());
            assert_eq!(take(&ring, 3), [make(n)]);
        }
        assert!((0..3).all(|n| ring.push(make(n)).is_ok()));
        let rotated = ring.lock().rotate(make(3)).map(|(victim, _)| victim);
        assert_eq!((rotated, take(&ring, 3)), (Ok(make(0)), [1, 2, 3].map(&make).into()));
    }
    fn words<const N: usize>() {
        check(|n| std::array::from_fn::<usize, N, _>(|i| usize::from(n) << 8 | i));
    }
    words::<1>();
    words::<2>();
    words::<3>();
    words::<4>();
    words::<5>();
    words::<6>();
    words::<7>();
    words::<8>();
    words::<9>();
    check(|n| [n; 24]);
    check(|n| [u32::from(n), 1, 2, 3, 4, 5, 6]);
    check(|n| (n, format!("event {n}"), n > 2));
    check(|n| (n > 2).then(|| vec![Box::new(n); 3]));
    check(|n| (u128::from(n), n));
}

#[test]
fn what_is_left_is_dropped_once() {
    struct Counted(Arc<AtomicUsize>, bool);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "as asked");
        }
    }
    for capacity in CAPACITIES {
        let drops = Arc::new(AtomicUsize::new(0));
        let ring = ring(capacity);
        for i in 0..capacity + capacity / 2 {
            if i == capacity {
                drop(take(&ring, capacity / 2));
            }
            assert!(ring.push(Counted(Arc::clone(&drops), i % 3 == 2 && i >= capacity / 2)).is_ok());
        }
        drop(ring);
        assert_eq!(drops.load(Ordering::Relaxed), capacity + capacity / 2);
    }
}

#[test]
fn memory_that_cannot_be_had_is_an_answer() {
    assert!(Ring::<[u8; 1 << 24], ()>::new(MAX_CAPACITY, ()).is_none());
}

#[test]
fn producers_and_a_consumer_lose_nothing() {
    const EACH: usize = 50_000;
    let ring = ring::<(usize, usize)>(64);
    let mut seen = [0; 3];
    thread::scope(|scope| {
        for producer in 0..3 {
            let ring = &ring;
            scope.spawn(move || {
                for i in 0..EACH {
                    while ring.push((producer, i)).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        while seen.iter().sum::<usize>() < 3 * EACH {
            for (producer, i) in take(&ring, 16) {
                assert_eq!(i, seen[producer], "one producer's items keep their order");
                seen[producer] += 1;
            }
        }
    });
    assert_eq!(ring.depth(), 0);
}
