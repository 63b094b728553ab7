//! Evictions on credit: those who look see what they would see if each had been made under the lock.

use super::*;

/// A ring of items that nobody minds, and what is inside by a model.
struct Rig {
    ring: Ring<u64, ()>,
    buffered: VecDeque<u64>,
    in_flight: u64,
    permits: u64,
    capacity: u64,
    next: u64,
    evicted: u64,
    told: u64,
}

impl Rig {
    fn new(capacity: usize, at_the_wrap: bool) -> Self {
        let ring = Ring::with_credit(capacity, ()).expect("memory");
        if at_the_wrap {
            ring.start_near_the_wrap();
        }
        let buffered = VecDeque::new();
        Self { ring, buffered, in_flight: 0, permits: 0, capacity: capacity as u64, next: 0, evicted: 0, told: 0 }
    }

    fn depth(&self) -> u64 {
        self.buffered.len() as u64 + self.in_flight + self.permits
    }

    fn item(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Without the lock; the item if it is not stored. Whether it has displaced another.
    fn push(&mut self) -> Result<bool, u64> {
        let item = self.item();
        let has_room = self.depth() < self.capacity;
        self.ring.push(item).inspect_err(|_| assert!(!has_room))?;
        if !has_room {
            self.displaced();
        }
        self.buffered.push_back(item);
        Ok(!has_room)
    }

    fn displaced(&mut self) {
        assert!(self.depth() == self.capacity && self.permits == 0);
        self.evicted += 1;
        self.buffered.pop_front().expect("something to displace");
    }

    /// As the gate does it; whether without the lock.
    fn evict(&mut self) -> bool {
        let item = match self.push() {
            Ok(has_displaced) => return has_displaced,
            Err(item) => item,
        };
        if self.lock(|head| head.rotate(item).is_ok()) {
            self.displaced();
            self.told += 1;
            self.buffered.push_back(item);
        }
        false
    }

    fn lock<R>(&mut self, act: impl FnOnce(&mut HeadGuard<'_, u64, ()>) -> R) -> R {
        let mut head = self.ring.lock();
        self.told += head.take_displaced();
        let word = head.tail();
        assert_eq!(self.told, self.evicted, "whoever has the lock knows of each");
        assert_eq!((head.buffered(word), head.in_flight()), (self.buffered.len() as u64, self.in_flight));
        assert_eq!((head.depth(word), word.reserved()), (self.depth(), self.permits));
        assert!(head.depth(word) <= self.ring.max_capacity() as u64, "I3");
        act(&mut head)
    }

    fn take(&mut self, max: usize) {
        let mut out = Vec::new();
        self.lock(|head| head.take(max, &mut out));
        let expected: Vec<_> = self.buffered.drain(..max.min(self.buffered.len())).collect();
        assert_eq!(out, expected);
        self.in_flight += out.len() as u64;
    }

    fn settle(&mut self, n: u64) {
        self.lock(|head| {
            head.free(n);
            head.publish();
        });
        self.in_flight -= n;
    }

    fn resize(&mut self, to: u64) {
        self.lock(|head| {
            head.set_capacity(to);
            head.publish();
        });
        self.capacity = to;
    }

    /// Without the lock.
    fn check(&self) {
        assert_eq!((self.ring.depth(), self.ring.len()), (self.depth(), self.depth() - self.permits));
    }
}

#[test]
fn a_random_history_is_that_of_a_deque_which_evicts() {
    for at_the_wrap in [false, true] {
        for capacity in CAPACITIES {
            let (mut rig, mut next, mut swaps) = (Rig::new(capacity, at_the_wrap), choices(), 0);
            for _ in 0..40_000 {
                match next(40) {
                    0..4 => swaps += u32::from(rig.push() == Ok(true)),
                    4 if rig.ring.reserve(1).is_some() => rig.permits += 1,
                    5 | 6 if rig.permits > 0 => {
                        let item = rig.item();
                        rig.ring.send(item);
                        rig.buffered.push_back(item);
                        rig.permits -= 1;
                    }
                    7 if rig.permits > 0 => {
                        rig.lock(|head| head.give_back(1));
                        rig.permits -= 1;
                    }
                    8 => rig.take(next(capacity as u64 + 1) as usize),
                    9 | 10 => rig.settle(next(rig.in_flight + 1)),
                    11 if next(20) == 0 => rig.resize(1 + next(capacity as u64)),
                    11 if next(5) == 0 => rig.resize(capacity as u64),
                    _ => swaps += u32::from(rig.evict()),
                }
                rig.check();
            }
            assert!(!(2..100).contains(&capacity) || swaps > 1_000, "{swaps} at capacity {capacity}");
        }
    }
}

#[test]
fn the_lock_is_taken_once_for_many_evictions() {
    let mut rig = Rig::new(1_000, false);
    assert!((0..1_000).all(|_| rig.push() == Ok(false)));
    let swaps = (0..10_000).filter(|_| rig.evict()).count();
    assert!(swaps >= 10_000 - 10_000 / 60, "{swaps}");
}

#[test]
fn credit_ends_before_what_is_not_written() {
    const CAPACITY: u64 = 64;
    for hole in 1..CAPACITY {
        let ring = Ring::with_credit(CAPACITY as usize, ()).expect("memory");
        assert!((0..hole).all(|item| ring.push(item).is_ok()));
        let (late, _) = ring.claim_many(1).expect("room");
        assert!((hole + 1..CAPACITY).all(|item| ring.push(item).is_ok()));
        assert!(ring.lock().rotate(CAPACITY).is_ok());
        let credit = (0..CAPACITY).take_while(|n| ring.push(CAPACITY + 1 + n).is_ok()).count() as u64;
        assert_eq!(credit, (hole - 1).min(CAPACITY / 4), "hole at {hole}");
        ring.write(late, hole);
        assert_eq!(take(&ring, CAPACITY as usize), (credit + 1..CAPACITY + credit + 1).collect::<Vec<_>>());
    }
}

#[test]
fn large_items_have_no_spare_slots() {
    let ring = Ring::with_credit(4, ()).expect("memory");
    assert!((0..4_u8).all(|item| ring.push([item; 5_000]).is_ok()));
    assert!(ring.lock().rotate([4; 5_000]).is_ok());
    assert!(ring.push([5; 5_000]).is_err());
}

/// Producers evict all the time while a consumer takes: what comes out is in each one's order, and each item is taken or counted.
#[test]
fn evictors_and_a_consumer_lose_nothing_but_what_they_count() {
    const PRODUCERS: u64 = 4;
    let each = 100_000;
    let ring = Arc::new(Ring::with_credit(64, ()).expect("memory"));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let (mut stored, mut evicted) = (0, 0);
                for i in 0..each {
                    let item = i * PRODUCERS + producer;
                    let mut stores = |item| match ring.push(item) {
                        Ok(_) => true,
                        Err(item) => {
                            let mut head = ring.lock();
                            evicted += head.take_displaced();
                            let is_rotated = head.rotate(item).is_ok();
                            evicted += u64::from(is_rotated);
                            is_rotated
                        }
                    };
                    stored += u64::from(stores(item));
                }
                (stored, evicted)
            })
        })
        .collect();
    let (mut last, mut taken, mut evicted) = ([None; PRODUCERS as usize], 0, 0);
    let mut drain = || {
        let mut out = Vec::new();
        let mut head = ring.lock();
        evicted += head.take_displaced();
        let count = head.take(48, &mut out) as u64;
        assert!(head.depth(head.tail()) <= 64, "the bound holds");
        head.free(count);
        head.publish();
        drop(head);
        taken += count;
        for item in out {
            let last = &mut last[(item % PRODUCERS) as usize];
            assert!(last.is_none_or(|last| last < item), "in order");
            *last = Some(item);
        }
        count
    };
    while !producers.iter().all(thread::JoinHandle::is_finished) {
        drain();
    }
    while drain() > 0 {}
    let ends: Vec<_> = producers.into_iter().map(|producer| producer.join().expect("no panic")).collect();
    let stored: u64 = ends.iter().map(|(stored, _)| stored).sum();
    assert_eq!(stored, taken + evicted + ends.iter().map(|(_, evicted)| evicted).sum::<u64>());
}

#[test]
fn what_was_written_once_says_nothing_about_what_comes_after_it() {
    let ring = Ring::with_credit(8, ()).expect("memory");
    let evict = |item| ring.lock().rotate(item).is_ok();
    assert!((0..8).all(|item| ring.push(item).is_ok()) && evict(8), "looks at two");
    assert_eq!(take(&ring, 8), (1..9).collect::<Vec<_>>());
    assert!(ring.push(9).is_ok());
    let (late, _) = ring.claim_many(1).expect("room");
    assert!((11..17).all(|item| ring.push(item).is_ok()) && evict(17));
    assert_eq!(ring.push(18), Err(18), "the oldest is not written");
    ring.write(late, 10);
    assert!(evict(18) && ring.push(19).is_ok());
    assert_eq!(take(&ring, 8), (12..20).collect::<Vec<_>>());
}
