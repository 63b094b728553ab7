//! When items were accepted, without a clock on the push path: a few checkpoints of (position, time).

use std::collections::VecDeque;

use crate::time::Tick;

/// Each checkpoint says: items from this position on were accepted at this time or later.
///
/// So the age of an item is bounded from above by the last checkpoint at or before its position.
#[derive(Debug)]
pub(crate) struct Stamps {
    list: VecDeque<(u64, Tick)>,
}

impl Stamps {
    /// Enough for a linger of batches; more would only sharpen the bound.
    const MOST: usize = 16;

    /// All the memory that it will ever need: a push must not allocate.
    pub(crate) fn new() -> Self {
        Self { list: VecDeque::with_capacity(Self::MOST) }
    }

    /// Whatever gets a position of `next` or above comes at `now` or later.
    pub(crate) fn note(&mut self, next: u64, now: Tick) {
        let is_short = self.list.len() < Self::MOST;
        // Somebody looked when the first items were in, and before they were noted: they would have no age, and no linger.
        if let Some(first) = self.list.front_mut().filter(|first| first.0 > next) {
            *first = (next, first.1.min(now));
            return;
        }
        match self.list.back_mut() {
            Some(last) if last.0 == next => last.1 = last.1.max(now),
            Some(last) if last.0 > next => {}
            // Leaving a checkpoint out makes later ages look older: a batch leaves early, never late.
            _ if is_short => self.list.push_back((next, now)),
            _ => {}
        }
    }

    /// A bound of the time at which the item at `position` was accepted: it was not earlier.
    pub(crate) fn earliest(&self, position: u64) -> Option<Tick> {
        self.list.iter().rev().find(|(from, _)| *from <= position).map(|(_, at)| *at)
    }

    /// Drops the checkpoints that say nothing of `position` or later ones.
    pub(crate) fn forget_before(&mut self, position: u64) {
        while self.list.get(1).is_some_and(|(from, _)| *from <= position) {
            self.list.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::at(Duration::from_millis(millis))
    }

    #[test]
    fn the_bound_is_the_last_checkpoint_before() {
        let mut stamps = Stamps::new();
        assert_eq!(stamps.earliest(0), None);
        stamps.note(0, at(1));
        stamps.note(10, at(2));
        stamps.note(10, at(3));
        assert_eq!([0, 9, 10, 99].map(|p| stamps.earliest(p)), [at(1), at(1), at(3), at(3)].map(Some));
        stamps.forget_before(10);
        assert_eq!(stamps.earliest(9), None);
        assert_eq!(stamps.earliest(10), Some(at(3)));
    }

    #[test]
    fn a_look_that_came_before_the_first_note_hides_nothing() {
        let mut stamps = Stamps::new();
        stamps.note(6, at(1));
        stamps.note(4, at(2));
        assert_eq!([3, 4, 6].map(|p| stamps.earliest(p)), [None, Some(at(1)), Some(at(1))]);
        stamps.note(9, at(3));
        stamps.note(5, at(4));
        assert_eq!([4, 5, 8, 9].map(|p| stamps.earliest(p)), [at(1), at(1), at(1), at(3)].map(Some));
    }

    #[test]
    fn the_last_checkpoint_is_moved_not_repeated() {
        let mut stamps = Stamps::new();
        stamps.note(0, at(1));
        stamps.note(0, at(2));
        assert_eq!((stamps.earliest(0), stamps.list.len()), (Some(at(2)), 1));
        (1..100).for_each(|i| stamps.note(i, at(i + 2)));
        assert_eq!(stamps.list.len(), Stamps::MOST, "a push must not allocate");
        let last = Stamps::MOST as u64 - 1;
        stamps.note(last, at(1_000));
        assert_eq!(stamps.earliest(last), Some(at(1_000)));
    }

    #[test]
    fn a_full_list_makes_items_look_older_never_younger() {
        let mut stamps = Stamps::new();
        for i in 0..100 {
            stamps.note(i, at(i));
        }
        assert!((0..100).all(|i| stamps.earliest(i).is_some_and(|t| t <= at(i))));
    }
}
