//! The consumer's side of the ring, under the head lock: take, displace, free, hand over.

use std::mem::{self, MaybeUninit};
use std::ops::{Deref, DerefMut};

use super::{Head, Ring, Slot, Word};
use crate::sync::{Fault, MutexGuard, Ordering, fault, mark, order};

/// The head lock, held.
pub(crate) struct HeadGuard<'a, T, X> {
    pub(super) ring: &'a Ring<T, X>,
    pub(super) head: MutexGuard<'a, Head<X>>,
}

impl<T, X> HeadGuard<'_, T, X> {
    /// Moves the written prefix, at most `max` items, to the end of `out`. Fewer than were claimed means that the next
    /// claim is not written yet.
    pub(crate) fn take(&mut self, max: usize, out: &mut Vec<T>) -> usize {
        let claimed = self.buffered(self.tail()) as usize;
        let max = max.min(claimed);
        if fault(Fault::RoomBeforeTake) {
            self.head.owed += max as u64;
            self.publish();
        }
        out.reserve_exact(max);
        let len = out.len();
        let cells = &mut out.spare_capacity_mut()[..max];
        // Two runs of slots in a row cost 11 instructions an item, a walk from place to place 27.
        let (early, late) = self.ring.slots.split_at(self.ring.shape.index(self.head.taken));
        let mut count = self.take_run(late, cells, self.head.taken);
        if count == late.len() {
            let next = self.ring.shape.advance(self.head.taken, count as u64);
            count += self.take_run(early, &mut cells[count..], next);
        }
        // SAFETY: so many of the spare cells are written, from the first.
        unsafe { out.set_len(len + count) };
        self.head.taken = self.ring.shape.advance(self.head.taken, count as u64);
        self.head.taken_total += count as u64;
        self.head.in_flight += count as u64;
        count
    }

    /// Moves the written prefix of `slots`, the first of which is the one of `place`, to `cells`; returns how many.
    #[inline(always)]
    fn take_run(&mut self, slots: &[Slot<T>], cells: &mut [MaybeUninit<T>], place: Word) -> usize {
        let mut mark = place.mark();
        let mut count = 0;
        let both = slots.chunks_exact(STRIDE).zip(cells.chunks_exact_mut(STRIDE));
        for (slots, cells) in both {
            if !are_written(slots, mark) {
                break;
            }
            for (slot, cell) in slots.iter().zip(cells) {
                self.move_to(slot, cell);
            }
            // Each line once.
            slots.iter().step_by(Slot::<T>::PER_LINE).for_each(Slot::vacate);
            mark = mark.ahead(STRIDE as u64);
            count += STRIDE;
        }
        for (slot, cell) in slots[count..].iter().zip(&mut cells[count..]) {
            if !is_written(slot, mark) {
                break;
            }
            self.move_to(slot, cell);
            slot.vacate();
            mark = mark.ahead(1);
            count += 1;
        }
        count
    }

    /// Moves the oldest item out.
    pub(crate) fn pop(&mut self) -> Popped<T> {
        let place = self.head.taken;
        if self.tail().place() == place {
            return Popped::Empty;
        }
        let slot = self.ring.slot(place);
        if !is_written(slot, place.mark()) && !fault(Fault::EvictUnwritten) {
            return Popped::Unwritten;
        }
        let item = self.move_out(slot);
        self.head.taken = self.ring.shape.next(place);
        self.head.taken_total += 1;
        self.head.in_flight += 1;
        Popped::Item(item)
    }

    /// Gives the room of `n` taken items free, to be published later.
    pub(crate) fn free(&mut self, n: u64) {
        // R1 rests on this test.
        assert!(n <= self.head.in_flight, "only what was taken can be settled");
        self.head.in_flight -= n;
        if !fault(Fault::RoomBeforeTake) {
            self.head.owed += n;
        }
        if fault(Fault::LimitBeforeTail) {
            self.publish();
        }
    }

    /// Stores `item`, of this size if sizes are remembered, in room that is free, published or not.
    #[inline(always)]
    pub(crate) fn place(&mut self, item: T, size: Option<u64>) -> Result<Word, T> {
        self.place_below(self.paid_limit(), item, size)
    }

    /// Stores `item` for one that was given free in this section: one for one, so also while more is inside than the
    /// capacity.
    #[inline(always)]
    pub(crate) fn place_instead(&mut self, item: T, size: Option<u64>) -> Result<Word, T> {
        let limit = self.paid_limit();
        let above = if self.head.overhang == 0 { 0 } else { self.ring.most - self.head.capacity };
        self.place_below(self.ring.shape.advance(limit, above), item, size)
    }

    /// `bound` is `gone` and the largest capacity at most.
    #[inline(always)]
    fn place_below(&mut self, bound: Word, item: T, size: Option<u64>) -> Result<Word, T> {
        let mut word = self.tail();
        loop {
            if !self.is_below(word, bound) {
                return Err(item);
            }
            let next = self.ring.shape.next(word);
            let is_settled = self.head.overhang == 0 || fault(Fault::FrozenByLimit);
            let is_frozen = is_settled && word.reserved() == 0 && !word.place().is_before(self.head.limit);
            if is_frozen || fault(Fault::StoreWithPermits) && self.ring.room(word, self.head.limit) <= 0 {
                // Ordering: Release, partner of the Acquire of later swaps. A store is enough: full by every limit that
                // was ever published, with nothing reserved, and the head lock held, freezes the tail. A limit that was lent is
                // not for a word without the bit: whoever sees that word sees a limit that came later. It saves 0.5 ns
                // of an eviction.
                self.ring.tail.store(next.raw(), Ordering::Release);
            } else if let Err(now) = self.ring.swap_tail(word, next) {
                word = now;
                continue;
            }
            if let Some(size) = size {
                self.ring.set_size(word, size);
            }
            self.ring.write(word, item);
            return Ok(word);
        }
    }

    /// Puts `item` in the place of the buffered one at `position`, which comes back; `Err` if that is not written yet.
    pub(crate) fn exchange(&mut self, position: u64, item: T) -> Result<T, T> {
        let ahead = position - self.head.taken_total;
        assert!(ahead < self.buffered(self.tail()), "only what is buffered can be exchanged");
        let place = self.ring.shape.advance(self.head.taken, ahead);
        let slot = self.ring.slot(place);
        if !is_written(slot, place.mark()) && !fault(Fault::ExchangeUnwritten) {
            return Err(item);
        }
        let other = self.move_out(slot);
        self.ring.write(place, item);
        Ok(other)
    }

    /// Reserves up to `n` places in room that is free, published or not; returns how many.
    pub(crate) fn grant(&mut self, n: u64) -> u64 {
        let mut word = self.tail();
        loop {
            let granted = self.spare(word).min(n);
            if granted == 0 {
                return 0;
            }
            match self.ring.swap_tail(word, word.with_reserved(word.reserved() + granted)) {
                Ok(()) => return granted,
                Err(now) => word = now,
            }
        }
    }

    /// Takes `n` reserved places back.
    pub(crate) fn give_back(&mut self, n: u64) {
        let mut word = self.tail();
        loop {
            // R3 rests on this test.
            assert!(word.reserved() >= n, "a permit stands for a reserved place");
            match self.ring.swap_tail(word, word.with_reserved(word.reserved() - n)) {
                Ok(()) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Tells the producers of the room that was given free.
    pub(crate) fn publish(&mut self) {
        if self.head.owed == 0 {
            return;
        }
        self.head.limit = self.paid_limit();
        let paid = mem::take(&mut self.head.owed);
        if self.head.is_resized {
            self.announce(paid);
        }
        // Ordering: Release, partner of the Acquire of whoever claims: room implies a vacant slot. It comes after the
        // tail changes that it pays for, so that nobody overtakes a hand-over.
        self.ring.signals.limit.store(self.head.limit.raw(), order(Fault::LimitRelaxed, Ordering::Release));
    }

    /// Changes the capacity; `to` in `1 ..= max_capacity`. Room that is gained is owed, like room that was given free; room that is
    /// lost leaves the published limit at once. Nothing that is inside is touched.
    pub(crate) fn set_capacity(&mut self, to: u64) {
        let most = self.ring.most;
        // R1 rests on this test.
        assert!((1..=most).contains(&to), "a capacity in 1 ..= {most}");
        let from = mem::replace(&mut self.head.capacity, to);
        self.head.is_resized = true;
        if to >= from {
            self.head.owed += to - from;
            if fault(Fault::GrowSilent) {
                self.publish();
            }
            return;
        }
        self.head.limit = self.ring.shape.retreat(self.head.limit, from - to);
        self.head.overhang += from - to;
        if !fault(Fault::ShrinkUnpublished) {
            // Ordering: Release, as in `publish`.
            self.ring.signals.limit.store(self.head.limit.raw(), Ordering::Release);
        }
        self.announce(0);
    }

    /// Publishes the capacity and the ceiling: after the limit of a smaller one, before that of a larger one, so that a figure
    /// that is read meanwhile is too high rather than too low. `paid` places are added to the limit.
    #[cold]
    fn announce(&mut self, paid: u64) {
        let beyond = self.ring.room(self.tail(), self.head.limit).min(0).unsigned_abs();
        let head = &mut *self.head;
        head.overhang = head.overhang.saturating_sub(paid).max(beyond);
        head.is_resized = head.overhang > 0;
        let ceiling = (head.capacity + head.overhang).min(self.ring.most);
        // Ordering: Relaxed, a figure; before the capacity, which it is never below.
        self.ring.signals.ceiling.store(ceiling, Ordering::Relaxed);
        // Ordering: Release, partner of the Acquire in `Ring::inside`.
        self.ring.signals.capacity.store(head.capacity, Ordering::Release);
    }

    /// Shuts the intake; `false` if it was shut.
    pub(crate) fn close(&mut self) -> bool {
        let bit = Word::ZERO.closed().raw();
        // Ordering: AcqRel, part of the chain on `tail`.
        !Word::from_raw(self.ring.tail.fetch_or(bit, Ordering::AcqRel)).is_closed()
    }

    /// Sets the level at which a producer raises the alarm.
    pub(crate) fn arm(&mut self, at: Option<Word>) {
        let at = at.unwrap_or_else(|| self.ring.shape.level(self.tail()).never());
        mark();
        // Ordering: AcqRel, partner of the swap in `fire_slow`; the swap on `tail` in `tail_exact` hands it to the
        // producers.
        self.ring.signals.wake_at.swap(at.raw(), Ordering::AcqRel);
    }

    /// `tail` as some recent moment saw it; final where the protocol says so.
    pub(crate) fn tail(&self) -> Word {
        mark();
        // Ordering: Acquire, partner of the claims' Release.
        Word::from_raw(self.ring.tail.load(Ordering::Acquire))
    }

    /// `tail` as it is: takes part in the chain of swaps, so that later claims see what was armed before.
    pub(crate) fn tail_exact(&self) -> Word {
        if fault(Fault::SleepByLoad) {
            return self.tail();
        }
        // Ordering: AcqRel, partner of every claim.
        Word::from_raw(self.ring.tail.fetch_or(0, Ordering::AcqRel))
    }

    /// Claimed and not taken.
    pub(crate) fn buffered(&self, word: Word) -> u64 {
        self.ring.shape.distance(self.head.taken, word).max(0) as u64
    }

    /// Taken and not settled.
    pub(crate) fn in_flight(&self) -> u64 {
        self.head.in_flight
    }

    /// The present capacity, in `1 ..= max_capacity`.
    pub(crate) fn capacity(&self) -> u64 {
        self.head.capacity
    }

    /// Reserved + buffered + in flight, in `0 ..= slots`.
    pub(crate) fn depth(&self, word: Word) -> u64 {
        word.reserved() + self.buffered(word) + self.in_flight()
    }

    /// Whether there are free places, published or not.
    #[inline]
    pub(crate) fn has_spare(&self, word: Word) -> bool {
        self.is_below(word, self.paid_limit())
    }

    /// Free places, published or not.
    pub(crate) fn spare(&self, word: Word) -> u64 {
        self.ring.room(word, self.paid_limit()).max(0) as u64
    }

    /// Free places that are published.
    pub(crate) fn published(&self, word: Word) -> u64 {
        self.ring.room(word, self.head.limit).max(0) as u64
    }

    /// How many more are inside than the capacity, after it has shrunk.
    pub(crate) fn excess(&self) -> u64 {
        self.ring.room(self.tail(), self.paid_limit()).min(0).unsigned_abs()
    }

    /// The position of the oldest item that was not taken: how many were taken since the start.
    pub(crate) fn taken_total(&self) -> u64 {
        self.head.taken_total
    }

    /// The position of the item that was stored at this place and is not taken.
    pub(crate) fn position(&self, place: Word) -> u64 {
        self.head.taken_total + self.buffered(place)
    }

    /// The place `n` items after the oldest one, at most the first place without room, at least the next one.
    pub(crate) fn target(&self, n: u64) -> Word {
        let target = self.ring.shape.advance(self.head.taken, n);
        if fault(Fault::TargetBeyondLimit) {
            return target;
        }
        let next = self.ring.shape.next(self.head.taken);
        target.min(if next.is_before(self.head.limit) { self.head.limit } else { next })
    }

    /// The level at which the depth is `depth`, in `0 ..= slots`.
    pub(crate) fn level_at(&self, depth: u64) -> Word {
        let shape = self.ring.shape;
        // `limit` is the level of a full ring.
        shape.advance(shape.retreat(self.head.limit, self.head.capacity), depth)
    }

    /// The place with all that is reserved added.
    pub(crate) fn level(&self, word: Word) -> Word {
        self.ring.shape.level(word)
    }

    /// Whether the place, and all that is reserved, is below `bound`.
    #[inline]
    fn is_below(&self, word: Word, bound: Word) -> bool {
        if word.reserved() == 0 {
            return word.place().is_before(bound);
        }
        self.ring.room(word, bound) > 0
    }

    #[inline]
    fn paid_limit(&self) -> Word {
        self.ring.shape.advance(self.head.limit, self.head.owed)
    }

    /// How many of the places from the oldest on are written in a row, at most `max`, which is in `0 ..= slots`. What was seen
    /// written once is not looked at again: only a section moves items out.
    #[inline(always)]
    pub(super) fn written(&mut self, max: u64) -> u64 {
        let shape = self.ring.shape;
        let known = self.head.written.saturating_sub(self.head.taken_total);
        if known >= max {
            return max;
        }
        let from = shape.advance(self.head.taken, known);
        let (early, late) = self.ring.slots.split_at(shape.index(from));
        let unknown = (max - known) as usize;
        let mut count = written_run(&late[..late.len().min(unknown)], from);
        if count == late.len() {
            count += written_run(&early[..unknown - count], shape.advance(from, count as u64));
        }
        self.head.written = self.head.taken_total + known + count as u64;
        known + count as u64
    }

    /// Moves an item out; as [`move_to`](Self::move_to).
    #[inline(always)]
    fn move_out(&mut self, slot: &Slot<T>) -> T {
        let mut item = MaybeUninit::uninit();
        self.move_to(slot, &mut item);
        slot.vacate();
        // SAFETY: R4: what was written is a `T`.
        unsafe { item.assume_init() }
    }

    /// The caller has seen that the slot is written, and moves `taken` past it. Straight to its cell: behind the store in
    /// [`vacate`](Slot::vacate) a large item would be copied three times.
    #[inline(always)]
    fn move_to(&mut self, slot: &Slot<T>, cell: &mut MaybeUninit<T>) {
        slot.value.with_mut(|value| {
            // SAFETY: R4: the slot is written, and `&mut self` holds the head lock.
            *cell = unsafe { value.read() };
        });
    }
}

impl<T> Slot<T> {
    /// So many slots fill a line of the cache, rounded down: of a run, every so manyth one leaves no line out.
    const PER_LINE: usize = if size_of::<Self>() < 64 { 64 / size_of::<Self>() } else { 1 };

    /// Nobody asks for it, since an older mark tells as much: but writing to each line of slots that are freed leaves it with the
    /// consumer's last word, which alone was worth 2x to the producers.
    #[inline(always)]
    fn vacate(&self) {
        // Ordering: Relaxed, the Release of `limit` or the chain on `tail` carries it.
        self.turn.store(0, Ordering::Relaxed);
    }
}

/// The head lock of a full ring, to displace the oldest item in one step.
#[must_use = "it is to be used for an item"]
pub(crate) struct Rotation<'a, T, X>(HeadGuard<'a, T, X>);

impl<'a, T, X> HeadGuard<'a, T, X> {
    /// `None` if that is not all there is to do: there is room or a permit, nothing is buffered or the oldest not written, the
    /// intake is shut, the capacity has shrunk.
    #[inline(always)]
    pub(crate) fn rotation(self) -> Option<Rotation<'a, T, X>> {
        if self.can_rotate() { Some(Rotation(self)) } else { None }
    }

    #[inline(always)]
    fn can_rotate(&self) -> bool {
        let (word, place) = (self.tail(), self.head.taken);
        // The limit is a bare place: no permit is out, and the ring is open.
        let is_full = word == self.head.limit && self.head.owed | u64::from(self.head.is_resized) == 0;
        let is_written = || is_written(self.ring.slot(place), place.mark()) || fault(Fault::EvictUnwritten);
        is_full && place != word && is_written()
    }

    /// The caller has seen that it can.
    #[inline(always)]
    fn rotate_full(&mut self, item: T, lends: bool) -> (T, Word) {
        let ring = self.ring;
        // The tail is frozen since it was seen to be at the limit, and what was written stays so.
        let (word, place) = (self.head.limit, self.head.taken);
        let victim = self.move_out(ring.slot(place));
        self.head.taken = ring.shape.next(place);
        self.head.taken_total += 1;
        let next = ring.shape.next(word);
        self.head.limit = next;
        let (tail, limit) = if lends { self.lend(next) } else { (next, next) };
        let tell = || ring.signals.limit.store(limit.raw(), Ordering::Release);
        if fault(Fault::LimitBeforeTail) {
            tell();
            mark();
        }
        // Ordering: Release, as in `place_below`: the tail is frozen, so that a store is enough.
        ring.tail.store(tail.raw(), Ordering::Release);
        ring.write(word, item);
        // Ordering: Release, as in `publish`: after the tail that it pays for, so that nobody else has the room.
        tell();
        (victim, next)
    }

    #[cfg(test)]
    pub(super) fn rotate(&mut self, item: T) -> Result<(T, Word), T> {
        if self.can_rotate() { Ok(self.rotate_full(item, true)) } else { Err(item) }
    }
}

impl<T, X> Deref for Rotation<'_, T, X> {
    type Target = X;

    fn deref(&self) -> &X {
        &self.0
    }
}

impl<T, X> DerefMut for Rotation<'_, T, X> {
    fn deref_mut(&mut self) -> &mut X {
        &mut self.0
    }
}

impl<T, X> Rotation<'_, T, X> {
    /// Stores `item` for the oldest one, which comes back; and whether to raise the alarm. `lends` if whoever finds no room next may
    /// displace another one unasked.
    #[inline(always)]
    pub(crate) fn rotate(self, item: T, lends: bool) -> (T, bool) {
        let Self(mut head) = self;
        let (victim, level) = head.rotate_full(item, lends);
        let ring = head.ring;
        drop(head);
        (victim, ring.is_due(level))
    }
}

/// So many slots at a time are looked at, and then moved: half of the instructions of one after the other. Loom's models are small.
const STRIDE: usize = if cfg!(backpressure_loom) { 2 } else { 8 };

/// Whether the slot is written for the place whose mark this is. What was taken before may leave an older mark behind.
#[inline(always)]
pub(super) fn is_written<T>(slot: &Slot<T>, mark: Word) -> bool {
    // Ordering: Acquire, partner of the Release in `ring::fill`.
    slot.turn.load(Ordering::Acquire) == mark.raw()
}

/// How many of these slots, the first of which is the one of `place`, are written in a row.
#[inline(always)]
fn written_run<T>(slots: &[Slot<T>], place: Word) -> usize {
    if fault(Fault::CreditUnwritten) {
        return slots.len();
    }
    let (mut mark, mut count) = (place.mark(), 0);
    for slots in slots.chunks_exact(STRIDE) {
        if !are_written(slots, mark) {
            break;
        }
        mark = mark.ahead(STRIDE as u64);
        count += STRIDE;
    }
    for slot in &slots[count..] {
        if !is_written(slot, mark) {
            break;
        }
        mark = mark.ahead(1);
        count += 1;
    }
    count
}

/// Whether all of them are, the first one for the place whose mark this is.
#[inline(always)]
fn are_written<T>(slots: &[Slot<T>], mark: Word) -> bool {
    slots.iter().enumerate().all(|(i, slot)| is_written(slot, mark.ahead(i as u64)))
}

impl<T, X> Deref for HeadGuard<'_, T, X> {
    type Target = X;

    fn deref(&self) -> &X {
        &self.head.extra
    }
}

impl<T, X> DerefMut for HeadGuard<'_, T, X> {
    fn deref_mut(&mut self) -> &mut X {
        &mut self.head.extra
    }
}

/// What [`HeadGuard::pop`] found.
#[derive(Debug)]
pub(crate) enum Popped<T> {
    Item(T),
    Empty,
    /// The oldest place is claimed and its item not written yet.
    Unwritten,
}
