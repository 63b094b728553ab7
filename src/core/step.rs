//! What the flusher does next, and the batch for it.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, Hangar};
use crate::batch::{Batch, BatchId};
use crate::flight::{Flight, FlightKey, Phase, Piece, Seqs, Spare};
use crate::gate::{Figures, Locked};
use crate::pace::{Again, FlushReason, Pace, Plan, Sample, View};
use crate::time::{Tick, sooner};

/// What the flusher does next.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// Send this new batch.
    Launch(Piece, Launch<T>),
    /// Send the first of the batches that are to be sent again, up to so many items of it.
    Resend(u64),
    /// Sleep until the moment, or the bell.
    Sleep(Option<Tick>),
    /// A producer has claimed a slot and not written it: give the thread away, then look again.
    Yield,
    /// All is settled and the intake is shut.
    Drained,
    /// Drain's deadline has passed.
    Expired,
}

/// A batch that leaves for one attempt.
#[derive(Debug)]
pub(crate) struct Launch<T> {
    pub(crate) batch: Batch<T>,
    /// How long it may take; `Duration::MAX` means for ever.
    pub(crate) limit: Duration,
}

/// What the flusher has under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Slots that are taken.
    pub(crate) calls: u64,
    pub(crate) slots: u64,
    pub(crate) again: Option<Again>,
    /// The thread can be given away before a batch is taken that is not full.
    pub(crate) yields: bool,
}

impl Work {
    /// Of whoever has no slots, and sends again what is to be sent again before it asks.
    pub(crate) const NONE: Self = Self { calls: 0, slots: 1, again: None, yields: false };
}

impl<T> Core<T> {
    /// What the end makes of the flusher's next step, or drain's deadline if there is no end yet.
    pub(crate) fn end(&self) -> Result<Step<T>, Option<Tick>> {
        let now = self.now();
        let mut locked = self.gate.lock();
        let ending = &locked.desk().rest.ending;
        ending.step(now).ok_or_else(|| ending.deadline())
    }

    /// Decides what the flusher does next, and takes the batch if there is a new one to send.
    pub(crate) fn step(self: &Arc<Self>, now: Tick, pace: &mut dyn Pace, work: &Work, spare: &mut Spare<T>) -> Step<T> {
        let mut expired = Vec::new();
        let mut locked = self.gate.lock_at(now);
        let step = self.step_locked(&mut locked, now, pace, work, (spare, &mut expired));
        let is_taken = matches!(step, Step::Launch(..));
        self.apply(if is_taken { locked.finish_taking() } else { locked.finish() });
        self.lose_expired(expired);
        step
    }

    fn step_locked(
        self: &Arc<Self>,
        locked: &mut Locked<'_, T, Hangar<T>>,
        now: Tick,
        pace: &mut dyn Pace,
        work: &Work,
        (spare, expired): (&mut Spare<T>, &mut Vec<T>),
    ) -> Step<T> {
        if let Some(step) = locked.desk().rest.ending.step(now) {
            return step;
        }
        let figures = locked.figures();
        if figures.is_drained() {
            return Step::Drained;
        }
        locked.stamp(figures.end, now);
        let view = self.view(locked, &figures, work);
        match self.plan(locked, now, pace, &view) {
            Plan::Resend { most } if work.again.is_some() => Step::Resend(most.max(1)),
            // There is nothing to send again: it is asked anew.
            Plan::Resend { .. } => Step::Yield,
            // Whoever was let in has most likely more, and comes on this thread only when it is given away: else each time
            // that the buffer was full, a batch of one item would follow. Who still waits has no more that would fit.
            Plan::Take { reason: FlushReason::Linger | FlushReason::Idle, .. }
                if work.yields && mem::take(&mut locked.desk().has_served) && locked.waiting().1 == 0 =>
            {
                Step::Yield
            }
            Plan::Take { .. } if locked.shed(now, expired) => Step::Yield,
            Plan::Take { most, reason } => self.take_batch(locked, now, &view, (most, reason), spare),
            // What somebody waits for, or the state goes by, may be less as soon as it is written.
            Plan::Sleep { .. } if locked.is_unsettled() => Step::Yield,
            Plan::Sleep { items, until } => {
                locked.sleep(items);
                locked.desk().has_served = false;
                let hangar = &mut locked.desk().rest;
                if items.is_some() || hangar.paused_since.is_some() {
                    hangar.drain_rate.rest();
                }
                Step::Sleep(sooner(until, locked.desk().rest.ending.deadline()))
            }
        }
    }

    /// What the pace says, unless the sink has asked for a pause, or a batch has left without items that were meant for it.
    fn plan(&self, locked: &mut Locked<'_, T, Hangar<T>>, now: Tick, pace: &mut dyn Pace, view: &View) -> Plan {
        if let Some(pause) = locked.desk().rest.pause(now) {
            // The first item is to be noticed all the same: its age, the figures, the health.
            let items = (view.buffered == 0).then_some(1);
            return Plan::Sleep { items, until: pause.until.0 };
        }
        let promised = locked.desk().rest.promised;
        match pace.plan(now, view) {
            // One that may not send, for the gate or the slots, says so by naming no items.
            Plan::Sleep { items: Some(_), .. }
                if view.buffered > 0 && locked.taken() < promised.0 && !view.is_paused && view.again.is_none() =>
            {
                Plan::Take { most: view.capacity.min(promised.0 - locked.taken()), reason: promised.1 }
            }
            plan => plan,
        }
    }

    fn view(&self, locked: &mut Locked<'_, T, Hangar<T>>, figures: &Figures, work: &Work) -> View {
        let (_, waiting) = locked.waiting();
        let taken = locked.taken();
        let hangar = &locked.desk().rest;
        let (max_batch, linger, aim) =
            (hangar.max_batch, self.clock().within(hangar.settings.linger()), hangar.settings.aim());
        View {
            buffered: figures.buffered,
            capacity: locked.capacity(),
            oldest: locked.oldest(),
            is_tight: figures.is_full || waiting > 0 || locked.is_short(),
            is_flushing: locked.desk().ledger.barrier_end().is_some_and(|end| end > taken),
            is_closed: figures.is_closed,
            is_paused: locked.desk().rest.paused_since.is_some(),
            max_batch: max_batch as u64,
            fits: locked.batch_limit(max_batch).max(1) as u64,
            linger,
            aim,
            calls: work.calls,
            slots: work.slots,
            again: work.again,
        }
    }

    /// `Yield` if the oldest claim is not written yet.
    fn take_batch(
        self: &Arc<Self>,
        locked: &mut Locked<'_, T, Hangar<T>>,
        now: Tick,
        view: &View,
        (most, reason): (u64, FlushReason),
        spare: &mut Spare<T>,
    ) -> Step<T> {
        let first = locked.taken();
        let wanted = view.buffered.min(most);
        let mut cargo = spare.take();
        let (count, is_cut) = locked.take_batch(most as usize, &mut cargo.items);
        let count = count as u64;
        if count == 0 {
            spare.keep(cargo);
            return Step::Yield;
        }
        let born = locked.born(&(first..first + count));
        locked.note_taken(now, first + count - 1);
        let desk = locked.desk();
        if count < wanted && !is_cut {
            desk.rest.promised = (first + wanted, reason);
        }
        cargo.lost_before = desk.ledger.untold();
        let key = desk.rest.flights.insert(Flight {
            id: BatchId::new(self.nonce, first),
            seqs: Seqs::Run(first..first + count),
            phase: Phase::Home,
            cargo: Some(cargo),
            attempts: 0,
            reason,
            oldest: view.oldest,
            born,
            started: None,
            extra: Duration::ZERO,
            is_counted: false,
            is_judged: false,
            is_ok: false,
        });
        match self.depart(locked, key, now) {
            Some(launch) => Step::Launch(Piece { key, first, items: count }, launch),
            None => Step::Yield,
        }
    }

    /// Hands a batch that is at home to a guard, for another attempt.
    pub(crate) fn launch(self: &Arc<Self>, key: FlightKey, now: Tick) -> Option<Launch<T>> {
        let mut locked = self.gate.lock();
        if let Some(expired) = locked.shed_from(key, now) {
            locked = self.lose_between(locked, expired);
        }
        self.depart(&mut locked, key, now)
    }

    fn depart(self: &Arc<Self>, locked: &mut Locked<'_, T, Hangar<T>>, key: FlightKey, now: Tick) -> Option<Launch<T>> {
        let flight = locked.desk().rest.flights.get_mut(key)?;
        let is_again = flight.attempts > 0;
        let mut cargo = flight.depart(now)?;
        let count = cargo.seqs.len();
        locked.weights((0..count).map(|i| cargo.seqs.get(i)), &mut cargo.weights);
        let desk = locked.desk();
        desk.ledger.retried += if is_again { count as u64 } else { 0 };
        let limit = desk.rest.settings.flush_timeout;
        Some(Launch { batch: Batch::new(Arc::clone(self), key, cargo), limit })
    }

    /// The extra time that an attempt has been given.
    pub(crate) fn extra(&self, key: FlightKey) -> Duration {
        self.gate.lock().desk().rest.flights.get_mut(key).map_or(Duration::ZERO, |flight| flight.extra)
    }

    /// Where the pace stands before the first call.
    pub(crate) fn note_standing(&self, pace: &dyn Pace) {
        self.gate.lock().desk().rest.diary.log.stand(pace.standing());
    }

    /// A call of the sink has ended of whose batch something is left: the pace goes by it. `buffered` of the sample is filled in.
    pub(crate) fn call_ended(&self, pace: &mut dyn Pace, now: Tick, sample: Sample) {
        self.gate.lock().tell_pace(pace, now, sample);
    }
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::core::ending::tests::parameters;
    use crate::core::{Parameters, Queued, Weigher};
    use crate::gate::{Limits, Parked, PrepaidClaim, Tag, Wait};
    use crate::pace::Fixed;
    use crate::state::State;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// For 5 items of 10 in all, so that a prepaid place counts for 2.
    fn weighed() -> Core<u32> {
        let weigher: Weigher<u32> = Box::new(|_: &u32| 1);
        let weigher = Some((weigher, Limits { capacity: 10, item: 10, batch: None }));
        Core::new(Parameters { capacity: 5, weigher, ..parameters() }).expect("memory")
    }

    fn claimed(core: &Core<u32>) -> PrepaidClaim<'_, u32, Hangar<u32>> {
        let Some(place) = core.gate.claim_prepaid(1) else { panic!("it is prepaid") };
        place
    }

    #[test]
    fn whoever_waits_for_something_lighter_than_it_counts_is_served_by_whoever_has_no_slot() {
        let core = weighed();
        let place = claimed(&core);
        let parked = Parked::single(1, Tag::of_size(9));
        let Queued::Waiting(key) = core.enqueue(parked, Waker::noop().clone()) else { panic!("it does not fit yet") };
        assert!(core.is_to_look_again());
        place.fill(0);
        assert!(!core.is_to_look_again());
        assert!(matches!(core.poll_waiter(key, Waker::noop().clone()), Wait::Served(_)));
    }

    #[test]
    fn where_there_is_no_flusher_whoever_waits_beside_what_is_not_settled_looks_again() {
        let weigher: Weigher<u32> = Box::new(|_: &u32| 1);
        let weigher = Some((weigher, Limits { capacity: 10, item: 10, batch: None }));
        let core = Core::new(Parameters { capacity: 5, weigher, is_pulled: true, ..parameters() }).expect("memory");
        let place = claimed(&core);
        let woken = Arc::new(Woken::default());
        let waker = || Waker::from(Arc::clone(&woken));
        let Queued::Waiting(key) = core.enqueue(Parked::single(1, Tag::of_size(9)), waker()) else {
            panic!("it does not fit yet")
        };
        assert_eq!(woken.0.swap(0, Ordering::Relaxed), 1);
        assert!(matches!(core.poll_waiter(key, waker()), Wait::Queued));
        assert_eq!(woken.0.swap(0, Ordering::Relaxed), 1, "as long as it is so");
        place.fill(0);
        assert!(!core.is_to_look_again());
        assert!(matches!(core.poll_waiter(key, waker()), Wait::Served(_)));
    }

    #[test]
    fn a_state_is_not_entered_on_what_may_turn_out_lighter() {
        let weigher: Weigher<u32> = Box::new(|item: &u32| u64::from(*item));
        let weigher = Some((weigher, Limits { capacity: 10, item: 10, batch: None }));
        let core = Core::new(Parameters { capacity: 50, weigher, ..parameters() }).expect("memory");
        let Some(place) = core.gate.claim_prepaid(0) else { panic!("it is prepaid") };
        // 5 of 10 would be Elevated: 4 are there, and what is on its way counts for 1.
        (0..4).for_each(|_| assert!(core.try_push(1).is_ok()));
        core.apply(core.gate.lock().finish());
        assert_eq!(core.gate.state(), State::Normal);
        place.fill(0);
    }

    #[test]
    fn the_flusher_does_not_sleep_while_something_on_its_way_may_be_lighter_than_it_counts() {
        let core = Arc::new(weighed());
        core.pause(true);
        let place = claimed(&core);
        let step = || core.step(core.now(), &mut Fixed, &Work::NONE, &mut Spare::new(0));
        assert!(matches!(step(), Step::Yield));
        place.fill(0);
        assert!(matches!(step(), Step::Sleep(_)));
    }
}
