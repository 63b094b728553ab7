//! What items carry beside themselves on their way in, and what of it is kept: the weight of a sample's survivor, a receipt.
//!
//! Tags are kept by position, under the head lock. An item with a tag is stored under the lock, too, so the others pay
//! nothing; and since every outcome is counted by position, in one place, a receipt is told exactly once.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::receipt::Receipt;

/// What one item carries.
#[derive(Debug)]
pub(crate) struct Tag {
    /// How many offers it stands for; at least 1.
    pub(crate) weight: u64,
    /// What the weigher has said of it; 0 without one. The ring keeps it, not the map.
    pub(crate) size: u64,
    pub(crate) receipt: Option<Receipt>,
}

impl Tag {
    pub(crate) const PLAIN: Self = Self::new(0, None);

    pub(crate) const fn new(size: u64, receipt: Option<Receipt>) -> Self {
        Self { weight: 1, size, receipt }
    }

    pub(crate) const fn of_size(size: u64) -> Self {
        Self::new(size, None)
    }

    /// There is nothing for the map.
    pub(crate) const fn is_plain(&self) -> bool {
        self.weight == 1 && self.receipt.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct Tags {
    map: BTreeMap<u64, Tag>,
}

impl Tags {
    pub(crate) const fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn insert(&mut self, position: u64, tag: Tag) {
        if !tag.is_plain() {
            let before = self.map.insert(position, tag);
            // A receipt must not be dropped here: that wakes whoever waits for it, under the lock.
            debug_assert!(before.is_none(), "a position has one tag");
        }
    }

    /// At least 1.
    pub(crate) fn weight(&self, position: u64) -> u64 {
        self.map.get(&position).map_or(1, |tag| tag.weight)
    }

    /// Adds to what the item at `position` stands for.
    pub(crate) fn add_weight(&mut self, position: u64, weight: u64) {
        let tag = self.map.entry(position).or_insert(Tag::PLAIN);
        tag.weight = tag.weight.saturating_add(weight);
    }

    /// The first tag in the range, taken out.
    pub(crate) fn pop_in(&mut self, positions: &Range<u64>) -> Option<Tag> {
        let (&position, _) = self.map.range(positions.clone()).next()?;
        self.map.remove(&position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_items_leave_nothing_behind() {
        let mut tags = Tags::new();
        tags.insert(7, Tag::PLAIN);
        assert!(tags.is_empty());
        assert_eq!(tags.weight(7), 1);
    }

    #[test]
    fn weights_add_up_and_do_not_wrap() {
        let mut tags = Tags::new();
        tags.add_weight(3, 2);
        assert_eq!(tags.weight(3), 3);
        tags.add_weight(3, u64::MAX);
        assert_eq!(tags.weight(3), u64::MAX);
    }

    #[test]
    fn a_range_gives_its_tags_in_order_and_no_others() {
        let mut tags = Tags::new();
        for position in [1, 4, 5, 9] {
            tags.insert(position, Tag { weight: position + 1, ..Tag::PLAIN });
        }
        let popped: Vec<_> = std::iter::from_fn(|| tags.pop_in(&(2..9))).map(|tag| tag.weight).collect();
        assert_eq!(popped, [5, 6]);
        assert!(!tags.is_empty());
    }
}
