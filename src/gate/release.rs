//! Room that comes back, and reserved places: the oldest waiters', everyone's, or nobody's.

use super::Locked;
use super::waiters::Want;
use crate::sync::{Fault, fault};

impl<T, R> Locked<'_, T, R> {
    /// Hands free room to the oldest waiters, before it is published to anyone else.
    pub(super) fn serve(&mut self) {
        if self.head.waiters.queued() == 0 || fault(Fault::ServeNobody) {
            return;
        }
        while self.head.has_spare(self.head.tail()) {
            match self.head.waiters.next_want() {
                None => return,
                Some(Want::Store(item, mut tag)) => {
                    if let Err(item) = self.place(item, &mut tag) {
                        // Only by size: room that is not published is the waiters'.
                        self.head.waiters.put_back(item, tag);
                        return;
                    }
                }
                Some(Want::Reserve(n, size)) => {
                    let granted = self.grant(n, size);
                    if granted == 0 {
                        return;
                    }
                    self.head.waiters.grant(granted);
                }
            }
            self.dismiss_served();
        }
    }

    /// Takes the waiters that have all they wanted off the queue, to be woken.
    fn dismiss_served(&mut self) {
        while let Some(since) = self.head.waiters.oldest() {
            let Some(waker) = self.head.waiters.pop_served() else { return };
            self.effects.wakers.push(waker);
            self.head.has_served = true;
            self.note_wait(since);
        }
    }

    /// Takes `n` reserved places of this size in all back, for the oldest waiters if there are any; those above the capacity
    /// are nobody's.
    pub(crate) fn release(&mut self, n: u64, size: u64) {
        if n == 0 {
            return;
        }
        self.note_peak();
        let kept = if fault(Fault::ReleaseAboveCapacity) { n } else { n.saturating_sub(self.head.excess()) };
        // With a weigher nobody comes in between: `finish` serves the waiters.
        let is_open = self.gate.volume.is_some() || fault(Fault::ReleaseToAll);
        let left = if is_open { kept } else { self.pass_on(kept) };
        let back = n - kept + left;
        if back > 0 {
            self.head.give_back(back);
        }
        self.unreserve(size);
        if !fault(Fault::LastPermitSilent) && self.head.tail().is_closed() {
            self.effects.bell = true;
        }
    }

    /// Hands reserved places straight to the oldest waiters; returns how many are left. Given back first, they would be
    /// room for whoever pushes just then: a waiter would be overtaken.
    fn pass_on(&mut self, mut n: u64) -> u64 {
        while n > 0 {
            match self.head.waiters.next_want() {
                None => break,
                Some(Want::Store(item, tag)) => {
                    // Whether this reaches the alarm does not matter: `finish` looks anyway.
                    let (_, next) = self.gate.ring.send(item);
                    let position = self.head.position(next.place()) - 1;
                    self.head.tags.insert(position, tag);
                    n -= 1;
                }
                Some(Want::Reserve(wanted, _)) => {
                    let granted = wanted.min(n);
                    self.head.waiters.grant(granted);
                    n -= granted;
                }
            }
            self.dismiss_served();
        }
        n
    }
}
