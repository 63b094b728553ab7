//! The state of the buffer, as a pure table of depth against the watermarks, raised by the age of its items.

use std::fmt;

use crate::error::BuildError;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How full the buffer is, by its depth (reserved + buffered + in flight), with a [`weigher`](crate::Builder::weigher) by items or
/// by weight, whichever is the higher share; or, if that is worse, how long its items wait, where a
/// [critical age](crate::Builder::critical_age) or a [largest one](crate::Builder::max_age) is set. With a weigher it is also
/// Blocked while producers wait.
///
/// A state is entered at its mark at once, and left only when the depth has fallen below the mark by the hysteresis
/// `h = min(max(1.25 * batch / capacity, 0.10), mark / 2)` of the capacity, so that the batch that leaves at each flush
/// does not flip it. Depth 0 is always [`Normal`](Self::Normal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum State {
    /// Below the low mark, and young.
    #[default]
    Normal = 0,
    /// At or above the low mark, or at half of the critical age.
    Elevated = 1,
    /// At or above the high mark, or at the critical age.
    Critical = 2,
    /// No room.
    Blocked = 3,
    /// The intake is shut; the last state.
    Draining = 4,
}

impl State {
    /// All states, in order.
    pub const ALL: [Self; 5] = [Self::Normal, Self::Elevated, Self::Critical, Self::Blocked, Self::Draining];

    /// The name in lower case, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Elevated => "elevated",
            Self::Critical => "critical",
            Self::Blocked => "blocked",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The low and the high mark, as shares of the capacity: `0 < low < high <= 1`.
///
/// Default: 0.5 and 0.8. At half full a well-sized buffer is already behind; at 0.8 there is still time to act.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    low: f64,
    high: f64,
}

impl Watermarks {
    /// # Errors
    ///
    /// [`BuildError::Watermarks`] unless `0 < low < high <= 1`; so for NaN, too.
    pub fn new(low: f64, high: f64) -> Result<Self, BuildError> {
        if low > 0.0 && low < high && high <= 1.0 {
            Ok(Self { low, high })
        } else {
            Err(BuildError::Watermarks { low, high })
        }
    }

    /// The low mark.
    #[must_use]
    pub const fn low(self) -> f64 {
        self.low
    }

    /// The high mark.
    #[must_use]
    pub const fn high(self) -> f64 {
        self.high
    }
}

impl Default for Watermarks {
    fn default() -> Self {
        Self { low: 0.5, high: 0.8 }
    }
}

/// The marks of one capacity and batch limit in items: rise at or above, fall below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    rise: [u64; 3],
    fall: [u64; 3],
    low: f64,
    span: f64,
    /// What they were made of.
    marks: Watermarks,
    batch: usize,
}

impl Levels {
    /// `capacity` and `batch` at least 1.
    pub(crate) fn new(marks: Watermarks, capacity: usize, batch: usize) -> Self {
        let capacity = capacity as f64;
        let batch_share = 1.25 * batch as f64 / capacity;
        let shares = [marks.low, marks.high, 1.0];
        let hysteresis = shares.map(|mark| batch_share.max(0.10).min(mark / 2.0));
        Self {
            // An item more than a mark is an item at it: rounding up, with care for 0.8 * 100 = 80.00000000000001.
            rise: shares.map(|mark| ((mark * capacity - 1e-6).ceil() as u64).max(1)),
            fall: std::array::from_fn(|i| ((shares[i] - hysteresis[i]) * capacity - 1e-6).ceil().max(1.0) as u64),
            low: marks.low * capacity,
            span: marks.high * capacity - marks.low * capacity,
            marks,
            batch,
        }
    }

    /// The same marks and batch limit for another capacity.
    pub(crate) fn with_capacity(&self, capacity: usize) -> Self {
        Self::new(self.marks, capacity, self.batch)
    }

    /// The state that follows `state` at this depth.
    pub(crate) fn next(&self, state: State, depth: u64) -> State {
        const OPEN: [State; 4] = [State::Normal, State::Elevated, State::Critical, State::Blocked];
        if state == State::Draining {
            return state;
        }
        let risen = self.rise.iter().filter(|&&mark| depth >= mark).count();
        let mut level = (state as usize).max(risen);
        while level > risen && (depth < self.fall[level - 1] || depth == 0) {
            level -= 1;
        }
        OPEN[level]
    }

    /// The lowest mark above `state`, as a depth.
    pub(crate) fn mark_above(&self, state: State) -> Option<u64> {
        self.rise.get(state as usize).copied()
    }
}

/// The marks as they can be read without the lock; written only under it.
#[derive(Debug)]
pub(crate) struct Scale {
    /// The low mark and how far the high one is above it, in items: the bits of two `f64`.
    low: AtomicU64,
    span: AtomicU64,
}

impl Scale {
    pub(crate) fn new(levels: &Levels) -> Self {
        Self { low: AtomicU64::new(levels.low.to_bits()), span: AtomicU64::new(levels.span.to_bits()) }
    }

    pub(crate) fn set(&self, levels: &Levels) {
        // Ordering: Relaxed, two figures: while they change, the pressure may be that of neither, and is in its range.
        self.low.store(levels.low.to_bits(), Ordering::Relaxed);
        self.span.store(levels.span.to_bits(), Ordering::Relaxed);
    }

    /// The high mark, in items.
    pub(crate) fn high(&self) -> f64 {
        // Ordering: Relaxed, as above.
        f64::from_bits(self.low.load(Ordering::Relaxed)) + f64::from_bits(self.span.load(Ordering::Relaxed))
    }

    /// `(depth - low) / (high - low)`, in `0.0 ..= 1.0`.
    pub(crate) fn pressure(&self, depth: u64) -> f64 {
        // Ordering: Relaxed, as above.
        let low = f64::from_bits(self.low.load(Ordering::Relaxed));
        let span = f64::from_bits(self.span.load(Ordering::Relaxed));
        ((depth as f64 - low) / span).clamp(0.0, 1.0)
    }
}

/// How often each state followed each other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transitions {
    counts: [[u64; 5]; 5],
}

impl Transitions {
    /// Transitions from `from` to `to`.
    #[must_use]
    pub const fn count(&self, from: State, to: State) -> u64 {
        self.counts[from as usize][to as usize]
    }

    /// Transitions into `state`, from whichever.
    #[must_use]
    pub fn entered(self, state: State) -> u64 {
        self.counts.iter().map(|row| row[state as usize]).sum()
    }

    /// All transitions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }
}

/// The state and its history; lives under the head lock.
#[derive(Debug)]
pub(crate) struct Machine {
    levels: Levels,
    by_depth: State,
    by_age: State,
    state: State,
    transitions: Transitions,
}

impl Machine {
    pub(crate) fn new(levels: Levels) -> Self {
        let (by_depth, by_age, state) = (State::Normal, State::Normal, State::Normal);
        Self { levels, by_depth, by_age, state, transitions: Transitions::default() }
    }

    /// Follows the depth; `Some` is the new state. If it is not known exactly, the state rises by the least that it may be, and falls by
    /// the most.
    pub(crate) fn observe_between(&mut self, least: u64, depth: u64, closed: bool) -> Option<State> {
        let by_most = self.levels.next(self.by_depth, depth);
        self.by_depth = if least == depth {
            by_most
        } else {
            self.levels.next(self.by_depth, least).max(by_most.min(self.by_depth))
        };
        if depth == 0 {
            self.by_age = State::Normal;
        }
        let is_over = closed || self.state == State::Draining;
        let next = if is_over { State::Draining } else { self.by_depth.max(self.by_age) };
        if next == self.state {
            return None;
        }
        self.transitions.counts[self.state as usize][next as usize] += 1;
        self.state = next;
        Some(next)
    }

    pub(crate) const fn levels(&self) -> &Levels {
        &self.levels
    }

    pub(crate) const fn by_age(&self) -> State {
        self.by_age
    }

    /// What the age makes of it, from the next look at the depth on.
    pub(crate) fn set_by_age(&mut self, state: State) {
        self.by_age = state;
    }

    /// Other levels, for the next look at the depth.
    pub(crate) fn set_levels(&mut self, levels: Levels) {
        self.levels = levels;
    }

    /// The next depth at which the state rises.
    pub(crate) fn mark_above(&self) -> Option<u64> {
        self.levels.mark_above(if self.state == State::Draining { self.state } else { self.by_depth })
    }

    pub(crate) const fn transitions(&self) -> Transitions {
        self.transitions
    }
}

/// What a push knows of the strategy without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posture {
    /// From this state on the strategy is asked about every item; `None`: only about those that find no room.
    pub(crate) ask_from: Option<State>,
    pub(crate) reflex: Reflex,
}

impl Posture {
    pub(crate) const REFUSE: Self = Self { ask_from: None, reflex: Reflex::Refuse };
}

/// What becomes of an item that finds no room and whose producer does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reflex {
    /// It is refused.
    Refuse = 0,
    /// It displaces the oldest one.
    Evict = 1,
    /// The item is weighed, if there is a weigher, and the strategy is asked.
    Ask = 2,
}

/// The published state with what it makes of the posture, readable without the lock; written only under it.
///
/// ```text
///  7         6   5      4  3       2     0
/// +---------+---+--------+-------+--------+
/// | WEIGHED | - | reflex | ASKED | state  |
/// +---------+---+--------+-------+--------+
/// ```
#[derive(Debug)]
pub(crate) struct StateCell {
    cell: AtomicU8,
    /// `WEIGHED`, or nothing.
    fixed: u8,
}

const STATE: u8 = 0b111;
const ASKED: u8 = 1 << 3;
const REFLEX_SHIFT: u32 = 4;
const WEIGHED: u8 = 1 << 7;

impl StateCell {
    pub(crate) const fn new(is_weighed: bool) -> Self {
        let fixed = if is_weighed { WEIGHED } else { 0 };
        Self { cell: AtomicU8::new(fixed), fixed }
    }

    pub(crate) fn get(&self) -> State {
        // Ordering: Relaxed, a single word; whoever must see the last state reads it after a wake-up that orders it.
        State::ALL[usize::from(self.cell.load(Ordering::Relaxed) & STATE).min(4)]
    }

    /// Whether a push may go straight to the ring: the strategy is not to be asked, and there is no weigher.
    #[inline(always)]
    pub(crate) fn is_direct(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.cell.load(Ordering::Relaxed) & (ASKED | WEIGHED) == 0
    }

    /// Whether the strategy is to be asked about every item now.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.cell.load(Ordering::Relaxed) & ASKED != 0
    }

    /// With a weigher always [`Reflex::Ask`]: the item is to be weighed first.
    #[inline(always)]
    pub(crate) fn reflex(&self) -> Reflex {
        // Ordering: Relaxed, as above.
        let reflex = self.cell.load(Ordering::Relaxed) >> REFLEX_SHIFT;
        // Not a `match`: it becomes a table of what the caller's own becomes jumps of.
        if reflex == Reflex::Evict as u8 {
            Reflex::Evict
        } else if reflex == Reflex::Refuse as u8 {
            Reflex::Refuse
        } else {
            Reflex::Ask
        }
    }

    pub(crate) fn set(&self, state: State, posture: Posture) {
        let asked = if posture.ask_from.is_some_and(|from| state >= from) { ASKED } else { 0 };
        // Ordering: Relaxed, as above; the head lock orders the writers.
        self.cell.store(state as u8 | asked | self.fixed | (posture.reflex as u8) << REFLEX_SHIFT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Machine {
        fn observe(&mut self, depth: u64, closed: bool) -> Option<State> {
            self.observe_between(depth, depth, closed)
        }
    }

    #[test]
    fn what_is_not_known_neither_raises_nor_lowers_a_state() {
        let mut machine = Machine::new(Levels::new(Watermarks::default(), 100, 1));
        assert_eq!(machine.observe_between(40, 60, false), None);
        assert_eq!(machine.observe_between(50, 60, false), Some(State::Elevated));
        assert_eq!(machine.observe_between(10, 60, false), None);
        assert_eq!(machine.observe_between(10, 10, false), Some(State::Normal));
    }

    /// The definition, in real numbers.
    fn expected(marks: [f64; 3], capacity: usize, batch: usize, state: State, depth: u64) -> State {
        let share = depth as f64 / capacity as f64;
        let mut level = 0;
        for (i, mark) in marks.into_iter().enumerate() {
            let h = (1.25 * batch as f64 / capacity as f64).max(0.10).min(mark / 2.0);
            let inside = share >= mark - 1e-9 || (state as usize > i && depth > 0 && share >= mark - h - 1e-9);
            if inside {
                level = i + 1;
            }
        }
        State::ALL[level]
    }

    #[test]
    fn the_table_is_the_definition() {
        for capacity in [1, 2, 3, 5, 10, 100] {
            for batch in [1, 2, capacity] {
                for (low, high) in [(0.5, 0.8), (0.01, 1.0), (0.01, 0.02), (0.99, 1.0), (0.3, 0.31)] {
                    let levels = Levels::new(Watermarks { low, high }, capacity, batch);
                    for state in &State::ALL[..4] {
                        for depth in 0..=capacity as u64 {
                            assert_eq!(
                                levels.next(*state, depth),
                                expected([low, high, 1.0], capacity, batch, *state, depth),
                                "capacity {capacity}, batch {batch}, marks {low} {high}, {state} at {depth}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn draining_is_the_last_state() {
        let levels = Levels::new(Watermarks::default(), 10, 1);
        assert!((0..=10).all(|depth| levels.next(State::Draining, depth) == State::Draining));
        let mut machine = Machine::new(levels);
        assert_eq!(machine.observe(0, true), Some(State::Draining));
        assert_eq!(machine.observe(10, true), None);
    }

    #[test]
    fn marks_must_be_two_shares_in_order() {
        for (low, high) in
            [(0.0, 0.5), (0.5, 0.5), (0.8, 0.5), (0.5, 1.1), (f64::NAN, 0.5), (0.5, f64::NAN), (-1.0, 1.0)]
        {
            assert!(Watermarks::new(low, high).is_err(), "{low} {high}");
        }
        assert!(Watermarks::new(f64::MIN_POSITIVE, 1.0).is_ok());
        let marks = Watermarks::new(0.25, 0.75).expect("in order");
        assert_eq!((marks.low(), marks.high()), (0.25, 0.75));
    }

    #[test]
    fn a_state_displays_as_its_name() {
        let names = State::ALL.map(|state| state.to_string());
        assert_eq!(names, ["normal", "elevated", "critical", "blocked", "draining"]);
        assert_eq!(format!("{:>8}", State::Normal), "  normal");
    }

    #[test]
    fn the_cell_keeps_what_it_was_set_to() {
        for is_weighed in [false, true] {
            let cell = StateCell::new(is_weighed);
            let all = |cell: &StateCell| (cell.get(), cell.is_asked(), cell.is_direct(), cell.reflex());
            let reflex = if is_weighed { Reflex::Ask } else { Reflex::Refuse };
            assert_eq!(all(&cell), (State::Normal, false, !is_weighed, reflex));
            for state in State::ALL {
                for ask_from in State::ALL.map(Some).into_iter().chain([None]) {
                    for reflex in [Reflex::Refuse, Reflex::Evict, Reflex::Ask] {
                        cell.set(state, Posture { ask_from, reflex });
                        let asked = ask_from.is_some_and(|from| state >= from);
                        let reflex = if is_weighed { Reflex::Ask } else { reflex };
                        assert_eq!(all(&cell), (state, asked, !asked && !is_weighed, reflex));
                    }
                }
            }
        }
    }

    #[test]
    fn pressure_is_a_share_between_the_marks() {
        let scale = Scale::new(&Levels::new(Watermarks::default(), 100, 1));
        assert_eq!([0, 50, 65, 80, 100].map(|depth| scale.pressure(depth)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        scale.set(&Levels::new(Watermarks::default(), 10, 1));
        assert_eq!([0, 5, 8, 100].map(|depth| scale.pressure(depth)), [0.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn the_state_is_the_worse_of_depth_and_age() {
        let mut machine = Machine::new(Levels::new(Watermarks::default(), 100, 1));
        machine.set_by_age(State::Critical);
        assert_eq!((machine.observe(10, false), machine.mark_above()), (Some(State::Critical), Some(50)));
        assert_eq!((machine.observe(50, false), machine.mark_above()), (None, Some(80)));
        assert_eq!(machine.observe(100, false), Some(State::Blocked));
        assert_eq!(machine.observe(89, false), Some(State::Critical));
        machine.set_by_age(State::Normal);
        assert_eq!(machine.observe(45, false), Some(State::Elevated), "the depth has its own history");
        machine.set_by_age(State::Elevated);
        assert_eq!(machine.observe(30, false), None);
        assert_eq!((machine.observe(0, false), machine.by_age()), (Some(State::Normal), State::Normal));
        machine.set_by_age(State::Critical);
        assert_eq!((machine.observe(60, true), machine.mark_above()), (Some(State::Draining), None));
        assert_eq!(machine.observe(60, false), None, "the last state");
    }

    #[test]
    fn the_state_follows_other_levels_at_the_next_look() {
        let levels = Levels::new(Watermarks::default(), 100, 1);
        let mut machine = Machine::new(levels);
        assert_eq!(machine.observe(10, false), None);
        machine.set_levels(machine.levels().with_capacity(5));
        assert_eq!(machine.observe(10, false), Some(State::Blocked), "more is inside than the capacity");
        machine.set_levels(machine.levels().with_capacity(100));
        assert_eq!(machine.observe(10, false), Some(State::Normal));
    }
}
