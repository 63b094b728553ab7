//! A bounded multi-producer ring whose room ends only when it is given free: the only unsafe code of the crate.
//!
//! A push is one compare-and-swap on `tail`, a write in place and a release store. Producers compare `tail` with the
//! published `limit = gone + capacity`, and credit, or with the end of what is prepaid; the consumer side works in bulk under the
//! head lock. The capacity may change, in `1 ..=` the number of slots that are not spare, under the head lock.
//!
//! Invariants that every `SAFETY` comment below cites:
//!
//! - **R1** `gone <= taken <= place`, and `place + reserved <= gone + slots`. [`HeadGuard::free`] moves `gone`, and it
//!   checks that `gone` stays behind `taken`; [`Rotation::rotate`] moves both by one, `call_in` by what went on credit. Only
//!   [`HeadGuard::set_capacity`] moves the capacity, and it checks that it stays within the slots; `lend` lends at most the
//!   spare ones. So no limit, old, new or lent, was ever above `gone + slots`.
//! - **R2** The slot of place `p` is vacant once `taken > p - slots`. With R1 every place below a limit has a vacant slot,
//!   and the acquire load of `limit` (or the chain of swaps on `tail`) makes the vacating visible.
//! - **R3** A place is claimed by one swap on `tail`, so one producer owns its slot until it stores the turn word. A swap
//!   below the limit claims a free place, or one that was lent: only while it is, since a word of `tail` without the CREDIT
//!   bit comes with a limit that is not lent. A prepaid place is below the limit of the section that has set the bit,
//!   which is not lowered before it is cleared. [`Ring::send`] claims a reserved one, and checks that there is one.
//! - **R4** A slot whose turn word is the mark of a place that was not taken holds its item. Only whoever holds the head lock
//!   moves it out.
//!
//! A shrink lowers the published limit. A producer that loaded the old one, and whose swap then finds the very word that it
//! loaded before, still claims by the old bound, as if it had come just before the shrink. Its next claim follows a swap on
//! `tail` that comes after the shrink, and so sees the new limit: one claim of each producer that was under way, and never
//! above the highest limit that was ever published, apart from what was lent. `overhang` is how far that lies above the
//! present one; what is inside is at most `capacity + overhang`, and each place that is given free and not replaced lowers it.
//! While there is an overhang, "full" under the head lock is final, as ever, but the tail is not frozen.

mod claim;
mod credit;
mod head;
#[cfg(all(test, backpressure_loom))]
mod loom;
mod place;
mod prepaid;
mod sizes;
#[cfg(all(test, not(backpressure_loom)))]
mod tests;

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::{ptr, slice};

pub(crate) use self::claim::{Claim, Late, Means, Miss};
pub(crate) use self::head::{HeadGuard, Popped, Rotation};
pub(crate) use self::place::{Shape, Word};
pub(crate) use self::prepaid::PrepaidClaim;
use crate::panics::catch;
use crate::sync::{
    AtomicU64, Backoff, CachePadded, Fault, Mutex, MutexGuard, Ordering, UnsafeCell, fault, mark, order,
};

/// The largest capacity of a buffer: 2^24 (16 777 216) items.
pub const MAX_CAPACITY: usize = 1 << 24;

/// The ring; `X` is what else lives under its head lock.
pub(crate) struct Ring<T, X> {
    /// Place, bits and reserved count: the one word that a push writes.
    tail: CachePadded<AtomicU64>,
    signals: CachePadded<Signals>,
    shape: Shape,
    slots: Box<[Slot<T>]>,
    /// The largest capacity: without the spare slots.
    most: u64,
    /// The size of what is in each slot; none without a weigher.
    sizes: Box<[AtomicU64]>,
    head: CachePadded<Mutex<Head<X>>>,
}

/// What the consumer side tells the producers: written once a batch.
struct Signals {
    /// The first place without room, or without credit.
    limit: AtomicU64,
    /// The level at which a producer must raise the alarm.
    wake_at: AtomicU64,
    /// The first place that is not prepaid.
    prepaid: AtomicU64,
    /// For figures that are read without the lock; no push reads them. The present capacity, and the most that can be
    /// inside: more than the capacity after a shrink.
    capacity: AtomicU64,
    ceiling: AtomicU64,
}

struct Slot<T> {
    /// The mark of the place whose item it holds; else 0 or an older mark. Zeroed memory is an empty ring.
    turn: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The consumer's side.
struct Head<X> {
    /// The oldest place that was not taken.
    taken: Word,
    /// The published limit, apart from what was lent.
    limit: Word,
    /// Places given free and not yet published.
    owed: u64,
    /// In `1 ..= max_capacity`.
    capacity: u64,
    /// How far the highest limit that was ever published, apart from what was lent, or the level, lies above the limit: 0 unless the capacity has
    /// shrunk.
    overhang: u64,
    /// Figures to be read without the lock are to be published with the limit.
    is_resized: bool,
    /// `taken` as a total since the start.
    taken_total: u64,
    /// `taken - gone`.
    in_flight: u64,
    /// Evictions go on credit.
    credit: bool,
    /// Places may be prepaid.
    prepaid: bool,
    /// How many items have gone on credit, and were not asked for yet.
    displaced: u64,
    /// The items before this position that were not taken are written. A position, which never wraps: it may be looked at again
    /// only after so many pushes that a place has.
    written: u64,
    extra: X,
}

// SAFETY: a `T` is moved in by one thread (R3) and out by another (R4) and never shared, so `T: Send` is enough; `X` is
// reached only through the lock.
unsafe impl<T: Send, X: Send> Sync for Ring<T, X> {}

impl<T, X> Ring<T, X> {
    /// `None` if the memory cannot be had. `capacity` in `1 ..= MAX_CAPACITY`.
    pub(crate) fn new(capacity: usize, extra: X) -> Option<Self> {
        Self::with_spare(capacity, 0, extra)
    }

    fn with_spare(capacity: usize, spare: usize, extra: X) -> Option<Self> {
        let shape = Shape::new(capacity + spare);
        let most = capacity as u64;
        let limit = shape.advance(Word::ZERO, most);
        Some(Self {
            tail: CachePadded::new(AtomicU64::new(Word::ZERO.raw())),
            signals: CachePadded::new(Signals {
                limit: AtomicU64::new(limit.raw()),
                wake_at: AtomicU64::new(Word::ZERO.never().raw()),
                prepaid: AtomicU64::new(Word::ZERO.raw()),
                capacity: AtomicU64::new(most),
                ceiling: AtomicU64::new(most),
            }),
            shape,
            slots: vacant_slots(capacity + spare)?,
            most,
            sizes: Box::default(),
            head: CachePadded::new(Mutex::new(Head {
                taken: Word::ZERO,
                limit,
                owed: 0,
                capacity: most,
                overhang: 0,
                is_resized: false,
                taken_total: 0,
                in_flight: 0,
                credit: false,
                prepaid: false,
                displaced: 0,
                written: 0,
                extra,
            })),
        })
    }

    /// The present capacity, without the lock.
    pub(crate) fn capacity(&self) -> usize {
        // Ordering: Relaxed, a figure.
        self.signals.capacity.load(Ordering::Relaxed) as usize
    }

    /// The largest capacity, in places: what it was made with.
    pub(crate) fn max_capacity(&self) -> usize {
        self.most as usize
    }

    /// Stores `item` if there is room, or credit; `Ok(true)` asks the caller to raise the alarm.
    #[inline]
    pub(crate) fn push(&self, item: T) -> Result<bool, T> {
        match self.claim(Means::Credit) {
            Some(claim) => Ok(claim.fill(item)),
            None => Err(item),
        }
    }

    /// Stores as many of `items` as there is room for, from the front, in one claim.
    pub(crate) fn push_many(&self, items: &mut Vec<T>) -> bool {
        let Some((word, claimed)) = self.claim_many(items.len() as u64) else { return false };
        let len = items.len();
        // SAFETY: none of no items is uninitialised. The items are no longer the vector's.
        unsafe { items.set_len(0) };
        let cells = &mut items.spare_capacity_mut()[..len];
        let (early, late) = self.slots.split_at(self.shape.index(word));
        let (first, second) = cells[..claimed].split_at(late.len().min(claimed));
        // SAFETY: they were the vector's, which from here on has only the rest.
        unsafe { fill_run(late, word, first) };
        // SAFETY: the same; none of them is in the first run.
        unsafe { fill_run(early, self.shape.advance(word, first.len() as u64), second) };
        cells.rotate_left(claimed);
        // SAFETY: those that were not moved out, which are in front now.
        unsafe { items.set_len(len - claimed) };
        self.is_due(self.shape.advance(word, if fault(Fault::FirstTicket) { 1 } else { claimed as u64 }))
    }

    /// Reserves `n` places, all or none; `Some(true)` asks the caller to raise the alarm.
    pub(crate) fn reserve(&self, n: u64) -> Option<bool> {
        let mut backoff = Backoff::new();
        let mut word = self.tail();
        loop {
            let limit = self.limit();
            if word.is_shut() || self.room(word, limit) < n as i64 {
                return None;
            }
            let next = word.with_reserved(word.reserved() + n);
            match self.swap_tail(word, next) {
                Ok(()) => return Some(self.is_due(next)),
                Err(now) => word = now,
            }
            backoff.spin();
        }
    }

    /// Turns a reserved place into an item: one swap, never refused, also after close. The caller owns a reserved place.
    /// Returns whether to raise the alarm, and the word it left.
    pub(crate) fn send(&self, item: T) -> (bool, Word) {
        if fault(Fault::SendInTwoSteps) {
            self.lock().give_back(1);
            return (self.push(item).unwrap_or(false), Word::ZERO);
        }
        let (word, next) = self.claim_reserved();
        self.write(word, item);
        (self.is_due(next), next)
    }

    /// Claims the next place for a reserved one; the word before and the word after.
    #[inline]
    fn claim_reserved(&self) -> (Word, Word) {
        let mut backoff = Backoff::new();
        // Ordering: Relaxed, the swap below validates the word.
        let mut word = Word::from_raw(self.tail.load(Ordering::Relaxed));
        loop {
            // R3 rests on this test.
            assert!(word.reserved() > 0, "a permit stands for a reserved place");
            let next = self.shape.next(word).with_reserved(word.reserved() - 1);
            match self.swap_tail(word, next) {
                Ok(()) => return (word, next),
                Err(now) => word = now,
            }
            backoff.spin();
        }
    }

    /// Reserved + buffered + in flight, in `0 ..= slots`, without the lock. While the capacity changes, it may be too high by
    /// the change.
    pub(crate) fn depth(&self) -> u64 {
        self.inside(|word| self.shape.level(word))
    }

    /// Buffered + in flight, in `0 ..= slots`, without the lock; like [`depth`](Self::depth).
    pub(crate) fn len(&self) -> u64 {
        self.inside(|word| word)
    }

    /// How much is inside up to what `end` makes of the tail.
    fn inside(&self, end: impl Fn(Word) -> Word) -> u64 {
        loop {
            // Ordering: Acquire, partner of the Release in `announce`: whoever sees a smaller capacity sees its limit.
            let capacity = self.signals.capacity.load(Ordering::Acquire);
            // Ordering: Acquire keeps the loads in order: an old limit can only make the figure larger, and it is clamped.
            let limit = Word::from_raw(self.signals.limit.load(Ordering::Acquire));
            // Credit is there only while the ring is full of items.
            let count = if limit.is_on_credit() && !fault(Fault::CreditAsRoom) {
                capacity as i64
            } else {
                let word = Word::from_raw(self.tail.load(Ordering::Relaxed));
                capacity as i64 - self.shape.distance(end(word), limit)
            };
            // Ordering: Relaxed: whoever sees the limit of a larger capacity sees the capacity, and begins anew.
            let is_same = self.signals.capacity.load(Ordering::Relaxed) == capacity;
            if is_same || fault(Fault::CapacityReadOnce) {
                return self.clamp_inside(count);
            }
        }
    }

    fn clamp_inside(&self, count: i64) -> u64 {
        if fault(Fault::LenUnclamped) {
            return count as u64;
        }
        // Ordering: Relaxed, a figure.
        count.clamp(0, self.signals.ceiling.load(Ordering::Relaxed) as i64) as u64
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Ordering: Acquire, so that whoever sees the bit sees what was done before it was set.
        Word::from_raw(self.tail.load(Ordering::Acquire)).is_closed()
    }

    pub(crate) fn lock(&self) -> HeadGuard<'_, T, X> {
        self.called_in(self.head.lock())
    }

    /// The head lock, for somebody who could do without it if there were credit: if nobody holds it, and there is none.
    #[inline(always)]
    pub(crate) fn try_lock_to_evict(&self) -> Option<HeadGuard<'_, T, X>> {
        let head = self.head.try_lock()?;
        // Somebody may have left credit just now, and it would be called in.
        if self.has_credit() { None } else { Some(self.called_in(head)) }
    }

    /// No section has to know of credit.
    #[inline(always)]
    fn called_in<'a>(&'a self, head: MutexGuard<'a, Head<X>>) -> HeadGuard<'a, T, X> {
        let mut guard = HeadGuard { ring: self, head };
        if guard.head.credit && !fault(Fault::CreditKept) {
            guard.call_in();
        }
        guard
    }

    /// The tail as a claim sees it first: the swap validates it.
    #[inline(always)]
    fn tail(&self) -> Word {
        // Ordering: Acquire, partner of the swap in `call_in`: whoever sees that credit has ended sees the limit without it.
        Word::from_raw(self.tail.load(order(Fault::CreditRelaxed, Ordering::Acquire)))
    }

    #[inline(always)]
    fn limit(&self) -> Word {
        // Ordering: Acquire, partner of the Release in `publish`: room implies a vacant slot.
        Word::from_raw(self.signals.limit.load(Ordering::Acquire))
    }

    fn claim_many(&self, wanted: u64) -> Option<(Word, usize)> {
        let mut backoff = Backoff::new();
        let mut word = self.tail();
        loop {
            let limit = self.limit();
            let n = self.room(word, limit).clamp(0, wanted as i64) as u64;
            if n == 0 || word.is_shut() {
                return None;
            }
            match self.swap_tail(word, self.shape.advance(word, n)) {
                Ok(()) => return Some((word, n as usize)),
                Err(now) => word = now,
            }
            backoff.spin();
        }
    }

    /// The test of the fast path: the word is plain.
    #[inline(always)]
    fn is_below(&self, word: Word, limit: Word) -> bool {
        if fault(Fault::FullByEquality) {
            return word != limit;
        }
        word.is_before(limit)
    }

    #[cold]
    fn has_room_slow(&self, word: Word, limit: Word) -> bool {
        !word.is_closed() && self.room(word, limit) > 0
    }

    /// Room in places; negative for a moment while a hand-over stands above the limit.
    fn room(&self, word: Word, limit: Word) -> i64 {
        self.shape.distance(word, limit) - word.reserved() as i64
    }

    #[inline(always)]
    fn swap_tail(&self, from: Word, to: Word) -> Result<(), Word> {
        // Ordering: AcqRel, one chain of read-modify-writes: it hands a vacant slot from whoever saw the limit to the
        // holder of a permit, and `wake_at` from the sleeper to the producers. Acquire on failure, as in `tail`.
        let claim = order(Fault::ClaimRelaxed, Ordering::AcqRel);
        let failure = order(Fault::CreditRelaxed, Ordering::Acquire);
        mark();
        match self.tail.compare_exchange_weak(from.raw(), to.raw(), claim, failure) {
            Ok(_) => Ok(()),
            Err(now) if fault(Fault::ClosedSeenOnce) && now == from.closed().raw() => {
                self.tail.store(to.closed().raw(), Ordering::Release);
                Ok(())
            }
            Err(now) => Err(Word::from_raw(now)),
        }
    }

    /// Fills the slot of a place that the caller has claimed.
    #[inline(always)]
    fn write(&self, word: Word, item: T) {
        fill(self.slot(word), word.mark(), |cell| put(cell, item));
    }

    #[inline(always)]
    fn slot(&self, word: Word) -> &Slot<T> {
        // SAFETY: `index` is below the number of slots.
        unsafe { self.slots.get_unchecked(self.shape.index(word)) }
    }

    /// Whether the level of this word, to which a claim has led, is one at which somebody waits; tells one caller only.
    pub(crate) fn is_due(&self, word: Word) -> bool {
        self.is_due_at(self.shape.level(word))
    }

    /// The same of a plain word, which is its level.
    #[inline(always)]
    fn is_due_at(&self, level: Word) -> bool {
        // Ordering: Relaxed, after the claim: the sleeper swaps `wake_at` and then swaps `tail`, so a claim that follows
        // its swap sees the alarm, and one that precedes it is seen by the sleeper.
        let at = Word::from_raw(self.signals.wake_at.load(Ordering::Relaxed));
        !level.is_before(at) && self.fire_slow(level)
    }

    #[cold]
    fn fire_slow(&self, level: Word) -> bool {
        // Ordering: Relaxed, as in `is_due_at`.
        let mut at = Word::from_raw(self.signals.wake_at.load(Ordering::Relaxed));
        while !level.is_before(at) {
            // Only the alarm that was reached: a blind swap could take one that was set anew, for a level that this
            // claim has not reached, and then nobody would raise it.
            // Ordering: AcqRel, partner of the swap in `HeadGuard::arm`: one of those who see the alarm takes it.
            let never = level.never().raw();
            mark();
            if fault(Fault::AlarmTakenBlind) {
                return !level.is_before(Word::from_raw(self.signals.wake_at.swap(never, Ordering::AcqRel)));
            }
            let taken = self.signals.wake_at.compare_exchange(at.raw(), never, Ordering::AcqRel, Ordering::Relaxed);
            match taken {
                Ok(_) => return true,
                Err(now) => at = Word::from_raw(now),
            }
        }
        false
    }

    /// Moves an empty ring to a few places before the word wraps.
    #[cfg(all(any(test, fuzzing), not(backpressure_loom)))]
    pub(crate) fn start_near_the_wrap(&self) {
        let start = self.shape.last_lap();
        let mut head = self.lock();
        head.head.taken = start;
        head.head.limit = self.shape.advance(start, head.head.capacity);
        head.arm(None);
        self.tail.store(start.raw(), Ordering::Relaxed);
        self.signals.limit.store(head.head.limit.raw(), Ordering::Relaxed);
        self.signals.wake_at.store(start.never().raw(), Ordering::Relaxed);
    }

    /// Only a broken model looks at the alarm before the claim.
    #[inline(always)]
    fn early_alarm(&self) -> bool {
        !fault(Fault::AlarmBeforeClaim) || {
            let at = Word::from_raw(self.signals.wake_at.load(Ordering::Relaxed));
            let word = Word::from_raw(self.tail.load(Ordering::Relaxed));
            !self.shape.next(word.place()).is_before(at)
        }
    }
}

impl<T, X> Drop for Ring<T, X> {
    fn drop(&mut self) {
        let mut head = self.lock();
        while let Popped::Item(item) = head.pop() {
            let _ = catch(|| drop(item));
        }
    }
}

impl<T, X> fmt::Debug for Ring<T, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &self.capacity()).field("depth", &self.depth()).finish_non_exhaustive()
    }
}

/// Fills the slot of a place that the caller has claimed, and whose mark this is.
#[inline(always)]
fn fill<T>(slot: &Slot<T>, mark: Word, write: impl FnOnce(&mut MaybeUninit<T>)) {
    // SAFETY: R2, R3: the slot is vacant and the caller's alone until the store below.
    slot.value.with_mut(|value| write(unsafe { &mut *value }));
    // Ordering: Release, partner of the Acquire in `head::is_written`: the mark implies the value.
    slot.turn.store(mark.raw(), order(Fault::TurnRelaxed, Ordering::Release));
}

/// Moves an item to a cell, word by word if it is a few words.
///
/// Who has just made it has written its words one by one, and a load of two words that lie in two stores waits until both have
/// left the store buffer: 3 to 4 ns.
#[inline(always)]
fn put<T>(cell: &mut MaybeUninit<T>, item: T) {
    type Part = MaybeUninit<usize>;
    let words = size_of::<T>() / size_of::<Part>();
    let is_words = size_of::<T>() % size_of::<Part>() == 0 && align_of::<T>() >= align_of::<Part>();
    // Two come in registers.
    if !is_words || !(3..=8).contains(&words) {
        cell.write(item);
        return;
    }
    let item = ManuallyDrop::new(item);
    // SAFETY: the item is so many words, aligned, and each may be uninitialised.
    let from = unsafe { slice::from_raw_parts((&raw const item).cast::<Part>(), words) };
    // SAFETY: the same of its cell.
    let to = unsafe { slice::from_raw_parts_mut(cell.as_mut_ptr().cast::<Part>(), words) };
    for (from, to) in from.iter().zip(to) {
        // SAFETY: a reference. Volatile, or words are loaded in pairs.
        *to = unsafe { ptr::read_volatile(from) };
    }
}

/// Moves `items` to slots in a row, from the one of `word` on, which the caller has claimed, in one lap.
///
/// # Safety
///
/// The items are initialised, and nobody else's any more.
#[inline(always)]
unsafe fn fill_run<T>(slots: &[Slot<T>], word: Word, items: &[MaybeUninit<T>]) {
    let mut mark = word.mark();
    for (slot, item) in slots.iter().zip(items) {
        fill(slot, mark, |cell| {
            // SAFETY: the caller vouches for the items, and each is read once.
            cell.write(unsafe { item.assume_init_read() });
        });
        mark = mark.ahead(1);
    }
}

#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
fn vacant_slots<T>(capacity: usize) -> Option<Box<[Slot<T>]>> {
    // SAFETY: zeroes are a vacant slot, since 0 is no mark and the value may be uninitialised.
    unsafe { zeroed(capacity) }
}

#[cfg(any(backpressure_loom, backpressure_shuttle))]
fn vacant_slots<T>(capacity: usize) -> Option<Box<[Slot<T>]>> {
    let slot = |_| Slot { turn: AtomicU64::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
    Some((0..capacity).map(slot).collect())
}

/// Zeroed memory, touched only as the ring fills; `None` if it cannot be had.
///
/// # Safety
///
/// `U` is not of size 0, and zeroes are a valid value of it.
#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
unsafe fn zeroed<U>(len: usize) -> Option<Box<[U]>> {
    let layout = std::alloc::Layout::array::<U>(len).ok()?;
    // SAFETY: the layout is not empty: the caller vouches for the size, and a ring has at least one slot.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    let slice = ptr::slice_from_raw_parts_mut(memory.cast::<U>(), len);
    // SAFETY: allocated above with this layout by the allocator that `Box` uses; the caller vouches for the zeroes.
    Some(unsafe { Box::from_raw(slice) })
}
