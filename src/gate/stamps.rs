//! When items were accepted, without a clock on the push path: a few checkpoints of (position, time).

use std::collections::VecDeque;
use std::ops::Range;

use crate::time::Tick;

/// A look at the clock and at the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    from: u64,
    /// Items from there on were accepted at this time or later.
    at: Tick,
    /// Items before it were accepted at this time or earlier.
    by: Tick,
}

/// Bounds of the age of each item, by the checkpoints around its position: it is at most that of the last one at or before,
/// and at least that of the first one behind.
#[derive(Debug)]
pub(crate) struct Stamps {
    list: VecDeque<Stamp>,
}

/// When the items of a batch were accepted, at the latest: items before the position, by the time. In order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Born(Vec<(u64, Tick)>);

impl Born {
    /// Items before this position were accepted by `cutoff`, for sure.
    pub(crate) fn before(&self, cutoff: Tick) -> u64 {
        self.0.iter().rev().find(|(_, by)| *by <= cutoff).map_or(0, |(from, _)| *from)
    }
}

impl Stamps {
    /// Enough for a linger of batches, and to tell ages apart to about an eighth of the oldest.
    const MOST: usize = 16;

    /// All the memory that it will ever need: a push must not allocate.
    pub(crate) fn new() -> Self {
        Self { list: VecDeque::with_capacity(Self::MOST + 1) }
    }

    /// Whatever gets a position of `next` or above comes at `at` or later; what has a lower one came at `by` or earlier.
    pub(crate) fn note(&mut self, next: u64, at: Tick, by: Tick) {
        // Somebody looked when the first items were in, and before they were noted: they would have no age, and no linger.
        if let Some(first) = self.list.front_mut().filter(|first| first.from > next) {
            *first = Stamp { from: next, at: first.at.min(at), by: first.by.min(by) };
            return;
        }
        match self.list.back_mut() {
            Some(last) if last.from == next => last.at = last.at.max(at),
            Some(last) if last.from > next => {}
            _ => {
                self.list.push_back(Stamp { from: next, at, by });
                if self.list.len() > Self::MOST {
                    self.thin_out();
                }
            }
        }
    }

    /// A bound of the time at which the item at `position` was accepted: it was not earlier.
    pub(crate) fn earliest(&self, position: u64) -> Option<Tick> {
        self.list.iter().rev().find(|stamp| stamp.from <= position).map(|stamp| stamp.at)
    }

    /// The other bound: it was not later.
    pub(crate) fn latest(&self, position: u64) -> Option<Tick> {
        self.list.iter().find(|stamp| stamp.from > position).map(|stamp| stamp.by)
    }

    /// Items before this position were accepted by `cutoff`, for sure.
    pub(crate) fn before(&self, cutoff: Tick) -> u64 {
        self.list.iter().rev().find(|stamp| stamp.by <= cutoff).map_or(0, |stamp| stamp.from)
    }

    /// What is known of the items at `positions`.
    pub(crate) fn born(&self, positions: &Range<u64>) -> Born {
        let inside = self.list.iter().filter(|stamp| stamp.from > positions.start && stamp.from < positions.end);
        let last = self.list.iter().find(|stamp| stamp.from >= positions.end);
        let last = last.map(|stamp| (positions.end, stamp.by));
        Born(inside.map(|stamp| (stamp.from, stamp.by)).chain(last).collect())
    }

    /// Drops the checkpoints that say nothing of `position` or later ones.
    pub(crate) fn forget_before(&mut self, position: u64) {
        while self.list.get(1).is_some_and(|stamp| stamp.from <= position) {
            self.list.pop_front();
        }
    }

    /// Leaves out the checkpoint that is missed least, so that they are spread over the time that they cover. Items around
    /// it look older to a linger, which is early then and never late, and younger to a largest age.
    #[cold]
    fn thin_out(&mut self) {
        let gap = |i: usize| self.list[i + 1].at.since(self.list[i - 1].at);
        if let Some(least) = (1..self.list.len() - 1).min_by_key(|i| gap(*i)) {
            self.list.remove(least);
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

    /// Notes a look that took no time.
    fn note(stamps: &mut Stamps, next: u64, millis: u64) {
        stamps.note(next, at(millis), at(millis));
    }

    #[test]
    fn the_bounds_are_the_checkpoints_around() {
        let mut stamps = Stamps::new();
        assert_eq!((stamps.earliest(0), stamps.latest(0), stamps.before(at(9))), (None, None, 0));
        note(&mut stamps, 0, 1);
        stamps.note(10, at(2), at(4));
        stamps.note(10, at(3), at(5));
        assert_eq!([0, 9, 10, 99].map(|p| stamps.earliest(p)), [at(1), at(1), at(3), at(3)].map(Some));
        assert_eq!([0, 9, 10].map(|p| stamps.latest(p)), [Some(at(4)), Some(at(4)), None], "the first look knew it");
        assert_eq!([0, 1, 3, 4, 9].map(|t| stamps.before(at(t))), [0, 0, 0, 10, 10]);
        stamps.forget_before(10);
        assert_eq!(stamps.earliest(9), None);
        assert_eq!(stamps.earliest(10), Some(at(3)));
    }

    #[test]
    fn a_look_that_came_before_the_first_note_hides_nothing() {
        let mut stamps = Stamps::new();
        note(&mut stamps, 6, 1);
        note(&mut stamps, 4, 2);
        assert_eq!([3, 4, 6].map(|p| stamps.earliest(p)), [None, Some(at(1)), Some(at(1))]);
        assert_eq!([3, 4].map(|p| stamps.latest(p)), [Some(at(1)), None]);
        note(&mut stamps, 9, 3);
        note(&mut stamps, 5, 4);
        assert_eq!([4, 5, 8, 9].map(|p| stamps.earliest(p)), [at(1), at(1), at(1), at(3)].map(Some));
    }

    #[test]
    fn the_last_checkpoint_is_moved_not_repeated() {
        let mut stamps = Stamps::new();
        note(&mut stamps, 0, 1);
        note(&mut stamps, 0, 2);
        assert_eq!((stamps.earliest(0), stamps.list.len()), (Some(at(2)), 1));
        (1..100).for_each(|i| note(&mut stamps, i, i + 2));
        assert_eq!(stamps.list.len(), Stamps::MOST, "a push must not allocate");
        note(&mut stamps, 99, 1_000);
        assert_eq!(stamps.earliest(99), Some(at(1_000)));
        assert_eq!(stamps.list.capacity(), VecDeque::<Stamp>::with_capacity(Stamps::MOST + 1).capacity());
    }

    #[test]
    fn a_full_list_keeps_true_bounds_spread_over_its_time() {
        let mut stamps = Stamps::new();
        for i in 0..1_000 {
            note(&mut stamps, i, i);
        }
        // The item at position p came between the looks p and p + 1.
        for p in 0..999 {
            let (earliest, latest) = (stamps.earliest(p).unwrap(), stamps.latest(p).unwrap());
            assert!(earliest <= at(p) && at(p + 1) <= latest);
            assert!(latest.since(earliest) <= Duration::from_millis(1_000 / 8), "{p}: {earliest:?} to {latest:?}");
        }
    }

    #[test]
    fn a_batch_takes_its_own_bounds_along() {
        let mut stamps = Stamps::new();
        [(0, 1), (4, 10), (8, 20), (20, 30)].into_iter().for_each(|(next, t)| note(&mut stamps, next, t));
        let born = stamps.born(&(2..12));
        assert_eq!([9, 10, 19, 20, 29, 30, 99].map(|t| born.before(at(t))), [0, 4, 4, 8, 8, 12, 12]);
        assert_eq!([5, 4].map(|first| stamps.born(&(first..12)).before(at(10))), [0, 0], "only bounds inside of it");
        assert_eq!(stamps.born(&(18..25)).before(at(99)), 20, "of the last ones nothing is known");
        assert_eq!(Born::default().before(at(99)), 0);
    }
}
