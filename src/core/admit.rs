//! Admission: an offer is stored, refused, displaces another, or waits.

use std::task::Waker;
use std::time::Duration;

use super::patience::Patience;
use super::{Core, Hangar, loss};
use crate::error::{PushError, RefuseReason};
use crate::gate::{
    Claim, Evicted, Eviction, Key, Late, Locked, Means, Merged, Misfit, Miss, NoRoom, Parked, PrepaidClaim, Tag, Wait,
};
use crate::state::Reflex;
use crate::strategy::{Admission, Draw, Strategy};
use crate::sync::Ordering;

/// What became of an offer.
pub(crate) enum Admitted<T> {
    Stored,
    Refused(PushError<T>),
    /// The strategy waits, with this time limit.
    Wait(T, Tag, Option<Duration>),
}

/// What a producer that wants to wait finds.
pub(crate) enum Queued<T> {
    /// All in; places that were granted are the caller's.
    Served,
    Waiting(Key),
    Closed(Parked<T>),
}

/// A decision, as the core carries it out.
enum Decision {
    Wait(Option<Duration>),
    Admit,
    Evict,
    Refuse(RefuseReason),
    /// Kept by a draw; `shares` the youngest one's place if there is no room.
    Keep {
        draw: Draw,
        shares: bool,
    },
}

impl Decision {
    fn of(draw: Draw, shares: bool) -> Self {
        if draw.is_kept() { Self::Keep { draw, shares } } else { Self::Refuse(RefuseReason::Sampled) }
    }
}

impl<T> Core<T> {
    /// Stores an item, or decides by the strategy without waiting.
    #[inline(always)]
    pub(crate) fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        if !self.gate.is_direct() {
            return self.try_push_indirect(item);
        }
        match self.gate.claim_at_once(loss::means_here) {
            Ok(place) => {
                self.fill(place, item);
                Ok(())
            }
            Err(Miss::Denied) => self.try_push_slow(item),
            Err(Miss::Late(late)) => self.try_push_late(item, late),
        }
    }

    #[inline(always)]
    fn try_push_indirect(&self, item: T) -> Result<(), PushError<T>> {
        let Some(weigher) = &self.weigher else { return self.try_push_slow(item) };
        if size_of::<T>() <= 2 * size_of::<usize>() {
            return weigher.try_push(self, item);
        }
        self.try_push_claimed(weigher.claim(self, &item), item)
    }

    /// Stores an item that was weighed in the place that it has got; for one that has none the strategy decides.
    #[inline(always)]
    pub(super) fn try_push_claimed(
        &self,
        claim: Result<PrepaidClaim<'_, T, Hangar<T>>, u64>,
        item: T,
    ) -> Result<(), PushError<T>> {
        match claim {
            Ok(place) => {
                self.fill_weighed(place, item);
                Ok(())
            }
            Err(size) => self.try_push_weighed(item, size),
        }
    }

    #[cold]
    fn try_push_late(&self, item: T, late: Late) -> Result<(), PushError<T>> {
        self.store_late(item, late, loss::means_here()).or_else(|item| self.try_push_slow(item))
    }

    /// What is left to do for an item whose claim was late.
    pub(crate) fn store_late(&self, item: T, late: Late, by: Means) -> Result<(), T> {
        match self.gate.claim_late(late, by) {
            Some(place) => {
                self.fill(place, item);
                Ok(())
            }
            None => Err(item),
        }
    }

    #[cold]
    fn try_push_slow(&self, item: T) -> Result<(), PushError<T>> {
        // Nothing but jumps, so that no way pays for another.
        let reflex = self.gate.reflex();
        if reflex == Reflex::Evict {
            return self.try_evict(item);
        }
        if reflex == Reflex::Refuse { self.try_refuse(item) } else { self.try_ask(item) }
    }

    #[inline(never)]
    fn try_ask(&self, item: T) -> Result<(), PushError<T>> {
        self.try_admit(item, Tag::PLAIN)
    }

    #[inline(never)]
    fn try_refuse(&self, item: T) -> Result<(), PushError<T>> {
        Err(self.refuse(self.why_not(), item))
    }

    /// Not cold: where an evicted item is minded it is the common way, else once for many. With a weigher nobody gets here.
    #[inline(never)]
    fn try_evict(&self, item: T) -> Result<(), PushError<T>> {
        if loss::is_in_hook() {
            return self.try_evict_slow(item);
        }
        match self.gate.try_eviction() {
            Some(eviction) => {
                self.carry_out(eviction, item);
                Ok(())
            }
            None => self.try_evict_slow(item),
        }
    }

    #[cold]
    fn try_evict_slow(&self, item: T) -> Result<(), PushError<T>> {
        self.now_or_never(self.evict(item, Tag::PLAIN))
    }

    /// Stores an item for the oldest one, and does what follows outside the lock.
    #[inline(always)]
    fn carry_out(&self, eviction: Eviction<'_, T, Hangar<T>>, item: T) {
        let (victim, alarm) = eviction.admit(item);
        if alarm {
            self.alarm();
        }
        if let Some(victim) = victim {
            self.lose_evicted(victim);
        }
    }

    #[cold]
    fn try_push_weighed(&self, item: T, size: u64) -> Result<(), PushError<T>> {
        self.store_weighed(item, size).or_else(|(item, tag)| self.try_admit(item, tag))
    }

    #[cold]
    fn try_admit(&self, item: T, tag: Tag) -> Result<(), PushError<T>> {
        self.now_or_never(self.admit(item, tag))
    }

    /// What would have to wait is refused.
    #[inline]
    fn now_or_never(&self, admitted: Admitted<T>) -> Result<(), PushError<T>> {
        match admitted {
            Admitted::Stored => Ok(()),
            Admitted::Refused(error) => Err(error),
            Admitted::Wait(item, ..) => Err(self.refuse(RefuseReason::Full, item)),
        }
    }

    /// Stores an item if there is room, or credit, and if the strategy need not be asked; one that is not stored comes back weighed.
    #[inline]
    pub(crate) fn push(&self, item: T, by: impl Fn() -> Means) -> Result<(), (T, Tag)> {
        match self.claim(&by) {
            Ok(place) => {
                self.fill(place, item);
                Ok(())
            }
            Err(Miss::Denied) => self.weigh_in(item, None),
            Err(Miss::Late(late)) => self.store_late(item, late, by()).or_else(|item| self.weigh_in(item, None)),
        }
    }

    /// Claims a place by one swap at most, if there is room, or credit, if the strategy need not be asked, and if there is no weigher.
    #[inline(always)]
    pub(crate) fn claim(&self, by: impl FnOnce() -> Means) -> Result<Claim<'_, T, Hangar<T>>, Miss> {
        if self.gate.is_direct() { self.gate.claim_at_once(by) } else { Err(Miss::Denied) }
    }

    /// Stores an item in a place that was claimed for it.
    #[inline(always)]
    pub(crate) fn fill(&self, place: Claim<'_, T, Hangar<T>>, item: T) {
        if place.fill(item) {
            self.alarm();
        }
    }

    /// Stores an item if there is room, and if the strategy need not be asked.
    pub(crate) fn offer(&self, item: T, tag: Tag) -> Result<(), (T, Tag)> {
        if self.gate.is_asked() { Err((item, tag)) } else { self.store_tagged(item, tag) }
    }

    /// Stores as many items as there is room for, from the front; none if the strategy is to be asked about each.
    pub(crate) fn offer_many(&self, items: &mut Vec<T>) {
        if self.gate.is_direct() && self.gate.push_many(items) {
            self.alarm();
        }
    }

    /// Lets the strategy decide about an item that found no room, or about which it is to be asked.
    #[cold]
    pub(crate) fn admit(&self, item: T, tag: Tag) -> Admitted<T> {
        if self.is_closed() {
            return Admitted::Refused(self.refuse(RefuseReason::Closed, item));
        }
        if self.is_above_item_limit(tag.size) {
            return Admitted::Refused(self.refuse(RefuseReason::TooLarge, item));
        }
        match self.decide(&item) {
            Decision::Wait(limit) => match self.store_tagged(item, tag) {
                Ok(()) => Admitted::Stored,
                Err((item, tag)) => Admitted::Wait(item, tag, limit),
            },
            Decision::Admit => self.store_or_refuse(item, tag),
            Decision::Evict => self.evict(item, tag),
            Decision::Refuse(reason) => Admitted::Refused(self.refuse(reason, item)),
            Decision::Keep { draw, shares } => self.keep(item, Tag { weight: draw.weight(), ..tag }, draw, shares),
        }
    }

    /// Asks the strategy; one that panics refuses.
    fn decide(&self, item: &T) -> Decision {
        let decision = self.with_strategy(|strategy| self.decide_by(strategy, item));
        decision.unwrap_or(Decision::Refuse(RefuseReason::Full))
    }

    /// `None` if the strategy panics.
    fn decide_by(&self, strategy: &Strategy<T>, item: &T) -> Option<Decision> {
        let ticket = || self.draws.fetch_add(1, Ordering::Relaxed);
        match strategy {
            Strategy::Block => Some(Decision::Wait(None)),
            Strategy::BlockFor(limit) => Some(Decision::Wait(Some(*limit))),
            Strategy::DropOldest => Some(Decision::Evict),
            Strategy::DropNewest => Some(Decision::Admit),
            Strategy::Sample(sample) => {
                // Read before the draw: a rate that depends on the draw would bias it.
                let rate = sample.rate(self.gate.state());
                let draw = self.guard(|| sample.draw(item, rate, self.nonce, ticket));
                draw.map(|draw| Decision::of(draw, !sample.has_key()))
            }
            Strategy::Custom(custom) => {
                let pressure = self.pressure_view();
                let admission = self.guard(|| custom.admit(item, &pressure));
                admission.map(|admission| match admission {
                    Admission::Wait => Decision::Wait(None),
                    Admission::WaitFor(limit) => Decision::Wait(Some(limit)),
                    Admission::Admit => Decision::Admit,
                    Admission::EvictOldest => Decision::Evict,
                    Admission::Refuse => Decision::Refuse(RefuseReason::Full),
                    Admission::Sample(rate) => Decision::of(Draw::new(self.nonce, ticket(), rate.get()), true),
                })
            }
        }
    }

    /// Uses the strategy. It may be the last one to hold it, and the destructor of a strategy is the user's.
    pub(super) fn with_strategy<R>(&self, code: impl FnOnce(&Strategy<T>) -> R) -> R {
        let strategy = self.levers.strategy();
        let result = code(&strategy);
        self.guard(|| drop(strategy));
        result
    }

    /// Stores an item; one with a tag, or that does not fit beside what is prepaid, under the lock.
    fn store_tagged(&self, item: T, mut tag: Tag) -> Result<(), (T, Tag)> {
        if tag.is_plain() {
            match self.gate.claim_sized(tag.size) {
                Ok(place) => {
                    if place.fill(item) {
                        self.alarm();
                    }
                    return Ok(());
                }
                Err(Misfit::Short) => {}
                Err(misfit) => {
                    self.apply(self.gate.tell_misfit(misfit, tag.size));
                    return Err((item, tag));
                }
            }
        }
        let mut locked = self.gate.lock();
        let stored = locked.store(item, &mut tag);
        self.apply(locked.finish());
        stored.map_err(|item| (item, tag))
    }

    fn store_or_refuse(&self, item: T, tag: Tag) -> Admitted<T> {
        match self.store_tagged(item, tag) {
            Ok(()) => Admitted::Stored,
            Err((item, _)) => Admitted::Refused(self.refuse(self.why_not(), item)),
        }
    }

    fn why_not(&self) -> RefuseReason {
        if self.is_closed() { RefuseReason::Closed } else { RefuseReason::Full }
    }

    fn evict(&self, item: T, tag: Tag) -> Admitted<T> {
        if loss::is_in_hook() {
            return self.store_or_refuse(item, tag);
        }
        if self.weigher.is_some() {
            return self.evict_some(item, tag);
        }
        if tag.is_plain() {
            if let Some(eviction) = self.gate.eviction() {
                self.carry_out(eviction, item);
                return Admitted::Stored;
            }
        }
        self.evict_one(item, tag)
    }

    #[cold]
    fn evict_one(&self, item: T, tag: Tag) -> Admitted<T> {
        self.evict_by(item, tag, |item, tag| {
            let mut locked = self.gate.lock();
            let (evicted, victim) = locked.evict(item, tag);
            self.apply(locked.finish_eviction());
            if let Some(victim) = victim {
                self.lose_evicted(victim);
            }
            evicted
        })
    }

    /// The same by weight: as many as the item needs.
    #[cold]
    fn evict_some(&self, item: T, tag: Tag) -> Admitted<T> {
        self.evict_by(item, tag, |item, tag| {
            let mut locked = self.gate.lock();
            let (evicted, victims) = locked.evict_sized(item, tag);
            self.apply(locked.finish());
            victims.into_iter().for_each(|victim| self.lose_evicted(victim));
            evicted
        })
    }

    #[inline(always)]
    fn evict_by(&self, mut item: T, mut tag: Tag, once: impl Fn(T, &mut Tag) -> Evicted<T>) -> Admitted<T> {
        let mut patience = Patience::new();
        loop {
            match once(item, &mut tag) {
                Evicted::Stored => return Admitted::Stored,
                Evicted::Closed(item) => return Admitted::Refused(self.refuse(RefuseReason::Closed, item)),
                Evicted::Unwritten(back) if !patience.is_exhausted() => item = back,
                Evicted::Full(item) | Evicted::Unwritten(item) => {
                    return Admitted::Refused(self.refuse(RefuseReason::Full, item));
                }
            }
            patience.wait(self.gate.clock());
        }
    }

    /// Stores an item that a sample has kept; without room it may share the youngest one's place.
    fn keep(&self, mut item: T, mut tag: Tag, draw: Draw, shares: bool) -> Admitted<T> {
        if !shares || loss::is_in_hook() {
            return self.store_or_refuse(item, tag);
        }
        let mut patience = Patience::new();
        loop {
            let mut locked = self.gate.lock();
            let merged = locked.merge(item, &mut tag, |old, new| draw.prefers_new(old, new));
            self.apply(locked.finish());
            let (reason, back) = match merged {
                Merged::Stored => return Admitted::Stored,
                Merged::Displaced(victim) => {
                    self.lose_evicted(victim);
                    return Admitted::Stored;
                }
                Merged::Unwritten(back) if !patience.is_exhausted() => {
                    item = back;
                    patience.wait(self.gate.clock());
                    continue;
                }
                Merged::Outweighed(back) => (RefuseReason::Sampled, back),
                Merged::Closed(back) => (RefuseReason::Closed, back),
                Merged::Full(back) | Merged::Unwritten(back) => (RefuseReason::Full, back),
            };
            return Admitted::Refused(self.refuse(reason, back));
        }
    }

    /// Why a producer that would wait for so long at most must not, if so.
    pub(crate) fn forbids_wait(&self, limit: Option<Duration>) -> Option<RefuseReason> {
        if self.is_inside() {
            return Some(RefuseReason::WouldDeadlock);
        }
        (limit == Some(Duration::ZERO)).then_some(RefuseReason::TimedOut)
    }

    #[inline]
    pub(crate) fn refuse(&self, reason: RefuseReason, item: T) -> PushError<T> {
        self.gate.refusals().add(reason, 1);
        PushError::new(reason, item)
    }

    pub(crate) fn count_refused(&self, reason: RefuseReason, n: usize) {
        self.gate.refusals().add(reason, n as u64);
    }

    /// Counts items that were offered and given up.
    pub(crate) fn count_cancelled(&self, n: usize) {
        if n > 0 {
            self.gate.lock().desk().ledger.cancelled += n as u64;
        }
    }

    /// Queues a producer, after a last try under the lock.
    pub(crate) fn enqueue(&self, parked: Parked<T>, waker: Waker) -> Queued<T> {
        let again = self.to_look_again(&waker);
        self.enqueue_locked(self.gate.lock(), parked, waker, again)
    }

    /// Queues a reservation likewise; `Err` says how many places there are, if those are fewer.
    pub(crate) fn enqueue_reservation(&self, wanted: u64, size: u64, waker: Waker) -> Result<Queued<T>, u64> {
        let again = self.to_look_again(&waker);
        let locked = self.gate.lock();
        match locked.too_few_for(wanted) {
            Some(most) => Err(most),
            None => Ok(self.enqueue_locked(locked, Parked::Permits { wanted, granted: 0, size }, waker, again)),
        }
    }

    /// Where there is no flusher nobody else looks again: whoever waits beside what is not settled does. Cloned outside the lock.
    fn to_look_again(&self, waker: &Waker) -> Option<Waker> {
        (self.is_pulled && self.is_weighed()).then(|| waker.clone())
    }

    fn enqueue_locked(
        &self,
        mut locked: Locked<'_, T, Hangar<T>>,
        mut parked: Parked<T>,
        waker: Waker,
        again: Option<Waker>,
    ) -> Queued<T> {
        let queued = match locked.try_serve(&mut parked) {
            Ok(()) => Queued::Served,
            Err(NoRoom::Closed) => Queued::Closed(parked),
            Err(NoRoom::Full) => Queued::Waiting(locked.park(parked, waker)),
        };
        let is_unsettled = locked.is_unsettled();
        self.apply(locked.finish());
        if is_unsettled {
            again.iter().for_each(Waker::wake_by_ref);
        }
        queued
    }

    /// What a queued producer finds.
    pub(crate) fn poll_waiter(&self, key: Key, waker: Waker) -> Wait<T> {
        if self.is_pulled && self.is_to_look_again() {
            waker.wake_by_ref();
        }
        let mut locked = self.gate.lock();
        let (wait, stale) = locked.poll_waiter(key, waker);
        drop(locked);
        drop(stale);
        wait
    }

    /// Takes a producer out of the queue: for `reason`, or because it gave up.
    pub(crate) fn leave(&self, key: Key, reason: Option<RefuseReason>) -> Wait<T> {
        let mut locked = self.gate.lock();
        let (wait, waker) = locked.dequeue(key, reason);
        self.apply(locked.finish());
        drop(waker);
        wait
    }
}
