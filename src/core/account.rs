//! What the flush loop goes by, for those who ask.

use super::{Core, Hangar, Pause};
use crate::explain::{Explanation, PastDecision};
use crate::flight::Flight;
use crate::pace::Entry;
use crate::time::Tick;

impl<T> Core<T> {
    pub(crate) fn explain(&self) -> Explanation {
        let now = self.now();
        let mut locked = self.gate.lock();
        let (buffered, capacity) = (locked.figures().buffered, locked.capacity());
        let hangar = &locked.desk().rest;
        let log = &hangar.diary.log;
        let standing = *log.standing();
        let past = |Entry { decision, first, times }| PastDecision {
            age: now.since(decision.at),
            decision,
            times,
            first_age: now.since(first),
        };
        let mut decisions: Vec<_> = log.entries().map(past).collect();
        decisions.reverse();
        Explanation {
            batch_limit: hangar.batch_limit().min(capacity),
            max_batch: (hangar.max_batch as u64).min(capacity),
            concurrency_limit: hangar.concurrency_limit(),
            max_concurrency: hangar.slots,
            calls: hangar.under_way().count() as u64,
            longest_call: hangar.call_since().map(|since| now.since(since)),
            buffered,
            retry_waiting: hangar.retry_waiting(),
            pause: hangar.pause(now).map(|pause| pause.left(now)),
            is_paused: hangar.paused_since.is_some(),
            rate: standing.rate,
            latency: standing.latency,
            drain_rate: standing.drain_rate,
            is_target_unreachable: standing.is_target_unreachable,
            is_down: standing.is_down,
            count: log.count(),
            decisions,
        }
    }
}

impl<T> Hangar<T> {
    /// The most items of a batch at present.
    pub(super) fn batch_limit(&self) -> u64 {
        let most = self.max_batch as u64;
        self.diary.log.standing().batch.map_or(most, |batch| batch.min(most))
    }

    /// The most calls at once at present.
    pub(super) fn concurrency_limit(&self) -> u64 {
        self.diary.log.standing().slots.map_or(self.slots, |slots| slots.min(self.slots))
    }

    /// The pause that the sink has asked for, as long as it lasts.
    pub(super) fn pause(&self, now: Tick) -> Option<Pause> {
        self.pause.filter(|pause| !pause.left(now).is_zero())
    }

    fn under_way(&self) -> impl Iterator<Item = &Flight<T>> {
        self.flights.iter().filter(|flight| flight.is_under_way())
    }

    /// When the first of the calls that are under way began, or who pulls got the batch that is out longest.
    pub(super) fn call_since(&self) -> Option<Tick> {
        self.under_way().filter_map(|flight| flight.started).min()
    }

    /// Items of batches that wait to be sent again.
    pub(super) fn retry_waiting(&self) -> u64 {
        let waiting = self.flights.iter().filter(|flight| flight.is_waiting());
        waiting.map(|flight| flight.seqs.len() as u64).sum()
    }
}
