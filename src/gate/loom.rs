//! The gate under loom: wake-up, waiters, permits, eviction, close and drain, at capacities 1, 2 and 3. Each promise has
//! a twin that runs its model with one step of the real protocol broken and must fail.
//!
//! A flusher that sleeps is a flusher whose bell was not rung: most models let all threads end and look then; those of the
//! drain really block it, and loom reports the deadlock.

mod close;
mod credit;
mod evict;
mod figures;
mod merge;
mod prepaid;
mod resize;
mod settle;
mod wait;
mod wake;
mod weigh;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::{Effects, Evicted, Gate, Key, Means, NoRoom, Parked, Stock, Tag, Wait};
use crate::ledger::Outcome;
use crate::state::{Levels, Posture, Reflex, Watermarks};
use crate::sync::Model;
use crate::time::Clock;

/// A gate, and what the floors above do with it.
struct Rig {
    gate: Gate<u32, ()>,
    bell: Bell,
    /// How often the bell rang.
    rung: AtomicUsize,
}

/// What a producer that wants to wait finds.
#[derive(Debug, PartialEq)]
enum Queued {
    Served,
    Waiting(Key),
    Closed,
}

/// What an eviction came to.
#[derive(Debug, PartialEq)]
enum Displaced {
    Stored,
    Closed,
    Full,
}

impl Rig {
    /// A gate with the items `0 .. items` inside, and with marks that only a full buffer reaches.
    fn new(capacity: usize, items: u32) -> Arc<Model<Self>> {
        Self::with_marks(capacity, items, Watermarks::new(0.99, 1.0).expect("valid"))
    }

    fn with_marks(capacity: usize, items: u32, marks: Watermarks) -> Arc<Model<Self>> {
        Self::build(capacity, items, marks, Stock::Minded)
    }

    fn build(capacity: usize, items: u32, marks: Watermarks, stock: Stock) -> Arc<Model<Self>> {
        let levels = Levels::new(marks, capacity, 1);
        let gate = Gate::new(capacity, levels, stock, Clock::start(), ()).expect("memory");
        let rig = Model::new(Self { gate, bell: Bell::default(), rung: AtomicUsize::new(0) });
        assert!((0..items).all(|item| rig.push(item)));
        rig.rung.store(0, Ordering::Relaxed);
        rig
    }

    /// A gate with the items `0 .. items` inside, of which nobody minds an evicted one: so evictions go on credit.
    fn unminded(capacity: usize, items: u32) -> Arc<Model<Self>> {
        let rig = Self::build(capacity, items, Watermarks::new(0.99, 1.0).expect("valid"), Stock::Unminded);
        rig.gate.lock().set_posture(Posture { ask_from: None, reflex: Reflex::Evict });
        rig
    }

    /// A gate whose places are all taken and not settled: the items `0 .. capacity` are in flight.
    fn in_flight(capacity: usize) -> Arc<Model<Self>> {
        let rig = Self::new(capacity, capacity as u32);
        assert_eq!(rig.take(capacity).len(), capacity);
        rig
    }

    /// A gate whose last place is reserved; before it come the items `0 .. capacity - 1`.
    fn reserved(capacity: usize) -> Arc<Model<Self>> {
        let rig = Self::new(capacity, capacity as u32 - 1);
        assert!(rig.reserve(1));
        rig
    }

    fn apply(&self, effects: Effects) {
        if effects.bell {
            self.rung.fetch_add(1, Ordering::Relaxed);
            self.bell.ring();
        }
        for waker in effects.wakers {
            waker.wake();
        }
    }

    fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) > 0
    }

    fn push(&self, item: u32) -> bool {
        let Some(place) = self.gate.claim(Means::Credit) else { return false };
        if place.fill(item) {
            self.apply(self.gate.alarm());
        }
        true
    }

    fn push_many(&self, items: &mut Vec<u32>) {
        if self.gate.push_many(items) {
            self.apply(self.gate.alarm());
        }
    }

    fn reserve(&self, n: u64) -> bool {
        let alarm = self.gate.reserve(n);
        if alarm == Some(true) {
            self.apply(self.gate.alarm());
        }
        alarm.is_some()
    }

    fn send(&self, item: u32) {
        if self.gate.send(item).0 {
            self.apply(self.gate.alarm());
        }
    }

    fn release(&self, n: u64) {
        let mut locked = self.gate.lock();
        locked.release(n, 0);
        self.apply(locked.finish());
    }

    fn enqueue(&self, mut parked: Parked<u32>, waker: Waker) -> Queued {
        let mut locked = self.gate.lock();
        let queued = match locked.try_serve(&mut parked) {
            Ok(()) => Queued::Served,
            Err(NoRoom::Closed) => Queued::Closed,
            Err(NoRoom::Full) => Queued::Waiting(locked.park(parked, waker)),
        };
        self.apply(locked.finish());
        queued
    }

    /// Queues a producer that must wait.
    fn wait(&self, parked: Parked<u32>) -> Waiter {
        let woken = Arc::new(Flag::default());
        match self.enqueue(parked, Waker::from(Arc::clone(&woken))) {
            Queued::Waiting(key) => Waiter { key, woken },
            other => panic!("there is no room: {other:?}"),
        }
    }

    fn leave(&self, key: Key) -> Wait<u32> {
        let mut locked = self.gate.lock();
        let (wait, waker) = locked.dequeue(key, None);
        self.apply(locked.finish());
        drop(waker);
        wait
    }

    fn look(&self, waiter: &Waiter) -> Wait<u32> {
        let (wait, _) = self.gate.lock().poll_waiter(waiter.key, Waker::noop().clone());
        wait
    }

    /// Evicts for `item`, with one more try if the oldest is not written yet; what was displaced goes to `lost`.
    fn evict(&self, item: u32, lost: &mut Vec<u32>) -> Displaced {
        let Some(eviction) = self.gate.eviction() else { return self.evict_slow(item, lost) };
        let (victim, alarm) = eviction.admit(item);
        lost.extend(victim);
        if alarm {
            self.apply(self.gate.alarm());
        }
        Displaced::Stored
    }

    /// The part of it that decides about every case.
    fn evict_slow(&self, mut item: u32, lost: &mut Vec<u32>) -> Displaced {
        for _ in 0..2 {
            let mut locked = self.gate.lock();
            let (evicted, victim) = locked.evict(item, &mut { Tag::PLAIN });
            self.apply(locked.finish_eviction());
            lost.extend(victim);
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

    /// Moves up to `max` items out, to be settled later.
    fn take(&self, max: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        let mut locked = self.gate.lock();
        locked.take(max, &mut taken);
        self.apply(locked.finish());
        taken
    }

    /// Settles the `n` oldest of what is in flight.
    fn settle(&self, n: u64) {
        let mut locked = self.gate.lock();
        let first = locked.taken() - locked.figures().in_flight;
        locked.settle(first..first + n, Outcome::Delivered);
        self.apply(locked.finish());
    }

    /// Takes and settles until nothing is left and nobody waits; called when all threads have ended.
    fn empty(&self) -> Vec<u32> {
        let mut all = Vec::new();
        loop {
            let figures = self.gate.lock().figures();
            assert!(figures.depth() <= self.gate.capacity() as u64, "the bound holds");
            if figures.in_flight > 0 {
                self.settle(figures.in_flight);
            }
            let taken = self.take(usize::MAX);
            if taken.is_empty() {
                assert_eq!(self.gate.lock().figures().buffered, 0, "every place that was claimed is written");
                return all;
            }
            all.extend(taken);
        }
    }

    fn close(&self) {
        let mut locked = self.gate.lock();
        locked.close();
        self.apply(locked.finish());
    }

    /// The flusher: takes what is there and sleeps when nothing is, until all is drained.
    fn flush_until_drained(&self) -> Vec<u32> {
        let mut sink = Vec::new();
        loop {
            let mut locked = self.gate.lock();
            if locked.figures().is_drained() {
                return sink;
            }
            let first = locked.taken();
            let count = locked.take(usize::MAX, &mut sink) as u64;
            let is_claimed = locked.figures().buffered > 0;
            if count == 0 && !is_claimed {
                locked.sleep(Some(1));
            }
            self.apply(locked.finish());
            if count > 0 {
                let mut locked = self.gate.lock();
                locked.settle(first..first + count, Outcome::Delivered);
                self.apply(locked.finish());
            } else if is_claimed {
                thread::yield_now();
            } else {
                self.bell.wait();
            }
        }
    }

    /// Goes to sleep until `items` are buffered, unless they are; `false` if they are.
    fn sleep(&self, items: u64) -> bool {
        let mut locked = self.gate.lock();
        let figures = locked.figures();
        let sleeps = figures.buffered < items && !figures.is_full;
        if sleeps {
            locked.sleep(Some(items));
        }
        self.apply(locked.finish());
        sleeps
    }
}

impl Model<Rig> {
    /// Runs `code` on a thread of its own.
    fn spawn<R: 'static>(self: &Arc<Self>, code: impl FnOnce(&Rig) -> R + 'static) -> thread::JoinHandle<R> {
        let rig = Arc::clone(self);
        thread::spawn(move || code(&rig))
    }
}

/// A producer that waits.
struct Waiter {
    key: Key,
    woken: Arc<Flag>,
}

impl Waiter {
    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Wakes a thread that really blocks; remembers one ring, as tokio's `Notify` does.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().expect("not poisoned") = true;
        self.ringing.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().expect("not poisoned");
        while !*is_rung {
            is_rung = self.ringing.wait(is_rung).expect("not poisoned");
        }
        *is_rung = false;
    }
}

fn item(item: u32) -> Parked<u32> {
    Parked::single(item, Tag::PLAIN)
}

fn permits(wanted: u64) -> Parked<u32> {
    Parked::Permits { wanted, granted: 0, size: 0 }
}

fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread.join().expect("no panic")
}
