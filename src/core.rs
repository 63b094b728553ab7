//! Admission, taking and settling: the runtime-free heart that producers, flusher and guards share.

mod admit;
mod changes;
mod context;
mod diary;
mod ending;
mod inform;
mod levers;
mod loss;
mod pulled;
mod retries;
mod settle;
mod vitals;
mod weigh;

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub(crate) use self::admit::{Admitted, Queued};
pub use self::changes::Changes;
pub(crate) use self::context::Inside;
use self::context::Telling;
use self::diary::Diary;
pub(crate) use self::ending::{DrainId, Ending};
use self::levers::Levers;
pub(crate) use self::levers::Settings;
pub use self::loss::Loss;
pub(crate) use self::loss::LossHook;
pub(crate) use self::pulled::Returned;
pub(crate) use self::retries::Retries;
pub(crate) use self::settle::{End, Left};
pub(crate) use self::weigh::Weigher;
use crate::batch::{Batch, BatchId, Parts};
use crate::error::BuildError;
use crate::flight::{Flight, FlightKey, Flights, Phase, Seqs};
use crate::gate::{Effects, Gate, Limits, Locked};
use crate::ledger::Snapshot;
use crate::pace::{FlushReason, Pace, Plan, View};
use crate::panics::catch;
use crate::report::FlushReport;
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

/// What this floor keeps under the head lock.
#[derive(Debug)]
pub(crate) struct Hangar<T> {
    flights: Flights<T>,
    /// Pulled batches that came home with something left.
    returned: Vec<Returned>,
    is_paused: bool,
    /// Items before this position were seen claimed when a batch left without them, for this reason.
    promised: (u64, FlushReason),
    settings: Arc<Settings>,
    /// The most items of a batch, as the strategy and the capacity leave it.
    max_batch: usize,
    /// One item in so many is kept, by state.
    sample_rates: [u32; State::ALL.len()],
    ending: Ending<T>,
    diary: Diary,
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
    pub(crate) nonce: u64,
    pub(crate) clock: Clock,
}

/// What the flusher does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send this new batch.
    Launch(FlightKey),
    /// Sleep until the moment, or the bell.
    Sleep(Option<Tick>),
    /// A producer has claimed a slot and not written it: give the thread away, then look again.
    Yield,
    /// All is settled and the intake is shut.
    Drained,
    /// Drain's deadline has passed.
    Expired,
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
            is_paused: false,
            promised: (0, FlushReason::Full),
            settings: Arc::new(settings),
            max_batch,
            sample_rates: parameters.strategy.sample_rates(),
            ending: Ending::default(),
            diary: Diary::new(),
        };
        let (weigher, limits) = parameters.weigher.unzip();
        let gate = Gate::new(capacity, levels, limits, parameters.clock, hangar)?;
        let posture = parameters.strategy.posture();
        gate.lock().set_posture(posture);
        Some(Self {
            gate,
            levers: Levers::new(&parameters.strategy),
            weigher,
            draws: CachePadded::default(),
            on_loss: parameters.on_loss,
            bell: Arc::default(),
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
        if !effects.is_none() {
            self.apply_slow(effects);
        }
    }

    fn apply_slow(&self, effects: Effects) {
        let Effects { wakers, bell, state, fates } = effects;
        if state {
            // Before anybody is woken who may look. Whoever comes last publishes the last state, whatever the order in which
            // they get here.
            catch(|| {
                self.states.send_if_modified(|published| {
                    let last = self.gate.state();
                    mem::replace(published, last) != last
                })
            });
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

    /// What the end makes of the flusher's next step, if it makes anything of it.
    pub(crate) fn end(&self) -> Option<Step> {
        let now = self.now();
        self.gate.lock().desk().rest.ending.step(now)
    }

    /// Drain's deadline.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.gate.lock().desk().rest.ending.deadline()
    }

    /// Decides what the flusher does next, and takes the batch if there is one to send.
    pub(crate) fn step(&self, pace: &mut dyn Pace, spare: &mut Vec<T>) -> Step {
        let now = self.now();
        let mut locked = self.gate.lock();
        let step = self.step_locked(&mut locked, now, pace, spare);
        self.apply(locked.finish());
        step
    }

    fn step_locked(
        &self,
        locked: &mut Locked<'_, T, Hangar<T>>,
        now: Tick,
        pace: &mut dyn Pace,
        spare: &mut Vec<T>,
    ) -> Step {
        if let Some(step) = locked.desk().rest.ending.step(now) {
            return step;
        }
        if locked.is_drained() {
            return Step::Drained;
        }
        locked.stamp(now);
        let view = self.view(locked);
        let promised = locked.desk().rest.promised;
        let plan = match pace.plan(now, &view) {
            Plan::Sleep { .. } if view.buffered > 0 && locked.taken() < promised.0 && !view.is_paused => {
                Plan::Take { most: view.capacity.min(promised.0 - locked.taken()), reason: promised.1 }
            }
            plan => plan,
        };
        match plan {
            Plan::Take { most, reason } => match self.take_batch(locked, most, reason, mem::take(spare)) {
                Some(key) => Step::Launch(key),
                None => Step::Yield,
            },
            Plan::Sleep { items, until } => {
                locked.sleep(items);
                Step::Sleep([until, locked.desk().rest.ending.deadline()].into_iter().flatten().min())
            }
        }
    }

    fn view(&self, locked: &mut Locked<'_, T, Hangar<T>>) -> View {
        let figures = locked.figures();
        let (_, waiting) = locked.waiting();
        let (taken, max_batch) = (locked.taken(), locked.desk().rest.max_batch);
        View {
            buffered: figures.buffered,
            capacity: locked.capacity(),
            oldest: locked.oldest(),
            is_tight: figures.is_full || waiting > 0 || locked.is_short(),
            is_flushing: locked.desk().ledger.barrier_end().is_some_and(|end| end > taken),
            is_closed: figures.is_closed,
            is_paused: locked.desk().rest.is_paused,
            max_batch: locked.batch_limit(max_batch) as u64,
            linger: locked.desk().rest.settings.linger,
        }
    }

    /// `None` if the oldest claim is not written yet.
    fn take_batch(
        &self,
        locked: &mut Locked<'_, T, Hangar<T>>,
        most: u64,
        reason: FlushReason,
        mut items: Vec<T>,
    ) -> Option<FlightKey> {
        let first = locked.taken();
        let wanted = locked.figures().buffered.min(most);
        let oldest = locked.oldest();
        let (count, is_cut) = locked.take_batch(most as usize, &mut items);
        let count = count as u64;
        if count == 0 {
            return None;
        }
        let desk = locked.desk();
        if count < wanted && !is_cut {
            desk.rest.promised = (first + wanted, reason);
        }
        let lost_before = desk.ledger.untold();
        Some(desk.rest.flights.insert(Flight {
            id: BatchId::new(self.nonce, first),
            seqs: Seqs::Run(first..first + count),
            phase: Phase::Home,
            items,
            marks: Vec::new(),
            attempts: 0,
            reason,
            lost_before,
            oldest,
            started: None,
            extra: Duration::ZERO,
            is_counted: false,
            is_judged: false,
            is_ok: false,
        }))
    }

    /// Hands a batch that is at home to a guard, for one attempt, which may take so long; `Duration::MAX` means for ever.
    pub(crate) fn launch(self: &Arc<Self>, key: FlightKey, now: Tick) -> Option<(Batch<T>, Duration)> {
        let mut locked = self.gate.lock();
        let desk = locked.desk();
        let flight = desk.rest.flights.get_mut(key).filter(|flight| flight.phase == Phase::Home)?;
        if flight.attempts > 0 {
            desk.ledger.retried += flight.seqs.len() as u64;
        }
        flight.attempts = flight.attempts.saturating_add(1);
        flight.phase = Phase::Out;
        flight.started = Some(now);
        flight.extra = Duration::ZERO;
        let seqs = flight.seqs.clone();
        (flight.is_counted, flight.is_judged, flight.is_ok) = (false, false, false);
        let parts = Parts {
            id: flight.id,
            items: mem::take(&mut flight.items),
            marks: Vec::new(),
            attempt: flight.attempts,
            reason: flight.reason,
            lost_before: flight.lost_before,
            weights: locked.weights((0..seqs.len()).map(|i| seqs.get(i))),
            seqs,
        };
        let flush_timeout = locked.desk().rest.settings.flush_timeout;
        drop(locked);
        Some((Batch::new(Arc::clone(self), key, parts), flush_timeout))
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

    /// The extra time of an attempt, and drain's deadline.
    pub(crate) fn limits(&self, key: FlightKey) -> (Duration, Option<Tick>) {
        let mut locked = self.gate.lock();
        let hangar = &mut locked.desk().rest;
        let extra = hangar.flights.get_mut(key).map_or(Duration::ZERO, |flight| flight.extra);
        (extra, hangar.ending.deadline())
    }

    pub(crate) fn pause(&self, paused: bool) {
        let mut locked = self.gate.lock();
        locked.desk().rest.is_paused = paused;
        locked.rouse();
        self.apply(locked.leave());
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.gate.lock().desk().rest.is_paused
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
        let at_home = desk.rest.flights.iter().filter(|flight| flight.phase == Phase::Home && flight.is_counted);
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
            retry_waiting: at_home.map(|flight| flight.seqs.len() as u64).sum(),
            flushes: ledger.flushes,
            batch_limit: desk.rest.max_batch as u64,
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

    pub(crate) fn states(&self) -> &watch::Sender<State> {
        &self.states
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
