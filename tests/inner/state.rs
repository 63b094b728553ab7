//! Any bytes are marks, a capacity, a batch limit, and a walk of the depth; the states must be those of the definition.
//!
//! The marks are thousandths, so that the definition can be written in whole numbers, without a rounding of its own.

use crate::state::{Levels, Machine, Posture, Scale, State, StateCell, Watermarks};

/// What the bytes say.
struct Case {
    /// In thousandths of the capacity: low, high, and all of it.
    marks: [u64; 3],
    capacity: u64,
    batch: u64,
}

/// Runs what `bytes` say: ten of them are the case, then two for each step.
pub(crate) fn run(bytes: &[u8]) {
    let Some((head, steps)) = bytes.split_first_chunk::<10>() else { return };
    let number = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let high = 2 + number(0) % 999;
    let low = 1 + number(2) % (high - 1);
    // Small ones by themselves, large ones by their magnitude.
    let capacity = match head[4] % 3 {
        0 => 1 + number(5) % 16,
        1 => 1 + number(5),
        _ => (1 + number(5)) << (head[4] % 9),
    };
    let batch = 1 + number(7) * (1 + number(8)) % capacity;
    let case = Case { marks: [low, high, 1000], capacity, batch };
    case.walk(steps, head[9]);
}

impl Case {
    /// Whether the depth is at the mark or above, or not yet below it by the hysteresis.
    fn is_inside(&self, mark: u64, depth: u64, was_inside: bool) -> bool {
        // All in 8000ths of an item: 1.25 batches are 10000 of them, a tenth of the capacity is 800 times it.
        let (at, depth) = (8 * mark * self.capacity, 8000 * depth);
        let hysteresis = (10_000 * self.batch).max(800 * self.capacity).min(at / 2);
        depth >= at || was_inside && depth > 0 && depth >= at - hysteresis
    }

    fn expected(&self, state: State, depth: u64) -> State {
        let inside = |(i, mark): (usize, &u64)| self.is_inside(*mark, depth, state as usize > i);
        let level = self.marks.iter().enumerate().rposition(inside).map_or(0, |i| i + 1);
        State::ALL[level]
    }

    /// The depth of a step: to anywhere, to about a mark, or by a batch or so.
    fn depth(&self, before: u64, [how, by]: [u8; 2]) -> u64 {
        let by = u64::from(by);
        let depth = match how % 8 {
            0 => by * self.capacity / 255,
            1..=3 => (self.marks[usize::from(how % 8) - 1] * self.capacity).div_ceil(1000) + by % 5,
            4 => before + by % 3,
            5 => before.saturating_sub(by % 3),
            6 => before + self.batch,
            _ => before.saturating_sub(self.batch),
        };
        // A little below the marks as well as above.
        let shift = if matches!(how % 8, 1..=3) { 2 } else { 0 };
        depth.saturating_sub(shift).min(self.capacity)
    }

    fn walk(&self, steps: &[u8], close_at: u8) {
        let share = |mark: u64| mark as f64 / 1000.0;
        let watermarks = Watermarks::new(share(self.marks[0]), share(self.marks[1])).expect("in order");
        let levels = Levels::new(watermarks, self.capacity as usize, self.batch as usize);
        let (mut machine, cell) = (Machine::new(levels), StateCell::new(false));
        let (mut state, mut depth, mut changes) = (State::Normal, 0, [[0; 5]; 5]);
        for (i, step) in steps.chunks_exact(2).enumerate() {
            let before = depth;
            depth = self.depth(depth, [step[0], step[1]]);
            let is_closed = i >= usize::from(close_at);
            let next = if is_closed { State::Draining } else { self.expected(state, depth) };
            let observed = machine.observe_between(depth, depth, is_closed);
            assert_eq!(observed, (next != state).then_some(next), "{state} at {depth}: {self:?}");
            assert_eq!(
                levels.next(state, depth),
                if state == State::Draining { state } else { self.expected(state, depth) }
            );
            self.judge(state, next, before, depth);
            if let Some(now) = observed {
                changes[state as usize][now as usize] += 1;
                cell.set(now, Posture::REFUSE);
                state = now;
            }
            self.figures(&levels, &machine, state, depth);
            assert_eq!(cell.get(), state);
        }
        let told = State::ALL.map(|from| State::ALL.map(|to| machine.transitions().count(from, to)));
        assert_eq!(told, changes);
        assert_eq!(machine.transitions().total(), changes.iter().flatten().sum::<u64>());
        for to in State::ALL {
            assert_eq!(machine.transitions().entered(to), changes.iter().map(|row| row[to as usize]).sum::<u64>());
        }
    }

    /// What the definition is for.
    fn judge(&self, state: State, next: State, before: u64, depth: u64) {
        if next == State::Draining {
            return;
        }
        assert_eq!(next == State::Blocked, depth == self.capacity || next == State::Blocked && state == State::Blocked);
        assert!(depth > 0 || next == State::Normal, "empty is normal");
        assert!(depth <= before || next >= state, "it never falls while the depth rises");
        assert!(depth >= before || next <= state, "it never rises while the depth falls");
        // A batch that leaves from above a mark does not flip it, unless the mark is too low for it.
        for mark in self.marks {
            let at = 8 * mark * self.capacity;
            let fits = 20_000 * self.batch <= at;
            let leaves = before * 8000 >= at && depth + self.batch >= before && depth > 0;
            assert!(!(fits && leaves) || self.is_inside(mark, depth, true), "{before} to {depth}: {self:?}");
        }
    }

    fn figures(&self, levels: &Levels, machine: &Machine, state: State, depth: u64) {
        let above = self.marks.get(state as usize).map(|mark| (mark * self.capacity).div_ceil(1000));
        assert_eq!(levels.mark_above(state), above, "{state}: {self:?}");
        assert_eq!(machine.mark_above(), above);
        let pressure = Scale::new(levels).pressure(depth);
        let [low, high, _] = self.marks.map(|mark| mark * self.capacity);
        let exact = (depth as f64 * 1000.0 - low as f64) / (high - low) as f64;
        assert!((pressure - exact.clamp(0.0, 1.0)).abs() < 1e-6, "{pressure} for {exact}");
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { marks, capacity, batch } = self;
        write!(f, "marks {marks:?} of {capacity}, batch {batch}")
    }
}
