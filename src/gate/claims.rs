//! Places that are claimed without the lock, for the floors above: the common way in.

use super::{Desk, Gate, Late, Means, Miss};
use crate::ring;

/// A place for an item that its holder has at hand.
pub(crate) type Claim<'a, T, R> = ring::Claim<'a, T, Desk<T, R>>;

impl<T, R> Gate<T, R> {
    /// Claims the next place, if there is room or credit; filling it may ask for [`alarm`](Self::alarm).
    #[inline(always)]
    #[must_use]
    pub(crate) fn claim(&self, by: Means) -> Option<Claim<'_, T, R>> {
        self.ring.claim(by)
    }

    /// The same by one swap at most.
    #[inline(always)]
    pub(crate) fn claim_at_once(&self, by: impl FnOnce() -> Means) -> Result<Claim<'_, T, R>, Miss> {
        self.ring.claim_at_once(by)
    }

    /// What is left to do for a claim that was late.
    #[must_use]
    pub(crate) fn claim_late(&self, late: Late, by: Means) -> Option<Claim<'_, T, R>> {
        self.ring.claim_late(late, by)
    }
}
