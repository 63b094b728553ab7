//! Places that are claimed first and filled then, so that an item moves once: from where its owner has it to its slot.

use super::{Ring, Word};
use crate::sync::Backoff;

/// A place that was claimed, for an item that its holder has at hand: what comes behind it waits for that. An item that goes
/// to and fro in results before its place is claimed is copied each time, which costs more than the swap.
#[must_use = "a place that stays unwritten is waited for"]
pub(crate) struct Claim<'a, T, X> {
    ring: &'a Ring<T, X>,
    pub(super) word: Word,
    /// What it has reached.
    level: Word,
    /// Only a broken model looks at the alarm before the claim.
    early: bool,
}

impl<T, X> Claim<'_, T, X> {
    /// Stores the item; `true` asks the caller to raise the alarm.
    #[inline(always)]
    pub(crate) fn fill(self, item: T) -> bool {
        self.ring.write(self.word, item);
        self.ring.is_due_at(self.level) && self.early
    }

    /// The same for a slot that remembers sizes.
    #[inline(always)]
    pub(crate) fn fill_sized(self, item: T, size: u64) -> bool {
        self.ring.set_size(self.word, size);
        self.fill(item)
    }
}

/// Why there was no place at the first look.
pub(crate) enum Miss {
    /// Full; or whoever stands above the ring decides otherwise.
    Denied,
    /// Another claim came first, a permit is out, the intake is shut, or there is credit that was not asked for: outside the fast
    /// way, there is more to look at.
    Late(Late),
}

/// The tail that was seen, for the next look.
pub(crate) struct Late {
    word: Word,
    has_lost: bool,
}

/// What a claim may be of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Free places only.
    Room,
    /// The oldest item's place, too, if there is credit for it; where there are sizes, free places that are prepaid or not.
    Credit,
}

impl<T, X> Ring<T, X> {
    /// Claims the next place, if there is room, or credit for the oldest item's.
    #[inline(always)]
    #[must_use]
    pub(crate) fn claim(&self, by: Means) -> Option<Claim<'_, T, X>> {
        match self.claim_at_once(|| by) {
            Ok(claim) => Some(claim),
            Err(Miss::Denied) => None,
            Err(Miss::Late(late)) => self.claim_late(late, by),
        }
    }

    /// The same by one swap at most; `by` is asked only where there is credit. Not a loop: what a second turn would need cost every push, and every refused one, the saving
    /// of five registers, for which the swap waits.
    #[inline(always)]
    pub(crate) fn claim_at_once(&self, by: impl FnOnce() -> Means) -> Result<Claim<'_, T, X>, Miss> {
        let early = self.early_alarm();
        let word = self.tail();
        if !word.is_plain() || word.is_on_credit() && by() == Means::Room {
            return Err(Miss::Late(Late { word, has_lost: false }));
        }
        if !self.is_below(word, self.limit()) {
            return Err(Miss::Denied);
        }
        let next = self.shape.next(word);
        match self.swap_tail(word, next) {
            Ok(()) => Ok(Claim { ring: self, word, level: next, early }),
            Err(word) => Err(Miss::Late(Late { word, has_lost: true })),
        }
    }

    #[cold]
    #[inline(never)]
    #[must_use]
    pub(crate) fn claim_late(&self, late: Late, by: Means) -> Option<Claim<'_, T, X>> {
        let Late { mut word, has_lost } = late;
        let early = self.early_alarm();
        let mut backoff = Backoff::new();
        if has_lost {
            backoff.spin();
        }
        loop {
            let limit = self.limit();
            let has_room = if word.is_plain() { self.is_below(word, limit) } else { self.has_room_slow(word, limit) };
            if !has_room || by == Means::Room && word.is_on_credit() {
                return None;
            }
            let next = self.shape.next(word);
            match self.swap_tail(word, next) {
                Ok(()) => return Some(Claim { ring: self, word, level: self.shape.level(next), early }),
                Err(now) => word = now,
            }
            backoff.spin();
        }
    }
}
