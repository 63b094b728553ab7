//! Items with a size: what fits, who is before whom, and what leaves for what comes. Without a weigher nothing here does
//! anything.

use std::collections::VecDeque;
use std::ops::Range;

use super::volume::{Unfit, Volume};
use super::{Claim, Effects, Evicted, Gate, Limits, Locked, Means, Tag};
use crate::ledger::{Outcome, Weights};
use crate::ring::{Popped, Word};
use crate::sync::{Fault, fault};
use crate::time::sooner;

/// An item with a size was not stored: what is left to do, outside the path of those that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a size that was taken in must be given back"]
pub(crate) enum Misfit {
    /// Nothing.
    Known,
    /// It does not fit beside what is prepaid, or not at all, as the first one: it is to be tried again under the lock, where the
    /// flusher is told.
    Short,
    /// Its size was taken in and found no place: it is to be given back.
    NoPlace,
}

/// A place, and what its item brings by size.
#[must_use = "a place that stays unwritten is waited for"]
pub(crate) struct SizedClaim<'a, T, R> {
    place: Claim<'a, T, R>,
    size: u64,
    /// Only with a weigher.
    level: Option<Level<'a>>,
}

/// How much is inside by size since a claim.
struct Level<'a> {
    volume: &'a Volume,
    inside: u64,
    /// Only a broken model looks at the alarm before it has a place.
    early: Option<bool>,
}

impl<T, R> SizedClaim<'_, T, R> {
    /// Stores the item; `true` asks for [`alarm`](Gate::alarm).
    #[inline(always)]
    pub(crate) fn fill(self, item: T) -> bool {
        let Some(Level { volume, inside, early }) = self.level else { return self.place.fill(item) };
        let is_due = self.place.fill_sized(item, self.size);
        // Both, so that an alarm that was reached is not left to nobody.
        early.unwrap_or_else(|| volume.is_due(inside)) | is_due
    }
}

impl<T, R> Gate<T, R> {
    /// The bounds by size; `None` without a weigher.
    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.volume.as_ref().map(|volume| volume.limits())
    }

    /// What is inside by size. Under the lock, outside of which part of it may be prepaid.
    pub(crate) fn inside(&self) -> u64 {
        if self.volume.is_some() { self.lock().inside() } else { 0 }
    }

    pub(crate) fn pressure(&self) -> f64 {
        let by_size = self.volume.as_ref().map_or(0, |volume| volume.depth_in(self.inside(), self.capacity() as u64));
        self.scale.pressure(self.depth().max(by_size))
    }

    /// Claims a place for an item of this size if there is room and nobody waits; filling it may ask for
    /// [`alarm`](Self::alarm).
    #[inline(always)]
    pub(crate) fn claim_sized(&self, size: u64) -> Result<SizedClaim<'_, T, R>, Misfit> {
        let Some(volume) = &self.volume else {
            return self.claim(Means::Room).map(|place| SizedClaim { place, size, level: None }).ok_or(Misfit::Known);
        };
        if !self.ring.had_room() {
            return Err(Misfit::Known);
        }
        match volume.claim(size) {
            Ok(inside) => {
                let early = fault(Fault::VolumeAlarmEarly).then(|| volume.is_due(inside));
                // With sizes what is on credit is prepaid, and others may have it, too.
                let place = self.ring.claim(Means::Credit).ok_or(Misfit::NoPlace)?;
                Ok(SizedClaim { place, size, level: Some(Level { volume, inside, early }) })
            }
            Err(Unfit::News) => Err(Misfit::Short),
            Err(Unfit::Known | Unfit::Barred) => Err(Misfit::Known),
        }
    }

    /// Does what is left to do about an item of this size that was not stored.
    #[cold]
    pub(crate) fn tell_misfit(&self, misfit: Misfit, size: u64) -> Effects {
        match (misfit, &self.volume) {
            (Misfit::NoPlace, Some(volume)) => self.return_size(volume, size),
            _ => Effects::default(),
        }
    }

    /// There is no place for what was taken in by size. Whoever has seen it inside may wait for it: they are served.
    fn return_size(&self, volume: &Volume, size: u64) -> Effects {
        if fault(Fault::SizeReturnSilent) {
            volume.release(size);
            return Effects::default();
        }
        let locked = self.lock();
        volume.release(size);
        locked.finish()
    }
}

impl<'a, T, R> Locked<'a, T, R> {
    #[inline]
    pub(super) fn volume(&self) -> Option<&'a Volume> {
        self.gate.volume.as_deref()
    }

    /// Somebody waits who is before any newcomer, although there may be places: an item of another size.
    #[inline]
    pub(super) fn is_outranked(&self) -> bool {
        self.gate.volume.is_some() && self.head.waiters.queued() > 0
    }

    /// There is nothing left by size.
    pub(super) fn is_brimful(&self) -> bool {
        self.volume().is_some_and(|volume| volume.spare() == 0)
    }

    /// Something has not fitted since the last batch was taken.
    pub(crate) fn is_short(&self) -> bool {
        self.volume().is_some_and(Volume::is_short)
    }

    /// Something does not fit: a reason to flush, as a full buffer is. Not if it may fit as soon as an item is written that is on its way:
    /// then the next one is to look again.
    fn note_short(&mut self) {
        if !self.is_unsettled() && !fault(Fault::ShortSilent) && self.volume().is_some_and(Volume::note_short) {
            self.rouse();
        }
    }

    /// Stores an item in free room, if it fits; the caller has seen to it that it is its turn.
    pub(super) fn place_sized(&mut self, item: T, tag: &mut Tag) -> Result<(), T> {
        let size = tag.size;
        if !self.load(size) {
            return Err(item);
        }
        match self.head.place(item, Some(size)) {
            Ok(place) => {
                self.attach(place, tag);
                Ok(())
            }
            Err(item) => {
                self.discharge(size);
                Err(item)
            }
        }
    }

    /// Takes a size in, if there is a place for it; see [`place_sized`](Self::place_sized).
    fn load(&mut self, size: u64) -> bool {
        let Some(volume) = self.volume() else { return true };
        if !self.head.has_spare(self.head.tail()) {
            return false;
        }
        let claimed = volume.claim_locked(size);
        if claimed == Err(Unfit::News) && !self.is_outranked() {
            self.note_short();
        }
        claimed.is_ok()
    }

    /// Undoes a [`load`](Self::load).
    #[inline]
    pub(super) fn discharge(&mut self, size: u64) {
        if let Some(volume) = self.volume() {
            volume.release(size);
        }
    }

    /// Takes a size in for that of the item at `position`, which is about to leave; `Some(false)` if it does not fit, whatever
    /// was drawn, and `None` if that one is not written yet, or if it may fit as soon as another one is.
    #[inline]
    pub(super) fn make_way(&mut self, position: u64, size: u64) -> Option<bool> {
        if self.gate.volume.is_none() { Some(true) } else { self.make_way_sized(position, size) }
    }

    fn make_way_sized(&mut self, position: u64, size: u64) -> Option<bool> {
        let old = self.head.size_at(position)?;
        self.settle_prepaid();
        let fits = self.swap_sizes(old, size);
        if !fits && self.is_unsettled() {
            return None;
        }
        if fits {
            self.head.replace_size(position, size);
            self.head.ledger.sizes.add(Outcome::Evicted, old);
        }
        Some(fits)
    }

    /// One for the other. Whoever waits has what is spare.
    #[inline]
    pub(super) fn swap_sizes(&mut self, old: u64, new: u64) -> bool {
        self.volume().is_none_or(|volume| self.swap_in(volume, old, new))
    }

    fn swap_in(&mut self, volume: &Volume, old: u64, new: u64) -> bool {
        let is_swapped = (new <= old || !self.is_outranked()) && volume.exchange(old, new);
        if is_swapped {
            self.head.stowage.gone += u128::from(old);
        }
        is_swapped
    }

    /// Moves the items of a bulk push in, in order, as far as they fit.
    pub(super) fn serve_many(&mut self, items: &mut VecDeque<T>, sizes: &mut VecDeque<u64>) {
        while let (Some(item), Some(size)) = (items.pop_front(), sizes.pop_front()) {
            if let Err(item) = self.store(item, &mut Tag::of_size(size)) {
                items.push_front(item);
                sizes.push_front(size);
                return;
            }
        }
    }

    /// Reserves up to `n` places of this size each; returns how many.
    pub(super) fn grant(&mut self, n: u64, size: u64) -> u64 {
        let Some(volume) = self.volume() else { return self.head.grant(n) };
        let places = self.head.spare(self.head.tail()).min(n);
        loop {
            let fitting = volume.spare().checked_div(size).unwrap_or(n).min(places);
            if fitting == 0 {
                return 0;
            }
            // All that fit are more than a single item may be.
            if volume.exchange(0, fitting * size) {
                let granted = self.head.grant(fitting);
                volume.release((fitting - granted) * size);
                self.head.stowage.reserved += granted * size;
                return granted;
            }
        }
    }

    /// Reserves `n` places of this size each, all or none, unless somebody waits.
    pub(crate) fn reserve_sized(&mut self, n: u64, size: u64) -> bool {
        if self.head.tail().is_closed() || self.is_outranked() {
            return false;
        }
        let fitting = self.volume().and_then(|volume| volume.spare().checked_div(size)).unwrap_or(n);
        if fitting.min(self.head.spare(self.head.tail())) < n {
            return false;
        }
        let granted = self.grant(n, size);
        if granted < n && granted > 0 {
            // Somebody came in between.
            self.head.give_back(granted);
            self.unreserve(granted * size);
        }
        granted == n
    }

    /// Places of this size in all are no longer reserved.
    pub(super) fn unreserve(&mut self, size: u64) {
        self.discharge(size);
        self.head.stowage.reserved -= size;
    }

    /// Turns a reserved place that holds `held` into an item, which is no larger; whether the intake is shut.
    pub(crate) fn send(&mut self, item: T, size: u64, held: u64) -> bool {
        self.gate.ring.send_sized(item, size);
        self.head.stowage.reserved -= held;
        self.discharge(held - size);
        self.head.tail().is_closed()
    }

    /// The most of a batch by size.
    pub(super) fn batch_size(&self) -> Option<u64> {
        self.volume().and_then(|volume| volume.limits().batch)
    }

    /// How many items make a full batch, of `max` at most: fewer, if more would be too heavy. Those that are claimed and not
    /// written count as part of it.
    pub(crate) fn batch_limit(&self, max: usize) -> usize {
        let Some(most) = self.batch_size() else { return max };
        let word = self.head.tail();
        // What may turn out lighter is no reason.
        if self.buffered_size().saturating_sub(self.unsettled()) < most || self.head.buffered(word) == 0 {
            return max;
        }
        let (mut count, mut sum) = (0, 0);
        for size in self.head.sizes().take(max) {
            let Some(size) = size else { return max.min(self.head.buffered(word) as usize) };
            sum += size;
            if sum > most && count > 0 {
                return count;
            }
            count += 1;
        }
        // There is enough for a batch, or on its way, so all that is here makes one.
        count
    }

    /// Moves up to `max` buffered items to the end of `out`, of this size in all at most, but at least one: how many, and
    /// whether there would have been more otherwise.
    pub(super) fn take_within(&mut self, max: usize, most: Option<u64>, out: &mut Vec<T>) -> (usize, bool) {
        if self.gate.volume.is_none() {
            return (self.head.take(max, out), false);
        }
        let first = self.head.taken_total();
        let mut sizes = self.head.stowage.blank();
        let (mut sum, mut is_cut) = (0, false);
        for size in self.head.sizes().take(max).flatten() {
            sum += size;
            if most.is_some_and(|most| sum > most) && !sizes.is_empty() {
                is_cut = true;
                break;
            }
            sizes.push(size);
        }
        self.settle_prepaid();
        // They are written, so all of them come.
        let count = self.head.take(sizes.len(), out);
        self.head.stowage.take(first, sizes);
        if let Some(volume) = self.volume() {
            volume.forget_short();
        }
        (count, is_cut)
    }

    /// The sizes of what is settled leave; returns their sum.
    #[inline]
    pub(super) fn unload(&mut self, positions: &Range<u64>) -> u64 {
        self.volume().map_or(0, |volume| self.unload_from(volume, positions))
    }

    fn unload_from(&mut self, volume: &Volume, positions: &Range<u64>) -> u64 {
        let size = self.head.stowage.settle(positions);
        self.head.stowage.gone += u128::from(size);
        volume.release(size);
        volume.forget_short();
        size
    }

    /// Like [`evict`](Self::evict), with as many victims as the item needs, and no more: none if all would not be enough.
    /// Ends with [`finish`](Self::finish): what it did not need of them is the waiters', or everyone's.
    pub(crate) fn evict_sized(&mut self, item: T, tag: &mut Tag) -> (Evicted<T>, Vec<T>) {
        if self.head.tail().is_closed() && !fault(Fault::EvictIgnoresClosed) {
            return (Evicted::Closed(item), Vec::new());
        }
        self.serve();
        let mut item = match self.store(item, tag) {
            Ok(()) => return (Evicted::Stored, Vec::new()),
            Err(item) => item,
        };
        let (count, size) = loop {
            let Some((count, size)) = self.victims_for(tag.size) else {
                let is_unwritten = self.is_unsettled() || self.head.sizes().any(|size| size.is_none());
                let refused = if is_unwritten { Evicted::Unwritten(item) } else { Evicted::Full(item) };
                return (refused, Vec::new());
            };
            // What was written since may be among the victims, or make them needless.
            if self.settle_prepaid() {
                match self.store(item, tag) {
                    Ok(()) => return (Evicted::Stored, Vec::new()),
                    Err(back) => item = back,
                }
            } else if self.swap_sizes(size, tag.size) {
                break (count, size);
            }
        };
        let first = self.head.taken_total();
        let mut victims = Vec::with_capacity(count);
        while victims.len() < count {
            let Popped::Item(victim) = self.head.pop() else { break };
            victims.push(victim);
        }
        self.count_out(first..first + victims.len() as u64, Outcome::Evicted, None, size);
        // The victims' room is not published: nobody else can have it.
        match self.head.place_instead(item, Some(tag.size)) {
            Ok(place) => {
                self.attach(place, tag);
                (Evicted::Stored, victims)
            }
            Err(item) => (Evicted::Full(item), victims),
        }
    }

    /// How many of the oldest have to go for an item of this size, and their size in all; `None` if all that are written are
    /// not enough.
    fn victims_for(&self, size: u64) -> Option<(usize, u64)> {
        let spare = if self.is_outranked() { 0 } else { self.volume()?.spare() };
        let mut sum = 0;
        for (before, victim) in self.head.sizes().map_while(|size| size).enumerate() {
            sum += victim;
            if sum + spare >= size {
                return Some((before + 1, sum));
            }
        }
        None
    }

    /// Keeps pushes out while anybody waits. Before the room is published: it is the waiters' first.
    #[inline]
    pub(super) fn follow_queue(&mut self) {
        if self.gate.volume.is_none() {
            return;
        }
        let is_shut = self.is_outranked();
        if std::mem::replace(&mut self.head.stowage.is_shut, is_shut) != is_shut {
            if let Some(volume) = self.volume() {
                volume.set_shut(is_shut);
            }
        }
    }

    /// What is inside by size, after a swap on `tail`.
    pub(super) fn inside(&self) -> u64 {
        self.volume().map_or(0, Volume::inside)
    }

    /// The depth that the state goes by: by items or by size, whichever is more; no room at all while somebody waits.
    pub(super) fn fullness(&self, depth: u64, inside: u64) -> u64 {
        let capacity = self.head.capacity();
        match self.volume() {
            None => depth,
            Some(_) if self.is_outranked() => depth.max(capacity),
            Some(volume) => depth.max(volume.depth_in(inside, capacity)),
        }
    }

    /// Has producers raise the alarm when so much is inside that somebody wants to know; returns it.
    pub(super) fn arm_volume(&self, word: Word) -> Option<u64> {
        let volume = self.volume()?;
        let mark = self.head.machine.mark_above().map(|depth| volume.inside_at(depth, self.head.capacity()));
        let at = sooner(self.heavy_at(word), mark);
        volume.arm(at);
        at
    }

    /// How much must be inside for the flusher to be woken, if it sleeps until a batch is full: so much as makes one, or as
    /// there is room for. While nothing is buffered the first item wakes it.
    pub(super) fn heavy_at(&self, word: Word) -> Option<u64> {
        let volume = self.volume()?;
        self.head.sleeper.flatten().filter(|_| self.head.buffered(word) > 0)?;
        let limits = volume.limits();
        let elsewhere = self.head.stowage.in_flight + self.head.stowage.reserved;
        Some(limits.batch.map_or(limits.capacity, |batch| limits.capacity.min(elsewhere.saturating_add(batch))))
    }

    fn buffered_size(&self) -> u64 {
        let elsewhere = self.head.stowage.in_flight + self.head.stowage.reserved;
        self.volume().map_or(0, |volume| volume.inside().saturating_sub(elsewhere))
    }

    /// The accounts by weight; after [`figures`](Self::figures).
    pub(crate) fn by_weight(&self) -> Option<Weights> {
        let (volume, stowage) = (self.volume()?, &self.head.stowage);
        let (limits, sums) = (volume.limits(), &self.head.ledger.sizes);
        let depth = volume.inside();
        let buffered = depth.saturating_sub(stowage.reserved + stowage.in_flight);
        Some(Weights {
            capacity: limits.capacity,
            max_item: limits.item,
            max_batch: limits.batch,
            depth,
            reserved: stowage.reserved,
            buffered,
            in_flight: stowage.in_flight,
            accepted: stowage.gone + u128::from(buffered) + u128::from(stowage.in_flight),
            delivered: sums.get(Outcome::Delivered),
            failed: sums.get(Outcome::Failed),
            evicted: sums.get(Outcome::Evicted),
            expired: sums.get(Outcome::Expired),
            purged: sums.get(Outcome::Purged),
            abandoned: sums.get(Outcome::Abandoned),
        })
    }
}
