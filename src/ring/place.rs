//! The packed word of `tail`, and the arithmetic of places.
//!
//! ```text
//!  63              27+b  27+b-1     27    26      25       24        0
//! +---------------------+------------+--------+--------+------------+
//! | lap                 | index      | CREDIT | CLOSED | reserved   |
//! +---------------------+------------+--------+--------+------------+
//!  \______ place: 37 bits __________/
//! ```
//!
//! CREDIT says that a claim may displace the oldest item; or, where items have sizes, that the next places may be prepaid. It
//! lies below the place, so a test of room need not look at it.
//!
//! `index` is the slot, `b` the fewest bits that hold `0 ..= slots - 1`, and `lap` counts the times round. A place
//! stands at the top, so that it wraps without touching a flag, and after at least 2^36 pushes, so that a producer that
//! was preempted between its load and its swap does not meet its own word again in minutes. Room and wake-up tests are one wrapping
//! subtraction of packed words: nothing is unpacked on the push path (worth 0.4 ns).

/// Bits of the count of reserved places: holds `0 ..= MAX_CAPACITY`.
const RESERVED_BITS: u32 = 25;
const RESERVED: u64 = (1 << RESERVED_BITS) - 1;
const CLOSED: u64 = 1 << RESERVED_BITS;
const CREDIT: u64 = CLOSED << 1;
const PLACE_SHIFT: u32 = RESERVED_BITS + 2;
const UNIT: u64 = 1 << PLACE_SHIFT;
const LOW: u64 = UNIT - 1;

/// Further ahead than any place can be, and less than half the range of a word.
const FAR: u64 = 1 << 62;

/// A value of `tail`, or a bare place with its low bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub(crate) const ZERO: Self = Self(0);

    #[inline(always)]
    pub(super) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    #[inline(always)]
    pub(super) const fn raw(self) -> u64 {
        self.0
    }

    /// The place alone.
    #[inline(always)]
    pub(crate) const fn place(self) -> Self {
        Self(self.0 & !LOW)
    }

    /// How many places permits hold.
    #[inline(always)]
    pub(crate) const fn reserved(self) -> u64 {
        self.0 & RESERVED
    }

    /// Evictions go on credit, whether any is left or not; of a published limit, that it holds credit.
    #[inline(always)]
    pub(super) const fn is_on_credit(self) -> bool {
        self.0 & CREDIT != 0
    }

    /// There is no room, whatever the limit: the intake is shut, or what is left is credit.
    #[inline(always)]
    pub(super) const fn is_shut(self) -> bool {
        self.0 & (CLOSED | CREDIT) != 0
    }

    /// Plain and on credit: with sizes, the next place may be prepaid.
    #[inline(always)]
    pub(super) const fn is_plain_on_credit(self) -> bool {
        self.0 & LOW == CREDIT
    }

    pub(super) const fn on_credit(self) -> Self {
        Self(self.0 | CREDIT)
    }

    pub(super) const fn off_credit(self) -> Self {
        Self(self.0 & !CREDIT)
    }

    #[inline(always)]
    pub(crate) const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Neither closed nor with a place reserved: the word compares as its place does, on credit, too.
    #[inline(always)]
    pub(super) const fn is_plain(self) -> bool {
        self.0 & (CLOSED | RESERVED) == 0
    }

    pub(super) const fn closed(self) -> Self {
        Self(self.0 | CLOSED)
    }

    pub(super) const fn with_reserved(self, reserved: u64) -> Self {
        debug_assert!(reserved <= RESERVED);
        Self(self.0 & !RESERVED | reserved)
    }

    /// What the slot of this place says once it is written, on credit or not: never 0.
    #[inline(always)]
    pub(super) const fn mark(self) -> Self {
        Self(self.0 & !(CLOSED | RESERVED) | CREDIT)
    }

    /// The place that is `n` further on, or its mark, low bits kept, if it is in the same lap.
    #[inline(always)]
    pub(super) const fn ahead(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n << PLACE_SHIFT))
    }

    /// Whether this place comes before `other`; both are plain, less than 2^36 apart, and not the same place once without and
    /// once with credit, which no claim compares: a limit with credit is of a later tail than a word without.
    #[inline(always)]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        (other.0.wrapping_sub(self.0) as i64) > 0
    }

    /// A place that nothing reaches from here.
    #[inline(always)]
    pub(super) const fn never(self) -> Self {
        Self(self.0.wrapping_add(FAR) & !LOW)
    }

    pub(crate) const fn min(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }
}

/// How places map to the slots of a ring: a lap is all the slots, whatever the capacity is at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    slots: u64,
    bits: u32,
    /// The index field of a word.
    index_mask: u64,
    /// The index field just behind the last slot, in place; matches nothing if the index wraps by itself.
    wrap_at: u64,
    /// From there to index 0 of the next lap.
    skip: u64,
}

impl Shape {
    /// `slots` in `1 ..= MAX_CAPACITY`.
    pub(super) const fn new(slots: usize) -> Self {
        debug_assert!(slots >= 1 && slots <= super::MAX_CAPACITY);
        let slots = slots as u64;
        let lap = slots.next_power_of_two();
        Self {
            slots,
            bits: lap.trailing_zeros(),
            index_mask: (lap - 1) << PLACE_SHIFT,
            wrap_at: slots << PLACE_SHIFT,
            skip: (lap - slots) << PLACE_SHIFT,
        }
    }

    /// In `0 ..= slots - 1`.
    #[inline(always)]
    pub(super) const fn index(self, word: Word) -> usize {
        ((word.0 & self.index_mask) >> PLACE_SHIFT) as usize
    }

    /// The next place, low bits kept.
    #[inline(always)]
    pub(super) const fn next(self, word: Word) -> Word {
        let next = word.0.wrapping_add(UNIT);
        if next & self.index_mask == self.wrap_at {
            return Word(next.wrapping_add(self.skip));
        }
        Word(next)
    }

    /// `n` places on, low bits kept; `n` at most 2^32.
    #[inline]
    pub(crate) const fn advance(self, word: Word, n: u64) -> Word {
        let index = self.index(word) as u64 + n;
        let ahead = word.0.wrapping_add(n << PLACE_SHIFT);
        // A division costs more than the rest of an eviction, and hardly anybody goes further than a lap.
        if index < self.slots {
            return Word(ahead);
        }
        if index < 2 * self.slots {
            return Word(ahead.wrapping_add(self.skip));
        }
        Word(ahead.wrapping_add(self.skip * (index / self.slots)))
    }

    /// `n` places back, low bits kept; `n` in `0 ..= slots`.
    pub(super) const fn retreat(self, word: Word, n: u64) -> Word {
        self.advance(self.previous_lap(word), self.slots - n)
    }

    /// One lap back, low bits kept.
    const fn previous_lap(self, word: Word) -> Word {
        Word(word.0.wrapping_sub(1 << (PLACE_SHIFT + self.bits)))
    }

    /// The first place of the last lap before the word wraps.
    #[cfg(any(test, fuzzing))]
    pub(super) const fn last_lap(self) -> Word {
        Word(!LOW & !self.index_mask)
    }

    /// Places from `from` to `to`; negative if `to` comes first. Low bits are ignored.
    pub(crate) const fn distance(self, from: Word, to: Word) -> i64 {
        let packed = (to.place().0.wrapping_sub(from.place().0) as i64) >> PLACE_SHIFT;
        let indexes = self.index(to) as i64 - self.index(from) as i64;
        let laps = (packed - indexes) >> self.bits;
        laps * self.slots as i64 + indexes
    }

    /// The bare place that lies as many places on as are reserved: what counts against the limit.
    #[inline]
    pub(crate) const fn level(self, word: Word) -> Word {
        if word.reserved() == 0 {
            return word.place();
        }
        self.advance(word.place(), word.reserved())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITIES: [usize; 9] = [1, 2, 3, 4, 5, 7, 8, 1000, super::super::MAX_CAPACITY];

    /// Starts at which the lap, and with it the whole word, is about to wrap.
    fn starts(shape: Shape) -> [Word; 3] {
        let last = shape.last_lap();
        [Word::ZERO, last, shape.advance(last, shape.slots / 2)]
    }

    #[test]
    fn next_visits_every_slot_in_order_and_wraps() {
        for capacity in CAPACITIES {
            let shape = Shape::new(capacity);
            for start in starts(shape) {
                let mut word = start;
                let mut expected = shape.index(start);
                for _ in 0..(3 * capacity).min(5_000) {
                    assert_eq!(shape.index(word), expected, "capacity {capacity}");
                    let next = shape.next(word);
                    assert!(word.is_before(next));
                    assert_eq!(next, shape.advance(word, 1));
                    assert_eq!(shape.distance(word, next), 1);
                    expected = (expected + 1) % capacity;
                    word = next;
                }
            }
        }
    }

    #[test]
    fn advance_and_distance_agree_across_the_wrap() {
        for capacity in CAPACITIES {
            let shape = Shape::new(capacity);
            for start in starts(shape) {
                for n in [0, 1, 2, 3, capacity as u64 / 2, capacity as u64, 2 * capacity as u64] {
                    let end = shape.advance(start, n);
                    assert!(shape.index(end) < capacity, "{n} places on there is a slot of {capacity}");
                    assert_eq!(shape.distance(start, end), n as i64, "capacity {capacity}");
                    assert_eq!(shape.distance(end, start), -(n as i64));
                    assert_eq!(start.is_before(end), n > 0);
                    if n <= capacity as u64 {
                        assert_eq!(shape.retreat(end, n), start);
                    }
                }
            }
        }
    }

    #[test]
    fn flags_survive_every_step() {
        let shape = Shape::new(3);
        for start in starts(shape) {
            let mut word = start.closed().with_reserved(2);
            for _ in 0..7 {
                word = shape.next(word);
                assert!(word.is_closed());
                assert_eq!(word.reserved(), 2);
                assert_eq!(shape.distance(word, shape.level(word)), 2);
                assert_ne!(word.mark(), Word::ZERO);
            }
        }
        let most = super::super::MAX_CAPACITY as u64;
        assert_eq!(Word::ZERO.with_reserved(most).reserved(), most);
    }

    #[test]
    fn never_is_never_reached() {
        for capacity in CAPACITIES {
            let shape = Shape::new(capacity);
            for start in starts(shape) {
                let never = start.never();
                assert!(shape.advance(start, 2 * capacity as u64).is_before(never));
            }
        }
    }
}
