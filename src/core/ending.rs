//! How a controller ends: the deadline, the leftovers, and who is told.

use std::mem;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::settle::settle_runs;
use super::{Core, Hangar, Step};
use crate::error::LossReason;
use crate::flight::Phase;
use crate::gate::{Key, Locked, Parked, Wait};
use crate::ledger::Outcome;
use crate::report::DrainReport;
use crate::sync::Backoff;
use crate::time::Tick;

/// The end of a controller; lives under the head lock.
#[derive(Debug)]
pub(crate) struct Ending<T> {
    /// Somebody has called `drain`; later calls join it and its deadline.
    is_draining: bool,
    /// `None` means never.
    deadline: Option<Tick>,
    is_finished: bool,
    leftovers: Vec<T>,
    not_returned: u64,
    permits_out: u64,
    drainers: Vec<(DrainId, Option<Waker>)>,
    next_drainer: u64,
}

/// Names a caller of `drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainId(u64);

impl<T> Default for Ending<T> {
    fn default() -> Self {
        Self {
            is_draining: false,
            deadline: None,
            is_finished: false,
            leftovers: Vec::new(),
            not_returned: 0,
            permits_out: 0,
            drainers: Vec::new(),
            next_drainer: 0,
        }
    }
}

impl<T> Ending<T> {
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.deadline
    }

    /// What the end makes of the flusher's next step, if it makes anything of it.
    pub(super) fn step(&self, now: Tick) -> Option<Step> {
        if self.is_finished {
            return Some(Step::Drained);
        }
        self.deadline.filter(|deadline| *deadline <= now).map(|_| Step::Expired)
    }
}

impl<T> Core<T> {
    /// Shuts the intake.
    pub(crate) fn close(&self) {
        let mut locked = self.gate.lock();
        locked.close();
        self.apply(locked.finish());
    }

    /// Shuts the intake and sets the deadline, unless an earlier call has set it; the caller waits for the end.
    pub(crate) fn start_drain(&self, limit: Duration) -> (DrainId, Option<Tick>) {
        let now = self.now();
        let mut locked = self.gate.lock();
        locked.close();
        locked.ring_bell();
        let ending = &mut locked.desk().rest.ending;
        if !mem::replace(&mut ending.is_draining, true) {
            ending.deadline = now.after(limit);
        }
        let id = DrainId(ending.next_drainer);
        ending.next_drainer += 1;
        ending.drainers.push((id, None));
        let deadline = ending.deadline;
        self.apply(locked.finish());
        (id, deadline)
    }

    /// The report, once all is over. The leftovers go to the first who asks.
    pub(crate) fn poll_drain(&self, id: DrainId, cx: &mut Context<'_>) -> Poll<DrainReport<T>> {
        let waker = cx.waker().clone();
        let mut locked = self.gate.lock();
        let ending = &mut locked.desk().rest.ending;
        if !ending.is_finished {
            let slot = ending.drainers.iter_mut().find(|(drainer, _)| *drainer == id);
            let stale = slot.and_then(|(_, slot)| slot.replace(waker));
            drop(locked);
            drop(stale);
            return Poll::Pending;
        }
        let leftovers = mem::take(&mut ending.leftovers);
        let (not_returned, permits_out) = (ending.not_returned, ending.permits_out);
        drop(locked);
        Poll::Ready(DrainReport { totals: self.snapshot(), leftovers, not_returned, permits_out })
    }

    /// A caller of `drain` is gone. If it was the last one, leftovers that nobody fetched go to the hook.
    pub(crate) fn leave_drain(&self, id: DrainId) {
        let mut locked = self.gate.lock();
        let ending = &mut locked.desk().rest.ending;
        let index = ending.drainers.iter().position(|(drainer, _)| *drainer == id);
        let left = index.map(|index| ending.drainers.swap_remove(index));
        let orphans = if ending.drainers.is_empty() { mem::take(&mut ending.leftovers) } else { Vec::new() };
        drop(locked);
        drop(left);
        self.lose_all(orphans, LossReason::Abandoned, None);
    }

    /// Ends the controller here and now: what is not settled is abandoned. Does nothing the second time.
    pub(crate) fn finish(&self) {
        self.judge_all_cut_off();
        let mut backoff = Backoff::new();
        let mut leftovers = Vec::new();
        loop {
            let mut locked = self.gate.lock();
            locked.close();
            if locked.desk().rest.ending.is_finished {
                self.apply(locked.finish());
                return;
            }
            abandon_flights(&mut locked, &mut leftovers);
            abandon_buffer(&mut locked, &mut leftovers);
            // A claim that is not written yet will be at once, unless its thread was preempted; then `sweep` finds it.
            if locked.figures().buffered == 0 || backoff.is_exhausted() {
                return self.conclude(locked, leftovers);
            }
            self.apply(locked.finish());
            backoff.spin();
        }
    }

    /// Settles what the sink had acknowledged of the batches that are cut off.
    fn judge_all_cut_off(&self) {
        let keys = self.gate.lock().desk().rest.flights.keys();
        for key in keys {
            self.judge_cut_off(key);
        }
    }

    fn conclude(&self, mut locked: Locked<'_, T, Hangar<T>>, leftovers: Vec<T>) {
        let permits_out = locked.figures().reserved;
        let ending = &mut locked.desk().rest.ending;
        ending.is_finished = true;
        ending.permits_out = permits_out;
        let orphans =
            if ending.drainers.is_empty() { leftovers } else { mem::replace(&mut ending.leftovers, leftovers) };
        let wakers: Vec<_> = ending.drainers.iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        self.apply(locked.finish());
        for waker in wakers {
            waker.wake();
        }
        self.lose_all(orphans, LossReason::Abandoned, None);
    }

    /// After the end nobody takes any more: what a late permit has sent goes to the hook.
    #[cold]
    pub(super) fn sweep(&self) {
        let mut late = Vec::new();
        let mut locked = self.gate.lock();
        if !locked.desk().rest.ending.is_finished {
            return;
        }
        abandon_buffer(&mut locked, &mut late);
        self.apply(locked.finish());
        self.lose_all(late, LossReason::Abandoned, None);
    }

    /// One more handle.
    pub(crate) fn add_handle(&self) {
        // Ordering: Relaxed, like `Arc`'s: a new handle comes from an old one.
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// One more handle, unless the last one is gone.
    pub(crate) fn try_add_handle(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `drop_handle`.
        self.handles
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |handles| (handles > 0).then(|| handles + 1))
            .is_ok()
    }

    /// One handle less. With the last one the intake is shut, and the flusher has the default deadline.
    pub(crate) fn drop_handle(&self) {
        // Ordering: AcqRel, so that the last one comes after all that the others did.
        if self.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (id, _) = self.start_drain(self.drain_on_drop);
        self.leave_drain(id);
    }

    /// Drops what a producer that gave up had parked, and gives nothing back.
    pub(crate) fn abandon_wait(&self, key: Key) {
        let (Wait::Served(parked) | Wait::Shut(parked)) = self.leave(key, None) else { return };
        match parked {
            Parked::One(item) => self.drop_items(item),
            Parked::Many(items) => self.drop_items(items),
            Parked::Permits { .. } => {}
        }
    }
}

/// Moves what is at home to `leftovers`, and counts what is out as not returned.
fn abandon_flights<T>(locked: &mut Locked<'_, T, Hangar<T>>, leftovers: &mut Vec<T>) {
    for key in locked.desk().rest.flights.keys() {
        let hangar = &mut locked.desk().rest;
        let Some(flight) = hangar.flights.get_mut(key) else { continue };
        let seqs = flight.seqs.clone();
        match flight.phase {
            Phase::DeliveredOut | Phase::AbandonedOut => continue,
            Phase::Out => {
                flight.phase = Phase::AbandonedOut;
                hangar.ending.not_returned += seqs.len() as u64;
            }
            Phase::Home => {
                leftovers.append(&mut flight.items);
                hangar.flights.remove(key);
            }
        }
        settle_runs(locked, &seqs, Outcome::Lost(LossReason::Abandoned));
    }
}

/// Moves what is buffered and written to `leftovers`.
fn abandon_buffer<T>(locked: &mut Locked<'_, T, Hangar<T>>, leftovers: &mut Vec<T>) {
    let first = locked.taken();
    let count = locked.take(usize::MAX, leftovers) as u64;
    locked.settle(first..first + count, Outcome::Lost(LossReason::Abandoned));
}
