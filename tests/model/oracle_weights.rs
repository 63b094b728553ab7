//! The oracle's weights: what fits, what leaves for it, and the accounts.

use std::collections::HashMap;

use backpressure::{LossReason, RefuseReason, Snapshot};

use super::case::Bounds;
use super::oracle::Oracle;
use super::world::Id;

/// What the weigher says of an item; `None` is a panic.
pub fn weight_of(id: Id) -> Option<u64> {
    const WEIGHTS: [u64; 8] = [1, 2, 0, 3, 5, 1, 4, 9];
    (id % 32 != 21).then(|| WEIGHTS[id as usize % 8])
}

#[derive(Debug, Default)]
pub struct Weighed {
    /// As they were weighed, once.
    sizes: HashMap<Id, u64>,
    /// What permits hold.
    pub reserved: u64,
    /// Something has not fitted since room was last made.
    pub is_short: bool,
    accepted: u128,
    delivered: u128,
    lost: HashMap<LossReason, u128>,
}

impl Oracle {
    pub fn bounds(&self) -> Option<Bounds> {
        self.config.bounds
    }

    /// An item is offered.
    pub fn weigh(&mut self, id: Id) {
        if self.bounds().is_none() {
            return;
        }
        self.count.panics += u64::from(weight_of(id).is_none());
        let before = self.weighed.sizes.insert(id, weight_of(id).unwrap_or(u64::MAX));
        assert_eq!(before, None, "{id} is weighed twice");
    }

    pub fn size(&self, id: Id) -> u64 {
        if self.bounds().is_none() { 0 } else { self.weighed.sizes[&id] }
    }

    pub fn is_too_heavy(&self, id: Id) -> bool {
        self.bounds().is_some_and(|bounds| self.size(id) > bounds.item)
    }

    /// What a permit holds.
    pub fn permit_size(&self) -> u64 {
        self.bounds().map_or(0, |bounds| bounds.item)
    }

    fn sum<'a>(&self, ids: impl IntoIterator<Item = &'a Id>) -> u64 {
        ids.into_iter().map(|id| self.size(*id)).sum()
    }

    pub fn inside(&self) -> u64 {
        self.weighed.reserved + self.sum(&self.buffered) + self.in_flight_weight()
    }

    fn in_flight_weight(&self) -> u64 {
        self.flights.iter().map(|flight| self.sum(&flight.items)).sum()
    }

    pub fn spare(&self) -> u64 {
        self.bounds().map_or(u64::MAX, |bounds| bounds.capacity - self.inside())
    }

    /// How many places of a permit's weight there is room for.
    pub fn places(&self) -> u64 {
        self.room().min(self.spare().checked_div(self.permit_size()).unwrap_or(u64::MAX))
    }

    /// The same for a newcomer: nobody is overtaken.
    pub fn places_for_newcomer(&self) -> u64 {
        if self.bounds().is_some() && !self.queue.is_empty() { 0 } else { self.places() }
    }

    /// A newcomer tries to get in.
    pub fn tries(&mut self, id: Id) -> bool {
        if self.room() == 0 || self.is_closed || self.bounds().is_some() && !self.queue.is_empty() {
            return false;
        }
        let fits = self.size(id) <= self.spare();
        if !fits && !self.is_too_heavy(id) {
            self.weighed.is_short = true;
        }
        fits && !self.is_too_heavy(id)
    }

    /// How many of the oldest go for an item.
    pub fn victims_for(&self, id: Id) -> Option<usize> {
        let Some(_) = self.bounds() else { return (!self.buffered.is_empty()).then_some(1) };
        let spare = if self.queue.is_empty() { self.spare() } else { 0 };
        (1..=self.buffered.len()).find(|n| spare + self.sum(self.buffered.iter().take(*n)) >= self.size(id))
    }

    /// Whether an item may have the place of another.
    pub fn may_replace(&self, old: Id, new: Id) -> bool {
        let (old, new) = (self.size(old), self.size(new));
        new <= old || self.queue.is_empty() && new - old <= self.spare()
    }

    /// Of the depth and the weight the larger share, as a depth; whoever waits makes it full.
    pub fn fullness(&self) -> u64 {
        let Some(bounds) = self.bounds() else { return self.depth() };
        let capacity = self.capacity as u64;
        let waits = if self.queue.is_empty() { 0 } else { capacity };
        self.depth().max(self.inside() * capacity / bounds.capacity).max(waits)
    }

    /// Somebody has left the queue, or joined it.
    pub fn follow_queue(&mut self) {
        if self.bounds().is_some() {
            self.serve();
            self.observe();
        }
    }

    /// How many make the next batch: as many as are there, at most a batch, and by weight at most one item too heavy.
    pub fn batch_length(&self) -> usize {
        let most = self.batch().min(self.buffered.len());
        let Some(bound) = self.batch_bound() else { return most };
        let fits = |n: &usize| *n == 1 || self.sum(self.buffered.iter().take(*n)) <= bound;
        (1..=most).take_while(fits).last().unwrap_or(0)
    }

    fn batch_bound(&self) -> Option<u64> {
        self.bounds().and_then(|bounds| bounds.batch)
    }

    /// What is buffered makes a full batch.
    pub fn is_batch_full(&self) -> bool {
        let is_heavy = self.batch_bound().is_some_and(|bound| self.sum(&self.buffered) >= bound);
        self.buffered.len() >= self.batch() || is_heavy
    }

    /// There is no room left, or not enough for somebody.
    pub fn is_tight(&self) -> bool {
        self.room() == 0 || !self.queue.is_empty() || self.weighed.is_short || self.spare() == 0
    }

    pub fn count_accepted(&mut self, id: Id) {
        self.weighed.accepted += u128::from(self.size(id));
        assert!(self.bounds().is_none_or(|bounds| self.inside() <= bounds.capacity), "the oracle keeps the bound");
    }

    pub fn count_settled(&mut self, id: Id, loss: Option<LossReason>) {
        let size = u128::from(self.size(id));
        match loss {
            None => self.weighed.delivered += size,
            Some(reason) => *self.weighed.lost.entry(reason).or_default() += size,
        }
        if loss != Some(LossReason::Evicted) {
            self.weighed.is_short = false;
        }
    }

    /// A permit sends an item that is heavier than it.
    pub fn send_too_heavy(&mut self, id: Id) {
        self.refuse(RefuseReason::TooLarge, 1);
        self.untold.push_back((Some(id), LossReason::Refused(RefuseReason::TooLarge), None));
    }

    pub fn compare_weights(&self, snapshot: &Snapshot) {
        let (Some(bounds), Some(theirs)) = (self.bounds(), snapshot.weights) else {
            assert_eq!((self.bounds(), snapshot.weights), (None, None));
            return;
        };
        let lost = |reason| self.weighed.lost.get(&reason).copied().unwrap_or(0);
        let ours = [
            ("capacity", bounds.capacity.into(), theirs.capacity.into()),
            ("max_item", bounds.item.into(), theirs.max_item.into()),
            ("depth", self.inside().into(), theirs.depth.into()),
            ("reserved", self.weighed.reserved.into(), theirs.reserved.into()),
            ("buffered", self.sum(&self.buffered).into(), theirs.buffered.into()),
            ("in_flight", self.in_flight_weight().into(), theirs.in_flight.into()),
            ("accepted", self.weighed.accepted, theirs.accepted),
            ("delivered", self.weighed.delivered, theirs.delivered),
            ("failed", lost(LossReason::Failed), theirs.failed),
            ("evicted", lost(LossReason::Evicted), theirs.evicted),
            ("expired", 0, theirs.expired),
            ("purged", lost(LossReason::Purged), theirs.purged),
            ("abandoned", lost(LossReason::Abandoned), theirs.abandoned),
        ];
        for (name, ours, theirs) in ours {
            assert_eq!(ours, theirs, "{name} by weight: ours against theirs\n{snapshot:#?}");
        }
        assert_eq!(theirs.max_batch, bounds.batch);
    }
}
