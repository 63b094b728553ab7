//! What the head lock knows of sizes: those of what was taken and is not settled, by position, and the sums.

use std::collections::BTreeMap;
use std::ops::Range;

/// Only with a weigher is there anything in it.
#[derive(Debug, Default)]
pub(super) struct Stowage {
    /// By the first position of what was taken together.
    lots: BTreeMap<u64, Lot>,
    /// Memory for the next one.
    spare: Vec<u64>,
    /// The sizes of what was taken and is not settled.
    pub(super) in_flight: u64,
    /// What permits hold.
    pub(super) reserved: u64,
    /// The sizes of all that was ever accepted and is settled.
    pub(super) gone: u128,
    /// Pushes are kept out.
    pub(super) is_shut: bool,
    /// From the first to the last prepaid position that is not settled, and so counts by the allowance.
    pub(super) prepaid: Range<u64>,
}

/// What was taken together.
#[derive(Debug)]
struct Lot {
    sizes: Vec<u64>,
    /// How many of them are not settled.
    left: usize,
}

impl Stowage {
    /// Empty, with memory to be filled for [`take`](Self::take).
    pub(super) fn blank(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.spare)
    }

    /// Keeps the sizes of what was taken, from the position `first` on.
    pub(super) fn take(&mut self, first: u64, sizes: Vec<u64>) {
        if sizes.is_empty() {
            self.spare = sizes;
            return;
        }
        self.in_flight += sizes.iter().sum::<u64>();
        let left = sizes.len();
        self.lots.insert(first, Lot { sizes, left });
    }

    /// Forgets the sizes of what is settled, and returns their sum.
    pub(super) fn settle(&mut self, positions: &Range<u64>) -> u64 {
        let (mut at, mut sum) = (positions.start, 0);
        while at < positions.end {
            let Some((&first, lot)) = self.lots.range_mut(..=at).next_back() else { break };
            let begin = (at - first) as usize;
            let end = ((positions.end - first) as usize).min(lot.sizes.len());
            let Some(settled) = lot.sizes.get(begin..end).filter(|settled| !settled.is_empty()) else { break };
            sum += settled.iter().sum::<u64>();
            lot.left -= settled.len();
            at = first + end as u64;
            if lot.left == 0 {
                self.recycle(first);
            }
        }
        debug_assert!(at == positions.end, "only what was taken can be settled");
        self.in_flight -= sum;
        sum
    }

    fn recycle(&mut self, first: u64) {
        let Some(Lot { mut sizes, .. }) = self.lots.remove(&first) else { return };
        sizes.clear();
        if sizes.capacity() > self.spare.capacity() {
            self.spare = sizes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back_in_whatever_order_they_are_settled() {
        let mut stowage = Stowage::default();
        stowage.take(0, vec![1, 20, 300]);
        stowage.take(3, Vec::new());
        stowage.take(3, vec![4_000, 50_000]);
        assert_eq!(stowage.in_flight, 54_321);
        assert_eq!(stowage.settle(&(1..2)), 20);
        assert_eq!(stowage.settle(&(2..4)), 4_300, "over the end of a lot");
        assert_eq!(stowage.settle(&(4..4)), 0);
        assert_eq!((stowage.settle(&(0..1)), stowage.settle(&(4..5))), (1, 50_000));
        assert_eq!((stowage.in_flight, stowage.lots.len()), (0, 0));
        assert!(stowage.blank().capacity() >= 2, "the memory is used again");
    }
}
