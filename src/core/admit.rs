//! Admission: an offer is stored, refused, displaces another, or waits.

use std::task::Waker;
use std::time::Duration;

use super::{Core, loss};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Evicted, Key, NoRoom, Parked, Wait};
use crate::strategy::{Admission, Pressure, Strategy};
use crate::sync::Backoff;

/// What became of an offer.
pub(crate) enum Admitted<T> {
    Stored,
    Refused(PushError<T>),
    /// The strategy waits, with this time limit.
    Wait(T, Option<Duration>),
}

/// What a producer that wants to wait finds.
pub(crate) enum Queued<T> {
    /// All in; places that were granted are the caller's.
    Served,
    Waiting(Key),
    Closed(Parked<T>),
}

impl<T> Core<T> {
    /// Stores an item, or decides by the strategy without waiting.
    #[inline]
    pub(crate) fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        match self.push(item) {
            Ok(()) => Ok(()),
            Err(item) => self.try_push_slow(item),
        }
    }

    #[cold]
    fn try_push_slow(&self, item: T) -> Result<(), PushError<T>> {
        if let Strategy::Block | Strategy::BlockFor(_) | Strategy::DropNewest = self.strategy {
            let reason = if self.is_closed() { RefuseReason::Closed } else { RefuseReason::Full };
            return Err(self.refuse(reason, item));
        }
        match self.admit(item) {
            Admitted::Stored => Ok(()),
            Admitted::Refused(error) => Err(error),
            Admitted::Wait(item, _) => Err(self.refuse(RefuseReason::Full, item)),
        }
    }

    /// Stores an item if there is room.
    #[inline]
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        if self.gate.push(item)? {
            self.alarm();
        }
        Ok(())
    }

    /// Stores as many items as there is room for, from the front.
    pub(crate) fn offer_many(&self, items: &mut Vec<T>) {
        if self.gate.push_many(items) {
            self.alarm();
        }
    }

    /// Lets the strategy decide about an item that found no room.
    #[cold]
    pub(crate) fn admit(&self, item: T) -> Admitted<T> {
        if self.is_closed() {
            return Admitted::Refused(self.refuse(RefuseReason::Closed, item));
        }
        match self.decide(&item) {
            Admission::Wait => Admitted::Wait(item, None),
            Admission::WaitFor(limit) => Admitted::Wait(item, Some(limit)),
            Admission::Refuse => Admitted::Refused(self.refuse(RefuseReason::Full, item)),
            Admission::EvictOldest => self.evict(item),
        }
    }

    /// Asks the strategy; one that panics refuses.
    fn decide(&self, item: &T) -> Admission {
        let pressure =
            || Pressure { state: self.gate.state(), depth: self.gate.depth() as usize, capacity: self.gate.capacity() };
        match &self.strategy {
            Strategy::Custom(_) => self.guard(|| self.strategy.admit(item, pressure)).unwrap_or(Admission::Refuse),
            built_in => built_in.admit(item, pressure),
        }
    }

    fn evict(&self, mut item: T) -> Admitted<T> {
        if loss::is_in_hook() {
            return Admitted::Refused(self.refuse(RefuseReason::Full, item));
        }
        let mut backoff = Backoff::new();
        loop {
            let mut locked = self.gate.lock();
            let (evicted, victim) = locked.evict(item);
            self.apply(locked.finish_eviction());
            if let Some(victim) = victim {
                self.lose_evicted(victim);
            }
            match evicted {
                Evicted::Stored => return Admitted::Stored,
                Evicted::Closed(item) => return Admitted::Refused(self.refuse(RefuseReason::Closed, item)),
                Evicted::Unwritten(back) if !backoff.is_exhausted() => item = back,
                Evicted::Full(item) | Evicted::Unwritten(item) => {
                    return Admitted::Refused(self.refuse(RefuseReason::Full, item));
                }
            }
            backoff.spin();
        }
    }

    /// Why a producer that would wait for so long at most must not, if so.
    pub(crate) fn forbids_wait(&self, limit: Option<Duration>) -> Option<RefuseReason> {
        if self.is_inside() {
            return Some(RefuseReason::WouldDeadlock);
        }
        (limit == Some(Duration::ZERO)).then_some(RefuseReason::TimedOut)
    }

    #[inline]
    pub(crate) fn refuse(&self, reason: RefuseReason, item: T) -> PushError<T> {
        self.gate.refusals().add(reason, 1);
        PushError::new(reason, item)
    }

    pub(crate) fn count_refused(&self, reason: RefuseReason, n: usize) {
        self.gate.refusals().add(reason, n as u64);
    }

    /// Counts items that were offered and given up.
    pub(crate) fn count_cancelled(&self, n: usize) {
        if n > 0 {
            self.gate.lock().desk().ledger.cancelled += n as u64;
        }
    }

    /// Queues a producer, after a last try under the lock.
    pub(crate) fn enqueue(&self, mut parked: Parked<T>, waker: Waker) -> Queued<T> {
        let mut locked = self.gate.lock();
        let queued = match locked.try_serve(&mut parked) {
            Ok(()) => Queued::Served,
            Err(NoRoom::Closed) => Queued::Closed(parked),
            Err(NoRoom::Full) => Queued::Waiting(locked.park(parked, waker)),
        };
        self.apply(locked.finish());
        queued
    }

    /// What a queued producer finds.
    pub(crate) fn poll_waiter(&self, key: Key, waker: Waker) -> Wait<T> {
        let mut locked = self.gate.lock();
        let (wait, stale) = locked.poll_waiter(key, waker);
        drop(locked);
        drop(stale);
        wait
    }

    /// Takes a producer out of the queue: for `reason`, or because it gave up.
    pub(crate) fn leave(&self, key: Key, reason: Option<RefuseReason>) -> Wait<T> {
        let mut locked = self.gate.lock();
        let (wait, waker) = locked.dequeue(key, reason);
        self.apply(locked.finish());
        drop(waker);
        wait
    }

    /// Reserves `n` places if there is room.
    pub(crate) fn reserve(&self, n: u64) -> bool {
        match self.gate.reserve(n) {
            None => false,
            Some(false) => true,
            Some(true) => {
                self.alarm();
                true
            }
        }
    }

    /// Turns a reserved place into an item.
    pub(crate) fn send(&self, item: T) {
        let (alarm, is_closed) = self.gate.send(item);
        if alarm {
            self.alarm();
        }
        if is_closed {
            self.sweep();
        }
    }

    /// Gives `n` reserved places back.
    pub(crate) fn release(&self, n: u64) {
        let mut locked = self.gate.lock();
        locked.release(n);
        self.apply(locked.finish());
    }
}
