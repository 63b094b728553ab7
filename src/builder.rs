//! Settings, checked before anything runs.

mod ages;
mod weights;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::batch::Batch;
use crate::controller::BackpressureController;
use crate::core::{AgeLimits, Core, Loss, LossHook, Parameters, Settings, Weigher, check_capacity};
use crate::dead_letters::{DeadLetter, route};
use crate::error::{BuildError, DriveError, FlushError};
use crate::flusher::{Flusher, MAX_CONCURRENCY};
use crate::pace::{Adaptive, Aim, Fixed, Pace};
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
/// The first batch: neither a round trip for an item nor a second of work for most sinks, so it is found fast from here.
const DEFAULT_INITIAL_BATCH: usize = 100;
/// Of one call: what a person calls immediate, and long beside the round trip that larger batches save.
const DEFAULT_TARGET_LATENCY: Duration = Duration::from_millis(100);
/// Between the calls of an idle sink, and how long a partial batch waits where nothing adapts: short beside any network round
/// trip, long beside a burst.
const DEFAULT_MIN_INTERVAL: Duration = Duration::from_millis(5);
/// The longest that a partial batch waits for a busy sink: what is bearable where the sink takes long.
const DEFAULT_MAX_INTERVAL: Duration = Duration::from_secs(1);
/// A sink that has not answered after so long is taken for hung.
const DEFAULT_FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// Below the 30 s that process managers commonly give before they kill.
const DEFAULT_DRAIN_ON_DROP: Duration = Duration::from_secs(25);

type Parts<T> = (Arc<Core<T>>, Box<dyn Pace>);

/// Builds a [`BackpressureController`].
///
/// | setting         | default                           | zero            | `MAX` |
/// |-----------------|-----------------------------------|-----------------|-------|
/// | `name`          | `"default"`                       |                 |       |
/// | capacity        | none: the one decision to make    | an error        | an error above [`MAX_CAPACITY`] |
/// | `strategy`      | [`Strategy::Block`]               |                 |       |
/// | `watermarks`    | 0.5 and 0.8 of the capacity       | an error        |       |
/// | `max_batch`     | half the capacity / calls at once, 1 to 5000 | an error        | an error above the capacity |
/// | `initial_batch` | 100 items, or `max_batch`         | an error        | an error above `max_batch` |
/// | `target_latency`| 100 ms                            | an error        | batches of `max_batch` |
/// | `min_interval`  | 5 ms                              | an idle sink gets each item at once | an error above `max_interval` |
/// | `max_interval`  | 1 s                               | a partial batch waits for nothing but a slot | as long as a call takes |
/// | `fixed`: linger | it adapts; 5 ms if pulled         | a batch leaves at once | never by time |
/// | `flush_timeout` | 30 s                              | an error        | never |
/// | `retry`         | 50 ms, doubling, to 10 s, for ever| at once         | never again |
/// | `max_age`       | never                             | an error        | never |
/// | `critical_age`  | `max_age`                         | an error        | never |
/// | `max_delay`     | none: the capacity is as it was set | an error      | none |
/// | `drain_on_drop` | 25 s                              | nothing is waited for | for ever |
/// | `weigher`       | none: items have no weight        | a weight like any other | the item is refused |
/// | `capacity_weight` | [`MAX_CAPACITY_WEIGHT`](crate::MAX_CAPACITY_WEIGHT)         | an error        | an error above [`MAX_CAPACITY_WEIGHT`](crate::MAX_CAPACITY_WEIGHT) |
/// | `max_item_weight` | the capacity by weight          | an error        | an error above the capacity by weight |
/// | `max_batch_weight`| no bound                        | an error        | no bound |
#[must_use = "a builder builds nothing by itself"]
pub struct Builder<T> {
    name: Arc<str>,
    capacity: usize,
    strategy: Strategy<T>,
    watermarks: Watermarks,
    max_batch: Option<usize>,
    initial_batch: Option<usize>,
    aim: Aim,
    /// `None` while it adapts.
    linger: Option<Duration>,
    flush_timeout: Duration,
    retry: Retry,
    ages: AgeLimits,
    drain_on_drop: Duration,
    bisect: bool,
    on_loss: Option<LossHook<T>>,
    dead_letters: Option<BackpressureController<DeadLetter<T>>>,
    clock: Option<ManualClock>,
    weigher: Option<Weigher<T>>,
    capacity_weight: Option<u64>,
    max_item_weight: Option<u64>,
    max_batch_weight: Option<u64>,
}

impl<T> Builder<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            name: DEFAULT_NAME.into(),
            capacity,
            strategy: Strategy::Block,
            watermarks: Watermarks::default(),
            max_batch: None,
            initial_batch: None,
            aim: Aim {
                target_latency: DEFAULT_TARGET_LATENCY,
                min_interval: DEFAULT_MIN_INTERVAL,
                max_interval: DEFAULT_MAX_INTERVAL,
            },
            linger: None,
            flush_timeout: DEFAULT_FLUSH_TIMEOUT,
            retry: Retry::default(),
            ages: AgeLimits::NONE,
            drain_on_drop: DEFAULT_DRAIN_ON_DROP,
            bisect: false,
            on_loss: None,
            dead_letters: None,
            clock: None,
            weigher: None,
            capacity_weight: None,
            max_item_weight: None,
            max_batch_weight: None,
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

    /// The most items of a batch, in `1 ..= capacity`; fewer while the capacity is made smaller than that. Default: half the
    /// capacity, divided by the calls at once, at least 1, at most 5000.
    ///
    /// How many items a batch has below that is found by itself: see [`target_latency`](Self::target_latency).
    pub fn max_batch(mut self, items: usize) -> Self {
        self.max_batch = Some(items);
        self
    }

    /// How long one call of the sink is to take, at p95; above zero. Default: 100 ms.
    ///
    /// The batch grows while calls with full batches are faster than that, and shrinks when they are slower, so this is the
    /// lever between throughput and latency: a longer target gives larger batches, which spread the cost of a call. Where a call
    /// alone takes longer than the target, no batch can meet it, and the batch is the one that spreads that cost:
    /// [`explain`](BackpressureController::explain) says so.
    pub fn target_latency(mut self, target: Duration) -> Self {
        self.aim.target_latency = target;
        self
    }

    /// The most items of the first batch, in `1 ..= max_batch`. Default: 100, or `max_batch` if that is less.
    ///
    /// From there the batch adapts; it saves a few calls where you know better.
    pub fn initial_batch(mut self, items: usize) -> Self {
        self.initial_batch = Some(items);
        self
    }

    /// How far apart calls with partial batches begin while the sink is idle, and the shortest time that a partial batch waits
    /// while it is busy; at most [`max_interval`](Self::max_interval). Default: 5 ms.
    ///
    /// The first item after a silence leaves at once, and a full batch always does. So this is the most calls a second, 200,
    /// that a light load makes. With zero an idle sink gets each item at once.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.aim.min_interval = interval;
        self
    }

    /// The longest time that a partial batch waits, from its oldest item, while a slot is free and others are busy; at least
    /// [`min_interval`](Self::min_interval). Default: 1 s.
    ///
    /// Below that it is as long as a call usually takes. It also bounds the pauses after a throttling for which the sink has
    /// named no length, but not the time between calls while their rate is limited for it, which is at most 10 s.
    pub fn max_interval(mut self, interval: Duration) -> Self {
        self.aim.max_interval = interval;
        self
    }

    /// Switches adapting off: the batch, in `1 ..= capacity` items, and the linger: how long a partial batch may wait, from its
    /// oldest item. All slots are used.
    ///
    /// With a linger of zero an idle sink gets a single item at once, and a busy one gets all that came meanwhile; producers
    /// that waited for room have their turn first. `Duration::MAX` means never by time. tokio's timers are up to two
    /// milliseconds late, so the one of a linger is set up to one earlier: a batch leaves around its linger, as a rule before.
    pub fn fixed(mut self, batch: usize, linger: Duration) -> Self {
        self.max_batch = Some(batch);
        self.linger = Some(linger);
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

    /// How long the flusher goes on once the last handle is dropped without a drain. Default: 25 s.
    pub fn drain_on_drop(mut self, limit: Duration) -> Self {
        self.drain_on_drop = limit;
        self
    }

    /// Looks for the bad items of a batch that fails for good: instead of failing, it is halved, and each half is a batch of its
    /// own, sent at once, with retries of its own, until the bad item stands alone. Default: `false`, the whole batch fails.
    ///
    /// One bad item of `n` costs at most `2 * log2(n) + 1` calls, `log2` rounded up, if the sink says
    /// [`permanent`](crate::FlushError::permanent) at once; a batch of bad items only costs `2n - 1`. Where retries must be
    /// used up first, each of those calls is as often repeated. The order is kept with one call at a time. The sink must not
    /// have written anything of a batch that it calls failed, or must know repeats by [`Batch::seq`]. That goes for a call that was
    /// cut off, too: a store that has written its rows after all, and refuses the repeats for good, would have good items called
    /// failed. [`Batch::done`] right after the commit spares that.
    ///
    /// # Examples
    ///
    /// ```
    /// # use backpressure::{BackpressureController, Batch, FlushError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sink = |batch: Batch<u32>| async move {
    ///     if batch.contains(&13) { Err(FlushError::permanent("a bad number")) } else { Ok(()) }
    /// };
    /// let numbers = BackpressureController::builder(100).bisect(true).spawn(sink)?;
    /// numbers.push_all(0..64).await?;
    /// let report = numbers.flush().await;
    /// assert_eq!((report.delivered, report.failed), (63, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bisect(mut self, bisect: bool) -> Self {
        self.bisect = bisect;
        self
    }

    /// Where items go that have failed for good: a controller with a buffer, a sink, retries, metrics and health of its own.
    /// Default: to [`on_loss`](Self::on_loss).
    ///
    /// It is offered each failed item by `try_push`, so its bound holds and nobody waits for it. What it refuses, full or
    /// closed, goes to the `on_loss` of this controller as if there were no dead letters, and so does every other loss (evicted,
    /// abandoned, moved out by the sink). What its own sink cannot deliver goes to its own `on_loss`.
    ///
    /// Drain this controller first, then that one. Until the last handle of this one and its flusher are gone it holds a
    /// handle of that one.
    ///
    /// # Accounting
    ///
    /// A dead letter counts as `failed` here, whatever becomes of it, and as accepted or refused there.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backpressure::{BackpressureController, Batch, DeadLetter, FlushError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let dead = BackpressureController::builder(1_000).name("dead").spawn(|batch: Batch<DeadLetter<u32>>| async move {
    ///     for letter in &batch {
    ///         println!("{} of {}: {:?}", letter.item, letter.queue, letter.error);
    ///     }
    ///     Ok(())
    /// })?;
    /// let numbers = BackpressureController::builder(1_000)
    ///     .dead_letters(&dead)
    ///     .spawn(|_: Batch<u32>| async { Err(FlushError::permanent("no")) })?;
    /// numbers.push(7).await?;
    /// numbers.drain(Duration::from_secs(5)).await;
    /// assert_eq!(dead.drain(Duration::from_secs(5)).await.delivered(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn dead_letters(mut self, queue: &BackpressureController<DeadLetter<T>>) -> Self {
        self.dead_letters = Some(queue.clone());
        self
    }

    /// Receives each accepted item that is lost, with the reason. Without it such items are counted and dropped. What comes
    /// back to a caller, from a drain or a purge, does not come here. What is refused comes here only where no caller can
    /// take it back, as [`Refused`](crate::LossReason::Refused): from a stream, out of a `push_all` that samples,
    /// or from [`Permit::send`](crate::Permit::send) if the item is heavier than its permit.
    ///
    /// It runs on the producer that evicts, on the flusher, or on whoever drops the flusher, after the counter has moved
    /// and outside all locks. Its panics are caught and counted. A push from inside it, into whichever
    /// controller, never evicts. A controller that it owns would never be freed: give it a
    /// [`WeakController`](crate::WeakController).
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
    /// meanwhile, and several go as their schedules have it. With `n = 1` it is [`spawn`](Self::spawn). All calls run in the one task of the flusher, so a sink that
    /// blocks its thread blocks the others, too.
    ///
    /// A sink that fails is left in peace: no batch leaves before the moment that [`retry`](Self::retry) gives, and after
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
        let (core, pace) = self.core(false, sinks.len())?;
        let flusher = Flusher::new(Arc::clone(&core), sinks, pace);
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
        let (core, _) = self.core(true, 1)?;
        let batches = Batches::new(Arc::clone(&core), Box::new(Fixed));
        Ok((BackpressureController::new(core), batches))
    }

    /// What lies behind the controller, and what paces its flusher.
    fn core(self, is_pulled: bool, slots: usize) -> Result<Parts<T>, BuildError> {
        let settings = self.check(slots)?;
        let limits = self.limits()?;
        let initial = self.initial_batch.unwrap_or(DEFAULT_INITIAL_BATCH).min(settings.max_batch);
        let clock = self.clock.map_or_else(Clock::start, Clock::Manual);
        let nonce = clock.seed().unwrap_or_else(nonce);
        let pace = Adaptive::new(initial as u64, settings.aim(), settings.retry.seed_or(nonce));
        let on_loss = match self.dead_letters {
            Some(letters) => Some(route(Arc::clone(&self.name), letters, self.on_loss)),
            None => self.on_loss,
        };
        let core = Core::new(Parameters {
            name: self.name,
            capacity: self.capacity,
            settings,
            strategy: self.strategy,
            weigher: self.weigher.zip(limits),
            on_loss,
            drain_on_drop: self.drain_on_drop,
            is_pulled,
            slots,
            nonce,
            clock,
        });
        Ok((Arc::new(core.ok_or(BuildError::OutOfMemory)?), Box::new(pace)))
    }

    /// The settings, if all of them can work.
    fn check(&self, slots: usize) -> Result<Settings, BuildError> {
        check_capacity(self.capacity, MAX_CAPACITY)?;
        let settings = Settings {
            watermarks: self.watermarks,
            max_batch: self.max_batch.unwrap_or((self.capacity / 2 / slots).clamp(1, DEFAULT_MAX_BATCH)),
            linger: self.linger.unwrap_or(DEFAULT_MIN_INTERVAL),
            aim: self.aim,
            is_adaptive: self.linger.is_none(),
            retry: self.retry.clone(),
            flush_timeout: self.flush_timeout,
            ages: self.ages,
            bisect: self.bisect,
        };
        settings.check(self.capacity)?;
        match (self.initial_batch, settings.max_batch) {
            (Some(0), _) => return Err(BuildError::InitialBatchZero),
            (Some(initial), max) if initial > max => return Err(BuildError::InitialBatchAboveMax { initial, max }),
            _ => {}
        }
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
            .field("initial_batch", &self.initial_batch)
            .field("aim", &self.aim)
            .field("linger", &self.linger)
            .field("flush_timeout", &self.flush_timeout)
            .field("retry", &self.retry)
            .field("ages", &self.ages)
            .field("drain_on_drop", &self.drain_on_drop)
            .field("bisect", &self.bisect)
            .field("on_loss", &self.on_loss.is_some())
            .field("dead_letters", &self.dead_letters.is_some())
            .field("weigher", &self.weigher.is_some())
            .field("capacity_weight", &self.capacity_weight)
            .field("max_item_weight", &self.max_item_weight)
            .field("max_batch_weight", &self.max_batch_weight)
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
