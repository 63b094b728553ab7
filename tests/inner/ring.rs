//! Any bytes are operations on a ring, on one thread; a deque and a few counts must agree after each.
//!
//! Producers see the room that was published, whoever holds the head lock all that is free: the model counts both.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use crate::ring::{Popped, Ring, Word};

/// An item that the model can tell apart, or not even that.
pub(crate) trait Item {
    fn new(id: u32, drops: &Rc<Drops>) -> Self;
    /// Whether it is the one with this id, as far as it knows.
    fn is(&self, id: u32) -> bool;
}

/// How many items were dropped, and which.
#[derive(Default)]
pub(crate) struct Drops {
    ids: RefCell<Vec<u8>>,
}

/// With an id.
struct Token {
    id: u32,
    drops: Rc<Drops>,
}

impl Item for Token {
    fn new(id: u32, drops: &Rc<Drops>) -> Self {
        let mut ids = drops.ids.borrow_mut();
        assert_eq!(ids.len(), id as usize, "ids are given in order");
        ids.push(0);
        Self { id, drops: Rc::clone(drops) }
    }

    fn is(&self, id: u32) -> bool {
        self.id == id
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.drops.ids.borrow_mut()[self.id as usize] += 1;
    }
}

thread_local! {
    static UNITS: Cell<usize> = const { Cell::new(0) };
}

/// Of no size.
struct Unit;

impl Item for Unit {
    fn new(_: u32, _: &Rc<Drops>) -> Self {
        UNITS.set(UNITS.get() + 1);
        Self
    }

    fn is(&self, _: u32) -> bool {
        true
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        UNITS.set(UNITS.get() - 1);
    }
}

/// Powers of two, their neighbours, and others; the places of each wrap differently.
const CAPACITIES: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 9, 13, 31, 64, 1000];

/// Runs the operations that `bytes` say: capacity and flags, then two bytes for each.
pub(crate) fn run(bytes: &[u8]) {
    let [capacity, flags, ops @ ..] = bytes else { return };
    let capacity = CAPACITIES[usize::from(*capacity) % CAPACITIES.len()];
    let ops = ops.chunks_exact(2).map(|op| (op[0], u64::from(op[1])));
    if flags & 1 == 0 {
        let drops = Rc::default();
        Model::<Token>::new(capacity, flags & 2 != 0, &drops).run(ops);
        let ids = drops.ids.borrow();
        assert!(ids.iter().all(|drops| *drops == 1), "each is dropped once: {ids:?}");
    } else {
        Model::<Unit>::new(capacity, flags & 2 != 0, &Rc::default()).run(ops);
        assert_eq!(UNITS.get(), 0, "each is dropped once");
    }
}

struct Model<I> {
    ring: Ring<I, ()>,
    slots: u64,
    capacity: u64,
    next: u32,
    drops: Rc<Drops>,
    /// The ids of what is buffered.
    buffered: VecDeque<u32>,
    /// Places claimed since the start, and how many of them were taken and given free.
    place: u64,
    taken: u64,
    gone: u64,
    reserved: u64,
    /// The published limit, and the places that are to be added to it.
    limit: i64,
    owed: u64,
    /// The capacity was less than it is, or more.
    was_resized: bool,
    is_closed: bool,
    /// The level at which the alarm is raised.
    alarm: Option<i64>,
}

impl<I: Item> Model<I> {
    fn new(capacity: usize, at_the_wrap: bool, drops: &Rc<Drops>) -> Self {
        let ring = Ring::new(capacity, ()).expect("memory");
        if at_the_wrap {
            ring.start_near_the_wrap();
        }
        Self {
            ring,
            slots: capacity as u64,
            capacity: capacity as u64,
            next: 0,
            drops: Rc::clone(drops),
            buffered: VecDeque::new(),
            place: 0,
            taken: 0,
            gone: 0,
            reserved: 0,
            limit: capacity as i64,
            owed: 0,
            was_resized: false,
            is_closed: false,
            alarm: None,
        }
    }

    fn run(mut self, ops: impl Iterator<Item = (u8, u64)>) {
        for (op, n) in ops {
            self.step(op, n);
            self.check();
        }
    }

    fn step(&mut self, op: u8, n: u64) {
        match op % 20 {
            0..=2 => self.push(),
            3 => self.push_many(n % 9),
            4 => self.reserve(n % 5),
            5 | 6 => self.send(),
            7 => self.give_back(n),
            8 => self.take(n as usize),
            9 => self.pop(),
            10 => self.free(n),
            11 => self.publish(),
            12 => self.store(),
            13 => self.grant(n % 5),
            14 => self.arm(n),
            15 => self.settle(),
            16 => self.evict(),
            17 => self.exchange(n),
            18 => self.resize(1 + n % self.slots),
            _ if n < 16 => self.close(),
            _ => self.push(),
        }
    }

    fn item(&mut self) -> (u32, I) {
        let id = self.next;
        self.next += 1;
        (id, I::new(id, &self.drops))
    }

    fn level(&self) -> i64 {
        (self.place + self.reserved) as i64
    }

    /// Room that producers know of; less than nothing while what was not published is used, and after a shrink.
    fn room(&self) -> i64 {
        self.limit - self.level()
    }

    /// All room; less than nothing after a shrink.
    fn spare(&self) -> i64 {
        self.room() + self.owed as i64
    }

    /// Whether a claim that has just been made raises the alarm.
    fn is_due(&mut self) -> bool {
        let level = self.level();
        self.alarm.take_if(|at| level >= *at).is_some()
    }

    fn stored(&mut self, id: u32) {
        self.buffered.push_back(id);
        self.place += 1;
    }

    fn push(&mut self) {
        let (id, item) = self.item();
        let fits = !self.is_closed && self.room() > 0;
        match self.ring.push(item) {
            Ok(alarm) => {
                assert!(fits, "pushed without room");
                self.stored(id);
                assert_eq!(alarm, self.is_due());
            }
            Err(item) => assert!(!fits && item.is(id), "refused in spite of room"),
        }
    }

    fn push_many(&mut self, n: u64) {
        let (ids, mut items): (Vec<u32>, Vec<I>) = (0..n).map(|_| self.item()).unzip();
        let fits = if self.is_closed { 0 } else { self.room().clamp(0, n as i64) as usize };
        let alarm = self.ring.push_many(&mut items);
        for id in &ids[..fits] {
            self.stored(*id);
        }
        assert_eq!(alarm, fits > 0 && self.is_due());
        assert!(items.iter().zip(&ids[fits..]).all(|(item, id)| item.is(*id)));
        assert_eq!(items.len(), ids.len() - fits);
    }

    fn reserve(&mut self, n: u64) {
        let fits = !self.is_closed && self.room() >= n as i64;
        let alarm = self.ring.reserve(n);
        if fits {
            self.reserved += n;
        }
        assert_eq!(alarm, fits.then(|| self.is_due()));
    }

    fn send(&mut self) {
        if self.reserved == 0 {
            return;
        }
        let (id, item) = self.item();
        let (alarm, word) = self.ring.send(item);
        self.reserved -= 1;
        self.stored(id);
        assert_eq!(alarm, self.is_due());
        assert_eq!((word.reserved(), word.is_closed()), (self.reserved, self.is_closed));
    }

    fn give_back(&mut self, n: u64) {
        let n = n.min(self.reserved);
        self.ring.lock().give_back(n);
        self.reserved -= n;
    }

    fn take(&mut self, max: usize) {
        // Behind what is there already.
        let (before, item) = self.item();
        let mut out = vec![item];
        let count = self.ring.lock().take(max, &mut out);
        assert_eq!(count, max.min(self.buffered.len()));
        assert!(out[0].is(before));
        assert_eq!(out.len(), count + 1);
        for item in &out[1..] {
            assert!(self.buffered.pop_front().is_some_and(|id| item.is(id)), "in their order");
        }
        self.taken += count as u64;
    }

    fn pop(&mut self) {
        match (self.ring.lock().pop(), self.buffered.pop_front()) {
            (Popped::Item(item), Some(id)) => {
                assert!(item.is(id));
                self.taken += 1;
            }
            (Popped::Empty, None) => {}
            (popped, expected) => {
                panic!("{expected:?} was expected, and it is empty: {}", matches!(popped, Popped::Empty))
            }
        }
    }

    fn free(&mut self, n: u64) {
        let n = n.min(self.taken - self.gone);
        self.ring.lock().free(n);
        self.gone += n;
        self.owed += n;
    }

    fn publish(&mut self) {
        self.ring.lock().publish();
        self.limit += std::mem::take(&mut self.owed) as i64;
    }

    /// What the flusher does in one step.
    fn settle(&mut self) {
        self.take(usize::MAX);
        self.free(u64::MAX);
        self.publish();
    }

    fn store(&mut self) {
        let (id, item) = self.item();
        let fits = self.spare() > 0;
        let mut head = self.ring.lock();
        match head.place(item, None) {
            Ok(place) => {
                assert!(fits, "stored without room");
                assert_eq!(head.position(place), self.place);
            }
            Err(item) => return assert!(!fits && item.is(id), "refused in spite of room"),
        }
        drop(head);
        self.stored(id);
    }

    /// One for one: whatever the capacity has become, there is a place for an item that comes instead of one that goes.
    fn evict(&mut self) {
        if self.spare() > 0 || self.buffered.is_empty() {
            return;
        }
        self.pop();
        let (id, item) = self.item();
        let mut head = self.ring.lock();
        head.free(1);
        let place = head.place_instead(item, None).map_err(drop).expect("the place of the other");
        assert_eq!(head.position(place), self.place);
        head.publish();
        drop(head);
        self.gone += 1;
        self.owed += 1;
        self.stored(id);
        self.publish();
    }

    fn exchange(&mut self, n: u64) {
        if self.buffered.is_empty() {
            return;
        }
        let (id, item) = self.item();
        let index = n as usize % self.buffered.len();
        let other = self.ring.lock().exchange(self.taken + index as u64, item).map_err(drop).expect("it is written");
        assert!(other.is(self.buffered[index]));
        self.buffered[index] = id;
    }

    fn resize(&mut self, to: u64) {
        self.ring.lock().set_capacity(to);
        match to.checked_sub(self.capacity) {
            Some(more) => self.owed += more,
            None => self.limit -= (self.capacity - to) as i64,
        }
        self.capacity = to;
        self.was_resized = true;
    }

    fn grant(&mut self, n: u64) {
        let granted = self.ring.lock().grant(n);
        assert_eq!(granted, n.min(self.spare().max(0) as u64));
        self.reserved += granted;
    }

    fn arm(&mut self, n: u64) {
        let mut head = self.ring.lock();
        let (at, word) = match n % 3 {
            0 => (None, None),
            1 => {
                let items = 1 + n / 3 % self.slots;
                let (taken, at) = (self.taken as i64, (self.taken + items) as i64);
                (Some(at.min(self.limit.max(taken + 1))), Some(head.target(items)))
            }
            _ => {
                let depth = n / 3 % (self.slots + 1);
                (Some(self.limit - self.capacity as i64 + depth as i64), Some(head.level_at(depth)))
            }
        };
        head.arm(word);
        self.alarm = at;
    }

    fn close(&mut self) {
        assert_eq!(self.ring.lock().close(), !self.is_closed);
        self.is_closed = true;
    }

    fn check(&self) {
        let (buffered, in_flight) = (self.buffered.len() as u64, self.taken - self.gone);
        for (told, inside) in
            [(self.ring.len(), buffered + in_flight), (self.ring.depth(), self.reserved + buffered + in_flight)]
        {
            // What was given free and not published counts as used, and what came with a capacity that was not published
            // may not count yet. Once all is published, it is exact.
            let (least, most) = (inside.saturating_sub(self.owed), (inside + self.owed).min(self.slots));
            assert!(least <= told && told <= most, "{told} for {inside}");
        }
        assert_eq!((self.ring.is_closed(), self.ring.max_capacity()), (self.is_closed, self.slots as usize));
        assert!(self.owed > 0 || self.ring.capacity() == self.capacity as usize, "all is published");
        let head = self.ring.lock();
        let word: Word = head.tail();
        assert_eq!(word, head.tail_exact());
        assert_eq!((word.reserved(), word.is_closed()), (self.reserved, self.is_closed));
        assert_eq!((head.buffered(word), head.in_flight()), (buffered, in_flight));
        assert_eq!(head.depth(word), self.reserved + buffered + in_flight);
        assert!(head.depth(word) <= if self.was_resized { self.slots } else { self.capacity }, "I3");
        assert_eq!((head.capacity(), head.has_spare(word)), (self.capacity, self.spare() > 0));
        assert_eq!((head.spare(word), head.excess()), (self.spare().max(0) as u64, self.spare().min(0).unsigned_abs()));
        assert_eq!(head.taken_total(), self.taken);
    }
}
