//! Settling: what an attempt has made of a batch.

use std::error::Error;
use std::mem;
use std::sync::Arc;

use super::patience::Patience;
use super::{Core, Hangar, Pause};
use crate::error::LossReason;
use crate::flight::{Cargo, Failed, Fates, FlightKey, Mark, Phase, Piece, Seqs, Sorted, Spare, Unmarked};
use crate::gate::Locked;
use crate::ledger::{Flushes, Outcome};
use crate::pace::{self, Pace, Sample};
use crate::retry::{Due, Tries};
use crate::time::Tick;

type SharedError = Arc<dyn Error + Send + Sync>;

/// What an attempt has left to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// A guard still holds the items.
    NotHome,
    /// The items that are to be sent again are at home.
    Some(Piece),
}

/// How a call of the sink ended, without its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ok,
    Retry,
    Throttled,
    TooLarge,
    Permanent,
    Panicked,
    TimedOut,
    Cancelled,
}

/// What was settled, to be dropped, and lost, outside the lock.
enum Settled<T> {
    /// There is no verdict on the attempt, or it is known.
    NotYet,
    /// All of the batch is delivered; what has come home of it.
    All(Option<Box<Cargo<T>>>),
    /// Some items, or none: what is left is to be sent again.
    Some { delivered: Vec<T>, failed: Vec<Failed<T>> },
}

impl<T> Core<T> {
    /// A guard was dropped: its batch comes home. If it was done, what is not marked is delivered.
    pub(crate) fn land(&self, key: FlightKey, mut cargo: Box<Cargo<T>>, is_done: bool) {
        let mut locked = self.gate.lock();
        let flights = &mut locked.desk().rest.flights;
        let phase = match flights.get_mut(key) {
            Some(flight) if flight.phase == Phase::Out => {
                let tries = if self.is_pulled { mem::take(cargo.tries.get_mut()) } else { Tries::default() };
                (flight.phase, flight.cargo) = (Phase::Home, Some(cargo));
                flight.is_ok |= is_done;
                // Its attempt is over already: the flusher waits for it.
                if flight.is_counted {
                    locked.ring_bell();
                }
                self.apply(locked.leave());
                if self.is_pulled {
                    self.judge_pulled(key, is_done, tries);
                }
                return;
            }
            flight => flight.map(|flight| flight.phase),
        };
        flights.remove(key);
        drop(locked);
        let Cargo { items, marks, .. } = *cargo;
        match phase {
            // They were counted when drain's deadline passed.
            Some(Phase::AbandonedOut) => self.lose_all(items, LossReason::Abandoned, None),
            _ => self.drop_items(items),
        }
        self.drop_items(marks);
    }

    /// Settles what an attempt has settled. `error` is what items that were moved out have failed with. If nothing is left of the
    /// batch, the pace hears how the call went, in the same section; `buffered` of the sample is filled in.
    pub(crate) fn judge(
        &self,
        key: FlightKey,
        end: End,
        now: Tick,
        error: Option<&SharedError>,
        report: Option<(&mut dyn Pace, Sample)>,
        spare: &mut Spare<T>,
    ) -> Left {
        let mut locked = self.gate.lock_at(now);
        if mem::needs_drop::<T>() && end == End::Ok {
            if let Some(delivered) = locked.take_delivered(key) {
                drop(locked);
                self.recycle(delivered, spare);
                locked = self.gate.lock();
            }
        }
        let (left, settled) = self.settle_attempt(&mut locked, key, end, now, error);
        if !matches!(settled, Settled::NotYet) {
            locked.wind_up();
        }
        if let (Left::Nothing, Some((pace, sample))) = (&left, report) {
            locked.tell_pace(pace, now, sample);
        }
        self.apply(locked.leave());
        match settled {
            Settled::NotYet | Settled::All(None) => {}
            Settled::All(Some(cargo)) => self.recycle(cargo, spare),
            Settled::Some { delivered, failed } => {
                self.drop_items(delivered);
                self.lose_failed(failed, error);
            }
        }
        left
    }

    #[inline(always)]
    fn settle_attempt(
        &self,
        locked: &mut Locked<'_, T, Hangar<T>>,
        key: FlightKey,
        end: End,
        now: Tick,
        error: Option<&SharedError>,
    ) -> (Left, Settled<T>) {
        let desk = locked.desk();
        let Some(flight) = desk.rest.flights.get_mut(key) else { return (Left::Nothing, Settled::NotYet) };
        let took = flight.took(now);
        if matches!(flight.phase, Phase::DeliveredOut | Phase::AbandonedOut) {
            return (Left::Nothing, Settled::NotYet);
        }
        if !mem::replace(&mut flight.is_counted, true) {
            *end.counter(&mut desk.ledger.flushes) += 1;
            desk.rest.diary.meters.attempt(end, flight.reason, flight.seqs.len(), took);
            if end == End::Ok {
                desk.rest.diary.last_success = Some(now);
            }
        }
        let is_home = flight.phase == Phase::Home;
        let is_ok = end == End::Ok || flight.is_ok;
        if !is_home && (!is_ok || flight.is_judged) {
            flight.is_ok = is_ok;
            return (Left::NotHome, Settled::NotYet);
        }
        flight.is_ok = false;
        let (delivered, settled) = match flight.sort(if is_ok { Unmarked::Delivered } else { Unmarked::Left }) {
            Fates::Delivered(cargo) => (mem::replace(&mut flight.seqs, Seqs::NONE), Settled::All(cargo)),
            Fates::Left => (Seqs::NONE, Settled::Some { delivered: Vec::new(), failed: Vec::new() }),
            Fates::Sorted(Sorted { delivered, delivered_items, failed }) => {
                (delivered, Settled::Some { delivered: delivered_items, failed })
            }
        };
        let mut remains = Left::Nothing;
        if flight.seqs.len() > 0 {
            remains = Left::Some(flight.piece(key));
        } else {
            desk.rest.diary.meters.settled(flight.age(now));
            if is_home {
                desk.rest.flights.discard(key);
            } else {
                flight.phase = Phase::DeliveredOut;
            }
        }
        let failed: &[_] = if let Settled::Some { failed, .. } = &settled { failed } else { &[] };
        settle_runs(locked, &delivered, Outcome::Delivered, None);
        settle_failed(locked, failed, error);
        if is_ok {
            self.note_drained(locked, now, took, delivered.len() + failed.len());
        }
        (remains, settled)
    }

    /// `error` is what those have failed with that have no error of their own.
    #[cold]
    fn lose_failed(&self, failed: Vec<Failed<T>>, error: Option<&SharedError>) {
        for one in failed {
            let error = one.error.or_else(|| error.cloned());
            self.lose(one.item, LossReason::Failed, error);
        }
    }

    /// The final verdict: what is left of a batch has failed.
    pub(crate) fn fail(&self, key: FlightKey, error: &SharedError) {
        let now = self.now();
        let mut locked = self.gate.lock();
        let hangar = &mut locked.desk().rest;
        let Some(flight) = hangar.flights.remove(key) else { return };
        hangar.diary.meters.settled(flight.age(now));
        settle_runs(&mut locked, &flight.seqs, Outcome::Failed, Some(error));
        locked.desk().rest.drain_rate.note_failed(flight.seqs.len() as u64);
        self.apply(locked.finish());
        self.lose_all(flight.cargo.into_iter().flat_map(|cargo| cargo.items), LossReason::Failed, Some(error));
    }

    /// The final verdict on a batch that is at home, unless it is halved to find out which item is to blame.
    pub(crate) fn condemn(&self, piece: Piece, error: &SharedError) -> Option<[Piece; 2]> {
        let halves = if self.settings().bisect { self.halve(piece) } else { None };
        if halves.is_none() {
            self.fail(piece.key, error);
        }
        halves
    }

    /// Halves a batch that is at home; `None` if it is a single item. The halves are new batches.
    pub(crate) fn halve(&self, piece: Piece) -> Option<[Piece; 2]> {
        self.split(piece, piece.items / 2, false)
    }

    /// Cuts a batch that is at home after `at` items; `None` if it has no more. The parts are at the attempt of the whole.
    pub(crate) fn cut(&self, piece: Piece, at: u64) -> Option<[Piece; 2]> {
        self.split(piece, at, true)
    }

    fn split(&self, piece: Piece, at: u64, is_same_attempt: bool) -> Option<[Piece; 2]> {
        if !(1..piece.items).contains(&at) {
            return None;
        }
        let mut locked = self.gate.lock();
        let flights = &mut locked.desk().rest.flights;
        let flight = flights.remove(piece.key)?;
        let attempts = if is_same_attempt { flight.attempts } else { 0 };
        let (first, second) = flight.split(at as usize, attempts);
        Some([first, second].map(|part| flights.insert_piece(part)))
    }

    /// Removes everything that is buffered, oldest first.
    pub(crate) fn purge(&self) -> Vec<T> {
        let mut purged = Vec::new();
        let mut patience = Patience::new();
        let mut end = None;
        loop {
            let mut locked = self.gate.lock();
            let first = locked.taken();
            let end = *end.get_or_insert(first + locked.figures().buffered);
            let count = locked.take((end.saturating_sub(first)) as usize, &mut purged) as u64;
            locked.settle(first..first + count, Outcome::Purged);
            let is_done = locked.taken() >= end;
            self.apply(locked.finish());
            if is_done || patience.is_exhausted() {
                self.end_if_drained();
                return purged;
            }
            patience.wait(self.gate.clock());
        }
    }

    /// Drops delivered items, and keeps their memory for the next batch.
    fn recycle(&self, mut cargo: Box<Cargo<T>>, spare: &mut Spare<T>) {
        self.drop_in_place(&mut cargo.items);
        cargo.marks.clear();
        cargo.seqs = Seqs::NONE;
        spare.keep(cargo);
    }
}

impl End {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Ok,
        Self::Retry,
        Self::Throttled,
        Self::TooLarge,
        Self::Permanent,
        Self::Panicked,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// The name in snake case, for metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::Throttled => "throttled",
            Self::TooLarge => "too_large",
            Self::Permanent => "permanent",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    fn counter(self, flushes: &mut Flushes) -> &mut u64 {
        match self {
            Self::Ok => &mut flushes.ok,
            Self::Retry => &mut flushes.retry,
            Self::Throttled => &mut flushes.throttled,
            Self::TooLarge => &mut flushes.too_large,
            Self::Permanent => &mut flushes.permanent,
            Self::Panicked => &mut flushes.panicked,
            Self::TimedOut => &mut flushes.timed_out,
            Self::Cancelled => &mut flushes.cancelled,
        }
    }
}

impl<T> Locked<'_, T, Hangar<T>> {
    /// The items of a batch at home that its sink has taken in whole. They are dropped before their room is given free, so
    /// that nothing is alive beyond the bound; the batch counts as in flight until then, and as delivered if the end comes
    /// in between.
    fn take_delivered(&mut self, key: FlightKey) -> Option<Box<Cargo<T>>> {
        let flight = self.desk().rest.flights.get_mut(key).filter(|flight| flight.phase == Phase::Home)?;
        let is_delivered = |mark: &Mark| matches!(mark, Mark::None | Mark::Delivered);
        let cargo = flight.cargo.take_if(|cargo| !cargo.items.is_empty() && cargo.marks.iter().all(is_delivered))?;
        flight.is_ok = true;
        Some(cargo)
    }

    /// How a call went, for the pace, and what it has decided for who asks.
    pub(super) fn tell_pace(&mut self, pace: &mut dyn Pace, now: Tick, sample: Sample) {
        let sample = Sample { buffered: self.about_buffered(), ..sample };
        let hangar = &mut self.desk().rest;
        if let pace::Outcome::Throttled(after) = sample.outcome {
            let asked = Pause { since: now, until: Due(now.after(after)) };
            let pause = hangar.pause(now).unwrap_or(asked);
            hangar.pause = Some(Pause { until: pause.until.max(asked.until), ..pause });
        }
        pace.ended(now, &sample, &mut hangar.diary.log);
        hangar.diary.log.stand(pace.standing());
    }
}

pub(super) fn settle_runs<T>(
    locked: &mut Locked<'_, T, Hangar<T>>,
    seqs: &Seqs,
    outcome: Outcome,
    error: Option<&SharedError>,
) {
    if let Seqs::Run(run) = seqs {
        return locked.settle_with(run.clone(), outcome, error);
    }
    for run in seqs.runs() {
        locked.settle_with(run, outcome, error);
    }
}

/// `error` is what those have failed with that have no error of their own.
pub(super) fn settle_failed<T>(
    locked: &mut Locked<'_, T, Hangar<T>>,
    failed: &[Failed<T>],
    error: Option<&SharedError>,
) {
    for one in failed {
        locked.settle_with(one.seq..one.seq + 1, Outcome::Failed, one.error.as_ref().or(error));
    }
}
