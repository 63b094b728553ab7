//! What a controller tells of itself without being asked, and when.
//!
//! Nothing polls: the flusher looks when it is awake anyway, and has itself woken only while there is something to tell.

use std::error::Error;
use std::mem;
use std::sync::Arc;

use super::diary::{Kind, SLOW};
use super::settle::End;
use super::{Core, Hangar, Telling};
use crate::events::{self, Event, Failure, Sight};
use crate::flight::{FlightKey, Phase};
use crate::gate::Locked;
use crate::ledger::Losses;
use crate::sync::Ordering;
use crate::telemetry::{Figures, Gathered};
use crate::time::{Tick, sooner};

impl<T> Core<T> {
    /// Tells what is due, and when to ask again.
    pub(crate) fn inform(&self, now: Tick) -> Option<Tick> {
        let mut publication = self.publication(now);
        if publication.is_some_and(|due| due <= now) {
            self.publish();
            publication = self.publication(now);
        }
        self.report_and(now, publication)
    }

    /// The same for a flusher that is busy: too soon after a publication it looks no closer, since that takes the head lock
    /// and a swap on the producers' word. The drain of `benches/core.rs` takes 0.53 of tokio's so, 0.59 with a look at each
    /// flush.
    pub(crate) fn inform_in_passing(&self, now: Tick) -> Option<Tick> {
        // Ordering: Relaxed, only the flusher goes by it.
        let quiet_until = Tick::from_nanos(self.quiet_until.load(Ordering::Relaxed));
        if quiet_until <= now { self.inform(now) } else { self.report_and(now, Some(quiet_until)) }
    }

    fn report_and(&self, now: Tick, publication: Option<Tick>) -> Option<Tick> {
        let report = self.report(now, false);
        // Whoever steps the flusher and its clock by hand sees the timers of the batches only.
        let next = sooner(publication, report);
        next.filter(|_| self.clock().needs_runtime())
    }

    /// When to publish next, or to look again while something is outstanding. If that is now, it counts as done.
    fn publication(&self, now: Tick) -> Option<Tick> {
        let mut locked = self.gate.lock_at(now);
        let (figures, waiting) = (locked.figures(), locked.waiting().1);
        let moves = locked.moves();
        let desk = locked.desk();
        let diary = &mut desk.rest.diary;
        diary.looked = Some(now);
        diary.health.note_losses(now, desk.ledger.total.lost);
        let is_busy = figures.buffered + figures.in_flight + waiting > 0;
        let is_outside = waiting > 0 || diary.echo.is_outside(Kind::Figures, figures.end);
        let due = diary.schedule.due(now, is_busy, is_outside, moves);
        let quiet_until = diary.schedule.quiet_until().unwrap_or_default();
        self.quiet_until.store(quiet_until.nanos(), Ordering::Relaxed);
        let has_ages = desk.rest.settings.ages.is_set();
        // Without ages, too: one that is set later judges what is inside by now.
        locked.stamp(figures.end, now);
        if has_ages {
            locked.follow_age(now);
            self.apply(locked.finish());
        }
        // Where nothing is to be told, since it might be of what was told, the flusher shows that it runs.
        due.or_else(|| is_busy.then(|| now.after(SLOW)).flatten())
    }

    /// Publishes the metrics.
    pub(crate) fn publish(&self) {
        let Some(telling) = Telling::enter() else { return };
        let before = self.open_window(Kind::Figures);
        self.telemetry.publish(|gathered| self.figures_for(gathered), &|call| {
            self.guard(call);
        });
        self.close_window(&before);
        drop(telling);
    }

    fn figures_for(&self, gathered: &mut Gathered) -> Figures {
        let now = self.now();
        let mut locked = self.gate.lock();
        let oldest_age = locked.oldest_outstanding().map(|oldest| now.since(oldest));
        let ages = locked.ages(now);
        let snapshot = self.snapshot_in(&mut locked);
        let moves = locked.moves();
        let desk = locked.desk();
        let diary = &mut desk.rest.diary;
        diary.schedule.note(now, moves);
        let attempts = diary.meters.hand_over(&mut desk.waits, gathered);
        let last_success = diary.last_success;
        drop(locked);
        let last_success = last_success.map(|at| self.clock().unix(at));
        Figures { snapshot, attempts, oldest_age, ages, last_success }
    }

    /// Tells what has happened, as events, and when to look again. At the end nothing is held back as an echo.
    fn report(&self, now: Tick, is_over: bool) -> Option<Tick> {
        if !events::is_on() {
            return None;
        }
        let mut events = Vec::new();
        let mut locked = self.gate.lock();
        let (producers, oldest_wait) = (locked.waiting().1, locked.oldest_wait());
        let (end, state) = (locked.figures().end, locked.state().0);
        let desk = locked.desk();
        let diary = &mut desk.rest.diary;
        let (decision, decisions) = (diary.log.last(), diary.log.count());
        let losses = desk.ledger.total.lost;
        let sight = Sight { now, state, losses, producers, oldest_wait, decision, decisions };
        let is_outside = is_over || producers > 0 || diary.echo.is_outside(Kind::Events, end);
        let due = if is_outside { diary.reporter.look(&sight, &mut events) } else { None };
        for event in &mut events {
            if let Event::Failed { error, .. } = event {
                error.clone_from(&diary.last_error);
            }
        }
        // As long as it waits for its turn to tell something, it need not hear of more.
        desk.is_watched = due.is_none();
        drop(locked);
        self.emit(events);
        due
    }

    /// Tells of a batch that leaves.
    pub(crate) fn report_flush(&self, key: FlightKey) {
        // Whether it listens is the subscriber's code.
        if !events::may_trace_flushes() || self.guard(events::is_tracing_flushes) != Some(true) {
            return;
        }
        let mut locked = self.gate.lock();
        let end = locked.figures().end;
        let Hangar { flights, diary, .. } = &mut locked.desk().rest;
        let outside = diary.echo.outside(end);
        let Some(flight) = flights.get_mut(key).filter(|flight| flight.seqs.get(0) < outside) else {
            return;
        };
        let event = Event::Flush { reason: flight.reason, items: flight.seqs.len() };
        drop(locked);
        self.emit(vec![event]);
    }

    /// Tells how it has ended.
    pub(super) fn report_end(&self) {
        if !events::is_on() {
            return;
        }
        self.report(self.now(), true);
        let mut locked = self.gate.lock();
        let desk = locked.desk();
        if mem::replace(&mut desk.rest.diary.is_end_told, true) {
            return;
        }
        let total = desk.ledger.total;
        drop(locked);
        self.emit(vec![Event::Ended { delivered: total.delivered, lost: total.lost }]);
    }

    fn emit(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let Some(telling) = Telling::enter() else { return };
        let before = self.open_window(Kind::Events);
        for event in events {
            self.guard(|| events::emit(&self.name, &event));
            // It may hold the last reference to the user's error.
            self.guard(|| drop(event));
        }
        self.close_window(&before);
        drop(telling);
    }

    /// A call of the sink has failed.
    pub(crate) fn note_failure(&self, key: FlightKey, end: End, error: &Arc<dyn Error + Send + Sync>) {
        let mut locked = self.gate.lock();
        let end_of_items = locked.figures().end;
        let Hangar { flights, diary, .. } = &mut locked.desk().rest;
        let stale = diary.last_error.replace(Arc::clone(error));
        let outside = diary.echo.outside(end_of_items);
        if let Some(flight) = flights.get_mut(key).filter(|flight| flight.seqs.get(0) < outside) {
            let (attempt, items) = (flight.attempts, flight.seqs.len() as u64);
            diary.reporter.note_failure(Failure { outcome: end.as_str(), attempt, items });
        }
        drop(locked);
        self.drop_items(stale);
    }

    /// What comes in from here on may be an echo. Returns what was lost before.
    fn open_window(&self, kind: Kind) -> Losses {
        let mut locked = self.gate.lock();
        let (end, first) = (locked.figures().end, locked.first_outstanding());
        let desk = locked.desk();
        desk.rest.diary.echo.open(kind, end, first);
        desk.ledger.total.lost
    }

    fn close_window(&self, before: &Losses) {
        let mut locked = self.gate.lock();
        let end = locked.figures().end;
        let desk = locked.desk();
        desk.rest.diary.echo.close(end);
        desk.rest.diary.reporter.absorb(before, &desk.ledger.total.lost);
    }
}

impl<T> Locked<'_, T, Hangar<T>> {
    /// When the oldest item that is not settled was accepted, at the earliest.
    pub(super) fn oldest_outstanding(&mut self) -> Option<Tick> {
        let buffered = if self.figures().buffered > 0 { self.oldest() } else { None };
        let settled = |phase| matches!(phase, Phase::DeliveredOut | Phase::AbandonedOut);
        let flights = self.desk().rest.flights.iter().filter(|flight| !settled(flight.phase));
        flights.filter_map(|flight| flight.oldest).chain(buffered).min()
    }

    /// Items that are settled, and calls that have ended: it moves when a flush has an outcome.
    fn moves(&mut self) -> u64 {
        let figures = self.figures();
        figures.end - figures.buffered - figures.in_flight + self.desk().ledger.flushes.total()
    }

    /// The position of the oldest item that is not settled; the next one if there is none.
    fn first_outstanding(&mut self) -> u64 {
        let taken = self.taken();
        let flights = self.desk().rest.flights.iter().filter(|flight| flight.seqs.len() > 0);
        flights.map(|flight| flight.seqs.get(0)).chain([taken]).min().unwrap_or(taken)
    }
}
