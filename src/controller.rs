//! The handle that everyone holds.

mod retry_after;
mod weights;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::builder::Builder;
use crate::core::{Ages, Changes, Core};
use crate::drain::{Drain, drain_blocking};
use crate::error::{BuildError, PushError, ReserveError, WouldDeadlock};
use crate::explain::Explanation;
use crate::flush::{Flush, flush_blocking};
use crate::health::Health;
use crate::ledger::Snapshot;
use crate::permit::{Permit, Reserve, ReserveMany};
use crate::push::{Push, PushAll, PushTracked, push_blocking};
use crate::report::{DrainReport, FlushReport};
use crate::state::State;
use crate::watch::StateWatch;

/// A bounded buffer between fast producers and a slow asynchronous sink.
///
/// A cheap handle: clone it for each producer. When the last one is dropped without a [`drain`](Self::drain), the intake is
/// shut and the flusher finishes in the background within [`drain_on_drop`](Builder::drain_on_drop).
pub struct BackpressureController<T> {
    core: Arc<Core<T>>,
}

impl<T> BackpressureController<T> {
    /// Starts to build one that holds `capacity` items, in `1 ..=` [`MAX_CAPACITY`](crate::MAX_CAPACITY).
    ///
    /// It can be made smaller while it runs, and as large as this again: [`set_capacity`](Self::set_capacity).
    ///
    /// The capacity bounds what is reserved, buffered and in flight together, batches that wait for a retry included. The
    /// memory for it (the size of an item and 8 bytes, each, and 8 more with a [weigher](Builder::weigher)) is reserved at once,
    /// and touched only as the buffer fills.
    pub fn builder(capacity: usize) -> Builder<T> {
        Builder::new(capacity)
    }

    /// Takes over the handle that a new core starts with.
    pub(crate) fn new(core: Arc<Core<T>>) -> Self {
        Self { core }
    }

    /// Pushes an item; waits for room if the strategy does.
    ///
    /// Blocked producers are served in the order of their arrival and are not overtaken.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped before its item was moved into the buffer drops the item with it and counts as
    /// `cancelled`. Once the item was moved (which may happen while the future is not polled), it is accepted and stays.
    ///
    /// # Accounting
    ///
    /// Accepted, refused with its reason, waiting, or cancelled: each offer becomes one of them, and counts as offered from
    /// then on.
    ///
    /// # Errors
    ///
    /// [`PushError`] with the item: `Full` or `TimedOut` as the strategy has it, `Sampled` if it was left out, `Closed` when the intake is
    /// shut, `TooLarge` at once if the [weigher](Builder::weigher) finds it too heavy, `NoTimer` if the strategy has it wait for a limited
    /// time where tokio has no timer, `WouldDeadlock` when the sink of this controller would wait for itself. That is known only of
    /// what the sink polls itself: a task of its own that keeps the batch and waits here for room waits for ever, unless it has a time
    /// limit.
    pub fn push(&self, item: T) -> Push<'_, T> {
        Push::new(&self.core, item, None)
    }

    /// Pushes an item, and waits for room for `limit` at most, or as the strategy has it if that is shorter.
    ///
    /// Zero means not at all, `Duration::MAX` for ever.
    ///
    /// # Cancel safety
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push), and `TimedOut`; `NoTimer` if it has to wait where tokio has no timer.
    pub fn push_timeout(&self, item: T, limit: Duration) -> Push<'_, T> {
        Push::new(&self.core, item, Some(limit))
    }

    /// Pushes an item like [`push`](Self::push), and tells afterwards what becomes of it: the [`Delivery`](crate::Delivery) resolves exactly
    /// once, when the item is delivered or lost, in whatever way.
    ///
    /// It takes the head lock for the time of a push, and allocates for the answer: some 0.3 to 0.7 µs, where an ordinary push
    /// takes a few nanoseconds. The others pay nothing.
    ///
    /// # Cancel safety
    ///
    /// As for [`push`](Self::push): once the item was moved into the buffer it stays, and its fate is told to nobody.
    ///
    /// # Accounting
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use backpressure::{BackpressureController, Batch};
    ///
    /// let events = BackpressureController::builder(10).spawn(|_: Batch<&str>| async { Ok(()) })?;
    /// let delivery = events.push_tracked("order 17").await?;
    /// assert!(delivery.await.is_delivered()); // now its sender may be told
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_tracked(&self, item: T) -> PushTracked<'_, T> {
        PushTracked::new(&self.core, item)
    }

    /// Pushes an item without waiting.
    ///
    /// When full: `DropOldest` evicts, `Sample` and `Custom` are asked, every other strategy refuses, and so does what would
    /// have to wait.
    ///
    /// # Errors
    ///
    /// [`PushError`] with the item: `Full`, `Sampled`, `TooLarge` or `Closed`.
    #[inline]
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        self.core.try_push(item)
    }

    /// Pushes an item from a plain thread, which is parked while the strategy waits.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push). On a thread that runs asynchronous tasks it would have to stop them all: if it has to
    /// wait there, it answers `WouldDeadlock`. tokio tells such threads apart by a panic only, which is caught, but which the
    /// panic hook reports, and which aborts under `panic = "abort"`.
    pub fn blocking_push(&self, item: T) -> Result<(), PushError<T>> {
        push_blocking(&self.core, item, None)
    }

    /// Like [`blocking_push`](Self::blocking_push), for `limit` at most, on the machine's clock.
    ///
    /// # Errors
    ///
    /// As for [`blocking_push`](Self::blocking_push), and `TimedOut`.
    pub fn blocking_push_timeout(&self, item: T, limit: Duration) -> Result<(), PushError<T>> {
        push_blocking(&self.core, item, Some(limit))
    }

    /// Pushes all items of an iterator, in order, and returns how many there were.
    ///
    /// It pulls up to 64 items at a time and then claims places for all of them in one step (with a weigher one by one). Items
    /// of others may come between. It allocates once. When there is no room, the strategy is asked about the first of them: if it waits, all
    /// that were pulled wait, with its time limit for all together.
    ///
    /// # Cancel safety
    ///
    /// What was moved into the buffer stays. Items that were pulled and not moved are dropped and count as `cancelled`; the
    /// rest was never offered.
    ///
    /// # Errors
    ///
    /// [`PushAllError`](crate::PushAllError) at the first item that is refused (one that is too heavy, once all before it are in); it returns that item and all the rest. The
    /// pulled ones count as refused. An item that is sampled out is no reason to stop: it goes to `on_loss` as
    /// [`Refused`](crate::LossReason::Refused).
    ///
    /// The error holds the rest of the iterator: one that borrows cannot leave its function by `?` in a boxed error.
    ///
    /// # Panics
    ///
    /// If the iterator does. What was pulled before is pushed first.
    pub fn push_all<I>(&self, items: I) -> PushAll<'_, T, I::IntoIter>
    where
        I: IntoIterator<Item = T>,
    {
        PushAll::new(&self.core, items.into_iter())
    }

    /// Waits for a place, whatever the strategy, and reserves it.
    ///
    /// The permit is `'static`, and a handle of its own: it keeps the intake open.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped gives its place, or its turn, to the next one. One that is kept and not polled may hold a
    /// place.
    ///
    /// # Accounting
    ///
    /// A permit holds one place of the capacity, and with a [weigher](Builder::weigher) the weight of the heaviest item. The
    /// item counts as offered when it is sent.
    ///
    /// # Errors
    ///
    /// `Closed` when the intake is shut, `WouldDeadlock` when the sink of this controller would wait for itself.
    pub fn reserve(&self) -> Reserve<'_, T> {
        Reserve::new(self, self.core.permit_size())
    }

    /// Reserves a place without waiting.
    ///
    /// # Errors
    ///
    /// `Full` or `Closed`.
    pub fn try_reserve(&self) -> Result<Permit<T>, ReserveError> {
        self.try_reserve_size(self.core.permit_size())
    }

    fn try_reserve_size(&self, size: u64) -> Result<Permit<T>, ReserveError> {
        if self.core.reserve(1, size) {
            return Ok(Permit::new(self.clone(), size));
        }
        Err(if self.core.is_closed() { ReserveError::Closed } else { ReserveError::Full })
    }

    /// Waits for `n` places, in `0 ..= capacity`, and reserves them together. While it waits it gathers them one by one; if the
    /// capacity becomes smaller than `n` meanwhile, it answers `TooMany` and gives them back.
    ///
    /// # Cancel safety
    ///
    /// As for [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve), and `TooMany` for more places than there are, or than fit by weight.
    pub fn reserve_many(&self, n: usize) -> ReserveMany<'_, T> {
        ReserveMany::new(self, n, self.core.permit_size())
    }

    /// Waits until everything that was accepted before is settled, batches in flight and retries included. Makes the
    /// flusher send partial batches at once, also while paused.
    ///
    /// What is accepted afterwards is not waited for. In the sink of this controller it would wait for itself: there it
    /// answers at once, and says how much is [`unsettled`](crate::FlushReport::unsettled).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost, nobody waits any more.
    pub fn flush(&self) -> Flush<'_, T> {
        Flush::new(&self.core)
    }

    /// Like [`flush`](Self::flush), on a plain thread, which is parked meanwhile. The flusher has to be driven by another
    /// thread.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] on a thread that runs asynchronous tasks, or this controller's sink, also if there is nothing to
    /// wait for. tokio tells such threads apart as it does for [`blocking_push`](Self::blocking_push).
    ///
    /// # Examples
    ///
    /// ```
    /// use backpressure::{BackpressureController, Batch};
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    /// let lines = BackpressureController::<String>::builder(100)
    ///     .spawn_on(runtime.handle(), |batch: Batch<String>| async move { Ok(drop(batch)) })?;
    /// lines.blocking_push("from a thread without a runtime".to_owned())?;
    /// assert!(lines.blocking_flush()?.all_delivered());
    /// let report = lines.blocking_drain(std::time::Duration::from_secs(5))?;
    /// assert_eq!(report.totals.accepted, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_flush(&self) -> Result<FlushReport, WouldDeadlock> {
        flush_blocking(&self.core)
    }

    /// Stops taking batches, until [`resume`](Self::resume). Pushing goes on until the buffer is full; `flush` and `drain`
    /// go through. The batch in flight is finished.
    pub fn pause(&self) {
        self.core.pause(true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.core.pause(false);
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.core.is_paused()
    }

    /// Shuts the intake, for all handles and for good. What is inside is still delivered; producers that wait get their
    /// items back.
    pub fn close(&self) {
        self.core.close();
    }

    /// Whether the intake is shut.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Shuts the intake, waits until everything is settled and no permit is out, and reports; at the deadline, counted
    /// from the first poll, the sink's call is dropped and what is left comes back in the report, in order.
    ///
    /// A second call joins the first and its deadline. It answers at the deadline also while the sink blocks its thread,
    /// after a grace of 100 ms, for which it needs tokio's timer; what the sink holds then counts as not returned.
    ///
    /// # Cancel safety
    ///
    /// The drain goes on. Leftovers that nobody waits for go to `on_loss`.
    ///
    /// # Accounting
    ///
    /// Leftovers and what was not returned are `abandoned`. Producers that push after the end are refused, and counted, but
    /// not in this report: for the last word take a [`snapshot`](Self::snapshot) once they have stopped.
    pub fn drain(&self, limit: Duration) -> Drain<'_, T> {
        Drain::new(&self.core, limit)
    }

    /// Like [`drain`](Self::drain), on a plain thread, which is parked meanwhile. It answers at the deadline, after the grace
    /// of 100 ms at the latest, by the machine's clock: also if nobody drives the flusher.
    ///
    /// # Accounting
    ///
    /// As for [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] as for [`blocking_flush`](Self::blocking_flush). The intake is then not shut.
    pub fn blocking_drain(&self, limit: Duration) -> Result<DrainReport<T>, WouldDeadlock> {
        drain_blocking(&self.core, limit)
    }

    /// Takes everything out that is buffered, oldest first, and gives its room free. What is in flight stays, and so does
    /// what comes behind an item whose producer was preempted while it wrote it.
    ///
    /// # Accounting
    ///
    /// The items are the caller's and count as `purged`.
    #[must_use = "the purged items are in it"]
    pub fn purge(&self) -> Vec<T> {
        self.core.purge()
    }

    /// A reference that does not keep the intake open.
    #[must_use]
    pub fn downgrade(&self) -> WeakController<T> {
        WeakController { core: Arc::downgrade(&self.core) }
    }

    /// The state of the buffer.
    #[must_use]
    pub fn state(&self) -> State {
        self.core.state()
    }

    /// The states to come: each change, or the last of several. It keeps nothing open.
    pub fn watch(&self) -> StateWatch {
        StateWatch::new(self.core.watch())
    }

    /// How far the depth is between the watermarks: `(depth - low) / (high - low)`, in `0.0 ..= 1.0`. With a
    /// [weigher](crate::Builder::weigher) the higher one by items and by weight, and it takes the head lock.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        self.core.pressure()
    }

    /// All figures of this instant. Takes the head lock for a few nanoseconds.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Whether it does what it is for, and if not, why: for health checks.
    ///
    /// Computed when it is asked for; see [`Health`] for what is looked at.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.health()
    }

    /// Publishes the metrics now, for those who are about to read them.
    ///
    /// The flusher publishes them by itself: when a flush has an outcome, at most every 250 ms, every second while anything
    /// is outstanding, and at the end. An idle controller publishes nothing. What changes without the flusher, such as the
    /// refusals of a closed controller or the places that permits hold, is seen by then, or by this.
    ///
    /// It calls the recorder of this thread, and does nothing inside one. While another thread publishes, it leaves the
    /// rest to that one.
    pub fn publish(&self) {
        self.core.publish();
    }

    /// Buffered + in flight, in `0 ..= max_capacity`. While the capacity is being changed it may be too high by the change.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Nothing buffered or in flight; places may be reserved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.core.len() == 0
    }

    /// Reserved + buffered + in flight, in `0 ..= max_capacity`: at most the capacity, unless there was more inside when that
    /// was made smaller. While the capacity is being changed it may be too high by the change.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.core.depth()
    }

    /// The most items that may be reserved, buffered and in flight together: exactly what the builder was given, or
    /// [`set_capacity`](Self::set_capacity); less, if a [largest delay](Builder::max_delay) is set and the sink is slow.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.core.capacity()
    }

    /// The largest capacity that can be set: exactly what the builder was given.
    #[must_use]
    pub fn max_capacity(&self) -> usize {
        self.core.max_capacity()
    }

    /// Changes settings while all goes on: all that are named, at one instant, or none. Nothing that is inside is touched.
    ///
    /// A push that runs at the same time may still be judged by the old strategy, as if it had come before.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work; then nothing is changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use backpressure::{BackpressureController, Batch, BuildError, Strategy};
    /// # let sink = |_: Batch<u32>| async { Ok(()) };
    /// let (events, _flusher) = BackpressureController::builder(10_000).build(sink)?;
    /// // The store is in trouble: hold less, and let go of what is old.
    /// events.reconfigure(|changes| {
    ///     changes.capacity(2_000).strategy(Strategy::DropOldest).max_batch(100).target_latency(Duration::from_secs(1))
    /// })?;
    /// assert_eq!(events.capacity(), 2_000);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn reconfigure(&self, change: impl FnOnce(Changes<T>) -> Changes<T>) -> Result<(), BuildError> {
        self.core.reconfigure(change(Changes::new()))
    }

    /// Changes the capacity in items while all goes on, to `items` in `1 ..=` [`max_capacity`](Self::max_capacity).
    ///
    /// A larger one makes room at once, for the oldest producers that wait first. A smaller one drops nothing: what is inside
    /// stays, permits that are out keep their places, and new items are refused or wait as if the buffer were full, until
    /// there is less inside than the new capacity. An eviction goes on displacing one item for each that comes, and the sink
    /// brings the depth down. Watermarks are shares of the present capacity, the state follows at once, and no batch holds
    /// more than the capacity, whatever `max_batch` is. A `reserve_many` that waits for more places than there are now answers
    /// `TooMany`. The memory stays reserved.
    ///
    /// A push that runs at the same time may still be judged by the old capacity, as if it had come before.
    ///
    /// # Errors
    ///
    /// `CapacityZero`, and `CapacityTooLarge` above `max_capacity`; then nothing is changed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use backpressure::{BackpressureController, Batch, BuildError};
    /// let sink = |_: Batch<u32>| async { Ok(()) };
    /// let (events, _flusher) = BackpressureController::builder(1_000).build(sink)?;
    /// events.set_capacity(2)?;
    /// assert!(events.try_push(1).is_ok() && events.try_push(2).is_ok());
    /// assert!(events.try_push(3).is_err());
    /// assert_eq!(events.set_capacity(1_001), Err(BuildError::CapacityTooLarge { max: 1_000 }));
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn set_capacity(&self, items: usize) -> Result<(), BuildError> {
        self.reconfigure(|changes| changes.capacity(items))
    }

    /// What the flush loop goes by at present, and its last decisions with their reasons: what to read first when a sink is
    /// slow.
    ///
    /// # Examples
    ///
    /// ```
    /// # use backpressure::{BackpressureController, Batch, BuildError};
    /// let sink = |_: Batch<u32>| async { Ok(()) };
    /// let (events, _flusher) = BackpressureController::builder(1_000).max_batch(50).build(sink)?;
    /// println!("{}", events.explain());
    /// assert_eq!(events.explain().batch_limit, 50);
    /// # Ok::<(), BuildError>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> Explanation {
        self.core.explain()
    }

    /// A bound of the age of the oldest item that is not settled; `None` if there is none, or if the flusher never ran.
    ///
    /// Producers read no clock: the age is exact for the first item of an empty buffer, and else at most too high, by no
    /// more than the time between two batches.
    #[must_use]
    pub fn oldest_age(&self) -> Option<Duration> {
        self.core.oldest_age()
    }

    /// The ages of the oldest items: in the buffer, with the sink, and in batches that wait for another attempt.
    ///
    /// Takes the head lock for a few nanoseconds.
    #[must_use]
    pub fn ages(&self) -> Ages {
        self.core.ages()
    }

    pub(crate) fn core(&self) -> &Arc<Core<T>> {
        &self.core
    }
}

impl<T> Clone for BackpressureController<T> {
    fn clone(&self) -> Self {
        self.core.add_handle();
        Self { core: Arc::clone(&self.core) }
    }
}

impl<T> Drop for BackpressureController<T> {
    fn drop(&mut self) {
        self.core.drop_handle();
    }
}

impl<T> fmt::Debug for BackpressureController<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackpressureController")
            .field("capacity", &self.capacity())
            .field("depth", &self.depth())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A reference to a controller that does not keep its intake open.
pub struct WeakController<T> {
    core: Weak<Core<T>>,
}

impl<T> WeakController<T> {
    /// A handle, unless the last one has been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<BackpressureController<T>> {
        let core = self.core.upgrade()?;
        core.try_add_handle().then(|| BackpressureController::new(core))
    }
}

impl<T> Clone for WeakController<T> {
    fn clone(&self) -> Self {
        Self { core: Weak::clone(&self.core) }
    }
}

impl<T> fmt::Debug for WeakController<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakController")
    }
}
