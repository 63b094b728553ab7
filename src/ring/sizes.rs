//! Slots that remember the size of what is in them: a side array, so that a ring without sizes has neither the memory nor
//! the step.

use std::mem;
use std::ops::Range;

use super::head::is_written;
use super::{HeadGuard, Ring, Word};
use crate::sync::{AtomicU64, Ordering};

/// Beside a size, which is far below: the item is in its place by what was paid for that in advance.
pub(super) const PREPAID: u64 = 1 << 63;
/// What was paid for the place in advance is settled.
const SETTLED: u64 = 1 << 62;

const SIZE: u64 = SETTLED - 1;

impl<T, X> Ring<T, X> {
    /// A ring whose slots remember sizes; `None` if the memory cannot be had.
    pub(crate) fn with_sizes(capacity: usize, extra: X) -> Option<Self> {
        let sizes = no_sizes(capacity)?;
        let mut ring = Self::new(capacity, extra)?;
        ring.sizes = sizes;
        Some(ring)
    }

    /// Turns a reserved place into an item of this size; like [`send`](Self::send).
    pub(crate) fn send_sized(&self, item: T, size: u64) {
        let (word, _) = self.claim_reserved();
        self.set_size(word, size);
        self.write(word, item);
    }

    /// Whether a push would have found room a moment ago.
    #[inline(always)]
    pub(crate) fn had_room(&self) -> bool {
        // Ordering: Relaxed, a guess: the claim decides.
        let limit = Word::from_raw(self.signals.limit.load(Ordering::Relaxed));
        let word = Word::from_raw(self.tail.load(Ordering::Relaxed));
        word.is_plain() && word.is_before(limit) || self.has_room_slow(word, limit)
    }

    /// Notes the size of what the caller is about to write in the slot of a place that it has claimed.
    #[inline]
    pub(super) fn set_size(&self, place: Word, size: u64) {
        if let Some(cell) = self.size_cell(place) {
            // Ordering: Relaxed, the Release of the turn word carries it.
            cell.store(size, Ordering::Relaxed);
        }
    }

    #[inline]
    fn size_cell(&self, place: Word) -> Option<&AtomicU64> {
        self.sizes.get(self.shape.index(place))
    }
}

impl<T, X> HeadGuard<'_, T, X> {
    /// The sizes of what is buffered, oldest first. `None`, the last one then, is claimed and not written yet.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let mut place = Some(self.head.taken);
        (0..self.buffered(self.tail())).map_while(move |_| {
            let here = place?;
            let size = self.size_of(here);
            place = size.map(|_| self.ring.shape.next(here));
            Some(size)
        })
    }

    /// The size of the buffered item at `position`; `None` if it is not written yet.
    pub(crate) fn size_at(&self, position: u64) -> Option<u64> {
        self.size_of(self.place_at(position))
    }

    /// Notes the size of what is about to take the place of the buffered item at `position`, which is settled if it was prepaid.
    pub(crate) fn replace_size(&mut self, position: u64, size: u64) {
        self.ring.set_size(self.place_at(position), size | SETTLED);
    }

    /// Settles those of these prepaid positions, all of them claimed, that are written: what was paid for them, so much for each, and is
    /// not their items'. One that has brought its own size needs nothing of it. What is left of the range begins and ends with one that
    /// is not written.
    pub(crate) fn settle_prepaid(&mut self, prepaid: &mut Range<u64>, allowance: u64) -> u64 {
        if prepaid.is_empty() {
            return 0;
        }
        let mut surplus = 0;
        let mut place = self.place_at(prepaid.start);
        let all = mem::replace(prepaid, prepaid.end..prepaid.end);
        for position in all {
            let here = place;
            place = self.ring.shape.next(here);
            let Some(cell) = self.ring.size_cell(here).filter(|_| self.is_written(here)) else {
                *prepaid = prepaid.start.min(position)..position + 1;
                continue;
            };
            // Ordering: Relaxed, here and below, after the Acquire of the turn word: once written it is the lock holder's.
            let raw = cell.load(Ordering::Relaxed);
            if raw & SETTLED == 0 {
                cell.store(raw | SETTLED, Ordering::Relaxed);
                surplus += if raw & PREPAID == 0 { allowance } else { allowance - (raw & SIZE) };
            }
        }
        surplus
    }

    fn is_written(&self, place: Word) -> bool {
        is_written(self.ring.slot(place), place.mark())
    }

    fn place_at(&self, position: u64) -> Word {
        debug_assert!(position >= self.head.taken_total, "what is taken was settled before");
        self.ring.shape.advance(self.head.taken, position - self.head.taken_total)
    }

    fn size_of(&self, place: Word) -> Option<u64> {
        // Ordering: Relaxed, after the Acquire of the turn word.
        let size = |cell: &AtomicU64| cell.load(Ordering::Relaxed) & SIZE;
        self.is_written(place).then(|| self.ring.size_cell(place).map_or(0, size))
    }
}

#[cfg(not(any(backpressure_loom, backpressure_shuttle)))]
fn no_sizes(capacity: usize) -> Option<Box<[AtomicU64]>> {
    // SAFETY: an atomic integer of 0.
    unsafe { super::zeroed(capacity) }
}

#[cfg(any(backpressure_loom, backpressure_shuttle))]
fn no_sizes(capacity: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..capacity).map(|_| AtomicU64::new(0)).collect())
}
