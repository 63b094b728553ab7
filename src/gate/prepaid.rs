//! Places whose weight is taken in before anybody claims them, at a fixed allowance each: a light item is then one swap, like one
//! without a size.
//!
//! Each section ends by paying for the next places, as long as nobody wants to know of so much, and begins by ending that: what nobody
//! has claimed comes back, and of what was paid for each item that is written all that it does not need. So no section sees anything prepaid
//! but places that are claimed and not written yet, which count by the allowance until they are.

use std::ops::{Deref, DerefMut};

use super::{Desk, Gate, Locked, Volume};
use crate::ring::{self, HeadGuard};
use crate::sync::{Backoff, Fault, fault};

/// A prepaid place for an item that its holder has at hand.
pub(crate) type PrepaidClaim<'a, T, R> = ring::PrepaidClaim<'a, T, Desk<T, R>>;

impl<T, R> Gate<T, R> {
    /// Claims a place for an item of this size by one swap at most, if it is light enough for one that is prepaid; filling it may ask
    /// for [`alarm`](Self::alarm).
    #[inline(always)]
    #[must_use]
    pub(crate) fn claim_prepaid(&self, size: u64) -> Option<PrepaidClaim<'_, T, R>> {
        if self.is_light(size) { self.ring.claim_prepaid(size) } else { None }
    }

    /// The same if somebody else came first.
    #[must_use]
    pub(crate) fn claim_prepaid_late(&self, size: u64) -> Option<PrepaidClaim<'_, T, R>> {
        if self.is_light(size) { self.ring.claim_prepaid_late(size) } else { None }
    }

    #[inline(always)]
    fn is_light(&self, size: u64) -> bool {
        size < self.heavy
    }
}

/// The head lock, held by a section, which sees nothing prepaid.
pub(super) struct Held<'a, T, R> {
    head: HeadGuard<'a, T, Desk<T, R>>,
    volume: Option<&'a Volume>,
}

impl<'a, T, R> Held<'a, T, R> {
    #[inline]
    pub(super) fn new(head: HeadGuard<'a, T, Desk<T, R>>, volume: Option<&'a Volume>) -> Self {
        let mut held = Self { head, volume };
        if let Some(volume) = volume {
            held.end_prepaid(volume);
        }
        held
    }

    #[inline(never)]
    fn end_prepaid(&mut self, volume: &Volume) {
        let end = self.head.end_prepaid();
        let is_new = end.is_some();
        if let Some(end) = end {
            let prepaid = &mut self.head.stowage.prepaid;
            // Others may have gone further.
            let unclaimed = prepaid.end.saturating_sub(end);
            prepaid.end -= unclaimed;
            volume.release(unclaimed * volume.allowance());
        }
        // What is on its way on another processor is written in a moment. Who has lost his is not waited for.
        let mut backoff = Backoff::new();
        self.settle_prepaid(volume);
        // Loom's models are to see what is not settled.
        while is_new && !cfg!(backpressure_loom) && !self.head.stowage.prepaid.is_empty() && !backoff.is_exhausted() {
            backoff.spin();
            let first = self.head.stowage.prepaid.start;
            if self.head.size_at(first).is_some() {
                self.settle_prepaid(volume);
            }
        }
    }

    /// Has the prepaid places that are written count by the sizes of their items; whether that has made room.
    fn settle_prepaid(&mut self, volume: &Volume) -> bool {
        let mut prepaid = self.head.stowage.prepaid.clone();
        let surplus = self.head.settle_prepaid(&mut prepaid, volume.allowance());
        volume.release(surplus);
        self.head.stowage.prepaid = prepaid;
        surplus > 0
    }

    #[inline(never)]
    fn prepay(&mut self, volume: &Volume) {
        let tail = self.head.tail();
        // There is one range, so first it must be settled. Beside permits nobody claims what is prepaid.
        if tail.is_closed() || tail.reserved() > 0 || !self.head.stowage.prepaid.is_empty() {
            return;
        }
        let places = volume.prepay(self.head.published(tail));
        if places > 0 {
            let prepaid = self.head.prepay(places);
            volume.release((places - (prepaid.end - prepaid.start)) * volume.allowance());
            self.head.stowage.prepaid = prepaid;
        }
    }
}

impl<T, R> Drop for Held<'_, T, R> {
    #[inline]
    fn drop(&mut self) {
        if let Some(volume) = self.volume {
            self.prepay(volume);
        }
    }
}

impl<'a, T, R> Deref for Held<'a, T, R> {
    type Target = HeadGuard<'a, T, Desk<T, R>>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.head
    }
}

impl<T, R> DerefMut for Held<'_, T, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.head
    }
}

impl<T, R> Locked<'_, T, R> {
    /// Settles what was not written when the section began, before it is moved out; whether that has made room.
    pub(super) fn settle_prepaid(&mut self) -> bool {
        if fault(Fault::PrepaidUnsettled) {
            return false;
        }
        self.volume().is_some_and(|volume| self.head.settle_prepaid(volume))
    }

    /// How much of what is inside by size may turn out not to be.
    pub(super) fn unsettled(&self) -> u64 {
        let prepaid = &self.head.stowage.prepaid;
        self.volume().map_or(0, |volume| (prepaid.end - prepaid.start) * volume.allowance())
    }

    /// Something that is claimed and not written may be lighter than it counts: what does not fit now may fit as soon as it is.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.head.stowage.prepaid.is_empty()
    }
}
