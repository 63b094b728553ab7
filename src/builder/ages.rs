//! How old items may become, and how long they may have to wait.

use std::time::Duration;

use super::Builder;

impl<T> Builder<T> {
    /// How old an item may become: what is older is not sent but lost, as [`Expired`](crate::LossReason::Expired). Above zero.
    /// Default, and `Duration::MAX`: never, nothing is lost by its age.
    ///
    /// For what is worthless when it is late: positions, prices, heartbeats. It holds whatever the strategy, `Block` too: this
    /// setting is the decision to lose what is old, and nothing else makes it. To be told of age and to lose nothing, set
    /// [`critical_age`](Self::critical_age) alone.
    ///
    /// Items are looked at where a batch is formed, and before each further attempt of a batch that failed. A call of the
    /// sink that is under way is not cut off, and what waits for nothing but the sink waits on: so this bounds how old an item is
    /// when it is handed to the sink, not how long it lies in the buffer. A partial batch leaves at half of it at the
    /// latest, whatever the linger.
    ///
    /// No item is lost before it is so old. One may be handed over somewhat older, since producers read no clock and its
    /// age is known only to be between two looks of the flusher: each batch, each answer of the sink, and a second while
    /// anything is outstanding. So it is late by the shortest of those at first, and, once many have passed, by about an
    /// eighth of the age of the oldest item at most.
    ///
    /// # Accounting
    ///
    /// Counted as [`expired`](crate::Snapshot::expired), also during a drain, and told to [`on_loss`](Self::on_loss) and to
    /// the [`Delivery`](crate::Delivery) of a tracked push. The room comes free at once. The state is Critical for an interval,
    /// see [`critical_age`](Self::critical_age).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use backpressure::{BackpressureController, Batch, BuildError};
    /// let (prices, _flusher) = BackpressureController::builder(10_000)
    ///     .max_age(Duration::from_secs(2)) // a price that is older misleads
    ///     .build(|_: Batch<u64>| async { Ok(()) })?;
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn max_age(mut self, age: Duration) -> Self {
        self.ages.max_age = age;
        self
    }

    /// From which age on the state is [`Critical`](crate::State::Critical), and from half of it Elevated, whatever the depth.
    /// Above zero; `Duration::MAX` means never. Default: the [largest age](Self::max_age), if there is one. Nothing is lost by it.
    ///
    /// What counts is the least time that any item has waited until it was taken, within an interval of 100 ms or twice
    /// the average call of the sink, whichever is longer (the signal of CoDel: K. Nichols, V. Jacobson, *Controlling Queue
    /// Delay*, 2012). So a burst that clears changes nothing, and a queue that stands does, however large the buffer is. If
    /// nothing was taken, the item that is next counts. The state is left below three quarters of the mark, at the end of an
    /// interval, or when nothing is inside.
    ///
    /// It is followed where the flusher looks anyway: at each batch, and every second while anything is outstanding.
    pub fn critical_age(mut self, age: Duration) -> Self {
        self.ages.critical_age = Some(age);
        self
    }

    /// How long a queue may be: the capacity follows the sink, and is at most what it drains in so long. Above zero. Default, and
    /// `Duration::MAX`: the capacity is as it was set.
    ///
    /// Items that are refused at once can go elsewhere, or come back later; those that wait behind a slow sink for longer than
    /// anybody cares for cannot. When the sink becomes slower the capacity becomes smaller, and when it recovers, larger, up to
    /// what it was built with or [set to](crate::BackpressureController::set_capacity). As a smaller capacity does, it drops nothing:
    /// producers wait, or are refused, until there is less inside. (After Flink's buffer debloating.)
    ///
    /// It is `rate * max_delay`, and at least two batches for each call that the sink may have at once; the rate is measured as for
    /// [`retry_after`](crate::BackpressureController::retry_after). So it changes once a second at most, only by more than a quarter, and
    /// only while the sink is busy. [`capacity`](crate::BackpressureController::capacity) tells what it is, and the watermarks are
    /// shares of that. A batch limit near the capacity leaves it nothing to do: set `max_batch` to a small part of it.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.ages.max_delay = delay;
        self
    }
}
