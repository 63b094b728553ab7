//! Evictions on credit: whoever displaces an item under the head lock leaves so many more behind, each to be had by one
//! swap on `tail` and no lock. Only for items that nobody minds to lose: the place of the oldest one goes to a newer one at
//! once, what lay in its slot is let go by whoever takes the lock next.
//!
//! The credit is a count in the tail word itself, so that it is called in by the same kind of step by which it is used. It
//! stands where reserved places are counted, above any number of them: while there is credit there is no permit. A few spare
//! slots beyond the capacity hold the newer items; the room of the older ones is theirs, and stays so.

use super::{HeadGuard, MAX_CAPACITY, Ring, Word};
use crate::sync::{Backoff, Fault, Ordering, fault};

/// Enough to spread the cost of the lock; each eviction on credit leaves two steps to whoever calls it in.
const CREDIT: usize = 64;

/// The spare slots take at most this many bytes.
const SPARE_BYTES: usize = 4096;

/// A place that was claimed for the oldest item's.
#[must_use = "a place that stays unwritten is waited for"]
pub(crate) struct CreditClaim<'a, T, X> {
    ring: &'a Ring<T, X>,
    pub(super) word: Word,
    level: Word,
}

impl<T, X> CreditClaim<'_, T, X> {
    /// Stores the item; the level that this has reached.
    #[inline(always)]
    pub(crate) fn fill(self, item: T) -> Word {
        self.ring.write(self.word, item);
        self.level
    }
}

impl<T, X> Ring<T, X> {
    /// A ring that is evicted from on credit. What is displaced is forgotten: its destructor does not run.
    pub(crate) fn with_credit(capacity: usize, extra: X) -> Option<Self> {
        // A model cannot afford more than it takes to see one that is late.
        let most = if cfg!(backpressure_loom) { 2 } else { CREDIT.min((capacity / 4).max(1)) };
        // The one item of a ring for one is never written when the next one is evicted for.
        let most = if capacity == 1 { 0 } else { most };
        let spare = most.min(SPARE_BYTES / size_of::<T>().max(1)).min(MAX_CAPACITY - capacity);
        Self::with_spare(capacity, spare, extra)
    }

    #[cfg(test)]
    pub(super) fn push_on_credit(&self, item: T) -> Result<Word, T> {
        match self.claim_on_credit() {
            Some(claim) => Ok(claim.fill(item)),
            None => Err(item),
        }
    }

    /// Whether there was credit a moment ago.
    #[inline(always)]
    pub(crate) fn has_credit(&self) -> bool {
        // Ordering: Relaxed, a guess: the claim decides.
        Word::from_raw(self.tail.load(Ordering::Relaxed)).with_less_credit().is_some()
    }

    /// Claims the place of the oldest item, which is let go, if there is credit.
    #[inline(always)]
    #[must_use]
    pub(crate) fn claim_on_credit(&self) -> Option<CreditClaim<'_, T, X>> {
        let mut backoff = Backoff::new();
        // Ordering: Relaxed, the swap below validates the word.
        let mut word = Word::from_raw(self.tail.load(Ordering::Relaxed));
        loop {
            let next = self.shape.next(word.with_less_credit()?);
            debug_assert!(!word.is_closed(), "whoever shuts the intake has called the credit in");
            match self.swap_tail(word, next) {
                Ok(()) => return Some(CreditClaim { ring: self, word, level: next.place() }),
                Err(now) => word = now,
            }
            backoff.spin();
        }
    }
}

impl<T, X> HeadGuard<'_, T, X> {
    /// Ends the credit, and lets go what was displaced on it. So a section has the figures of a full ring, as if each eviction
    /// had been made under the lock, and a tail that stands still.
    #[cold]
    pub(super) fn call_in(&mut self) {
        let mut word = self.tail();
        if fault(Fault::CreditByLoad) {
            self.ring.tail.store(word.with_reserved(0).raw(), Ordering::Release);
        }
        while let Err(now) = self.ring.swap_tail(word, word.with_reserved(0)) {
            word = now;
        }
        let displaced = self.ring.shape.distance(self.head.limit, word) as u64;
        self.head.credit = false;
        self.head.taken = self.ring.shape.advance(self.head.taken, displaced);
        self.head.taken_total += displaced;
        self.head.displaced += displaced;
        self.head.limit = word.place();
        // Ordering: Release, as in `publish`.
        self.ring.signals.limit.store(word.place().raw(), Ordering::Release);
    }

    /// How many items were displaced on credit since this was asked last.
    #[inline(always)]
    pub(crate) fn take_displaced(&mut self) -> u64 {
        std::mem::take(&mut self.head.displaced)
    }

    /// `word` with as much credit as there can be: at most as many as are written of the oldest items, and as slots are spare.
    #[inline(always)]
    pub(super) fn extend_credit(&mut self, word: Word) -> Word {
        let spare = self.ring.slots.len() as u64 - self.ring.most;
        if spare == 0 {
            return word;
        }
        let credit = self.written(spare.min(self.buffered(word)));
        if credit == 0 {
            return word;
        }
        self.head.credit = true;
        word.with_credit(credit)
    }
}
