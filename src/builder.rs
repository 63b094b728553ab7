//! Settings, checked before anything runs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::batch::Batch;
use crate::controller::BackpressureController;
use crate::core::{AgeLimits, Core, Loss, LossHook, Parameters, Settings, check_capacity};
use crate::error::{BuildError, DriveError, FlushError};
use crate::flusher::{Flusher, MAX_CONCURRENCY};
use crate::pace::Fixed;
use crate::pull::Batches;
use crate::retry::Retry;
use crate::ring::MAX_CAPACITY;
use crate::sink::{BatchSink, WithState};
use crate::state::Watermarks;
use crate::strategy::Strategy;
use crate::time::{Clock, ManualClock};

/// What a controller without a name is called.
const DEFAULT_NAME: &str = "default";
/// The most items of a batch, unless the user says otherwise: more would not make a sink faster, only its latency longer.
const DEFAULT_MAX_BATCH: usize = 5000;
/// How long a partial batch waits: short beside any network round trip, long beside a burst.
const DEFAULT_LINGER: Duration = Duration::from_millis(5);
/// A sink that has not answered after so long is taken for hung.
const DEFAULT_FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// Below the 30 s that process managers commonly give before they kill.
const DEFAULT_DRAIN_ON_DROP: Duration = Duration::from_secs(25);

/// Builds a [`BackpressureController`].
///
/// | setting         | default                           | zero            | `MAX` |
/// |-----------------|-----------------------------------|-----------------|-------|
/// | `name`          | `"default"`                       |                 |       |
/// | capacity        | none: the one decision to make    | an error        | an error above [`MAX_CAPACITY`] |
/// | `strategy`      | [`Strategy::Block`]               |                 |       |
/// | `watermarks`    | 0.5 and 0.8 of the capacity       | an error        |       |
/// | `max_batch`     | half the capacity, 1 to 5000 items| an error        | an error above the capacity |
/// | linger          | 5 ms                              | a batch leaves at once | never by time |
/// | `flush_timeout` | 30 s                              | an error        | never |
/// | `retry`         | 50 ms, doubling, to 10 s, for ever| at once         | never again |
/// | `max_age`       | never                             | an error        | never |
/// | `critical_age`  | `max_age`                         | an error        | never |
/// | `max_delay`     | none: the capacity is as it was set | an error      | none |
/// | `drain_on_drop` | 25 s                              | nothing is waited for | for ever |
#[must_use = "a builder builds nothing by itself"]
pub struct Builder<T> {
    name: Arc<str>,
    capacity: usize,
    strategy: Strategy<T>,
    watermarks: Watermarks,
    max_batch: Option<usize>,
    linger: Duration,
    flush_timeout: Duration,
    retry: Retry,
    ages: AgeLimits,
    drain_on_drop: Duration,
    on_loss: Option<LossHook<T>>,
    clock: Option<ManualClock>,
}

impl<T> Builder<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            name: DEFAULT_NAME.into(),
            capacity,
            strategy: Strategy::Block,
            watermarks: Watermarks::default(),
            max_batch: None,
            linger: DEFAULT_LINGER,
            flush_timeout: DEFAULT_FLUSH_TIMEOUT,
            retry: Retry::default(),
            ages: AgeLimits::NONE,
            drain_on_drop: DEFAULT_DRAIN_ON_DROP,
            on_loss: None,
            clock: None,
        }
    }

    /// What it is called in metrics and events: the label `queue`. Default: `"default"`.
    ///
    /// Controllers of one name share their series: counters add up, and of the gauges the last one to publish is seen. So
    /// give each a name of its own, one of few, as each name makes some fifty series. One that starts again under its name
    /// goes on counting where the last one ended.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// What happens to an item that finds no room. Default: [`Strategy::Block`].
    pub fn strategy(mut self, strategy: Strategy<T>) -> Self {
        self.strategy = strategy;
        self
    }

    /// The marks of the states Elevated and Critical. Default: 0.5 and 0.8.
    pub fn watermarks(mut self, watermarks: Watermarks) -> Self {
        self.watermarks = watermarks;
        self
    }

    /// The most items of a batch, in `1 ..= capacity`; fewer while the capacity is made smaller than that. Default: half the capacity, at least 1, at most 5000.
    pub fn max_batch(mut self, items: usize) -> Self {
        self.max_batch = Some(items);
        self
    }

    /// The batch, in `1 ..= capacity` items, and the linger: how long a partial batch may wait, from its oldest item.
    ///
    /// With a linger of zero an idle sink gets a single item at once, and a busy one gets all that came meanwhile.
    /// `Duration::MAX` means never by time. Default linger: 5 ms.
    pub fn fixed(mut self, batch: usize, linger: Duration) -> Self {
        self.max_batch = Some(batch);
        self.linger = linger;
        self
    }

    /// How long one call of the sink may take; above zero. `Duration::MAX` means for ever. Default: 30 s.
    ///
    /// A call that takes longer is dropped, and its batch is sent again by the retry policy. The sink may have written it
    /// all the same: delivery is at least once, and [`Batch::id`] and [`Batch::seq`] tell repeats apart.
    pub fn flush_timeout(mut self, limit: Duration) -> Self {
        self.flush_timeout = limit;
        self
    }

    /// When a failed batch is sent again, and when it has failed for good. Default: [`Retry::default`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

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
    /// what it was built with or [set to](BackpressureController::set_capacity). As a smaller capacity does, it drops nothing:
    /// producers wait, or are refused, until there is less inside. (After Flink's buffer debloating.)
    ///
    /// It is `rate * max_delay`, and at least two batches for each call that the sink may have at once; the rate is measured as for
    /// [`retry_after`](BackpressureController::retry_after). So it changes once a second at most, only by more than a quarter, and
    /// only while the sink is busy. [`capacity`](BackpressureController::capacity) tells what it is, and the watermarks are
    /// shares of that. A batch limit near the capacity leaves it nothing to do: set `max_batch` to a small part of it.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.ages.max_delay = delay;
        self
    }

    /// How long the flusher goes on once the last handle is dropped without a drain. Default: 25 s.
    pub fn drain_on_drop(mut self, limit: Duration) -> Self {
        self.drain_on_drop = limit;
        self
    }

    /// Receives each accepted item that is lost, with the reason. Without it such items are counted and dropped. What comes
    /// back to a caller, from a drain or a purge, does not come here. What is refused comes here only where no caller can
    /// take it back, as [`Refused`](crate::LossReason::Refused): from a stream, or out of a `push_all` that samples.
    ///
    /// It runs on the producer that evicts, on the flusher, or on whoever drops the flusher, after the counter has moved
    /// and outside all locks. Its panics are caught and counted. A push from inside it, into whichever
    /// controller, never evicts. A controller that it
    /// owns would never be freed: give it a [`WeakController`](crate::WeakController).
    pub fn on_loss(mut self, hook: impl Fn(Loss<T>) + Send + Sync + 'static) -> Self {
        self.on_loss = Some(Box::new(hook));
        self
    }

    /// The clock from which all times of the controller come, for tests. Default: tokio's.
    ///
    /// With it the controller needs no runtime, its flusher pauses after each batch, and what is random otherwise (the
    /// jitter of retries, the draws of samples, the ids of batches) is the same in each run.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn own_clock(&self) -> Option<&ManualClock> {
        self.clock.as_ref()
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Builds a controller and spawns its flusher on the current tokio runtime.
    ///
    /// A sink that owns a handle of its own controller keeps the intake open: give it a
    /// [`WeakController`](crate::WeakController).
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work; [`NoRuntime`](BuildError::NoRuntime) outside a tokio runtime and on
    /// one that has gone down, [`NoTimer`](BuildError::NoTimer) in one without time enabled.
    pub fn spawn<S: BatchSink<T> + 'static>(self, sink: S) -> Result<BackpressureController<T>, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        self.spawn_on(&runtime, sink)
    }

    /// Like [`spawn`](Self::spawn), with a state that is cloned for each flush.
    ///
    /// # Errors
    ///
    /// As for [`spawn`](Self::spawn).
    pub fn spawn_with<S, F, Answer>(self, state: S, function: F) -> Result<BackpressureController<T>, BuildError>
    where
        S: Clone + Send + 'static,
        F: FnMut(S, Batch<T>) -> Answer + Send + 'static,
        Answer: Future<Output = Result<(), FlushError>> + Send + 'static,
    {
        self.spawn(WithState { state, function })
    }

    /// Like [`spawn`](Self::spawn), on a runtime of your choice.
    ///
    /// # Errors
    ///
    /// As for [`spawn`](Self::spawn).
    pub fn spawn_on<S: BatchSink<T> + 'static>(
        self,
        runtime: &Handle,
        sink: S,
    ) -> Result<BackpressureController<T>, BuildError> {
        self.spawn_slots(runtime, vec![sink])
    }

    /// Like [`spawn`](Self::spawn), with up to `n` calls of the sink at once, `n` in `1 ..=` [`MAX_CONCURRENCY`]: each slot
    /// has a clone of the sink.
    ///
    /// **More than one gives up order between batches.** Within a batch the items are in order, and batches leave in order, but
    /// a later one may be settled before an earlier one; a batch that is sent again comes after others that were sent
    /// meanwhile. With `n = 1` it is [`spawn`](Self::spawn). All calls run in the one task of the flusher, so a sink that
    /// blocks its thread blocks the others, too.
    ///
    /// A sink that fails is left in peace: while a batch waits to be sent again no other one leaves, and after
    /// [`throttled`](crate::FlushError::throttled) none does before the pause is over; calls that are under way go on. A call that
    /// hangs costs its slot only, until the flush timeout.
    ///
    /// What is in flight takes its room from the capacity, so let that be at least twice `n` times `max_batch`. Unless it
    /// is set, `max_batch` is the capacity / 2n here, at least 1, at most 5000.
    ///
    /// # Errors
    ///
    /// As for [`spawn`](Self::spawn), and [`ConcurrencyZero`](BuildError::ConcurrencyZero) or
    /// [`ConcurrencyTooLarge`](BuildError::ConcurrencyTooLarge).
    ///
    /// # Examples
    ///
    /// ```
    /// use backpressure::{BackpressureController, Batch, FlushError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sink = |batch: Batch<u32>| async move {
    ///     // A request to a store.
    ///     tokio::time::sleep(std::time::Duration::from_millis(batch.len() as u64)).await;
    ///     Ok::<(), FlushError>(())
    /// };
    /// let numbers = BackpressureController::builder(1_000).max_batch(10).spawn_concurrent(8, sink)?;
    /// numbers.push_all(0..500).await?;
    /// assert!(numbers.flush().await.all_delivered());
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_concurrent<S>(self, n: usize, sink: S) -> Result<BackpressureController<T>, BuildError>
    where
        S: BatchSink<T> + Clone + 'static,
    {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        self.spawn_slots(&runtime, clones(n, sink)?)
    }

    fn spawn_slots<S: BatchSink<T> + 'static>(
        self,
        runtime: &Handle,
        sinks: Vec<S>,
    ) -> Result<BackpressureController<T>, BuildError> {
        let (controller, mut flusher) = self.build_slots(sinks)?;
        let inside = runtime.enter();
        flusher.check().map_err(|error| match error {
            DriveError::NoRuntime => BuildError::NoRuntime,
            DriveError::NoTimer => BuildError::NoTimer,
        })?;
        drop(inside);
        runtime.spawn(flusher);
        // A runtime that has gone down drops the task at once: no handle may outlive its loop from the start.
        if controller.is_closed() {
            return Err(BuildError::NoRuntime);
        }
        Ok(controller)
    }

    /// Builds a controller and its flusher, to be driven by hand. Needs no runtime.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work.
    pub fn build<S: BatchSink<T> + 'static>(self, sink: S) -> Result<(BackpressureController<T>, Flusher), BuildError> {
        self.build_slots(vec![sink])
    }

    /// Like [`build`](Self::build), with up to `n` calls of the sink at once: see
    /// [`spawn_concurrent`](Self::spawn_concurrent).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build), and [`ConcurrencyZero`](BuildError::ConcurrencyZero) or
    /// [`ConcurrencyTooLarge`](BuildError::ConcurrencyTooLarge).
    pub fn build_concurrent<S>(self, n: usize, sink: S) -> Result<(BackpressureController<T>, Flusher), BuildError>
    where
        S: BatchSink<T> + Clone + 'static,
    {
        self.build_slots(clones(n, sink)?)
    }

    fn build_slots<S: BatchSink<T> + 'static>(
        self,
        sinks: Vec<S>,
    ) -> Result<(BackpressureController<T>, Flusher), BuildError> {
        let core = self.core(false, sinks.len())?;
        let flusher = Flusher::new(Arc::clone(&core), sinks, Box::new(Fixed));
        Ok((BackpressureController::new(core), flusher))
    }

    /// Builds a controller without a sink, and the stream that its batches are pulled from. Needs no runtime to build.
    ///
    /// The consumer settles each batch by [`Batch::done`]: see [`Batches`]. The flush timeout means nothing here.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work.
    pub fn pull(self) -> Result<(BackpressureController<T>, Batches<T>), BuildError> {
        let core = self.core(true, 1)?;
        let batches = Batches::new(Arc::clone(&core), Box::new(Fixed));
        Ok((BackpressureController::new(core), batches))
    }

    /// What lies behind the controller.
    fn core(self, is_pulled: bool, slots: usize) -> Result<Arc<Core<T>>, BuildError> {
        let settings = self.check(slots)?;
        let clock = self.clock.map_or_else(Clock::start, Clock::Manual);
        let core = Core::new(Parameters {
            name: self.name,
            capacity: self.capacity,
            settings,
            strategy: self.strategy,
            on_loss: self.on_loss,
            drain_on_drop: self.drain_on_drop,
            is_pulled,
            slots,
            nonce: clock.seed().unwrap_or_else(nonce),
            clock,
        });
        Ok(Arc::new(core.ok_or(BuildError::OutOfMemory)?))
    }

    /// The settings, if all of them can work.
    fn check(&self, slots: usize) -> Result<Settings, BuildError> {
        check_capacity(self.capacity, MAX_CAPACITY)?;
        let settings = Settings {
            watermarks: self.watermarks,
            max_batch: self.max_batch.unwrap_or((self.capacity / 2 / slots).clamp(1, DEFAULT_MAX_BATCH)),
            linger: self.linger,
            retry: self.retry.clone(),
            flush_timeout: self.flush_timeout,
            ages: self.ages,
        };
        settings.check(self.capacity)?;
        self.strategy.check()?;
        Ok(settings)
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("strategy", &self.strategy)
            .field("watermarks", &self.watermarks)
            .field("max_batch", &self.max_batch)
            .field("linger", &self.linger)
            .field("flush_timeout", &self.flush_timeout)
            .field("retry", &self.retry)
            .field("ages", &self.ages)
            .field("drain_on_drop", &self.drain_on_drop)
            .field("on_loss", &self.on_loss.is_some())
            .finish()
    }
}

/// A sink for each slot, if there can be so many.
fn clones<S: Clone>(n: usize, sink: S) -> Result<Vec<S>, BuildError> {
    match n {
        0 => Err(BuildError::ConcurrencyZero),
        1..=MAX_CONCURRENCY => {
            let mut sinks: Vec<_> = std::iter::repeat_with(|| sink.clone()).take(n - 1).collect();
            sinks.push(sink);
            Ok(sinks)
        }
        _ => Err(BuildError::ConcurrencyTooLarge { max: MAX_CONCURRENCY }),
    }
}

/// A number that no other controller has, also not one of another run: it makes batch ids idempotency tokens.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The standard library's only random numbers: keys from the system, different for each state. A process that was forked
    // has its parent's keys, but not its id.
    RandomState::new().hash_one(std::process::id())
}
