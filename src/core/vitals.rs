//! How a controller is: reads what [`Memory`](crate::health::Memory) judges.

use super::{Core, Hangar};
use crate::flight::Phase;
use crate::gate::Locked;
use crate::health::{Cause, FIFTH, Health, LifePhase, View};
use crate::time::Tick;

impl<T> Core<T> {
    pub(crate) fn health(&self) -> Health {
        let now = self.now();
        let mut locked = self.gate.lock();
        let mut view = locked.vitals(now);
        if !self.clock().needs_runtime() {
            // Whoever moves the clock by hand steps the flusher for its timers only, not each second.
            view.looked = Some(now);
        }
        let diary = &mut locked.desk().rest.diary;
        let causes = diary.health.judge(&view);
        let names_error = |cause: &Cause| matches!(cause, Cause::Retrying(..) | Cause::Throttled(..));
        let error = diary.last_error.clone().filter(|_| causes.iter().any(names_error));
        drop(locked);
        let health = Health::new(&causes, error.as_ref());
        self.drop_items(error);
        health
    }
}

impl<T> Locked<'_, T, Hangar<T>> {
    fn vitals(&mut self, now: Tick) -> View {
        let (producers, oldest_wait, oldest_item) = (self.waiting().1, self.oldest_wait(), self.oldest_outstanding());
        let (state, figures) = (self.state().0, self.figures());
        let desk = self.desk();
        let hangar = &desk.rest;
        let open = hangar.flights.iter().filter(|flight| matches!(flight.phase, Phase::Home | Phase::Out));
        let waiting = open.clone().filter(|flight| !flight.is_under_way());
        let late = open.clone().filter(|flight| flight.attempts >= FIFTH);
        View {
            now,
            attempts: open.map(|flight| flight.attempts).max().unwrap_or(0),
            retrying: late.map(|flight| flight.seqs.len() as u64).sum(),
            call_since: hangar.call_since(),
            producers,
            oldest_wait,
            losses: desk.ledger.total.lost,
            state,
            state_since: desk.state_since,
            pause: hangar.pause(now).map(|pause| (pause.since, pause.left(now))),
            paused_since: hangar.paused_since.filter(|_| !figures.is_closed),
            buffered: figures.buffered,
            // A half of a batch, which has had no attempt of its own yet, is none that is retried, and waits all the same.
            again: waiting.map(|flight| flight.seqs.len() as u64).sum(),
            oldest_item,
            looked: hangar.diary.looked,
            phase: match (hangar.ending.is_finished(), figures.is_closed) {
                (true, _) if hangar.diary.is_gone => LifePhase::Gone,
                (true, _) => LifePhase::Ended,
                (false, true) => LifePhase::Draining,
                (false, false) => LifePhase::Open,
            },
        }
    }
}
