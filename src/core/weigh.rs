//! Items that are weighed before they come in, and places that are reserved.

use super::{Core, Hangar};
use crate::error::RefuseReason;
use crate::gate::{Limits, SizedClaim, Tag};
use crate::receipt::Receipt;
use crate::strategy::Pressure;

/// Says how heavy an item is.
pub(crate) type Weigher<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

impl<T> Core<T> {
    /// Weighs an item, once and for all, and stores it if there is room and if the strategy need not be asked. Without a
    /// weigher nothing is tried.
    #[inline]
    pub(crate) fn weigh_in(&self, item: T, receipt: Option<Receipt>) -> Result<(), (T, Tag)> {
        match &self.weigher {
            None => Err((item, Tag::new(0, receipt))),
            Some(weigher) if receipt.is_none() => {
                let size = self.weigh_by(weigher, &item);
                match self.claim_sized_unasked(size) {
                    Some(place) => {
                        self.fill_sized(place, item);
                        Ok(())
                    }
                    None => Err((item, Tag::of_size(size))),
                }
            }
            Some(weigher) => {
                let tag = Tag::new(self.weigh_by(weigher, &item), receipt);
                self.offer(item, tag)
            }
        }
    }

    /// Claims a place for an item of this size if there is room, and if the strategy need not be asked.
    #[inline(always)]
    #[must_use]
    pub(super) fn claim_sized_unasked(&self, size: u64) -> Option<SizedClaim<'_, T, Hangar<T>>> {
        if self.gate.is_asked() { None } else { self.claim_sized(size) }
    }

    /// How heavy an item is; 0 without a weigher.
    pub(crate) fn weigh(&self, item: &T) -> u64 {
        self.weigher.as_ref().map_or(0, |weigher| self.weigh_by(weigher, item))
    }

    /// What cannot be weighed is too heavy.
    #[inline]
    pub(super) fn weigh_by(&self, weigher: &Weigher<T>, item: &T) -> u64 {
        self.guard(|| weigher(item)).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_weighed(&self) -> bool {
        self.weigher.is_some()
    }

    /// Whether an item of this size is refused, whatever room there is.
    pub(crate) fn is_above_item_limit(&self, size: u64) -> bool {
        self.bounds().is_some_and(|limits| size > limits.item)
    }

    /// The bounds by weight; `None` without a weigher.
    pub(crate) fn bounds(&self) -> Option<&Limits> {
        self.gate.limits()
    }

    /// What is inside by weight; 0 without a weigher.
    pub(crate) fn weight(&self) -> u64 {
        self.gate.inside()
    }

    /// Claims a place for an item of this size if there is room.
    #[inline(always)]
    #[must_use]
    pub(super) fn claim_sized(&self, size: u64) -> Option<SizedClaim<'_, T, Hangar<T>>> {
        match self.gate.claim_sized(size) {
            Ok(place) => Some(place),
            Err(misfit) => {
                self.apply(self.gate.tell_misfit(misfit, size));
                None
            }
        }
    }

    #[inline(always)]
    pub(super) fn fill_sized(&self, place: SizedClaim<'_, T, Hangar<T>>, item: T) {
        if place.fill(item) {
            self.alarm();
        }
    }

    /// Like [`offer_many`](Self::offer_many), for items of these sizes: each is claimed by itself.
    pub(crate) fn offer_many_sized(&self, items: &mut Vec<T>, sizes: &mut Vec<u64>) {
        let mut left = std::mem::take(items).into_iter();
        let mut stored = 0;
        for (item, size) in left.by_ref().zip(sizes.iter()) {
            if let Err((item, _)) = self.offer(item, Tag::of_size(*size)) {
                items.push(item);
                break;
            }
            stored += 1;
        }
        items.extend(left);
        sizes.drain(..stored);
    }

    /// What a decision of the user's may know.
    pub(super) fn pressure_view(&self) -> Pressure {
        Pressure {
            state: self.state(),
            depth: self.depth(),
            capacity: self.capacity(),
            weight: self.weight(),
            capacity_weight: self.bounds().map(|limits| limits.capacity),
        }
    }

    /// What a place of a plain reservation holds by weight: whatever item may come.
    pub(crate) fn permit_size(&self) -> u64 {
        self.bounds().map_or(0, |limits| limits.item)
    }

    /// The most places of this size each that can be reserved together.
    pub(crate) fn most_places(&self, size: u64) -> u64 {
        let by_weight = self.bounds().and_then(|limits| limits.capacity.checked_div(size));
        by_weight.unwrap_or(u64::MAX).min(self.capacity() as u64)
    }

    /// Reserves `n` places of this size each if there is room and nobody waits.
    pub(crate) fn reserve(&self, n: u64, size: u64) -> bool {
        if self.weigher.is_some() {
            let mut locked = self.gate.lock();
            let is_reserved = locked.reserve_sized(n, size);
            self.apply(locked.finish());
            return is_reserved;
        }
        match self.gate.reserve(n) {
            None => false,
            Some(false) => true,
            Some(true) => {
                self.alarm();
                true
            }
        }
    }

    /// Turns a reserved place that holds `held` into an item; one that is heavier comes back, and the place is free.
    pub(crate) fn send(&self, item: T, held: u64) -> Result<(), T> {
        let is_closed = if let Some(weigher) = &self.weigher {
            let size = self.weigh_by(weigher, &item);
            if size > held {
                self.release(1, held);
                return Err(item);
            }
            let mut locked = self.gate.lock();
            let is_closed = locked.send(item, size, held);
            self.apply(locked.finish());
            is_closed
        } else {
            let (alarm, is_closed) = self.gate.send(item);
            if alarm {
                self.alarm();
            }
            is_closed
        };
        if is_closed {
            self.sweep();
        }
        Ok(())
    }

    /// An item was too heavy for its permit, and no caller takes it back.
    pub(crate) fn lose_too_heavy(&self, item: T) {
        self.count_refused(RefuseReason::TooLarge, 1);
        self.lose_refused(item, RefuseReason::TooLarge);
    }

    /// Gives `n` reserved places of this size in all back.
    pub(crate) fn release(&self, n: u64, size: u64) {
        let mut locked = self.gate.lock();
        locked.release(n, size);
        self.apply(locked.finish());
    }
}
