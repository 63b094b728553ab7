//! The size above which the sink refuses batches as too large, if it has one.
//!
//! Between the largest batch that was taken of late and the smallest that was refused the next one lies half-way, until the two are
//! close. If it is single items that are too large, as large a batch without them was taken of late, or is soon: then there is no
//! ceiling.

use std::num::NonZeroU32;

/// Of numbers of items, which are no larger than a capacity.
#[derive(Debug)]
pub(super) struct Ceiling {
    /// The largest that was taken: in this stretch of calls, and in the one before.
    taken: [u32; 2],
    /// So many calls of this stretch have ended.
    calls: u16,
    /// The smallest that was refused; larger than what is taken.
    refused: Option<NonZeroU32>,
    /// After so many full batches more are tried again: twice as many each time that it was for nothing.
    rest: u16,
    left: u16,
}

/// Calls that tell what the sink takes of late: it may take less than it did.
const STRETCH: u16 = 64;
/// It may also take more.
const REST: u16 = 128;
const LONGEST_REST: u16 = 1 << 14;
/// The ceiling is as good as found when it is known to this share.
const CLOSE: f64 = 1.1;

fn saturated(items: u64) -> u32 {
    items.try_into().unwrap_or(u32::MAX)
}

impl Ceiling {
    pub(super) const fn new() -> Self {
        Self { taken: [0; 2], calls: 0, refused: None, rest: REST, left: REST }
    }

    /// The most items that a batch may have, at least 1.
    pub(super) fn most(&self) -> u64 {
        match self.refused {
            None => u64::MAX,
            Some(refused) if self.is_found(refused.get()) => self.largest().into(),
            Some(refused) => self.largest().midpoint(refused.get()).max(1).into(),
        }
    }

    /// The largest that was taken of late.
    fn largest(&self) -> u32 {
        self.taken[0].max(self.taken[1])
    }

    fn is_found(&self, refused: u32) -> bool {
        let taken = self.largest();
        taken > 0 && (refused - taken <= 1 || f64::from(refused) <= CLOSE * f64::from(taken))
    }

    /// So many items were too many; whether that is news. Of a single one it is the item's fault.
    pub(super) fn refused(&mut self, items: u64) -> bool {
        self.count();
        let items = saturated(items);
        let most = self.refused.map_or(u32::MAX, NonZeroU32::get);
        let is_news = items > 1 && items < most && items > self.largest();
        if is_news {
            self.refused = NonZeroU32::new(items);
        }
        is_news
    }

    /// So many were taken, in a full batch or another one.
    pub(super) fn taken(&mut self, items: u64, is_full: bool) {
        self.count();
        self.taken[0] = self.taken[0].max(saturated(items));
        let Some(refused) = self.refused else { return };
        if self.largest() >= refused.get() {
            self.refused = None;
        } else if is_full && self.is_found(refused.get()) {
            self.left -= 1;
            if self.left == 0 {
                self.rest = (2 * self.rest).min(LONGEST_REST);
                (self.refused, self.left) = (None, self.rest);
            }
        }
    }

    fn count(&mut self) {
        self.calls += 1;
        if self.calls == STRETCH {
            (self.calls, self.taken) = (0, [0, self.taken[0]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Sends a batch, full or a part of one, to a sink, and what it refuses in halves; how many it refuses.
    fn send(
        ceiling: &mut Ceiling,
        items: Range<u64>,
        is_full: bool,
        is_too_large: &impl Fn(&Range<u64>) -> bool,
    ) -> u32 {
        let count = items.end - items.start;
        if !is_too_large(&items) {
            ceiling.taken(count, is_full);
            return 0;
        }
        ceiling.refused(count);
        if count == 1 {
            return 1;
        }
        let mid = items.start + count / 2;
        let mut half = |items| send(ceiling, items, false, is_too_large);
        1 + half(items.start..mid) + half(mid..items.end)
    }

    /// Sends as many batches, the largest that there may be.
    fn send_all(ceiling: &mut Ceiling, grown: u64, is_too_large: &impl Fn(&Range<u64>) -> bool) -> u32 {
        let batch = |_| {
            let most = ceiling.most().min(grown);
            send(ceiling, 0..most, true, is_too_large)
        };
        (0..50).map(batch).sum()
    }

    #[test]
    fn it_is_found_from_far_above_and_stays() {
        for limit in [1, 2, 3, 10, 78, 100, 999, 4_999] {
            let mut ceiling = Ceiling::new();
            let above = |items: &Range<u64>| items.end - items.start > limit;
            send(&mut ceiling, 0..5_000, true, &above);
            let refused = send_all(&mut ceiling, 5_000, &above);
            assert!(refused <= 9, "{limit}: {refused}");
            assert!((limit as f64 / CLOSE..=limit as f64).contains(&(ceiling.most() as f64)), "{limit}: {ceiling:?}");
        }
    }

    #[test]
    fn it_is_found_again_where_less_is_taken_than_before() {
        let mut ceiling = Ceiling::new();
        let limit = std::cell::Cell::new(1_000);
        let above = |items: &Range<u64>| items.end - items.start > limit.get();
        assert_eq!(send_all(&mut ceiling, 900, &above), 0);
        limit.set(70);
        send_all(&mut ceiling, 900, &above);
        assert_eq!(send_all(&mut ceiling, 900, &above), 0);
        assert!((64..=70).contains(&ceiling.most()), "{ceiling:?}");
    }

    #[test]
    fn single_items_make_no_ceiling_wherever_they_are() {
        for bad in [vec![0], vec![499], vec![250], vec![0, 499], vec![7, 300, 301], (0..499).step_by(100).collect()] {
            let mut ceiling = Ceiling::new();
            ceiling.taken(500, true);
            let has_bad = |items: &Range<u64>| bad.iter().any(|bad| items.contains(bad));
            for _ in 0..3 {
                assert!(send(&mut ceiling, 0..500, true, &has_bad) > 0);
                assert_eq!(ceiling.most(), u64::MAX, "{bad:?}: {ceiling:?}");
                ceiling.taken(500, true);
            }
        }
    }

    #[test]
    fn a_single_item_says_nothing_of_the_others() {
        let mut ceiling = Ceiling::new();
        assert!(!ceiling.refused(1));
        assert_eq!(ceiling.most(), u64::MAX);
    }

    #[test]
    fn more_is_tried_again_ever_more_rarely() {
        let mut ceiling = Ceiling::new();
        let (mut tries, mut size) = (Vec::new(), 50);
        for call in 0..100_000 {
            // It doubles where nothing is in the way.
            size = ceiling.most().min(2 * size);
            if size > 100 && ceiling.refused.is_none() {
                tries.push(call);
            }
            send(&mut ceiling, 0..size, true, &|items| items.end - items.start > 100);
        }
        let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] < 2 * i32::from(REST) && gaps.is_sorted() && gaps.len() < 14, "{gaps:?}");
    }
}
