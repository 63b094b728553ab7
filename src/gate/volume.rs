//! How much is inside by size: a word of its own beside the ring's count of places, made only with a weigher.
//!
//! ```text
//!  63     62      61                            0
//! +------+-------+-------------------------------+
//! | SHUT | SHORT | inside: what is reserved,     |
//! |      |       | buffered, in flight, prepaid  |
//! +------+-------+-------------------------------+
//! ```
//!
//! A light item comes in by what was paid for its place in advance (`gate/prepaid`), and leaves this word alone. Any other push takes its
//! size in by one swap, and then claims its place by another. If it gets no place it gives the size back
//! under the head lock and serves whoever waits, since somebody may have seen the size and waited for it. SHUT keeps pushes
//! out while anybody waits: unlike places, a size that is too large for one may fit for the next one, who must not overtake.
//! Outside the head lock `inside` only grows, so "it does not fit", seen under it, is final, unless a prepaid place is claimed and not
//! written yet.

use crate::sync::{AtomicU64, CachePadded, Fault, Ordering, fault, mark};

/// The largest capacity by weight: 2^60, an exbibyte if the weight is in bytes.
pub const MAX_CAPACITY_WEIGHT: u64 = 1 << 60;

/// Producers wait: only whoever holds the head lock takes anything in.
const SHUT: u64 = 1 << 63;
/// Something has not fitted since room was last made: the flusher is not to wait for a full batch.
const SHORT: u64 = 1 << 62;
const INSIDE: u64 = SHORT - 1;

/// Fewer places are not worth what every section does for them. Tests have small buffers.
const FEWEST: u64 = if cfg!(any(debug_assertions, fuzzing, backpressure_loom, backpressure_shuttle)) { 1 } else { 64 };

/// Whoever takes the head lock walks along what was claimed: not for longer than 0.1 ms.
const LONGEST: u64 = 1 << 16;

/// No alarm.
const NEVER: u64 = u64::MAX;

/// The bounds by size. Each in `1 ..= MAX_CAPACITY_WEIGHT`, and none above `capacity`, apart from that of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capacity: u64,
    /// The largest size of one item.
    pub(crate) item: u64,
    /// The most of a batch; a larger item leaves alone. `None`: a batch is not bounded by size.
    pub(crate) batch: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Volume {
    /// The word that a push writes besides `tail`, unless its place is prepaid.
    word: CachePadded<AtomicU64>,
    bounds: CachePadded<Bounds>,
}

/// What a push only reads.
#[derive(Debug)]
struct Bounds {
    limits: Limits,
    /// What a prepaid place counts for: an equal share of the capacity, or of two of the largest batches. It never changes, so that whoever claims one need
    /// not know since when it is prepaid.
    allowance: u64,
    /// How much must be inside for a producer to raise the alarm.
    alarm: AtomicU64,
}

/// Why something was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It waits its turn, or is too large for ever.
    Barred,
    /// It does not fit, and the flusher knows that somebody wants room.
    Known,
    /// It does not fit, and the flusher is to be told.
    News,
}

impl Volume {
    pub(super) fn new(limits: Limits, places: u64) -> Self {
        // Of batches, too, since the flusher wants to know of one: of more than that nothing could be prepaid while it sleeps.
        let shared = limits.batch.map_or(limits.capacity, |batch| limits.capacity.min(2 * batch));
        let allowance = (shared / places).clamp(1, limits.item);
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            bounds: CachePadded::new(Bounds { limits, allowance, alarm: AtomicU64::new(NEVER) }),
        }
    }

    #[inline(always)]
    pub(super) fn allowance(&self) -> u64 {
        self.bounds.allowance
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.bounds.limits
    }

    /// Takes `size` in, if it fits and nobody waits; returns what is inside then.
    #[inline(always)]
    pub(super) fn claim(&self, size: u64) -> Result<u64, Unfit> {
        self.claim_unless(size, if fault(Fault::ShutIgnored) { 0 } else { SHUT })
    }

    /// The same for whoever holds the head lock and has seen to it that it is its turn.
    pub(super) fn claim_locked(&self, size: u64) -> Result<u64, Unfit> {
        self.claim_unless(size, 0)
    }

    #[inline(always)]
    fn claim_unless(&self, size: u64, barred: u64) -> Result<u64, Unfit> {
        let limits = &self.bounds.limits;
        if size > limits.item {
            return Err(Unfit::Barred);
        }
        // Ordering: Relaxed, the swap below validates the word.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & barred != 0 {
                return Err(Unfit::Barred);
            }
            if (word & INSIDE) + size > limits.capacity {
                return Err(if word & SHORT == 0 { Unfit::News } else { Unfit::Known });
            }
            mark();
            if fault(Fault::SizeClaimedBlind) {
                return Ok((self.word.fetch_add(size, Ordering::AcqRel) & INSIDE) + size);
            }
            // Ordering: AcqRel, one chain of swaps. Nothing but the word itself rests on it.
            match self.word.compare_exchange_weak(word, word + size, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok((word & INSIDE) + size),
                Err(now) => word = now,
            }
        }
    }

    /// Takes `inward` in for `outward`, which leaves, if it fits; under the head lock.
    pub(super) fn exchange(&self, outward: u64, inward: u64) -> bool {
        if fault(Fault::SizeSwapInTwoSteps) {
            self.release(outward);
            return self.claim_unless(inward, 0).is_ok();
        }
        // Ordering: Relaxed, the swap below validates the word.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if (word & INSIDE) - outward + inward > self.bounds.limits.capacity {
                return false;
            }
            // Ordering: AcqRel, as in `claim`.
            match self.word.compare_exchange_weak(word, word - outward + inward, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the allowance in for as many places as there is reason to, at most so many: not so much that anybody wants to know, and a
    /// share of what is left stays for heavier items. Under the head lock; returns how many.
    pub(super) fn prepay(&self, most: u64) -> u64 {
        // Ordering: Relaxed, armed under the head lock. Whoever takes it looks under it, too.
        let alarm = self.bounds.alarm.load(Ordering::Relaxed);
        let bound = if fault(Fault::PrepaidAboveAlarm) { NEVER } else { alarm }.min(self.bounds.limits.capacity + 1);
        // Ordering: Relaxed, the swap below validates the word.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let gap = bound.saturating_sub((word & INSIDE) + 1);
            let places = ((gap - gap / 8) / self.bounds.allowance).min(most).min(LONGEST);
            let barred = if fault(Fault::PrepaidForWaiters) { 0 } else { SHUT | SHORT };
            if places < FEWEST || word & barred != 0 {
                return 0;
            }
            let next = word + places * self.bounds.allowance;
            // Ordering: AcqRel, as in `claim`.
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return places,
                Err(now) => word = now,
            }
        }
    }

    /// Gives `size` back; under the head lock. Unless it was prepaid, the section serves the waiters before it ends.
    pub(super) fn release(&self, size: u64) {
        if size > 0 {
            // Ordering: AcqRel, as in `claim`.
            let before = self.word.fetch_sub(size, Ordering::AcqRel);
            debug_assert!(before & INSIDE >= size, "only what is inside can leave");
        }
    }

    /// What fits; under the head lock it becomes more only by what is settled.
    pub(super) fn spare(&self) -> u64 {
        self.bounds.limits.capacity - self.inside()
    }

    /// What is inside, in `0 ..= capacity`.
    pub(super) fn inside(&self) -> u64 {
        // Ordering: Relaxed: after a swap on `tail` it holds what every place claimed before has brought.
        self.word.load(Ordering::Relaxed) & INSIDE
    }

    /// Whether what is inside now is so much that somebody wants to know; tells one caller only.
    #[inline(always)]
    pub(super) fn is_due(&self, inside: u64) -> bool {
        // Ordering: Relaxed, after the claim of the place: the chain on `tail` hands the alarm to the claims that come after
        // the swap of whoever has armed it, and those that come before it are seen by whoever reads `inside` after it.
        let at = self.bounds.alarm.load(Ordering::Relaxed);
        // Ordering: Relaxed, whoever takes it looks under the head lock, and arms it anew.
        inside >= at && self.bounds.alarm.compare_exchange(at, NEVER, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Has the claim that brings so much inside raise the alarm; the caller swaps `tail` and looks again.
    pub(super) fn arm(&self, at: Option<u64>) {
        mark();
        // Ordering: Relaxed, the swap on `tail` hands it to the claims.
        self.bounds.alarm.store(at.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Keeps pushes out, or lets them in again; under the head lock.
    pub(super) fn set_shut(&self, is_shut: bool) {
        // Ordering: AcqRel, as in `claim`.
        if is_shut {
            self.word.fetch_or(SHUT, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!SHUT, Ordering::AcqRel);
        }
    }

    /// Notes that something has not fitted; `true` for the first one who does.
    pub(super) fn note_short(&self) -> bool {
        // Ordering: AcqRel, as in `claim`.
        self.word.fetch_or(SHORT, Ordering::AcqRel) & SHORT == 0
    }

    /// Room was made, or is about to be.
    pub(super) fn forget_short(&self) {
        if self.is_short() {
            // Ordering: AcqRel, as in `claim`.
            self.word.fetch_and(!SHORT, Ordering::AcqRel);
        }
    }

    pub(super) fn is_short(&self) -> bool {
        // Ordering: Relaxed, whoever sets it takes the head lock afterwards.
        self.word.load(Ordering::Relaxed) & SHORT != 0
    }

    /// The share of the capacity that is inside, as a depth of a buffer of `places`, rounded down.
    pub(super) fn depth_in(&self, inside: u64, places: u64) -> u64 {
        scale(inside, places, self.bounds.limits.capacity)
    }

    /// How much must be inside to be as deep as `depth` of `places`.
    pub(super) fn inside_at(&self, depth: u64, places: u64) -> u64 {
        let capacity = u128::from(self.bounds.limits.capacity);
        // In range: `depth` is at most `places`, and a size at most 2^60.
        (u128::from(depth) * capacity).div_ceil(u128::from(places)) as u64
    }
}

/// `part * to / whole`, rounded down; `part` is at most `whole`.
fn scale(part: u64, to: u64, whole: u64) -> u64 {
    (u128::from(part) * u128::from(to) / u128::from(whole)) as u64
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use super::*;

    fn volume(capacity: u64) -> Volume {
        Volume::new(Limits { capacity, item: capacity, batch: None }, capacity)
    }

    #[test]
    fn what_fits_is_taken_in_and_nothing_wraps() {
        let max = volume(MAX_CAPACITY_WEIGHT);
        assert_eq!(max.claim(u64::MAX), Err(Unfit::Barred));
        assert_eq!(max.claim(MAX_CAPACITY_WEIGHT), Ok(MAX_CAPACITY_WEIGHT));
        assert_eq!(max.claim(MAX_CAPACITY_WEIGHT), Err(Unfit::News));
        assert_eq!((max.claim(0), max.spare()), (Ok(MAX_CAPACITY_WEIGHT), 0));
        max.release(MAX_CAPACITY_WEIGHT);
        assert_eq!(max.inside(), 0);
    }

    #[test]
    fn flags_and_sizes_do_not_touch_each_other() {
        let volume = volume(10);
        assert_eq!(volume.claim(7), Ok(7));
        assert!(volume.note_short() && !volume.note_short() && volume.is_short());
        volume.set_shut(true);
        assert_eq!((volume.claim(1), volume.claim_locked(1)), (Err(Unfit::Barred), Ok(8)));
        assert!(volume.exchange(8, 10) && !volume.exchange(10, 11), "one for the other, to the brim");
        assert_eq!((volume.inside(), volume.claim_locked(1)), (10, Err(Unfit::Known)));
        volume.release(10);
        volume.set_shut(false);
        assert!(volume.is_short());
        volume.forget_short();
        assert_eq!((volume.is_short(), volume.claim(10)), (false, Ok(10)));
    }

    #[test]
    fn the_allowance_is_a_share_of_what_can_be_inside_or_of_two_batches() {
        let allowance = |capacity, item, batch| Volume::new(Limits { capacity, item, batch }, 100).allowance();
        assert_eq!([allowance(1_000, 1_000, None), allowance(1_000, 7, None), allowance(99, 99, None)], [10, 7, 1]);
        assert_eq!([allowance(MAX_CAPACITY_WEIGHT, 1_000, Some(500)), allowance(1_000, 9, Some(900))], [10, 9]);
    }

    #[test]
    fn one_claim_raises_the_alarm() {
        let volume = volume(10);
        assert!(!volume.is_due(10), "it was not armed");
        volume.arm(Some(5));
        assert!(!volume.is_due(4) && volume.is_due(5) && !volume.is_due(6));
    }

    #[test]
    fn a_share_is_a_depth_and_back() {
        for capacity in [1, 3, 10, 1000, MAX_CAPACITY_WEIGHT] {
            let volume = volume(capacity);
            for places in [1, 2, 7, 1 << 24] {
                assert_eq!((volume.depth_in(0, places), volume.depth_in(capacity, places)), (0, places));
                for depth in [1, places / 2, places].into_iter().filter(|depth| *depth > 0) {
                    let inside = volume.inside_at(depth, places);
                    assert!(inside <= capacity && volume.depth_in(inside, places) >= depth);
                    assert!(volume.depth_in(inside - 1, places) < depth, "{depth} of {places}, {capacity}");
                }
            }
        }
    }
}
