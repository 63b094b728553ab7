//! The age of the items: what it makes of the state, and who is too old.

use std::time::Duration;

use super::settle::settle_runs;
use super::{Core, Hangar};
use crate::error::{BuildError, LossReason};
use crate::flight::{FlightKey, Phase};
use crate::gate::Locked;
use crate::ledger::Outcome;
use crate::sojourn::Sojourn;
use crate::state::State;
use crate::time::Tick;

/// How old items may become, and how long a queue may be. `Duration::MAX` means that nothing is too much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgeLimits {
    /// What is older is not sent.
    pub(crate) max_age: Duration,
    /// When the state becomes Critical; `None`: at `max_age`.
    pub(crate) critical_age: Option<Duration>,
    /// The capacity is what the sink drains in so long.
    pub(crate) max_delay: Duration,
}

/// The ages of the oldest items, each at most this. `None`: there is none.
///
/// Producers read no clock, so they are bounds: exact for the first item of an empty buffer, and else at most too high, by no
/// more than the time between two looks of the flusher. It looks at each batch, at each answer of the sink, and at least every
/// second while anything is outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ages {
    /// In the buffer.
    pub buffered: Option<Duration>,
    /// With the sink.
    pub in_flight: Option<Duration>,
    /// In a batch that waits for its next attempt.
    pub retry_waiting: Option<Duration>,
}

/// At most so many are shed in one step, so that the flusher shares its thread.
const SHED: u64 = 1024;

impl AgeLimits {
    /// Nothing is too much.
    pub(crate) const NONE: Self = Self { max_age: Duration::MAX, critical_age: None, max_delay: Duration::MAX };

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let all = [Some(self.max_age), self.critical_age, Some(self.max_delay)];
        if all.contains(&Some(Duration::ZERO)) { Err(BuildError::AgeZero) } else { Ok(()) }
    }

    /// Ages count at all.
    pub(super) fn is_set(&self) -> bool {
        self.critical_age() < Duration::MAX || self.max_age < Duration::MAX
    }

    /// How long a partial batch may wait at most: none is to become too old by it.
    pub(super) fn longest_linger(&self) -> Duration {
        if self.max_age == Duration::MAX { Duration::MAX } else { self.max_age / 2 }
    }

    fn critical_age(&self) -> Duration {
        self.critical_age.unwrap_or(self.max_age)
    }

    /// What was accepted by then is too old; `None`: nothing is.
    fn cutoff(&self, now: Tick) -> Option<Tick> {
        let limit = Some(self.max_age).filter(|age| *age < Duration::MAX)?;
        now.before(limit)
    }
}

/// What the age of the items makes of the state; lives under the head lock.
#[derive(Debug, Default)]
pub(super) struct Aging {
    sojourn: Sojourn,
}

impl<T> Core<T> {
    /// Lets go of the lock to hand over what was shed, and takes it again.
    #[cold]
    pub(super) fn lose_between<'a>(
        &'a self,
        locked: Locked<'a, T, Hangar<T>>,
        expired: Vec<T>,
    ) -> Locked<'a, T, Hangar<T>> {
        self.apply(locked.finish());
        self.lose_expired(expired);
        self.gate.lock()
    }

    /// Hands over, outside the lock, what was shed.
    #[inline]
    pub(super) fn lose_expired(&self, expired: Vec<T>) {
        if !expired.is_empty() {
            self.lose_all(expired, LossReason::Expired, None);
        }
    }

    /// The ages of the oldest items, apart.
    pub(crate) fn ages(&self) -> Ages {
        let now = self.now();
        self.gate.lock().ages(now)
    }
}

impl<T> Locked<'_, T, Hangar<T>> {
    /// Sheds the oldest buffered items that are too old, into `expired`; whether there were any. There may be more.
    pub(super) fn shed(&mut self, now: Tick, expired: &mut Vec<T>) -> bool {
        let Some(cutoff) = self.desk().rest.settings.ages.cutoff(now) else { return false };
        let count = self.older_than(cutoff).min(SHED);
        if count == 0 {
            return false;
        }
        let first = self.taken();
        let count = self.take(count as usize, expired) as u64;
        if count == 0 {
            return false;
        }
        self.settle(first..first + count, Outcome::Expired);
        self.note_expired(now);
        true
    }

    /// Sheds what is too old of a batch that is at home, which is gone if that is all of it. `None` if nothing is.
    pub(super) fn shed_from(&mut self, key: FlightKey, now: Tick) -> Option<Vec<T>> {
        let hangar = &mut self.desk().rest;
        let cutoff = hangar.settings.ages.cutoff(now)?;
        let flight = hangar.flights.get_mut(key).filter(|flight| flight.phase == Phase::Home)?;
        let (seqs, expired) = flight.shed_before(flight.born.before(cutoff))?;
        if flight.seqs.len() == 0 {
            let age = flight.age(now);
            hangar.flights.remove(key);
            hangar.diary.meters.settled(age);
        }
        settle_runs(self, &seqs, Outcome::Expired, None);
        self.note_expired(now);
        Some(expired)
    }

    /// Items were taken, the youngest of them from this position.
    pub(super) fn note_taken(&mut self, now: Tick, youngest: u64) {
        if !self.desk().rest.settings.ages.is_set() {
            return;
        }
        let sojourn = self.latest(youngest).map_or(Duration::ZERO, |latest| now.since(latest));
        self.desk().rest.aging.sojourn.note_taken(sojourn);
        self.follow_age(now);
    }

    /// Looks at the ages when nothing is taken.
    fn note_expired(&mut self, now: Tick) {
        self.desk().rest.aging.sojourn.note_expired();
        self.set_state_by_age(State::Critical);
        self.follow_age(now);
    }

    pub(super) fn follow_age(&mut self, now: Tick) {
        let (before, next) = (self.state_by_age(), self.latest(self.taken()));
        let hangar = &mut self.desk().rest;
        let (critical, latency) = (hangar.settings.ages.critical_age(), hangar.drain_rate.latency());
        let next = next.map(|latest| now.since(latest));
        let state = hangar.aging.sojourn.state(now, before, critical, latency, next);
        self.set_state_by_age(state);
    }

    pub(super) fn ages(&mut self, now: Tick) -> Ages {
        let buffered = if self.figures().buffered > 0 { self.oldest() } else { None };
        let age = |oldest: Option<Tick>| oldest.map(|oldest| now.since(oldest));
        let hangar = &self.desk().rest;
        let open = hangar.flights.iter().filter(|flight| matches!(flight.phase, Phase::Home | Phase::Out));
        let oldest =
            |waits: bool| open.clone().filter(|flight| flight.is_waiting() == waits).filter_map(|f| f.oldest).min();
        Ages { buffered: age(buffered), in_flight: age(oldest(false)), retry_waiting: age(oldest(true)) }
    }
}
