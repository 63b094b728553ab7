//! A capacity and levels that change while the gate is in use.

use super::{Desk, Locked};
use crate::state::{Levels, Watermarks};
use crate::sync::{Fault, fault};

impl<T, R> Locked<'_, T, R> {
    /// The present capacity.
    pub(crate) fn capacity(&self) -> u64 {
        self.head.capacity()
    }

    /// Changes the capacity; `to` in `1 ..= max_capacity`. The section goes on, and ends by [`finish`](Self::finish).
    ///
    /// What is inside stays: after a shrink there may be more than the capacity, until so many items are settled. Room that
    /// is gained goes to the oldest waiters first, when the section ends. Reservations that could never be granted any more
    /// are sent away.
    pub(crate) fn set_capacity(&mut self, to: usize) {
        self.head.set_capacity(to as u64);
        let levels = self.head.machine.levels().with_capacity(to);
        self.apply_levels(levels);
        let desk: &mut Desk<T, R> = &mut self.head;
        let (granted, size) = desk.waiters.dismiss_unfit(to as u64, &mut self.effects.wakers);
        self.release(granted, size);
        // The flusher sleeps until a level that may never be reached now, or knows too little of the room.
        self.rouse();
    }

    /// Changes the watermarks and the batch limit. The section goes on, and ends by [`finish`](Self::finish).
    pub(crate) fn set_levels(&mut self, marks: Watermarks, batch: usize) {
        self.apply_levels(Levels::new(marks, self.head.capacity() as usize, batch));
    }

    /// The state follows when the section ends.
    fn apply_levels(&mut self, levels: Levels) {
        self.gate.scale.set(&levels);
        self.head.machine.set_levels(levels);
    }

    /// The present capacity, if a reservation wants more: it would wait for ever.
    pub(crate) fn too_few_for(&self, wanted: u64) -> Option<u64> {
        let most = self.head.capacity();
        (wanted > most && !fault(Fault::UnfitQueued)).then_some(most)
    }
}

#[cfg(all(test, not(backpressure_loom)))]
mod tests {
    use super::*;
    use crate::gate::{Gate, Means, Stock};
    use crate::state::State;
    use crate::time::Clock;

    #[test]
    fn several_changes_in_one_section_are_one_to_whoever_looks() {
        let marks = |low, high| Watermarks::new(low, high).expect("valid");
        let gate =
            Gate::new(100, Levels::new(marks(0.5, 0.8), 100, 1), Stock::Minded, Clock::start(), ()).expect("memory");
        assert!((0..8).all(|item: u32| gate.claim(Means::Room).map(|place| place.fill(item)).is_some()));
        let mut locked = gate.lock();
        locked.set_capacity(4);
        locked.set_levels(marks(0.1, 0.2), 1);
        locked.set_capacity(40);
        let effects = locked.finish();
        assert!(effects.state);
        assert_eq!((gate.state(), gate.capacity(), gate.depth(), gate.pressure()), (State::Critical, 40, 8, 1.0));
        let transitions = gate.lock().state().1;
        assert_eq!((transitions.total(), transitions.count(State::Normal, State::Critical)), (1, 1));
        let mut locked = gate.lock();
        locked.set_levels(marks(0.5, 0.8), 1);
        assert!(locked.finish().state);
        assert_eq!((gate.state(), gate.pressure()), (State::Normal, 0.0));
    }
}
