//! A capacity and levels that change while the gate is in use.

use super::{Desk, Locked};
use crate::state::{Levels, Watermarks};
use crate::sync::{Fault, fault};

impl<T, R> Locked<'_, T, R> {
    /// The present capacity.
    pub(crate) fn capacity(&self) -> u64 {
        self.head.capacity()
    }

    /// Changes the capacity; `to` in `1 ..= max_capacity`. The section goes on.
    ///
    /// What is inside stays: after a shrink there may be more than the capacity, until so many items are settled. Room that
    /// is gained goes to the oldest waiters first, when the section ends. Reservations that could never be granted any more
    /// are sent away.
    pub(crate) fn set_capacity(&mut self, to: usize) {
        self.head.set_capacity(to as u64);
        let levels = self.head.machine.levels().with_capacity(to);
        self.apply_levels(levels);
        let desk: &mut Desk<T, R> = &mut self.head;
        let granted = desk.waiters.dismiss_unfit(to as u64, &mut self.effects.wakers);
        self.release(granted);
        // The flusher sleeps until a level that may never be reached now, or knows too little of the room.
        self.rouse();
    }

    /// Changes the watermarks and the batch limit. The section goes on.
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
