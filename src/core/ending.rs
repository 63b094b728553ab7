//! How a controller ends: the deadline, the leftovers, and who is told.

use std::mem;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::patience::Patience;
use super::settle::{End, settle_failed, settle_runs};
use super::{Core, Hangar, Step, wake_all};
use crate::error::LossReason;
use crate::flight::{Failed, Fates, Flight, Phase, Unmarked};
use crate::gate::{Key, Locked, Parked, Wait};
use crate::ledger::Outcome;
use crate::report::DrainReport;
use crate::sync::Ordering;
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
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.deadline
    }

    /// The leftovers, if nobody is there to fetch them.
    fn take_orphans(&mut self) -> Vec<T> {
        if self.is_finished && self.drainers.is_empty() { mem::take(&mut self.leftovers) } else { Vec::new() }
    }

    /// What the end makes of the flusher's next step, if it makes anything of it.
    pub(super) fn step(&self, now: Tick) -> Option<Step<T>> {
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

    /// The report, once all is over. The leftovers go to the caller that was there first.
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
        let is_first = ending.drainers.first().is_some_and(|(first, _)| *first == id);
        let leftovers = if is_first { mem::take(&mut ending.leftovers) } else { Vec::new() };
        let (not_returned, permits_out) = (ending.not_returned, ending.permits_out);
        drop(locked);
        self.sweep();
        self.publish();
        Poll::Ready(DrainReport { totals: self.snapshot(), leftovers, not_returned, permits_out })
    }

    /// A caller of `drain` is gone. If it was the last one, leftovers that nobody fetched go to the hook.
    pub(crate) fn leave_drain(&self, id: DrainId) {
        let mut locked = self.gate.lock();
        let ending = &mut locked.desk().rest.ending;
        let index = ending.drainers.iter().position(|(drainer, _)| *drainer == id);
        let left = index.map(|index| ending.drainers.remove(index));
        let orphans = ending.take_orphans();
        drop(locked);
        drop(left);
        self.lose_all(orphans, LossReason::Abandoned, None);
    }

    /// Shuts the intake since nobody takes any more.
    pub(crate) fn give_up(&self) {
        let mut locked = self.gate.lock();
        desert(&mut locked);
        self.apply(locked.finish());
    }

    /// Ends the controller here and now: what is not settled is abandoned. The second time only what came late is.
    pub(crate) fn finish(&self) {
        let now = self.now();
        let mut patience = Patience::new();
        loop {
            let mut locked = self.gate.lock();
            desert(&mut locked);
            let cut = abandon_flights(&mut locked, now);
            abandon_buffer(&mut locked);
            let is_whole = locked.figures().buffered == 0;
            self.apply(locked.finish());
            self.tell(cut);
            if is_whole || patience.is_exhausted() {
                break;
            }
            patience.wait(self.gate.clock());
        }
        // The last figures are out before anybody learns that it is over.
        self.report_end();
        self.publish();
        self.conclude();
    }

    /// Ends a controller without a flusher once all is settled: its consumer need not come and look.
    pub(super) fn end_if_drained(&self) {
        if !self.is_pulled || !self.is_closed() {
            return;
        }
        let mut locked = self.gate.lock();
        let is_due = locked.figures().is_drained() && !locked.desk().rest.ending.is_finished;
        drop(locked);
        if is_due {
            self.finish();
        }
    }

    fn conclude(&self) {
        let mut locked = self.gate.lock();
        // What a permit has sent since.
        abandon_buffer(&mut locked);
        let permits_out = locked.figures().reserved;
        let ending = &mut locked.desk().rest.ending;
        if !mem::replace(&mut ending.is_finished, true) {
            ending.permits_out = permits_out;
        }
        let orphans = ending.take_orphans();
        let wakers: Vec<_> = ending.drainers.iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        if self.is_pulled {
            // The consumer may be waiting for a batch.
            locked.ring_bell();
        }
        self.apply(locked.finish());
        wake_all(wakers);
        self.lose_all(orphans, LossReason::Abandoned, None);
    }

    /// After the end nobody takes any more: what a late permit has sent, and what was claimed before the end and written
    /// after it, goes to the hook.
    #[cold]
    pub(super) fn sweep(&self) {
        let mut locked = self.gate.lock();
        if !locked.desk().rest.ending.is_finished {
            return;
        }
        let kept = mem::take(&mut locked.desk().rest.ending.leftovers);
        abandon_buffer(&mut locked);
        let late = mem::replace(&mut locked.desk().rest.ending.leftovers, kept);
        self.apply(locked.finish());
        self.lose_all(late, LossReason::Abandoned, None);
    }

    /// Hands over, outside the lock, what the sink had settled of the batches that were cut off.
    fn tell(&self, cut: Cut<T>) {
        self.drop_items(cut.delivered);
        for one in cut.failed {
            self.lose(one.item, LossReason::Failed, one.error);
        }
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
        let (Wait::Served(parked) | Wait::Shut(parked) | Wait::Left(parked)) = self.leave(key, None) else { return };
        match parked {
            Parked::One(item) => self.drop_items(item.map(|(item, _)| item)),
            Parked::Many(items, _) => self.drop_items(items),
            Parked::Permits { .. } => {}
        }
    }
}

/// Everything that can still hold this controller is gone: what was claimed before its end and written after it is told.
impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        self.sweep();
        // The user's, too.
        let error = self.gate.lock().desk().rest.diary.last_error.take();
        self.drop_items(error);
    }
}

/// What the sink had settled of the batches that were cut off.
struct Cut<T> {
    delivered: Vec<T>,
    failed: Vec<Failed<T>>,
}

/// Shuts the intake, and notes if nobody else has.
fn desert<T>(locked: &mut Locked<'_, T, Hangar<T>>) {
    if !locked.figures().is_closed {
        locked.desk().rest.diary.is_gone = true;
    }
    locked.close();
}

/// Settles what the sink has judged of the batches, moves what is left of those at home to the leftovers, and counts what
/// is out as not returned.
fn abandon_flights<T>(locked: &mut Locked<'_, T, Hangar<T>>, now: Tick) -> Cut<T> {
    let mut cut = Cut { delivered: Vec::new(), failed: Vec::new() };
    for key in locked.desk().rest.flights.keys() {
        let desk = locked.desk();
        let hangar = &mut desk.rest;
        let Some(flight) = hangar.flights.get_mut(key) else { continue };
        if flight.attempts > 0 && !mem::replace(&mut flight.is_counted, true) {
            desk.ledger.flushes.cancelled += 1;
            hangar.diary.meters.attempt(End::Cancelled, flight.reason, flight.seqs.len(), flight.took(now));
        }
        match flight.phase {
            Phase::DeliveredOut | Phase::AbandonedOut => {}
            Phase::Out => {
                flight.phase = Phase::AbandonedOut;
                let seqs = flight.seqs.clone();
                hangar.ending.not_returned += seqs.len() as u64;
                settle_runs(locked, &seqs, Outcome::Abandoned, None);
            }
            Phase::Home => {
                let unmarked = if flight.is_ok { Unmarked::Delivered } else { Unmarked::Left };
                let fates = flight.sort(unmarked);
                let Some(Flight { seqs, cargo, .. }) = hangar.flights.remove(key) else { continue };
                let mut left = cargo.map(|cargo| cargo.items).unwrap_or_default();
                hangar.ending.leftovers.append(&mut left);
                let outcome = match fates {
                    Fates::Delivered(cargo) => {
                        cut.delivered.append(&mut cargo.map(|cargo| cargo.items).unwrap_or_default());
                        Outcome::Delivered
                    }
                    Fates::Left => Outcome::Abandoned,
                    Fates::Sorted(mut sorted) => {
                        cut.delivered.append(&mut sorted.delivered_items);
                        settle_runs(locked, &sorted.delivered, Outcome::Delivered, None);
                        settle_failed(locked, &sorted.failed, None);
                        cut.failed.append(&mut sorted.failed);
                        Outcome::Abandoned
                    }
                };
                settle_runs(locked, &seqs, outcome, None);
            }
        }
    }
    cut
}

/// Moves what is buffered and written to the leftovers.
fn abandon_buffer<T>(locked: &mut Locked<'_, T, Hangar<T>>) {
    let first = locked.taken();
    let mut leftovers = mem::take(&mut locked.desk().rest.ending.leftovers);
    let count = locked.take(usize::MAX, &mut leftovers) as u64;
    locked.desk().rest.ending.leftovers = leftovers;
    locked.settle(first..first + count, Outcome::Abandoned);
}

#[cfg(all(test, not(backpressure_loom)))]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::core::{AgeLimits, LossHook, Parameters, Settings};
    use crate::pace::Aim;
    use crate::retry::Retry;
    use crate::state::Watermarks;
    use crate::strategy::Strategy;
    use crate::time::Clock;

    /// Of a core that nothing is remarkable about.
    pub(in crate::core) fn parameters() -> Parameters<u32> {
        Parameters {
            name: "test".into(),
            capacity: 2,
            settings: Settings {
                watermarks: Watermarks::default(),
                max_batch: 1,
                linger: Duration::ZERO,
                aim: Aim { target_latency: Duration::MAX, min_interval: Duration::ZERO, max_interval: Duration::ZERO },
                is_adaptive: false,
                retry: Retry::never(),
                flush_timeout: Duration::MAX,
                ages: AgeLimits::NONE,
                bisect: false,
            },
            strategy: Strategy::Block,
            weigher: None,
            on_loss: None,
            drain_on_drop: Duration::ZERO,
            is_pulled: false,
            slots: 1,
            nonce: 1,
            clock: Clock::start(),
        }
    }

    /// A core that has ended, and afterwards an item in its ring, as a producer leaves it that was preempted before its write.
    fn ended_with_a_late_item() -> (Core<u32>, Arc<AtomicUsize>) {
        let told = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&told);
        let on_loss: LossHook<u32> = Box::new(move |loss| {
            assert_eq!((loss.item, loss.reason), (Some(7), LossReason::Abandoned));
            hook.fetch_add(1, Ordering::Relaxed);
        });
        let core = Core::new(Parameters { on_loss: Some(on_loss), ..parameters() }).expect("memory");
        assert!(core.reserve(1, 0));
        core.finish();
        core.gate.send(7);
        assert_eq!((core.snapshot().buffered, told.load(Ordering::Relaxed)), (1, 0));
        (core, told)
    }

    #[test]
    fn what_is_written_after_the_end_is_told_when_the_last_handle_is_gone() {
        let (core, told) = ended_with_a_late_item();
        drop(core);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_written_after_the_end_is_told_when_a_drain_looks() {
        let (core, told) = ended_with_a_late_item();
        let (id, _) = core.start_drain(Duration::ZERO);
        let Poll::Ready(report) = core.poll_drain(id, &mut Context::from_waker(Waker::noop())) else {
            panic!("it has ended")
        };
        assert_eq!((report.totals.abandoned, report.totals.depth), (1, 0));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
