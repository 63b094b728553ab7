//! Places that are paid for before anybody claims them, where items have sizes: whoever is content with what was paid for claims one by
//! the one swap on `tail`, and need not look at how much is inside.
//!
//! Whoever holds the head lock publishes where they end, and then sets the bit in the tail without which they are not claimed. To end
//! it he clears the bit: a claim that is under way finds another word than it has seen. That very word may come back, if places are
//! prepaid once more before one was claimed; the next place is prepaid then, and at the same price, whatever end the claim has seen.

use std::ops::Range;

use super::sizes::PREPAID;
use super::{HeadGuard, Ring, Word};
use crate::sync::{Backoff, Fault, Ordering, fault, mark};

/// A prepaid place that was claimed, for an item that its holder has at hand, and whose size is noted.
#[must_use = "a place that stays unwritten is waited for"]
pub(crate) struct PrepaidClaim<'a, T, X> {
    ring: &'a Ring<T, X>,
    word: Word,
    /// What it has reached.
    level: Word,
}

impl<T, X> PrepaidClaim<'_, T, X> {
    /// Stores the item; `true` asks the caller to raise the alarm.
    #[inline(always)]
    pub(crate) fn fill(self, item: T) -> bool {
        self.ring.write(self.word, item);
        self.ring.is_due_at(self.level)
    }
}

impl<T, X> Ring<T, X> {
    /// Claims the next place for an item of this size by one swap at most, if it is prepaid, no permit is out and the intake is open.
    #[inline(always)]
    #[must_use]
    pub(crate) fn claim_prepaid(&self, size: u64) -> Option<PrepaidClaim<'_, T, X>> {
        let word = self.tail();
        if self.is_prepaid(word) { self.swap_prepaid(word, size).ok() } else { None }
    }

    /// The same until it has one or there is none.
    #[must_use]
    pub(crate) fn claim_prepaid_late(&self, size: u64) -> Option<PrepaidClaim<'_, T, X>> {
        let mut backoff = Backoff::new();
        let mut word = self.tail();
        while self.is_prepaid(word) {
            match self.swap_prepaid(word, size) {
                Ok(claim) => return Some(claim),
                Err(now) => word = now,
            }
            backoff.spin();
        }
        None
    }

    #[inline(always)]
    fn swap_prepaid(&self, word: Word, size: u64) -> Result<PrepaidClaim<'_, T, X>, Word> {
        let level = self.shape.next(word);
        self.swap_tail(word, level)?;
        self.set_size(word, if fault(Fault::PrepaidUnmarked) { size } else { size | PREPAID });
        Ok(PrepaidClaim { ring: self, word, level })
    }

    /// Whether the place of this word of the tail was prepaid when it was seen.
    #[inline(always)]
    fn is_prepaid(&self, word: Word) -> bool {
        // Ordering: Relaxed, the swap on `tail` that has set the bit hands it over.
        let end = Word::from_raw(self.signals.prepaid.load(Ordering::Relaxed));
        word.is_plain_on_credit() && word.is_before(end)
    }
}

impl<T, X> HeadGuard<'_, T, X> {
    /// Offers the next `n` places, or as many as are free and published, as prepaid; the positions that are. None are now.
    pub(crate) fn prepay(&mut self, n: u64) -> Range<u64> {
        let (tail, shape) = (self.tail(), self.ring.shape);
        // R1 rests on this bound.
        let end = shape.advance(tail.place(), n.min(self.published(tail)));
        // Ordering: Relaxed, as in `is_prepaid`.
        self.ring.signals.prepaid.store(end.on_credit().raw(), Ordering::Relaxed);
        mark();
        let bit = Word::ZERO.on_credit().raw();
        // Ordering: AcqRel, part of the chain on `tail`: whoever sees the bit sees the end, and which slots are vacant.
        let word = Word::from_raw(self.ring.tail.fetch_or(bit, Ordering::AcqRel)).place();
        self.head.prepaid = true;
        let first = self.position(word);
        first..first.max(self.head.taken_total + self.buffered(end))
    }

    /// Ends what [`prepay`](Self::prepay) began: the position behind the last one that was claimed. `None` if nothing is prepaid.
    pub(crate) fn end_prepaid(&mut self) -> Option<u64> {
        if !self.head.prepaid || fault(Fault::PrepaidKept) {
            return None;
        }
        self.head.prepaid = false;
        let tail = &self.ring.tail;
        let word = if fault(Fault::PrepaidByLoad) {
            let word = self.tail().off_credit();
            tail.store(word.raw(), Ordering::Release);
            word
        } else {
            let bit = Word::ZERO.on_credit().raw();
            // Ordering: AcqRel, part of the chain on `tail`.
            Word::from_raw(tail.fetch_and(!bit, Ordering::AcqRel))
        };
        Some(self.position(word.place()))
    }
}
