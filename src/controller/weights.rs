//! Permits and figures by weight.

use super::BackpressureController;
use crate::error::ReserveError;
use crate::permit::{Permit, Reserve};

impl<T> BackpressureController<T> {
    /// Like [`reserve`](Self::reserve), for an item of at most this weight. Without a [weigher](crate::Builder::weigher) the weight
    /// means nothing.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve), and `TooLarge` above [`max_item_weight`](crate::Builder::max_item_weight).
    pub fn reserve_weight(&self, weight: u64) -> Reserve<'_, T> {
        Reserve::new(self, if self.core.is_weighed() { weight } else { 0 })
    }

    /// Like [`reserve_weight`](Self::reserve_weight), without waiting.
    ///
    /// # Errors
    ///
    /// `Full`, `Closed` or `TooLarge`.
    pub fn try_reserve_weight(&self, weight: u64) -> Result<Permit<T>, ReserveError> {
        match self.core.bounds() {
            Some(limits) if weight > limits.item => Err(ReserveError::TooLarge { asked: weight, most: limits.item }),
            limits => self.try_reserve_size(limits.map_or(0, |_| weight)),
        }
    }

    /// Reserved + buffered + in flight by weight, in `0 ..=` [`capacity_weight`](Self::capacity_weight), with what pushes that
    /// are on their way have taken in; 0 without a [weigher](crate::Builder::weigher). Takes the head lock.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.core.weight()
    }

    /// The capacity by weight, with a [weigher](crate::Builder::weigher).
    #[must_use]
    pub fn capacity_weight(&self) -> Option<u64> {
        self.core.bounds().map(|limits| limits.capacity)
    }
}
