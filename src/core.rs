//! Admission, taking and settling: the runtime-free heart that producers, flusher and guards share.

mod account;
mod admit;
mod age;
mod changes;
mod comeback;
mod context;
mod diary;
mod ending;
mod fit;
mod inform;
mod levers;
mod loss;
mod patience;
mod pulled;
mod retries;
mod settle;
mod step;
mod vitals;
mod weigh;

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub(crate) use self::admit::{Admitted, Queued};
pub(crate) use self::age::AgeLimits;
pub use self::age::Ages;
use self::age::Aging;
pub use self::changes::Changes;
use self::comeback::Comeback;
pub(crate) use self::context::Inside;
use self::context::Telling;
use self::diary::Diary;
pub(crate) use self::ending::{DrainId, Ending};
use self::fit::Asked;
use self::levers::Levers;
pub(crate) use self::levers::Settings;
pub use self::loss::Loss;
pub(crate) use self::loss::{LossHook, means_here};
pub(crate) use self::pulled::Returned;
pub(crate) use self::retries::Retries;
pub(crate) use self::settle::{End, Left};
pub(crate) use self::step::{Launch, Step, Work};
pub(crate) use self::weigh::Weigher;
use crate::drain_rate::DrainRate;
use crate::error::BuildError;
use crate::flight::{FlightKey, Flights};
use crate::gate::{Effects, Gate, Limits, Locked, Stock};
use crate::ledger::Snapshot;
use crate::pace::FlushReason;
use crate::panics::catch;
use crate::report::FlushReport;
use crate::retry::Due;
use crate::state::{Levels, State};
use crate::strategy::Strategy;
use crate::sync::CachePadded;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::telemetry::Telemetry;
use crate::time::{Clock, Tick};

pub(crate) struct Core<T> {
    gate: Gate<T, Hangar<T>>,
    levers: Levers<T>,
    weigher: Option<Weigher<T>>,
    /// Numbers the draws of samples.
    draws: CachePadded<AtomicU64>,
    on_loss: Option<LossHook<T>>,
    /// Wakes the flusher, or the consumer that pulls.
    bell: Arc<Notify>,
    comeback: Comeback,
    /// There is no flusher: batches are pulled.
    is_pulled: bool,
    states: watch::Sender<State>,
    telemetry: Telemetry,
    /// No publication is due before, in nanoseconds: the flusher need not look more closely.
    quiet_until: AtomicU64,
    name: Arc<str>,
    nonce: u64,
    drain_on_drop: Duration,
    handles: AtomicUsize,
    /// Panics of hooks and destructors that were caught.
    panics: AtomicU64,
}

/// The sink is to be left alone.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Tick,
    until: Due,
}

impl Pause {
    /// For how long still; `Duration::MAX` is for ever.
    fn left(&self, now: Tick) -> Duration {
        self.until.0.map_or(Duration::MAX, |until| until.since(now))
    }
}

/// What this floor keeps under the head lock.
#[derive(Debug)]
pub(crate) struct Hangar<T> {
    flights: Flights<T>,
    /// Pulled batches that came home with something left.
    returned: Vec<Returned>,
    /// Since when nothing is to be taken, by hand.
    paused_since: Option<Tick>,
    /// What the sink has asked for last.
    pause: Option<Pause>,
    /// Items before this position were seen claimed when a batch left without them, for this reason.
    promised: (u64, FlushReason),
    settings: Arc<Settings>,
    /// The most items of a batch, as the strategy and the capacity leave it.
    max_batch: usize,
    asked: Asked,
    /// Calls of the sink that there can be at once.
    slots: u64,
    /// One item in so many is kept, by state.
    sample_rates: [u32; State::ALL.len()],
    ending: Ending<T>,
    diary: Diary,
    aging: Aging,
    drain_rate: DrainRate,
}

/// What a new controller is made of.
pub(crate) struct Parameters<T> {
    pub(crate) name: Arc<str>,
    pub(crate) capacity: usize,
    pub(crate) settings: Settings,
    pub(crate) strategy: Strategy<T>,
    pub(crate) weigher: Option<(Weigher<T>, Limits)>,
    pub(crate) on_loss: Option<LossHook<T>>,
    pub(crate) drain_on_drop: Duration,
    pub(crate) is_pulled: bool,
    /// Calls of the sink that there can be at once; at least 1.
    pub(crate) slots: usize,
    pub(crate) nonce: u64,
    pub(crate) clock: Clock,
}

impl<T> Core<T> {
    /// `None` if the memory cannot be had. Starts with one handle.
    pub(crate) fn new(parameters: Parameters<T>) -> Option<Self> {
        let (capacity, settings) = (parameters.capacity, parameters.settings);
        let max_batch = parameters.strategy.batch_limit(settings.max_batch, capacity);
        let levels = Levels::new(settings.watermarks, capacity, max_batch);
        let hangar = Hangar {
            flights: Flights::new(),
            returned: Vec::new(),
            paused_since: None,
            pause: None,
            promised: (0, FlushReason::Full),
            settings: Arc::new(settings),
            max_batch,
            asked: Asked { capacity, max_batch },
            slots: parameters.slots as u64,
            sample_rates: parameters.strategy.sample_rates(),
            ending: Ending::default(),
            diary: Diary::new(),
            aging: Aging::default(),
            drain_rate: DrainRate::default(),
        };
        let (weigher, limits) = parameters.weigher.unzip();
        let stock = match limits {
            Some(limits) => Stock::Weighed(limits),
            None if loss::minds_evicted::<T>(parameters.on_loss.as_ref()) => Stock::Minded,
            None => Stock::Unminded,
        };
        let gate = Gate::new(capacity, levels, stock, parameters.clock, hangar)?;
        let posture = parameters.strategy.posture();
        let mut locked = gate.lock();
        locked.set_posture(posture);
        let is_aging = locked.desk().rest.settings.ages.is_set();
        locked.set_aging(is_aging);
        drop(locked);
        Some(Self {
            gate,
            levers: Levers::new(&parameters.strategy),
            weigher,
            draws: CachePadded::default(),
            on_loss: parameters.on_loss,
            bell: Arc::default(),
            comeback: Comeback::default(),
            is_pulled: parameters.is_pulled,
            states: watch::channel(State::Normal).0,
            telemetry: Telemetry::new(&parameters.name),
            quiet_until: AtomicU64::new(0),
            name: parameters.name,
            nonce: parameters.nonce,
            drain_on_drop: parameters.drain_on_drop,
            handles: AtomicUsize::new(1),
            panics: AtomicU64::new(0),
        })
    }

    #[cold]
    fn alarm(&self) {
        self.apply(self.gate.alarm());
    }

    #[inline]
    fn apply(&self, effects: Effects) {
        if effects.is_none() {
            // Nothing was allocated, and a destructor would find that out once more: 34 instructions, four times a flush.
            debug_assert!(effects.wakers.capacity() == 0 && effects.fates.capacity() == 0, "it would leak");
            mem::forget(effects);
        } else {
            self.apply_slow(effects);
        }
    }

    fn apply_slow(&self, effects: Effects) {
        let Effects { wakers, bell, state, fates } = effects;
        if state {
            // Before anybody is woken who may look. With nobody to tell it would take a tenth of a small batch's time.
            if self.states.receiver_count() > 0 {
                self.publish_state();
            }
        }
        if bell {
            catch(|| self.bell.notify_one());
        }
        wake_all(wakers);
        for (receipt, fate) in fates {
            catch(|| receipt.tell(fate));
        }
        if bell {
            self.end_if_drained();
        }
    }

    /// Whoever comes last publishes the last state, whatever the order in which they get here.
    fn publish_state(&self) {
        catch(|| {
            self.states.send_if_modified(|published| {
                let last = self.gate.state();
                mem::replace(published, last) != last
            })
        });
    }

    /// The states from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        // Under the lock under which states change: whoever changes it after this sees that there is somebody to tell.
        let locked = self.gate.lock();
        let early = self.states.subscribe();
        drop(locked);
        self.publish_state();
        let receiver = self.states.subscribe();
        drop(early);
        receiver
    }

    /// The guard of an attempt says of an item that it is not delivered.
    pub(crate) fn note_judged(&self, key: FlightKey) {
        if let Some(flight) = self.gate.lock().desk().rest.flights.get_mut(key) {
            flight.is_judged = true;
        }
    }

    /// More time for an attempt.
    pub(crate) fn extend(&self, key: FlightKey, more: Duration) {
        let mut locked = self.gate.lock();
        if let Some(flight) = locked.desk().rest.flights.get_mut(key) {
            flight.extra = flight.extra.saturating_add(more);
        }
        locked.ring_bell();
        self.apply(locked.leave());
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.gate.lock().desk().rest.settings)
    }

    pub(crate) fn pause(&self, paused: bool) {
        let now = self.now();
        let mut locked = self.gate.lock();
        let since = &mut locked.desk().rest.paused_since;
        *since = paused.then(|| since.unwrap_or(now));
        locked.rouse();
        self.apply(locked.leave());
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.gate.lock().desk().rest.paused_since.is_some()
    }

    /// A barrier behind everything accepted so far.
    pub(crate) fn open_barrier(&self) -> u64 {
        let mut locked = self.gate.lock();
        let figures = locked.figures();
        let outstanding = figures.buffered + figures.in_flight;
        let id = locked.desk().ledger.open_barrier(figures.end, outstanding);
        locked.rouse();
        self.apply(locked.leave());
        id
    }

    /// The barrier's figures, once there is nothing left to wait for.
    pub(crate) fn poll_barrier(&self, id: u64, waker: Waker) -> Option<FlushReport> {
        let mut locked = self.gate.lock();
        let (tally, outstanding, stale) = locked.desk().ledger.poll_barrier(id, waker);
        drop(locked);
        drop(stale);
        // The sink would wait for the end of its own call.
        (outstanding == 0 || self.is_inside()).then(|| FlushReport::new(tally, outstanding))
    }

    pub(crate) fn close_barrier(&self, id: u64) {
        let mut locked = self.gate.lock();
        let waker = locked.desk().ledger.close_barrier(id);
        drop(locked);
        drop(waker);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_in(&mut self.gate.lock())
    }

    fn snapshot_in(&self, locked: &mut Locked<'_, T, Hangar<T>>) -> Snapshot {
        let figures = locked.figures();
        let capacity = locked.capacity();
        let (waiting, waiting_producers) = locked.waiting();
        let (state, transitions) = locked.state();
        // Outputs before inputs does not matter here: all but the refusals stand still under the lock.
        let refused = self.gate.refusals().get();
        let weights = locked.by_weight();
        let desk = locked.desk();
        let ledger = &mut desk.ledger;
        ledger.peak_depth = ledger.peak_depth.max(figures.depth());
        let lost = ledger.total.lost;
        let accepted = figures.end + ledger.displaced;
        Snapshot {
            offered: accepted + refused.total() + ledger.cancelled + waiting,
            accepted,
            refused,
            cancelled: ledger.cancelled,
            waiting,
            delivered: ledger.total.delivered,
            failed: lost.failed,
            evicted: lost.evicted,
            expired: lost.expired,
            purged: lost.purged,
            abandoned: lost.abandoned,
            buffered: figures.buffered,
            in_flight: figures.in_flight,
            reserved: figures.reserved,
            depth: figures.depth(),
            capacity,
            max_capacity: self.gate.max_capacity() as u64,
            peak_depth: ledger.peak_depth,
            waiting_producers,
            sample_rate: desk.rest.sample_rates[state as usize],
            retried: ledger.retried,
            retry_waiting: desk.rest.retry_waiting(),
            flushes: ledger.flushes,
            batch_limit: desk.rest.batch_limit().min(capacity),
            concurrency_limit: desk.rest.concurrency_limit(),
            weights,
            panics: self.panics.load(Ordering::Relaxed),
            state,
            transitions,
        }
    }

    /// The age of the oldest item that is not settled, at most this.
    pub(crate) fn oldest_age(&self) -> Option<Duration> {
        let now = self.now();
        self.gate.lock().oldest_outstanding().map(|oldest| now.since(oldest))
    }

    pub(crate) fn state(&self) -> State {
        self.gate.state()
    }

    pub(crate) fn pressure(&self) -> f64 {
        self.gate.pressure()
    }

    pub(crate) fn len(&self) -> usize {
        self.gate.len() as usize
    }

    pub(crate) fn depth(&self) -> usize {
        self.gate.depth() as usize
    }

    pub(crate) fn capacity(&self) -> usize {
        self.gate.capacity()
    }

    pub(crate) fn max_capacity(&self) -> usize {
        self.gate.max_capacity()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    pub(crate) fn bell(&self) -> &Arc<Notify> {
        &self.bell
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.gate.clock()
    }

    pub(crate) fn now(&self) -> Tick {
        self.gate.clock().now()
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Runs user code; its panic is counted and goes no further.
    fn guard<R>(&self, code: impl FnOnce() -> R) -> Option<R> {
        let result = catch(code);
        if result.is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

impl<T> std::fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("capacity", &self.capacity())
            .field("depth", &self.depth())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Whether a capacity is in `1 ..= max`.
pub(crate) fn check_capacity(items: usize, max: usize) -> Result<(), BuildError> {
    match items {
        0 => Err(BuildError::CapacityZero),
        _ if items > max => Err(BuildError::CapacityTooLarge { max }),
        _ => Ok(()),
    }
}

/// Wakes each, also if one of them panics.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        catch(|| waker.wake());
    }
}
