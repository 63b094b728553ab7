//! Items that are weighed before they come in, and places that are reserved.

use super::{Core, Hangar};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Limits, PrepaidClaim, Tag};
use crate::receipt::Receipt;
use crate::strategy::Pressure;

/// Says how heavy an item is.
pub(crate) type Weigher<T> = Box<dyn Weigh<T>>;

/// What a push does with a weigher, compiled for each weigher: one that is short is a part of it then, and the swap on `tail` waits
/// for the stores of one call and not of two.
pub(crate) trait Weigh<T>: Send + Sync {
    /// How heavy it is; what cannot be weighed is too heavy.
    fn weigh(&self, core: &Core<T>, item: &T) -> u64;

    /// Weighs an item, once and for all, and claims a place for it by one swap at most, if it is light enough for one that is
    /// prepaid, and if the strategy need not be asked; else how heavy it is. The item stays where it is.
    fn claim<'a>(&self, core: &'a Core<T>, item: &T) -> Result<PrepaidClaim<'a, T, Hangar<T>>, u64>;

    /// The same for an item that goes in registers, which is moved for nothing: it is stored, or the strategy decides. All others stay
    /// where their owner has them until there is a place.
    fn try_push(&self, core: &Core<T>, item: T) -> Result<(), PushError<T>>;
}

impl<T, F: Fn(&T) -> u64 + Send + Sync> Weigh<T> for F {
    #[inline]
    fn weigh(&self, core: &Core<T>, item: &T) -> u64 {
        // Not what it returns: turning an `Option` of it into a number takes six instructions one after the other, for which the swap waits.
        let mut size = u64::MAX;
        let _ = core.guard(|| size = self(item));
        size
    }

    #[inline]
    fn claim<'a>(&self, core: &'a Core<T>, item: &T) -> Result<PrepaidClaim<'a, T, Hangar<T>>, u64> {
        let size = self.weigh(core, item);
        if core.gate.is_asked() {
            return Err(size);
        }
        core.gate.claim_prepaid(size).ok_or(size)
    }

    fn try_push(&self, core: &Core<T>, item: T) -> Result<(), PushError<T>> {
        core.try_push_claimed(self.claim(core, &item), item)
    }
}

impl<T> Core<T> {
    /// Weighs an item, once and for all, and stores it if there is room and if the strategy need not be asked. Without a
    /// weigher nothing is tried.
    #[inline]
    pub(crate) fn weigh_in(&self, item: T, receipt: Option<Receipt>) -> Result<(), (T, Tag)> {
        match &self.weigher {
            None => Err((item, Tag::new(0, receipt))),
            Some(weigher) if receipt.is_none() => match weigher.claim(self, &item) {
                Ok(place) => {
                    self.fill_weighed(place, item);
                    Ok(())
                }
                Err(size) => self.store_weighed(item, size),
            },
            Some(weigher) => {
                let tag = Tag::new(weigher.weigh(self, &item), receipt);
                self.offer(item, tag)
            }
        }
    }

    /// Stores an item in a place that was claimed for it.
    #[inline(always)]
    pub(super) fn fill_weighed(&self, place: PrepaidClaim<'_, T, Hangar<T>>, item: T) {
        if place.fill(item) {
            self.alarm();
        }
    }

    /// Stores an item of this size if there is room, and if the strategy need not be asked.
    #[inline(never)]
    pub(super) fn store_weighed(&self, item: T, size: u64) -> Result<(), (T, Tag)> {
        if self.gate.is_asked() {
            return Err((item, Tag::of_size(size)));
        }
        match self.gate.claim_prepaid_late(size) {
            Some(place) => {
                self.fill_weighed(place, item);
                Ok(())
            }
            None => self.offer(item, Tag::of_size(size)),
        }
    }

    /// How heavy an item is; 0 without a weigher.
    pub(crate) fn weigh(&self, item: &T) -> u64 {
        self.weigher.as_ref().map_or(0, |weigher| weigher.weigh(self, item))
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

    /// Like [`offer_many`](Self::offer_many), for items of these sizes: each is claimed by itself.
    pub(crate) fn offer_many_sized(&self, items: &mut Vec<T>, sizes: &mut Vec<u64>) {
        let mut left = std::mem::take(items).into_iter();
        let mut stored = 0;
        for (item, size) in left.by_ref().zip(sizes.iter()) {
            if let Err((item, _)) = self.store_weighed(item, *size) {
                items.push(item);
                break;
            }
            stored += 1;
        }
        items.extend(left);
        sizes.drain(..stored);
    }

    /// For whoever cannot step now: serves who waits, if something has turned out lighter than it counted. Whether something still may,
    /// which nobody tells.
    pub(crate) fn is_to_look_again(&self) -> bool {
        self.is_weighed() && {
            let locked = self.gate.lock();
            let is_unsettled = locked.is_unsettled();
            self.apply(locked.finish());
            is_unsettled
        }
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
            let size = weigher.weigh(self, &item);
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
