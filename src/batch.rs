//! The batch that a sink is given: a guard of its items.

use std::error::Error;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::core::{Core, Inside};
use crate::error::{BoxError, ItemOutcome, WrongOutcomes};
use crate::flight::{Cargo, FlightKey, Mark};
use crate::ledger::Losses;
use crate::pace::FlushReason;
use crate::retry::Tries;
#[cfg(feature = "test-util")]
use crate::time::Clock;

/// Items for one flush, oldest first; derefs to a slice.
///
/// It is a guard: what becomes of its items is decided by what the flush answers.
///
/// - `Ok(())` delivers all that it held, moved out or not, unless [judged](Self::fail) one by one.
/// - On an error, a panic, a timeout or a cancelled future, what is left in it goes home and is sent again as the error
///   says; what was acknowledged by [`deliver`](Self::deliver) is delivered; and what was [moved out](Self::take) and not
///   acknowledged has failed.
///
/// A batch that is kept elsewhere (in a spawned task, on a blocking thread) after its flush has ended without `Ok`, or with
/// `Ok` after items of it were judged as not delivered, stays in flight until it is dropped; nothing else is flushed
/// meanwhile, or nothing on its slot if there are [several](crate::Builder::spawn_concurrent), so that the order holds (so a
/// task of the sink's that keeps its batch must not wait for room in the same controller). At drain's deadline it is counted as abandoned and named in
/// [`not_returned`](crate::DrainReport::not_returned). One that is forgotten ([`std::mem::forget`]) stays in flight until
/// then. What is judged after `Ok(())`, of a batch of which nothing was judged before, comes too late: it is delivered.
///
/// Without a sink, in [pull mode](crate::Batches), there is no answer: [`done`](Self::done) stands for `Ok(())`, and
/// dropping it without that for an error that asks for a retry. Both settle it at once.
#[must_use = "a batch that is dropped goes home"]
pub struct Batch<T> {
    core: Arc<Core<T>>,
    key: FlightKey,
    load: Load<T>,
    /// The core knows that items were judged as not delivered.
    is_judged: bool,
    is_done: bool,
}

/// The cargo of a batch, until the batch is dropped.
struct Load<T>(Option<Box<Cargo<T>>>);

const LOADED: &str = "a batch has its cargo until it is dropped";

impl<T> Batch<T> {
    pub(crate) const fn new(core: Arc<Core<T>>, key: FlightKey, cargo: Box<Cargo<T>>) -> Self {
        Self { core, key, load: Load(Some(cargo)), is_judged: false, is_done: false }
    }

    /// The batch, with what it brings home of its earlier attempts.
    pub(crate) fn with_tries(mut self, tries: Tries) -> Self {
        *self.load.tries.get_mut() = tries;
        self
    }

    /// Moves all items out. `Ok(())` still delivers them; after anything else they have failed, since they cannot be sent
    /// again, unless [`deliver`](Self::deliver) acknowledged them.
    ///
    /// # Accounting
    ///
    /// The items are the caller's, but they count as in flight until the flush ends.
    pub fn take(&mut self) -> Vec<T> {
        mem::take(&mut self.load.items)
    }

    /// Acknowledges all items that were not judged one by one, moved out or not: whatever the flush answers, they are
    /// delivered. In [pull mode](crate::Batches) it settles the batch.
    ///
    /// # Accounting
    ///
    /// In pull mode the items count as delivered from here on, and their room is free. After drain's deadline it is too
    /// late: they were counted as abandoned.
    pub fn done(mut self) {
        self.is_done = true;
    }

    /// Acknowledges one item: whatever the flush answers, it is delivered and not sent again.
    ///
    /// `index` is the item's index in the batch as the sink was given it.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub fn deliver(&mut self, index: usize) {
        self.mark(index, Mark::Delivered);
    }

    /// Judges one item: it has failed for good, whatever the flush answers.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub fn fail(&mut self, index: usize, error: impl Into<BoxError>) {
        let error: Arc<dyn Error + Send + Sync> = Arc::from(error.into());
        self.mark(index, Mark::Failed(error));
    }

    /// Judges one item: it is to be sent again, also when the flush answers `Ok(())`. It is then a batch of its own, with
    /// whatever else is sent again. An item that was moved out cannot be: it has failed. After
    /// [`permanent`](crate::FlushError::permanent), the final verdict on all that was not acknowledged, it has failed too.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub fn retry(&mut self, index: usize) {
        self.mark(index, Mark::Retry);
    }

    /// Judges each item, in the order in which the sink was given them: for stores that answer item by item. What was judged
    /// before is judged anew. A `Result<(), E>` for each will do, too: an error means that the item has failed for good.
    ///
    /// # Errors
    ///
    /// [`WrongOutcomes`] if there are fewer or more outcomes than items; then nothing is judged. Passed on by `?`, it has the
    /// batch sent again.
    ///
    /// # Examples
    ///
    /// ```
    /// # use backpressure::{Batch, FlushError, ItemOutcome};
    /// async fn flush(mut batch: Batch<String>) -> Result<(), FlushError> {
    ///     // What a bulk request has answered, a status for each item.
    ///     let statuses: Vec<u16> = bulk(&batch).await;
    ///     batch.judge(statuses.into_iter().map(|status| match status {
    ///         200..300 => ItemOutcome::Delivered,
    ///         429 | 500.. => ItemOutcome::Retry,
    ///         _ => ItemOutcome::failed(format!("status {status}")),
    ///     }))?;
    ///     Ok(())
    /// }
    /// # async fn bulk(batch: &[String]) -> Vec<u16> { vec![200; batch.len()] }
    /// ```
    pub fn judge<O: Into<ItemOutcome>>(&mut self, outcomes: impl IntoIterator<Item = O>) -> Result<(), WrongOutcomes> {
        let items = self.load.seqs.len();
        // One more than there may be shows that there are too many, also of an iterator without an end.
        let marks: Vec<_> = outcomes.into_iter().take(items + 1).map(|outcome| Mark::from(outcome.into())).collect();
        if marks.len() != items {
            return Err(WrongOutcomes { items, outcomes: marks.len() });
        }
        marks.into_iter().enumerate().for_each(|(index, mark)| self.mark(index, mark));
        Ok(())
    }

    /// Puts the flush timeout of this attempt off by `more`. A pulled batch has none.
    pub fn extend(&self, more: Duration) {
        self.core.extend(self.key, more);
    }

    /// The same for the same items, over all attempts: an idempotency token. A batch that was split, or of which single
    /// items were settled, goes on under new ids.
    #[must_use]
    pub fn id(&self) -> BatchId {
        self.load.id
    }

    /// The position of an item in the order of acceptance: 0 for the first item that the controller ever accepted. It is
    /// the item's for life, over retries and splits.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    #[must_use]
    pub fn seq(&self, index: usize) -> u64 {
        assert!(index < self.load.seqs.len(), "no item {index} in a batch of {}", self.load.seqs.len());
        self.load.seqs.get(index)
    }

    /// 1 for the first attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.load.attempt
    }

    /// Why it left the buffer.
    #[must_use]
    pub fn reason(&self) -> FlushReason {
        self.load.reason
    }

    /// How many items were lost between the batch before and this one. The figures of all batches add up to all losses,
    /// so that a sink can write them down where the items are missing.
    #[must_use]
    pub fn lost_before(&self) -> Losses {
        self.load.lost_before
    }

    /// How many offers an item stands for: 1, unless it was kept by [`Strategy::Sample`](crate::Strategy::Sample). The sum
    /// over all items estimates how many were offered, without bias. It is not what a [`weigher`](crate::Builder::weigher) says.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    #[must_use]
    pub fn weight(&self, index: usize) -> u64 {
        assert!(index < self.load.seqs.len(), "no item {index} in a batch of {}", self.load.seqs.len());
        self.load.weights.get(index).copied().unwrap_or(1)
    }

    /// The items that are still in it, each with its [`weight`](Self::weight).
    pub fn weighted(&self) -> impl Iterator<Item = (&T, u64)> {
        self.iter().enumerate().map(|(index, item)| (item, self.weight(index)))
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn clock(&self) -> &Clock {
        self.core.clock()
    }

    /// Marks this thread as inside the sink.
    pub(crate) fn enter(&self) -> Inside {
        Inside::enter(Arc::as_ptr(&self.core).cast())
    }

    fn mark(&mut self, index: usize, mark: Mark) {
        let len = self.load.seqs.len();
        assert!(index < len, "no item {index} in a batch of {len}");
        if self.load.marks.is_empty() {
            self.load.marks.resize_with(len, Mark::default);
        }
        if !matches!(mark, Mark::None | Mark::Delivered) && !mem::replace(&mut self.is_judged, true) {
            self.core.note_judged(self.key);
        }
        self.load.marks[index] = mark;
    }
}

impl From<ItemOutcome> for Mark {
    fn from(outcome: ItemOutcome) -> Self {
        match outcome {
            ItemOutcome::Delivered => Self::Delivered,
            ItemOutcome::Retry => Self::Retry,
            ItemOutcome::Failed(error) => Self::Failed(error),
        }
    }
}

impl<T> Deref for Batch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.load.items
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.load.items.iter()
    }
}

impl<T> AsRef<[T]> for Batch<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        if let Some(cargo) = self.load.0.take() {
            self.core.land(self.key, cargo, self.is_done);
        }
    }
}

impl<T> Deref for Load<T> {
    type Target = Cargo<T>;

    fn deref(&self) -> &Cargo<T> {
        self.0.as_deref().expect(LOADED)
    }
}

impl<T> DerefMut for Load<T> {
    fn deref_mut(&mut self) -> &mut Cargo<T> {
        self.0.as_deref_mut().expect(LOADED)
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("id", &self.load.id)
            .field("len", &self.load.items.len())
            .field("attempt", &self.load.attempt)
            .field("reason", &self.load.reason)
            .finish_non_exhaustive()
    }
}

/// Names a batch: the controller's nonce, its first position, its part.
///
/// Displays as three hexadecimal numbers joined by hyphens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    nonce: u64,
    first: u64,
    part: u32,
}

impl BatchId {
    pub(crate) const fn new(nonce: u64, first: u64) -> Self {
        Self { nonce, first, part: 0 }
    }

    /// The id of a part of this batch that begins at `first`.
    pub(crate) const fn part_of(self, first: u64) -> Self {
        Self { first, part: self.part + 1, ..self }
    }

    /// A random number that is the same for all batches of one controller.
    #[must_use]
    pub const fn nonce(self) -> u64 {
        self.nonce
    }

    /// The position of the first item.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// 0 for a whole batch; one more each time that it was split or partly settled.
    #[must_use]
    pub const fn part(self) -> u32 {
        self.part
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}-{:x}", self.nonce, self.first, self.part)
    }
}
