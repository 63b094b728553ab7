//! The producers that wait for room, oldest first: a slab of nodes, so that nothing is allocated once it has grown.
//!
//! | phase  | the node holds                       | next                                         |
//! |--------|--------------------------------------|----------------------------------------------|
//! | Queued | what is left to hand over, the waker | Served (all handed over), Shut (close), free |
//! | Served | the permits granted                  | free, when its future looks or is dropped    |
//! | Shut   | what was not handed over             | free, when its future looks or is dropped    |
//! | Unfit  | nothing                              | free, when its future looks or is dropped    |

use std::collections::VecDeque;
use std::task::Waker;

use super::tags::Tag;
use crate::time::Tick;

/// What a waiter has parked here: its items, not a claim.
#[derive(Debug)]
pub(crate) enum Parked<T> {
    /// One item, with what it carries; `None` once it was handed over.
    One(Option<(T, Tag)>),
    /// The items of a bulk push that are left, and their sizes, if there is a weigher.
    Many(VecDeque<T>, VecDeque<u64>),
    /// A reservation of places of this size each.
    Permits { wanted: u64, granted: u64, size: u64 },
}

impl<T> Parked<T> {
    pub(crate) const fn single(item: T, tag: Tag) -> Self {
        Self::One(Some((item, tag)))
    }

    /// The item of a single push, unless it was handed over.
    pub(crate) fn into_single(self) -> Option<T> {
        match self {
            Self::One(item) => item.map(|(item, _)| item),
            Self::Many(..) | Self::Permits { .. } => None,
        }
    }

    /// Items that are not handed over.
    pub(crate) fn items(&self) -> usize {
        match self {
            Self::One(item) => usize::from(item.is_some()),
            Self::Many(items, _) => items.len(),
            Self::Permits { .. } => 0,
        }
    }

    /// Places granted to a reservation, and their size in all.
    pub(crate) fn granted(&self) -> (u64, u64) {
        match self {
            Self::Permits { granted, size, .. } => (*granted, granted * size),
            Self::One(_) | Self::Many(..) => (0, 0),
        }
    }

    pub(crate) fn is_served(&self) -> bool {
        match self {
            Self::One(item) => item.is_none(),
            Self::Many(items, _) => items.is_empty(),
            Self::Permits { wanted, granted, .. } => wanted == granted,
        }
    }
}

/// Names a node; its future is the only one to hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(usize);

/// What the oldest waiter wants next.
#[derive(Debug)]
pub(crate) enum Want<T> {
    Store(T, Tag),
    /// So many places of this size each.
    Reserve(u64, u64),
}

/// What a waiter finds when it looks.
#[derive(Debug)]
pub(crate) enum Wait<T> {
    /// Still queued.
    Queued,
    /// All handed over; the permits granted are inside.
    Served(Parked<T>),
    /// The intake was shut; what was not handed over is inside, and was counted as closed.
    Shut(Parked<T>),
    /// It went before it was served; what was not handed over is inside.
    Left(Parked<T>),
    /// It wants more places than there are since the capacity fell to `most`.
    Unfit { most: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Queued,
    Served,
    Shut,
    Unfit { most: u64 },
}

#[derive(Debug)]
struct Node<T> {
    phase: Phase,
    prev: usize,
    next: usize,
    parked: Option<Parked<T>>,
    waker: Option<Waker>,
    /// Since when it waits.
    since: Tick,
}

const NIL: usize = usize::MAX;

#[derive(Debug)]
pub(crate) struct Waiters<T> {
    nodes: Vec<Node<T>>,
    free: usize,
    head: usize,
    tail: usize,
    queued: usize,
    items: usize,
}

impl<T> Waiters<T> {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL, head: NIL, tail: NIL, queued: 0, items: 0 }
    }

    pub(crate) fn enqueue(&mut self, parked: Parked<T>, waker: Waker, since: Tick) -> Key {
        self.items += parked.items();
        self.queued += 1;
        let (parked, waker) = (Some(parked), Some(waker));
        let node = Node { phase: Phase::Queued, prev: self.tail, next: NIL, parked, waker, since };
        let index = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() - 1
        } else {
            let index = self.free;
            self.free = self.nodes[index].next;
            self.nodes[index] = node;
            index
        };
        match self.tail {
            NIL => self.head = index,
            tail => self.nodes[tail].next = index,
        }
        self.tail = index;
        Key(index)
    }

    /// What the waiter finds, and a waker to be dropped outside the lock. Unless it is still queued, its key is spent.
    pub(crate) fn poll(&mut self, key: Key, waker: Waker) -> (Wait<T>, Option<Waker>) {
        let node = &mut self.nodes[key.0];
        if node.phase == Phase::Queued {
            return (Wait::Queued, node.waker.replace(waker));
        }
        (self.remove(key), Some(waker))
    }

    /// Takes the waiter out, wherever it stands. `Wait::Queued` never comes back: a queued waiter has left.
    pub(crate) fn remove(&mut self, key: Key) -> Wait<T> {
        let phase = self.nodes[key.0].phase;
        if phase == Phase::Queued {
            self.unlink(key.0);
        }
        let node = &mut self.nodes[key.0];
        node.phase = Phase::Free;
        node.next = self.free;
        self.free = key.0;
        let parked = node.parked.take().unwrap_or(Parked::One(None));
        match phase {
            Phase::Served => Wait::Served(parked),
            Phase::Unfit { most } => Wait::Unfit { most },
            Phase::Queued => Wait::Left(parked),
            Phase::Shut | Phase::Free => Wait::Shut(parked),
        }
    }

    /// Takes a queued waiter's waker, so that it can be dropped outside the lock.
    pub(crate) fn take_waker(&mut self, key: Key) -> Option<Waker> {
        self.nodes[key.0].waker.take()
    }

    /// What the oldest waiter wants next. An item has left its node when this returns it.
    pub(crate) fn next_want(&mut self) -> Option<Want<T>> {
        let node = self.nodes.get_mut(self.head)?;
        let want = match node.parked.as_mut()? {
            Parked::One(item) => {
                let (item, tag) = item.take()?;
                Want::Store(item, tag)
            }
            Parked::Many(items, sizes) => Want::Store(items.pop_front()?, Tag::of_size(sizes.pop_front().unwrap_or(0))),
            Parked::Permits { wanted, granted, size } => return Some(Want::Reserve(*wanted - *granted, *size)),
        };
        self.items -= 1;
        Some(want)
    }

    /// Undoes a [`next_want`](Self::next_want) that found no room for its item.
    pub(crate) fn put_back(&mut self, item: T, tag: Tag) {
        let Some(Node { parked: Some(parked), .. }) = self.nodes.get_mut(self.head) else { return };
        match parked {
            Parked::One(slot) => *slot = Some((item, tag)),
            Parked::Many(items, sizes) => {
                items.push_front(item);
                sizes.push_front(tag.size);
            }
            Parked::Permits { .. } => return,
        }
        self.items += 1;
    }

    /// Notes that the oldest waiter was granted `n` more places.
    pub(crate) fn grant(&mut self, n: u64) {
        if let Some(Node { parked: Some(Parked::Permits { granted, .. }), .. }) = self.nodes.get_mut(self.head) {
            *granted += n;
        }
    }

    /// Since when the oldest waiter waits.
    pub(crate) fn oldest(&self) -> Option<Tick> {
        self.nodes.get(self.head).map(|node| node.since)
    }

    /// Since when the waiter has waited, if it still does.
    pub(crate) fn since(&self, key: Key) -> Option<Tick> {
        self.nodes.get(key.0).filter(|node| node.phase == Phase::Queued).map(|node| node.since)
    }

    /// Takes the oldest waiter off the queue if it was served; its waker is to be woken.
    pub(crate) fn pop_served(&mut self) -> Option<Waker> {
        let node = self.nodes.get(self.head)?;
        if !node.parked.as_ref().is_some_and(Parked::is_served) {
            return None;
        }
        self.dismiss(self.head, Phase::Served)
    }

    /// Takes the oldest waiter off the queue because the intake is shut: its items, its granted places and their size in all,
    /// its waker.
    pub(crate) fn pop_shut(&mut self) -> Option<(u64, (u64, u64), Option<Waker>)> {
        let node = self.nodes.get_mut(self.head)?;
        let parked = node.parked.as_mut()?;
        let (items, granted) = (parked.items() as u64, parked.granted());
        if let Parked::Permits { granted, .. } = parked {
            *granted = 0;
        }
        Some((items, granted, self.dismiss(self.head, Phase::Shut)))
    }

    /// Takes the reservations of more than `most` places off the queue, their wakers to be woken; returns the places that
    /// they had been granted, and their size in all.
    pub(crate) fn dismiss_unfit(&mut self, most: u64, wakers: &mut Vec<Waker>) -> (u64, u64) {
        let (mut index, mut places, mut sizes) = (self.head, 0, 0);
        while let Some(node) = self.nodes.get_mut(index) {
            let here = std::mem::replace(&mut index, node.next);
            if let Some(Parked::Permits { wanted, granted, size }) = &mut node.parked {
                if *wanted > most {
                    sizes += *granted * *size;
                    places += std::mem::take(granted);
                    wakers.extend(self.dismiss(here, Phase::Unfit { most }));
                }
            }
        }
        (places, sizes)
    }

    /// Producers in the queue.
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// Items in the queue.
    pub(crate) const fn items(&self) -> usize {
        self.items
    }

    /// Ends the wait of a queued one in `phase`.
    fn dismiss(&mut self, index: usize, phase: Phase) -> Option<Waker> {
        self.unlink(index);
        let node = &mut self.nodes[index];
        node.phase = phase;
        node.waker.take()
    }

    /// Takes a node off the queue, with the items it still holds.
    fn unlink(&mut self, index: usize) {
        let node = &self.nodes[index];
        let (prev, next) = (node.prev, node.next);
        self.items -= node.parked.as_ref().map_or(0, Parked::items);
        self.queued -= 1;
        match prev {
            NIL => self.head = next,
            prev => self.nodes[prev].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.nodes[next].prev = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn park(waiters: &mut Waiters<u32>, item: u32) -> Key {
        waiters.enqueue(Parked::single(item, Tag::PLAIN), Waker::noop().clone(), Tick::default())
    }

    #[test]
    fn served_in_order_of_arrival_whoever_left() {
        let mut waiters = Waiters::new();
        let keys: Vec<_> = (0..5).map(|i| park(&mut waiters, i)).collect();
        for gone in [0, 2, 4] {
            assert!(matches!(waiters.remove(keys[gone]), Wait::Left(Parked::One(Some(_)))));
        }
        let mut order = Vec::new();
        while let Some(Want::Store(item, _)) = waiters.next_want() {
            order.push(item);
            assert!(waiters.pop_served().is_some());
        }
        assert_eq!(order, [1, 3]);
        assert_eq!((waiters.queued(), waiters.items()), (0, 0));
        assert!(matches!(waiters.remove(keys[1]), Wait::Served(_)));
    }

    #[test]
    fn nodes_are_used_again() {
        let mut waiters = Waiters::new();
        for round in 0..100 {
            let keys = [park(&mut waiters, round), park(&mut waiters, round)];
            for key in keys {
                waiters.remove(key);
            }
        }
        assert_eq!(waiters.nodes.len(), 2);
    }

    #[test]
    fn a_reservation_is_served_when_all_its_places_are_granted() {
        let mut waiters: Waiters<u32> = Waiters::new();
        let key =
            waiters.enqueue(Parked::Permits { wanted: 3, granted: 0, size: 2 }, Waker::noop().clone(), Tick::default());
        waiters.grant(2);
        assert!(waiters.pop_served().is_none());
        assert!(matches!(waiters.next_want(), Some(Want::Reserve(1, 2))));
        waiters.grant(1);
        assert!(waiters.pop_served().is_some());
        assert!(matches!(waiters.remove(key), Wait::Served(parked) if parked.granted() == (3, 6)));
    }

    #[test]
    fn only_reservations_of_too_many_places_are_sent_away() {
        let mut waiters: Waiters<u32> = Waiters::new();
        let reserve = |waiters: &mut Waiters<u32>, wanted| {
            waiters.enqueue(Parked::Permits { wanted, granted: 0, size: 2 }, Waker::noop().clone(), Tick::default())
        };
        let first = reserve(&mut waiters, 4);
        waiters.grant(3);
        park(&mut waiters, 7);
        let (second, third) = (reserve(&mut waiters, 2), reserve(&mut waiters, 3));
        let mut wakers = Vec::new();
        assert_eq!((waiters.dismiss_unfit(2, &mut wakers), wakers.len()), ((3, 6), 2));
        assert_eq!((waiters.queued(), waiters.items()), (2, 1));
        for key in [first, third] {
            assert!(matches!(waiters.poll(key, Waker::noop().clone()).0, Wait::Unfit { most: 2 }));
        }
        assert!(matches!(waiters.next_want(), Some(Want::Store(7, _))));
        assert!(waiters.pop_served().is_some());
        assert!(matches!(waiters.next_want(), Some(Want::Reserve(2, 2))));
        assert!(matches!(waiters.poll(second, Waker::noop().clone()).0, Wait::Queued));
    }

    #[test]
    fn a_wait_began_when_it_was_queued_and_is_over_when_it_was_served() {
        let mut waiters = Waiters::new();
        let since = [3, 5].map(|secs| Tick::at(Duration::from_secs(secs)));
        let [first, second] =
            since.map(|tick| waiters.enqueue(Parked::single(7, Tag::PLAIN), Waker::noop().clone(), tick));
        assert_eq!((waiters.oldest(), waiters.since(second)), (Some(since[0]), Some(since[1])));
        assert!(matches!(waiters.next_want(), Some(Want::Store(..))));
        assert!(waiters.pop_served().is_some());
        assert_eq!((waiters.since(first), waiters.oldest()), (None, Some(since[1])));
    }

    #[test]
    fn an_item_that_was_put_back_comes_first_again() {
        let mut waiters = Waiters::new();
        waiters.enqueue(Parked::Many(VecDeque::from([1, 2]), VecDeque::new()), Waker::noop().clone(), Tick::default());
        for expected in [1, 1] {
            let Some(Want::Store(item, _)) = waiters.next_want() else { unreachable!("there are two") };
            assert_eq!((item, waiters.items()), (expected, 1));
            waiters.put_back(item, Tag::PLAIN);
            assert_eq!(waiters.items(), 2);
        }
    }

    #[test]
    fn shut_returns_what_was_not_handed_over() {
        let mut waiters = Waiters::new();
        let key = waiters.enqueue(
            Parked::Many(VecDeque::from([1, 2, 3]), VecDeque::new()),
            Waker::noop().clone(),
            Tick::default(),
        );
        assert!(matches!(waiters.next_want(), Some(Want::Store(1, _))));
        assert!(matches!(waiters.pop_shut(), Some((2, (0, 0), Some(_)))));
        assert!(waiters.pop_shut().is_none());
        let (Wait::Shut(Parked::Many(rest, _)), _) = waiters.poll(key, Waker::noop().clone()) else {
            unreachable!("it was shut")
        };
        assert_eq!(rest, [2, 3]);
    }
}
