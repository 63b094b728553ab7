//! What a section notes for those who watch: how long producers waited, when items came, how deep it was.

use std::mem;
use std::ops::Range;

use super::{Born, Locked};
use crate::ring::Word;
use crate::state::State;
use crate::time::Tick;

impl<T, R> Locked<'_, T, R> {
    /// Notes that whatever comes behind `next`, where this section has seen the end of the items, comes at `now` or later.
    pub(crate) fn stamp(&mut self, next: u64, now: Tick) {
        // Nothing younger than the largest age may be shed, and what came while this section waited for the lock came after
        // `now`: so the time is asked again, after the look.
        let by = if self.head.is_aging { self.gate.clock.now() } else { now };
        self.head.stamps.note(next, now, by);
    }

    /// Ages count: also how old an item is at least.
    pub(crate) fn set_aging(&mut self, is_aging: bool) {
        self.head.is_aging = is_aging;
        if !is_aging {
            self.head.machine.set_by_age(State::Normal);
        }
    }

    /// How many of the oldest buffered items were accepted by `cutoff`, for sure.
    pub(crate) fn older_than(&self, cutoff: Tick) -> u64 {
        self.head.stamps.before(cutoff).saturating_sub(self.head.taken_total())
    }

    /// The item at `position` was accepted no later than this.
    pub(crate) fn latest(&self, position: u64) -> Option<Tick> {
        self.head.stamps.latest(position)
    }

    /// When the items at these positions were accepted, at the latest; nothing is known as long as no ages count.
    pub(crate) fn born(&self, positions: &Range<u64>) -> Born {
        if self.head.is_aging { self.head.stamps.born(positions) } else { Born::default() }
    }

    /// What the age of the items makes of the state.
    pub(crate) fn state_by_age(&self) -> State {
        self.head.machine.by_age()
    }

    /// The state follows when the section ends.
    pub(crate) fn set_state_by_age(&mut self, state: State) {
        self.head.machine.set_by_age(state);
    }

    /// The oldest buffered item was accepted no earlier than this.
    pub(crate) fn oldest(&mut self) -> Option<Tick> {
        let taken = self.head.taken_total();
        self.head.stamps.forget_before(taken);
        self.head.stamps.earliest(taken)
    }

    /// Since when the oldest producer waits.
    pub(crate) fn oldest_wait(&self) -> Option<Tick> {
        self.head.waiters.oldest()
    }

    /// A wait is over.
    pub(super) fn note_wait(&mut self, since: Tick) {
        let now = self.now();
        self.head.waits.add_time(now.since(since));
    }

    /// Tells the flusher, once, that there is something to tell.
    pub(super) fn note_watched(&mut self) {
        if mem::take(&mut self.head.is_watched) {
            self.effects.bell = true;
        }
    }

    /// The time of this section.
    pub(super) fn now(&mut self) -> Tick {
        *self.now.get_or_insert_with(|| self.gate.clock.now())
    }

    pub(super) fn note_first(&mut self, word: Word) {
        let is_empty = self.head.buffered(word) == 0;
        if self.head.empty && !is_empty {
            let (position, now) = (self.head.taken_total(), self.now());
            self.head.stamps.note(position, now, now);
            if self.head.is_aging {
                let end = position + self.head.buffered(word);
                let by = self.gate.clock.now();
                self.head.stamps.note(end, now, by);
            }
        }
        self.head.empty = is_empty;
    }

    /// The depth is about to fall.
    #[inline]
    pub(super) fn note_peak(&mut self) {
        // Once it was full there is nothing to learn.
        if self.head.ledger.peak_depth == self.gate.max_capacity() as u64 {
            return;
        }
        let depth = self.head.depth(self.head.tail());
        self.head.ledger.peak_depth = self.head.ledger.peak_depth.max(depth);
    }
}
