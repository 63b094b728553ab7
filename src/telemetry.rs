//! Metrics: the one file that names `metrics`.
//!
//! The figures are counted elsewhere, exactly; here they are told to the recorder of the application, as increments since
//! they were told last. A recorder that comes late counts from then on, and a controller that starts again under its name
//! goes on where the last one ended. All recorder calls are user code: they run outside locks, their panics caught.

use std::collections::BTreeMap;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use crate::core::{Ages, End};
use crate::ledger::Snapshot;
use crate::pace::FlushReason;
use crate::spread::Spread;
use crate::state::State;

/// What the head lock guards for the metrics alone.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    attempts: Attempts,
    calls: Calls,
}

/// Calls of the sink, by how they ended and why they began.
type Attempts = [[u64; FlushReason::ALL.len()]; End::ALL.len()];

/// What the calls of the sink were like.
#[derive(Debug, Default)]
struct Calls {
    durations: Spread,
    /// In items.
    sizes: Spread,
    /// Of the oldest item of a batch, when the batch is settled.
    ages: Spread,
}

/// What was gathered since the last publication.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    calls: Calls,
    /// Of producers.
    waits: Spread,
}

impl Meters {
    /// A call of the sink has ended.
    pub(crate) fn attempt(&mut self, end: End, reason: FlushReason, items: usize, took: Duration) {
        self.attempts[end as usize][reason as usize] += 1;
        self.calls.durations.add_time(took);
        self.calls.sizes.add(items as u64);
    }

    /// A batch is settled, and its oldest item was so old.
    pub(crate) fn settled(&mut self, age: Duration) {
        self.calls.ages.add_time(age);
    }

    /// Moves what there is to `gathered`, which is empty, and goes on with its memory.
    pub(crate) fn hand_over(&mut self, waits: &mut Spread, gathered: &mut Gathered) -> Attempts {
        mem::swap(&mut self.calls, &mut gathered.calls);
        mem::swap(waits, &mut gathered.waits);
        self.attempts
    }
}

impl Gathered {
    fn each(&mut self) -> [&mut Spread; 4] {
        let Calls { durations, sizes, ages } = &mut self.calls;
        [durations, sizes, ages, &mut self.waits]
    }
}

/// The figures of one instant.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) snapshot: Snapshot,
    pub(crate) attempts: Attempts,
    pub(crate) oldest_age: Option<Duration>,
    pub(crate) ages: Ages,
    /// When a call of the sink last answered `Ok(())`, as Unix time.
    pub(crate) last_success: Option<Duration>,
}

/// Publishes the figures of one controller.
#[derive(Debug)]
pub(crate) struct Telemetry {
    queue: SharedString,
    publisher: Mutex<Publisher>,
    /// The address of the recorder that knows what the metrics mean.
    described: AtomicUsize,
}

#[derive(Debug, Default)]
struct Publisher {
    told: Figures,
    is_busy: bool,
    /// Somebody else wants to publish: the busy one does it.
    again: bool,
    spare: Gathered,
    keys: Keys,
}

/// The keys of the series, made once: by metric, and by which of its series it is.
type Keys = BTreeMap<(&'static str, usize), Key>;

/// One publication.
#[derive(Debug)]
struct Issue {
    before: Figures,
    now: Figures,
    gathered: Gathered,
    keys: Keys,
}

/// Runs user code, and catches its panics.
pub(crate) type Guard<'a> = &'a dyn Fn(&mut dyn FnMut());

impl Telemetry {
    pub(crate) fn new(queue: &Arc<str>) -> Self {
        Self { queue: Arc::clone(queue).into(), publisher: Mutex::default(), described: AtomicUsize::new(0) }
    }

    /// Publishes what `take` finds.
    ///
    /// One thread at a time does it: what another one wants to publish meanwhile, the first one publishes afterwards, so
    /// that the last gauges are the last ones.
    pub(crate) fn publish(&self, take: impl Fn(&mut Gathered) -> Figures, guard: Guard<'_>) {
        while let Some(mut issue) = self.begin(&take) {
            guard(&mut || metrics::with_recorder(|recorder| self.tell(recorder, &mut issue, guard)));
            if !self.end(issue) {
                return;
            }
        }
    }

    fn begin(&self, take: impl Fn(&mut Gathered) -> Figures) -> Option<Issue> {
        let mut publisher = self.publisher.lock();
        if mem::replace(&mut publisher.is_busy, true) {
            publisher.again = true;
            return None;
        }
        let mut gathered = mem::take(&mut publisher.spare);
        // The memory is made here, outside the head lock.
        gathered.each().into_iter().for_each(Spread::reserve);
        let now = take(&mut gathered);
        let (before, keys) = (mem::take(&mut publisher.told), mem::take(&mut publisher.keys));
        Some(Issue { before, now, gathered, keys })
    }

    /// Whether to publish once more.
    fn end(&self, issue: Issue) -> bool {
        let Issue { now, mut gathered, keys, .. } = issue;
        gathered.each().into_iter().for_each(Spread::clear);
        let mut publisher = self.publisher.lock();
        (publisher.told, publisher.spare, publisher.keys, publisher.is_busy) = (now, gathered, keys, false);
        mem::take(&mut publisher.again)
    }

    fn tell(&self, recorder: &dyn Recorder, issue: &mut Issue, guard: Guard<'_>) {
        let Issue { before, now, gathered, keys } = issue;
        let mut teller = Teller { queue: &self.queue, keys, recorder, guard };
        let address = ptr::from_ref(recorder).cast::<()>().addr();
        // Ordering: Relaxed, it says nothing of other memory.
        if self.described.swap(address, Ordering::Relaxed) != address {
            teller.describe(now.snapshot.weights.is_some());
        }
        teller.counters(now, before);
        teller.gauges(now);
        teller.histograms(gathered);
    }
}

/// What a series is called besides its queue; each value is of a closed set.
type Labels<'a> = &'a [(&'static str, &'static str)];

struct Teller<'a> {
    queue: &'a SharedString,
    keys: &'a mut Keys,
    recorder: &'a dyn Recorder,
    guard: Guard<'a>,
}

impl Teller<'_> {
    fn count(&mut self, (name, i): (&'static str, usize), labels: Labels<'_>, now: u64, before: u64) {
        let Self { queue, keys, recorder, guard } = self;
        let key = keys.entry((name, i)).or_insert_with(|| key(queue, name, labels));
        guard(&mut || recorder.register_counter(key, &METADATA).increment(now.saturating_sub(before)));
    }

    fn set(&mut self, (name, i): (&'static str, usize), labels: Labels<'_>, value: f64) {
        let Self { queue, keys, recorder, guard } = self;
        let key = keys.entry((name, i)).or_insert_with(|| key(queue, name, labels));
        guard(&mut || recorder.register_gauge(key, &METADATA).set(value));
    }

    fn record(&mut self, name: &'static str, spread: &Spread, unit: f64) {
        let Self { queue, keys, recorder, guard } = self;
        let key = keys.entry((name, 0)).or_insert_with(|| key(queue, name, &[]));
        guard(&mut || {
            let histogram = recorder.register_histogram(key, &METADATA);
            spread.means().for_each(|(mean, number)| histogram.record_many(mean * unit, number));
        });
    }

    fn counters(&mut self, now: &Figures, before: &Figures) {
        let (n, b) = (&now.snapshot, &before.snapshot);
        let plain = [
            (ACCEPTED, n.accepted, b.accepted),
            (CANCELLED, n.cancelled, b.cancelled),
            (DELIVERED, n.delivered, b.delivered),
            (RETRIED, n.retried, b.retried),
        ];
        for (name, now, before) in plain {
            self.count((name, 0), &[], now, before);
        }
        let refused = n.refused.by_reason().into_iter().zip(b.refused.by_reason());
        for (i, ((reason, now), (_, before))) in refused.enumerate() {
            self.count((REFUSED, i), &[("reason", reason.as_str())], now, before);
        }
        let lost = n.losses().by_reason().into_iter().zip(b.losses().by_reason());
        for (i, ((reason, now), (_, before))) in lost.enumerate() {
            self.count((LOST, i), &[("reason", reason.as_str())], now, before);
        }
        self.pairs(now, before);
    }

    /// The counters with two labels, of which only the pairs that have happened become series.
    fn pairs(&mut self, now: &Figures, before: &Figures) {
        for (end, (row, earlier)) in End::ALL.into_iter().zip(now.attempts.iter().zip(&before.attempts)) {
            for (reason, (now, before)) in FlushReason::ALL.into_iter().zip(row.iter().zip(earlier)) {
                if now > before {
                    let labels = [("outcome", end.as_str()), ("trigger", reason.as_str())];
                    self.count((FLUSHES, end as usize * row.len() + reason as usize), &labels, *now, *before);
                }
            }
        }
        let (transitions, earlier) = (now.snapshot.transitions, before.snapshot.transitions);
        for from in State::ALL {
            for to in State::ALL {
                let (now, before) = (transitions.count(from, to), earlier.count(from, to));
                if now > before {
                    let labels = [("from", from.as_str()), ("to", to.as_str())];
                    self.count((TRANSITIONS, from as usize * State::ALL.len() + to as usize), &labels, now, before);
                }
            }
        }
    }

    fn gauges(&mut self, now: &Figures) {
        let n = &now.snapshot;
        let plain = [
            (BUFFERED, n.buffered as f64),
            (CAPACITY, n.capacity as f64),
            (IN_FLIGHT, n.in_flight as f64),
            (RETRY_WAITING, n.retry_waiting as f64),
            (DEPTH, n.depth as f64),
            (WAITING, n.waiting_producers as f64),
            (OLDEST_AGE, now.oldest_age.unwrap_or_default().as_secs_f64()),
            (BATCH_LIMIT, n.batch_limit as f64),
            (CONCURRENCY_LIMIT, n.concurrency_limit as f64),
            (SAMPLE_RATE, f64::from(n.sample_rate)),
            (LAST_SUCCESS, now.last_success.unwrap_or_default().as_secs_f64()),
        ];
        for (name, value) in plain {
            self.set((name, 0), &[], value);
        }
        let Ages { buffered, in_flight, retry_waiting } = now.ages;
        let ages = [("buffered", buffered), ("in_flight", in_flight), ("retry_waiting", retry_waiting)];
        for (i, (stage, age)) in ages.into_iter().enumerate() {
            self.set((STAGE_AGE, i), &[("stage", stage)], age.unwrap_or_default().as_secs_f64());
        }
        if let Some(weights) = n.weights {
            let twins = [
                (BUFFERED_WEIGHT, weights.buffered),
                (CAPACITY_WEIGHT, weights.capacity),
                (IN_FLIGHT_WEIGHT, weights.in_flight),
                (DEPTH_WEIGHT, weights.depth),
            ];
            for (name, value) in twins {
                self.set((name, 0), &[], value as f64);
            }
        }
        for (i, state) in State::ALL.into_iter().enumerate() {
            self.set((STATE, i), &[("state", state.as_str())], f64::from(u8::from(state == n.state)));
        }
    }

    fn histograms(&mut self, gathered: &Gathered) {
        const NANOS: f64 = 1e-9;
        let Gathered { calls: Calls { durations, sizes, ages }, waits } = gathered;
        self.record(FLUSH_DURATION, durations, NANOS);
        self.record(BATCH_ITEMS, sizes, 1.0);
        self.record(ITEM_AGE, ages, NANOS);
        self.record(PUSH_WAIT, waits, NANOS);
    }

    fn describe(&self, is_weighed: bool) {
        let twins = if is_weighed { WEIGHTS } else { &[] };
        let all =
            [(Kind::Counter, COUNTERS), (Kind::Gauge, GAUGES), (Kind::Gauge, twins), (Kind::Histogram, HISTOGRAMS)];
        for (kind, metrics) in all {
            for &(name, unit, text) in metrics {
                let (name, unit) = (KeyName::from_const_str(name), Some(unit));
                (self.guard)(&mut || {
                    let (name, text) = (name.clone(), SharedString::const_str(text));
                    match kind {
                        Kind::Counter => self.recorder.describe_counter(name, unit, text),
                        Kind::Gauge => self.recorder.describe_gauge(name, unit, text),
                        Kind::Histogram => self.recorder.describe_histogram(name, unit, text),
                    }
                });
            }
        }
    }
}

fn key(queue: &SharedString, name: &'static str, labels: Labels<'_>) -> Key {
    let queue = Label::new("queue", queue.clone());
    let others = labels.iter().map(|(name, value)| Label::from_static_parts(name, value));
    Key::from_parts(name, std::iter::once(queue).chain(others).collect::<Vec<_>>())
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

static METADATA: Metadata<'static> = Metadata::new("backpressure", Level::INFO, Some("backpressure"));

const ACCEPTED: &str = "backpressure_items_accepted_total";
const REFUSED: &str = "backpressure_items_refused_total";
const CANCELLED: &str = "backpressure_items_cancelled_total";
const DELIVERED: &str = "backpressure_items_delivered_total";
const LOST: &str = "backpressure_items_lost_total";
const RETRIED: &str = "backpressure_items_retried_total";
const FLUSHES: &str = "backpressure_flushes_total";
const TRANSITIONS: &str = "backpressure_state_transitions_total";

const BUFFERED: &str = "backpressure_buffer_items";
const CAPACITY: &str = "backpressure_buffer_capacity_items";
const IN_FLIGHT: &str = "backpressure_in_flight_items";
const RETRY_WAITING: &str = "backpressure_retry_waiting_items";
const DEPTH: &str = "backpressure_depth_items";
const WAITING: &str = "backpressure_waiting_producers";
const OLDEST_AGE: &str = "backpressure_oldest_item_age_seconds";
const STAGE_AGE: &str = "backpressure_stage_oldest_age_seconds";
const STATE: &str = "backpressure_state";
const BATCH_LIMIT: &str = "backpressure_batch_limit_items";
const CONCURRENCY_LIMIT: &str = "backpressure_concurrency_limit";
const SAMPLE_RATE: &str = "backpressure_sample_one_in";
const LAST_SUCCESS: &str = "backpressure_last_success_timestamp_seconds";

const BUFFERED_WEIGHT: &str = "backpressure_buffer_bytes";
const CAPACITY_WEIGHT: &str = "backpressure_buffer_capacity_bytes";
const IN_FLIGHT_WEIGHT: &str = "backpressure_in_flight_bytes";
const DEPTH_WEIGHT: &str = "backpressure_depth_bytes";

const FLUSH_DURATION: &str = "backpressure_flush_duration_seconds";
const BATCH_ITEMS: &str = "backpressure_batch_items";
const ITEM_AGE: &str = "backpressure_item_age_seconds";
const PUSH_WAIT: &str = "backpressure_push_wait_seconds";

type Description = (&'static str, Unit, &'static str);

const COUNTERS: &[Description] = &[
    (ACCEPTED, Unit::Count, "Items taken in by the buffer."),
    (REFUSED, Unit::Count, "Items given back to their producers, by reason."),
    (CANCELLED, Unit::Count, "Items given up by their producers while they waited."),
    (DELIVERED, Unit::Count, "Items delivered to the sink."),
    (LOST, Unit::Count, "Accepted items that were not delivered, by reason."),
    (RETRIED, Unit::Count, "Items sent to the sink again."),
    (FLUSHES, Unit::Count, "Calls of the sink that have ended, by outcome and by what triggered them."),
    (TRANSITIONS, Unit::Count, "Changes of the state."),
];

const GAUGES: &[Description] = &[
    (BUFFERED, Unit::Count, "Items in the buffer."),
    (CAPACITY, Unit::Count, "The most items that may be reserved, buffered and in flight."),
    (IN_FLIGHT, Unit::Count, "Items taken and not settled, batches that wait for a retry included."),
    (RETRY_WAITING, Unit::Count, "Items of batches that wait for another attempt."),
    (DEPTH, Unit::Count, "Items reserved, buffered and in flight."),
    (WAITING, Unit::Count, "Producers that wait for room."),
    (OLDEST_AGE, Unit::Seconds, "A bound of the age of the oldest item that is not settled; 0 if there is none."),
    (STAGE_AGE, Unit::Seconds, "A bound of the age of the oldest item of a stage; 0 if there is none."),
    (STATE, Unit::Count, "1 for the state that the buffer is in, 0 for the others."),
    (BATCH_LIMIT, Unit::Count, "The most items of a batch at present."),
    (CONCURRENCY_LIMIT, Unit::Count, "The most calls of the sink at once at present."),
    (SAMPLE_RATE, Unit::Count, "The strategy keeps one item in so many; 1 if it keeps all, or does not sample."),
    (LAST_SUCCESS, Unit::Seconds, "When a call of the sink last succeeded, as Unix time; 0 if none has."),
];

/// Only with a weigher.
const WEIGHTS: &[Description] = &[
    (BUFFERED_WEIGHT, Unit::Bytes, "Weight of the items in the buffer."),
    (CAPACITY_WEIGHT, Unit::Bytes, "The most weight that may be reserved, buffered and in flight."),
    (IN_FLIGHT_WEIGHT, Unit::Bytes, "Weight of the items taken and not settled."),
    (DEPTH_WEIGHT, Unit::Bytes, "Weight reserved, buffered and in flight."),
];

const HISTOGRAMS: &[Description] = &[
    (FLUSH_DURATION, Unit::Seconds, "How long a call of the sink took."),
    (BATCH_ITEMS, Unit::Count, "Items of one call of the sink."),
    (ITEM_AGE, Unit::Seconds, "The age of the oldest item of a batch when the batch was settled."),
    (PUSH_WAIT, Unit::Seconds, "How long a producer waited for room, if it had to wait."),
];
