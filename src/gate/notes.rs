//! What a section notes for those who watch: how long producers waited, when the buffer became busy, how deep it was.

use std::mem;

use super::Locked;
use crate::ring::Word;
use crate::time::Tick;

impl<T, R> Locked<'_, T, R> {
    /// Notes that whatever comes from here on comes at `now` or later.
    pub(crate) fn stamp(&mut self, now: Tick) {
        let next = self.head.taken_total() + self.head.buffered(self.head.tail_exact());
        self.head.stamps.note(next, now);
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
            self.head.stamps.note(position, now);
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
