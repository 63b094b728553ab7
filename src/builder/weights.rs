//! How heavy items are, and how much may be inside.

use super::Builder;
use crate::error::BuildError;
use crate::gate::{Limits, MAX_CAPACITY_WEIGHT};

impl<T> Builder<T> {
    /// Says how heavy an item is, in whatever unit: bytes, columns, money. Default: items have no weight.
    ///
    /// With it the buffer is bounded by weight, too, in flight included: see [`capacity_weight`](Self::capacity_weight). An
    /// item that does not fit is treated as one that finds no place; [`DropOldest`](crate::Strategy::DropOldest) evicts as many as it
    /// needs and no more. Producers that wait are served in the order of their arrival, whatever they weigh: a heavy one at the
    /// head keeps lighter ones behind it waiting, until it is in or gives up. Watermarks and the state go by items or by
    /// weight, whichever is the higher share, and the state is Blocked while anybody waits.
    ///
    /// An item that weighs no more than an equal share, `capacity_weight / capacity`, or of two of the largest batches if that is less, mostly
    /// comes in by a place that was paid for in advance: in one swap, like an item without a weight. Heavier ones take two, and so do all of
    /// them close to a watermark or to the end of the capacity, beside permits, and in a buffer for less than a hundred. `weight()`, `pressure()` and
    /// each decision of a [`Custom`](crate::Strategy::custom) strategy take the head lock then. A push without a weigher pays nothing.
    ///
    /// It is called once for each item that is offered, on the producer's thread, before anything is claimed and outside all
    /// locks; what it said counts until the item is settled. 0 is a weight like any other: such items are bounded by the
    /// capacity alone. If it panics, the panic is caught and counted, and the item is refused as too large, since nobody
    /// knows what it weighs.
    ///
    /// # Examples
    ///
    /// ```
    /// # use backpressure::{BackpressureController, Batch, BuildError, PushError};
    /// # let sink = |_: Batch<String>| async { Ok(()) };
    /// let (lines, _flusher) = BackpressureController::<String>::builder(10_000)
    ///     .weigher(|line| line.len() as u64)
    ///     .capacity_weight(64 << 20) // 64 MiB in all,
    ///     .max_item_weight(1 << 20) // no line above 1 MiB,
    ///     .max_batch_weight(4 << 20) // and at most 4 MiB in one call of the sink
    ///     .build(sink)?;
    /// assert!(lines.try_push("short".to_owned()).is_ok());
    /// assert!(matches!(lines.try_push("x".repeat(2 << 20)), Err(PushError::TooLarge(_))));
    /// assert_eq!(lines.weight(), 5);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn weigher(mut self, weigh: impl Fn(&T) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigh));
        self
    }

    /// The most that may be reserved, buffered and in flight together by weight, batches that wait for a retry included; in
    /// `1 ..=` [`MAX_CAPACITY_WEIGHT`]. Needs a [`weigher`](Self::weigher). Default: `MAX_CAPACITY_WEIGHT`.
    ///
    /// It stays what it is: [`set_capacity`](crate::BackpressureController::set_capacity) changes the bound in items alone.
    pub fn capacity_weight(mut self, weight: u64) -> Self {
        self.capacity_weight = Some(weight);
        self
    }

    /// The heaviest item that is taken, in `1 ..= capacity_weight`: one above it is refused as
    /// [`TooLarge`](crate::PushError::TooLarge) at once, whatever room there is, and keeps nobody waiting. Needs a
    /// [`weigher`](Self::weigher). Default: the capacity by weight.
    ///
    /// It is also what a permit of [`reserve`](crate::BackpressureController::reserve) holds, since nobody knows yet what will be
    /// sent by it; [`reserve_weight`](crate::BackpressureController::reserve_weight) asks for less.
    pub fn max_item_weight(mut self, weight: u64) -> Self {
        self.max_item_weight = Some(weight);
        self
    }

    /// The most of a batch by weight, above 0: for sinks that bound the bytes of a request, or the values of a statement.
    /// Needs a [`weigher`](Self::weigher). Default: no bound.
    ///
    /// A batch is full as soon as the next item would make it too heavy, and leaves at once. An item that is heavier by
    /// itself leaves alone; [`max_item_weight`](Self::max_item_weight) keeps such items out.
    pub fn max_batch_weight(mut self, weight: u64) -> Self {
        self.max_batch_weight = Some(weight);
        self
    }

    /// The bounds by weight, if they can work; `None` without a weigher.
    pub(super) fn limits(&self) -> Result<Option<Limits>, BuildError> {
        if self.weigher.is_none() {
            let bounds = [self.capacity_weight, self.max_item_weight, self.max_batch_weight];
            return if bounds == [None; 3] { Ok(None) } else { Err(BuildError::NoWeigher) };
        }
        let within = |given: Option<u64>, most: u64| match given {
            Some(given) if given == 0 || given > most => Err(BuildError::Weight { given, most }),
            given => Ok(given),
        };
        let capacity = within(self.capacity_weight, MAX_CAPACITY_WEIGHT)?.unwrap_or(MAX_CAPACITY_WEIGHT);
        let item = within(self.max_item_weight, capacity)?.unwrap_or(capacity);
        // A batch that holds all there is needs no bound.
        let batch = within(self.max_batch_weight, u64::MAX)?.filter(|batch| *batch < capacity);
        Ok(Some(Limits { capacity, item, batch }))
    }
}
