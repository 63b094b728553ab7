//! Evictions on credit: whoever displaces an item under the head lock lends so many more, each to be had by an ordinary claim.
//! Only for items that nobody minds to lose: the place of the oldest one goes to a newer one at once, what lay in its slot is
//! let go by whoever takes the lock next.
//!
//! What is lent is a limit that lies further on, and a bit in the tail by which it is called in: the limit is lowered, then the
//! bit is cleared, so a claim by the higher limit finds another word than it has seen. That very word does not come back: what
//! is lent again is lent with an item stored. A few spare slots beyond the capacity hold the newer items; the room of the older
//! ones is theirs, and stays so.

use super::{HeadGuard, MAX_CAPACITY, Ring, Word};
use crate::sync::{Fault, Ordering, fault, mark};

/// Enough to spread the cost of the lock; each costs a look at its slot, by whoever lends it.
const CREDIT: usize = 64;

/// The spare slots take at most this many bytes.
const SPARE_BYTES: usize = 4096;

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

    /// Whether there was credit a moment ago.
    #[inline(always)]
    pub(crate) fn has_credit(&self) -> bool {
        // Ordering: Relaxed, a guess: the claim decides.
        let word = Word::from_raw(self.tail.load(Ordering::Relaxed));
        word.is_on_credit() && word.is_before(Word::from_raw(self.signals.limit.load(Ordering::Relaxed)))
    }
}

impl<T, X> HeadGuard<'_, T, X> {
    /// Ends the credit, and lets go what was displaced on it. So a section has the figures of a full ring, as if each eviction
    /// had been made under the lock, and a tail that stands still.
    #[cold]
    pub(super) fn call_in(&mut self) {
        let (tail, limit) = (&self.ring.tail, &self.ring.signals.limit);
        if !fault(Fault::CreditLimitKept) {
            // Ordering: Release, as in `publish`.
            limit.store(self.head.limit.raw(), Ordering::Release);
            mark();
        }
        let word = if fault(Fault::CreditByLoad) {
            let word = self.tail();
            tail.store(word.off_credit().raw(), Ordering::Release);
            word.off_credit()
        } else {
            let bit = Word::ZERO.on_credit().raw();
            // Ordering: AcqRel, part of the chain on `tail`: whoever sees the bit cleared sees the limit lowered.
            Word::from_raw(tail.fetch_and(!bit, Ordering::AcqRel)).off_credit()
        };
        let displaced = self.ring.shape.distance(self.head.limit, word) as u64;
        self.head.credit = false;
        self.head.taken = self.ring.shape.advance(self.head.taken, displaced);
        self.head.taken_total += displaced;
        self.head.displaced += displaced;
        self.head.limit = word;
        // Ordering: Release, as in `publish`.
        limit.store(word.raw(), Ordering::Release);
    }

    /// How many items were displaced on credit since this was asked last.
    #[inline(always)]
    pub(crate) fn take_displaced(&mut self) -> u64 {
        std::mem::take(&mut self.head.displaced)
    }

    /// The tail and the limit to be published, in this order, with as much credit as there can be from this place on, where the
    /// ring is full: at most as many as are written of the oldest items, and as slots are spare.
    #[inline(always)]
    pub(super) fn lend(&mut self, place: Word) -> (Word, Word) {
        let spare = self.ring.slots.len() as u64 - self.ring.most;
        let credit = if spare == 0 { 0 } else { self.written(spare.min(self.buffered(place))) };
        if credit == 0 {
            return (place, place);
        }
        self.head.credit = true;
        (place.on_credit(), self.ring.shape.advance(place, credit).on_credit())
    }
}
