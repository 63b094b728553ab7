//! A capacity that is fitted to the rate of the sink, so that no queue is longer than a delay.

use std::time::Duration;

use super::{Core, Hangar};
use crate::gate::Locked;
use crate::time::Tick;

/// What was asked for; what there is may be less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) capacity: usize,
    /// As the strategy leaves it.
    pub(super) max_batch: usize,
}

impl Asked {
    /// The most items of a batch with a capacity that may be smaller: one place is left, as a sample needs it.
    fn batch_within(&self, capacity: usize) -> usize {
        if capacity < self.capacity { self.max_batch.min(capacity - 1).max(1) } else { self.max_batch }
    }
}

impl<T> Core<T> {
    /// A call that took so long has gone well, and has settled so many items.
    pub(super) fn note_drained(&self, locked: &mut Locked<'_, T, Hangar<T>>, now: Tick, took: Duration, items: usize) {
        let drain_rate = &mut locked.desk().rest.drain_rate;
        let is_measured = drain_rate.note_answer(now, took, items as u64);
        let rate = drain_rate.get();
        self.drains_at(rate);
        if let Some(rate) = rate.filter(|_| is_measured) {
            locked.fit(rate);
        }
    }
}

impl<T> Locked<'_, T, Hangar<T>> {
    /// Another capacity is asked for, if so, and a batch limit, by capacity; returns the limit at present. Without a largest delay
    /// the capacity is what was asked for.
    pub(super) fn ask(
        &mut self,
        capacity: Option<usize>,
        max_delay: Duration,
        max_batch: impl FnOnce(usize) -> usize,
    ) -> usize {
        let asked = capacity.unwrap_or(self.desk().rest.asked.capacity);
        if capacity.is_some() || max_delay == Duration::MAX && self.capacity() != asked as u64 {
            self.set_capacity(asked);
        }
        let asked = Asked { capacity: asked, max_batch: max_batch(asked) };
        self.desk().rest.asked = asked;
        asked.batch_within(self.capacity() as usize)
    }

    /// Fits the capacity to a rate that was measured, unless it is about that already: each change is felt by producers.
    fn fit(&mut self, rate: f64) {
        let hangar = &self.desk().rest;
        let (asked, marks, delay) = (hangar.asked, hangar.settings.watermarks, hangar.settings.ages.max_delay);
        if delay == Duration::MAX {
            return;
        }
        // A batch for each call, and one that waits for it: with less the sink would be idle, and never be measured again.
        let least = hangar.batch_limit().saturating_mul(hangar.concurrency_limit()).saturating_mul(2);
        let least = usize::try_from(least).unwrap_or(usize::MAX).min(asked.capacity);
        let fit = ((rate * delay.as_secs_f64()) as usize).clamp(least, asked.capacity);
        let now = self.capacity() as usize;
        if fit.abs_diff(now) <= now / 4 {
            return;
        }
        let batch = asked.batch_within(fit);
        self.set_capacity(fit);
        self.set_levels(marks, batch);
        self.desk().rest.max_batch = batch;
    }
}
