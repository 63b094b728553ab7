//! What goes out with a guard, in boxes that are used again.

use super::{Mark, Seqs};
use crate::batch::BatchId;
use crate::ledger::Losses;
use crate::pace::FlushReason;
use crate::retry::Tries;
use crate::sync::Mutex;

/// The memory of settled batches up to this size is kept for good.
pub(crate) const SPARE_BYTES: usize = 64 * 1024;

/// What a guard takes along, and brings home. Boxed, it goes its ways as one word, and is filled anew for the next batch.
#[derive(Debug)]
pub(crate) struct Cargo<T> {
    pub(crate) id: BatchId,
    pub(crate) seqs: Seqs,
    /// All items, or none if the sink moved them out.
    pub(crate) items: Vec<T>,
    /// What the sink said of single items: empty, or one for each.
    pub(crate) marks: Vec<Mark>,
    pub(crate) attempt: u32,
    pub(crate) reason: FlushReason,
    pub(crate) lost_before: Losses,
    /// What the items stand for; empty if each stands for itself.
    pub(crate) weights: Vec<u64>,
    /// What the schedule remembers of a pulled batch. Nobody shares it: the lock is for schedules that are not `Sync`.
    pub(crate) tries: Mutex<Tries>,
}

/// The cargos of settled batches, without items, for the next ones.
#[derive(Debug)]
pub(crate) struct Spare<T> {
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    cargos: Vec<Box<Cargo<T>>>,
    most: usize,
}

impl<T> Spare<T> {
    /// For so many calls at once.
    pub(crate) fn new(most: usize) -> Self {
        Self { cargos: Vec::with_capacity(most), most }
    }

    pub(crate) fn take(&mut self) -> Box<Cargo<T>> {
        self.cargos.pop().unwrap_or_else(|| Cargo::new(Vec::new()))
    }

    /// Keeps one without items: of large ones the largest.
    pub(crate) fn keep(&mut self, cargo: Box<Cargo<T>>) {
        let is_small = self.cargos.is_empty() || self.bytes() + cargo.bytes() <= SPARE_BYTES;
        if is_small && self.cargos.len() < self.most {
            self.cargos.push(cargo);
        } else if let Some(last) = self.cargos.last_mut().filter(|last| last.bytes() < cargo.bytes()) {
            *last = cargo;
        }
    }

    /// How much memory there is for items and what was said of them, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.cargos.iter().map(|cargo| cargo.bytes()).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.cargos.clear();
    }
}

impl<T> Cargo<T> {
    fn bytes(&self) -> usize {
        let Self { items, marks, weights, .. } = self;
        items.capacity() * size_of::<T>() + marks.capacity() * size_of::<Mark>() + weights.capacity() * 8
    }

    /// Of a batch of these items.
    pub(crate) fn new(items: Vec<T>) -> Box<Self> {
        Box::new(Self {
            id: BatchId::new(0, 0),
            seqs: Seqs::NONE,
            items,
            marks: Vec::new(),
            attempt: 0,
            reason: FlushReason::Full,
            lost_before: Losses::default(),
            weights: Vec::new(),
            tries: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_kept_as_there_are_calls_and_of_large_ones_the_largest() {
        let of = |bytes: usize| Cargo::new(Vec::<u8>::with_capacity(bytes));
        let mut spare = Spare::new(2);
        (0..3).for_each(|_| spare.keep(of(1000)));
        assert_eq!(spare.bytes(), 2000);
        [70_000, 90_000, 80_000].into_iter().for_each(|bytes| spare.keep(of(bytes)));
        assert_eq!(spare.bytes(), 91_000);
        assert_eq!([spare.take(), spare.take(), spare.take()].map(|cargo| cargo.bytes()), [90_000, 1000, 0]);
        spare.keep(of(SPARE_BYTES));
        spare.keep(of(1));
        assert_eq!(spare.bytes(), SPARE_BYTES);
        spare.clear();
        assert_eq!(spare.bytes(), 0);
    }
}
