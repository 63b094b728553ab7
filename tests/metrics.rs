//! Metrics: what a recorder is told, and when (DESIGN: published by the flusher from the exact counters).

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, Builder, FlushError, HealthReason, PushError, Retry, Snapshot, State, Strategy,
    WeakController,
};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, set_default_local_recorder,
    with_local_recorder,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use self::support::{Gate, HOUR, Log, SEC, gated, hung, idle, ms, ok, rounds, secs, within};

/// A recorder that remembers what it is told and when it was told, and misbehaves when it is told so.
struct Probe {
    inner: DebuggingRecorder,
    eye: Eye,
}

/// What the test sees of a [`Probe`].
#[derive(Clone)]
struct Eye {
    snapshotter: Snapshotter,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    publications: AtomicUsize,
    descriptions: AtomicUsize,
    /// Each metric that was described or registered, and its type.
    types: Mutex<BTreeMap<String, &'static str>>,
    /// Counters since the start: a snapshot of the recorder takes them out.
    counters: Mutex<BTreeMap<String, u64>>,
    series: Mutex<BTreeSet<Key>>,
    /// The metric whose registration panics.
    trap: OnceLock<&'static str>,
    /// Runs at each call.
    hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What one look at a recorder finds: each series as `name{label,...}`, the queue left out.
#[derive(Debug, Default)]
struct Reading {
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    histograms: BTreeMap<String, Vec<f64>>,
}

impl Probe {
    fn new() -> Self {
        let inner = DebuggingRecorder::new();
        let eye = Eye { snapshotter: inner.snapshotter(), told: Arc::default() };
        Self { inner, eye }
    }

    fn note_type(&self, name: &str, kind: &'static str) {
        let before = self.eye.told.types.lock().unwrap().insert(name.to_owned(), kind);
        assert!(before.is_none_or(|before| before == kind), "{name} is a {kind}");
    }

    fn note(&self, key: &Key, kind: &'static str) {
        let told = &self.eye.told;
        self.note_type(key.name(), kind);
        told.series.lock().unwrap().insert(key.clone());
        if key.name() == "backpressure_depth_items" {
            told.publications.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(hook) = told.hook.get() {
            hook();
        }
        assert_ne!(told.trap.get(), Some(&key.name()), "as the test wants it");
    }

    /// Runs a test on a paused clock, on this thread, with this recorder.
    fn block_on<F: Future>(&self, runtime: &tokio::runtime::Runtime, future: F) -> F::Output {
        with_local_recorder(self, || runtime.block_on(future))
    }
}

impl Recorder for Probe {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.eye.told.descriptions.fetch_add(1, Ordering::SeqCst);
        self.note_type(name.as_str(), "counter");
        self.inner.describe_counter(name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.eye.told.descriptions.fetch_add(1, Ordering::SeqCst);
        self.note_type(name.as_str(), "gauge");
        self.inner.describe_gauge(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.eye.told.descriptions.fetch_add(1, Ordering::SeqCst);
        self.note_type(name.as_str(), "histogram");
        self.inner.describe_histogram(name, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.note(key, "counter");
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.note(key, "gauge");
        self.inner.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.note(key, "histogram");
        self.inner.register_histogram(key, metadata)
    }
}

impl Eye {
    fn publications(&self) -> usize {
        self.told.publications.load(Ordering::SeqCst)
    }

    fn read(&self) -> Reading {
        let mut reading = Reading::default();
        let mut counters = self.told.counters.lock().unwrap();
        for (key, unit, text, value) in self.snapshotter.snapshot().into_vec() {
            assert!(unit.is_some() && text.is_some_and(|text| text.ends_with('.')), "{key:?} is not described");
            let key = key.key();
            let labels: Vec<_> = key.labels().filter(|label| label.key() != "queue").map(|l| l.value()).collect();
            assert_eq!(labels.len() + 1, key.labels().count(), "{key} names its queue");
            let name = key.name().strip_prefix("backpressure_").expect("our own");
            let name = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
            match value {
                DebugValue::Counter(n) => *counters.entry(name).or_default() += n,
                DebugValue::Gauge(value) => drop(reading.gauges.insert(name, value.into_inner())),
                DebugValue::Histogram(values) => {
                    reading.histograms.insert(name, values.into_iter().map(f64::from).collect());
                }
            }
        }
        reading.counters.clone_from(&counters);
        reading
    }
}

impl Reading {
    #[track_caller]
    fn count(&self, name: &str) -> u64 {
        *self.counters.get(name).unwrap_or_else(|| panic!("no counter {name} in {self:?}"))
    }

    #[track_caller]
    fn gauge(&self, name: &str) -> f64 {
        *self.gauges.get(name).unwrap_or_else(|| panic!("no gauge {name} in {self:?}"))
    }

    /// Every figure that both have is the same.
    #[track_caller]
    fn check(&self, s: &Snapshot) {
        let counts = [
            ("items_accepted_total", s.accepted),
            ("items_cancelled_total", s.cancelled),
            ("items_delivered_total", s.delivered),
            ("items_retried_total", s.retried),
            ("items_refused_total{full}", s.refused.full),
            ("items_refused_total{timed_out}", s.refused.timed_out),
            ("items_refused_total{closed}", s.refused.closed),
            ("items_refused_total{sampled}", s.refused.sampled),
            ("items_refused_total{too_large}", s.refused.too_large),
            ("items_refused_total{would_deadlock}", s.refused.would_deadlock),
            ("items_refused_total{no_timer}", s.refused.no_timer),
            ("items_lost_total{failed}", s.failed),
            ("items_lost_total{evicted}", s.evicted),
            ("items_lost_total{expired}", s.expired),
            ("items_lost_total{purged}", s.purged),
            ("items_lost_total{abandoned}", s.abandoned),
        ];
        for (name, count) in counts {
            assert_eq!(self.count(name), count, "{name}");
        }
        let sum = |prefix: &str| -> u64 {
            self.counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
        };
        assert_eq!(sum("flushes_total{"), s.flushes.total());
        assert_eq!(sum("flushes_total{ok,"), s.flushes.ok);
        assert_eq!(sum("flushes_total{retry,"), s.flushes.retry);
        assert_eq!(sum("flushes_total{permanent,"), s.flushes.permanent);
        assert_eq!(sum("flushes_total{panicked,"), s.flushes.panicked);
        assert_eq!(sum("flushes_total{timed_out,"), s.flushes.timed_out);
        assert_eq!(sum("flushes_total{cancelled,"), s.flushes.cancelled);
        assert_eq!(sum("state_transitions_total{"), s.transitions.total());
        let gauges = [
            ("buffer_items", s.buffered),
            ("buffer_capacity_items", s.capacity),
            ("in_flight_items", s.in_flight),
            ("retry_waiting_items", s.retry_waiting),
            ("depth_items", s.depth),
            ("waiting_producers", s.waiting_producers),
            ("batch_limit_items", s.batch_limit),
            ("concurrency_limit", s.concurrency_limit),
            ("sample_one_in", u64::from(s.sample_rate)),
        ];
        for (name, value) in gauges {
            assert_eq!(self.gauge(name), value as f64, "{name}");
        }
        for state in State::ALL {
            assert_eq!(self.gauge(&format!("state{{{state}}}")), f64::from(u8::from(state == s.state)), "{state}");
        }
        let is_dated = self.gauge("last_success_timestamp_seconds") > 1.7e9;
        assert_eq!(is_dated, s.flushes.ok > 0);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Runs a guarded test on a paused clock with a recorder.
fn recorded<F: Future<Output: Send + 'static>>(test: impl FnOnce(Eye) -> F + Send + 'static) -> F::Output {
    within(30 * SEC, move || {
        let probe = Probe::new();
        probe.block_on(&runtime(), test(probe.eye.clone()))
    })
}

fn builder(capacity: usize) -> Builder<u64> {
    BackpressureController::builder(capacity).name("orders").fixed(capacity.min(4), ms(5))
}

#[test]
fn metrics_agree_with_the_snapshot_for_every_outcome() {
    recorded(|eye| async move {
        // Refusals, cancelled waits, deliveries, retries, failures, timeouts and panics.
        let mut script = 0;
        let sink = move |batch: Batch<u64>| {
            script += 1;
            let call = script;
            async move {
                match call {
                    1 => Err(FlushError::retry("down")),
                    2 => panic!("as the test wants it"),
                    3 => hung(batch).await,
                    4 => Err(FlushError::permanent("no")),
                    _ => Ok(()),
                }
            }
        };
        let c = builder(4).strategy(Strategy::BlockFor(ms(20))).flush_timeout(ms(50)).spawn(sink).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        assert!(matches!(c.try_push(4), Err(PushError::Full(4))));
        assert!(matches!(c.push(5).await, Err(PushError::TimedOut(5))));
        assert!(tokio::time::timeout(ms(5), c.push(6)).await.is_err());
        assert!(!c.flush().await.all_delivered());
        assert_eq!(c.push_all(0..10).await.unwrap(), 10);
        assert!(c.flush().await.all_delivered());
        let report = c.drain(SEC).await;
        let totals = report.totals;
        assert_eq!((totals.failed, totals.delivered, totals.refused.total(), totals.cancelled), (4, 10, 2, 1));
        assert_eq!((totals.flushes.panicked, totals.flushes.timed_out, totals.flushes.permanent), (1, 1, 1));
        eye.read().check(&totals);
        // What comes after the end is published on demand.
        assert!(c.try_push(1).is_err());
        c.publish();
        eye.read().check(&c.snapshot());
    });
}

#[test]
fn evicted_purged_and_abandoned_items_are_published_too() {
    recorded(|eye| async move {
        let c = builder(4).strategy(Strategy::DropOldest).spawn(hung).unwrap();
        (0..10).for_each(|i| c.try_push(i).unwrap());
        assert_eq!(c.purge().len(), 4);
        (0..6).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        let totals = c.drain(ms(10)).await.totals;
        assert_eq!((totals.evicted, totals.purged, totals.abandoned, totals.flushes.cancelled), (8, 4, 4, 1));
        eye.read().check(&totals);
    });
}

#[test]
fn the_end_is_published_though_nobody_drains() {
    recorded(|eye| async move {
        let c = builder(100).spawn(ok(&Log::default())).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        assert_eq!(eye.publications(), 1);
        (0..7).for_each(|i| c.try_push(i).unwrap());
        drop(c);
        tokio::time::sleep(ms(100)).await;
        let reading = eye.read();
        assert_eq!((reading.count("items_delivered_total"), reading.gauge("state{draining}")), (11, 1.0));
    });
}

#[test]
fn a_recorder_installed_late_counts_from_then_on() {
    within(30 * SEC, || {
        let (runtime, log) = (runtime(), Log::default());
        let c = runtime.block_on(async {
            let c = builder(100).spawn(ok(&log)).unwrap();
            (0..50).for_each(|i| c.try_push(i).unwrap());
            assert!(c.flush().await.all_delivered());
            tokio::time::sleep(SEC).await;
            c
        });
        let probe = Probe::new();
        let eye = probe.eye.clone();
        probe.block_on(&runtime, async {
            (0..7).for_each(|i| c.try_push(i).unwrap());
            assert!(c.flush().await.all_delivered());
            tokio::time::sleep(SEC).await;
            let reading = eye.read();
            assert_eq!((reading.count("items_accepted_total"), reading.count("items_delivered_total")), (7, 7));
            assert_eq!(reading.count("items_lost_total{evicted}"), 0, "it is there before the first loss");
            assert_eq!(reading.gauge("depth_items"), 0.0);
            assert!(c.drain(SEC).await.is_clean());
            assert_eq!(eye.read().count("items_accepted_total"), 7);
        });
    });
}

#[test]
fn a_controller_that_starts_again_under_its_name_goes_on() {
    recorded(|eye| async move {
        for life in 1..=3 {
            let c = builder(100).spawn(ok(&Log::default())).unwrap();
            (0..5).for_each(|i| c.try_push(i).unwrap());
            assert!(c.drain(SEC).await.is_clean());
            assert_eq!(eye.read().count("items_delivered_total"), 5 * life);
        }
        assert_eq!(eye.told.descriptions.load(Ordering::SeqCst), 3 * 25, "each controller describes each metric once");
    });
}

#[test]
fn a_sink_that_hangs_does_not_stop_the_gauges() {
    recorded(|eye| async move {
        let c = builder(8).flush_timeout(Duration::MAX).spawn(hung).unwrap();
        (0..8).for_each(|i| c.try_push(i).unwrap());
        let waiting = tokio::spawn({
            let c = c.clone();
            async move { c.push(8).await }
        });
        for second in 1..=10 {
            tokio::time::sleep(SEC).await;
            idle().await;
            let reading = eye.read();
            assert_eq!((reading.gauge("in_flight_items"), reading.gauge("buffer_items")), (4.0, 4.0));
            assert_eq!(reading.gauge("waiting_producers"), 1.0);
            assert!((reading.gauge("oldest_item_age_seconds") - f64::from(second)).abs() < 0.1, "{reading:?}");
            let stages = ["buffered", "in_flight", "retry_waiting"];
            let ages = stages.map(|stage| reading.gauge(&format!("stage_oldest_age_seconds{{{stage}}}")));
            assert!(ages[..2].iter().all(|age| (age - f64::from(second)).abs() < 0.1), "{ages:?}");
            assert_eq!(ages[2], 0.0);
        }
        assert!((9..=12).contains(&eye.publications()), "{}", eye.publications());
        let totals = c.drain(ms(1)).await.totals;
        assert!(waiting.await.unwrap().is_err());
        eye.read().check(&totals);
    });
}

/// Counts how often its future is polled.
struct Polls<F>(F, Arc<AtomicUsize>);

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll(cx)
    }
}

#[test]
fn an_idle_controller_publishes_nothing_and_wakes_nothing() {
    recorded(|eye| async move {
        let (c, flusher) = builder(8).build(ok(&Log::default())).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        tokio::spawn(Polls(flusher, Arc::clone(&polls)));
        tokio::time::sleep(HOUR).await;
        assert_eq!((eye.publications(), polls.load(Ordering::SeqCst)), (0, 1));
        // Two batches within 250 ms: one publication at the first settle, and one last one with the end of it.
        c.try_push(1).unwrap();
        assert!(c.flush().await.all_delivered());
        c.try_push(2).unwrap();
        assert!(c.flush().await.all_delivered());
        tokio::time::sleep(ms(251)).await;
        assert_eq!(eye.publications(), 2);
        eye.read().check(&c.snapshot());
        let before = polls.load(Ordering::SeqCst);
        tokio::time::sleep(HOUR).await;
        assert_eq!((eye.publications(), polls.load(Ordering::SeqCst)), (2, before));
    });
}

#[test]
fn a_busy_controller_publishes_every_250_ms_at_most() {
    recorded(|eye| async move {
        let c = builder(64)
            .spawn(|batch: Batch<u64>| async move {
                tokio::time::sleep(ms(1)).await;
                drop(batch);
                Ok(())
            })
            .unwrap();
        let start = support::now();
        while start.elapsed() < 10 * SEC {
            c.push(1).await.unwrap();
        }
        assert!((38..=42).contains(&eye.publications()), "{}", eye.publications());
        let calls = c.snapshot().flushes.total();
        assert!(calls > 1000);
        let totals = c.drain(SEC).await.totals;
        let reading = eye.read();
        reading.check(&totals);
        let sizes = &reading.histograms["batch_items"];
        assert_eq!((sizes.len() as u64, sizes.iter().sum::<f64>()), (totals.flushes.total(), totals.delivered as f64));
        assert_eq!(reading.histograms["flush_duration_seconds"].len() as u64, totals.flushes.total());
    });
}

#[test]
fn histograms_hold_what_was_measured() {
    recorded(|eye| async move {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = builder(4).fixed(4, secs(9)).spawn(gated(&gate, &log)).unwrap();
        c.try_push(0).unwrap();
        tokio::time::sleep(SEC).await;
        (1..4).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        let push = tokio::spawn({
            let c = c.clone();
            async move { c.push(4).await }
        });
        let timed_out = tokio::spawn({
            let c = c.clone();
            async move { c.push_timeout(5, ms(500)).await }
        });
        tokio::time::sleep(secs(2)).await;
        gate.let_through(1);
        push.await.unwrap().unwrap();
        assert!(timed_out.await.unwrap().is_err());
        tokio::time::sleep(SEC).await;
        let mut reading = eye.read();
        let mut values = |name: &str| reading.histograms.remove(name).expect("it is there");
        let is_near = |values: &[f64], expected: &[f64]| {
            values.len() == expected.len() && values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01)
        };
        let (durations, ages) = (values("flush_duration_seconds"), values("item_age_seconds"));
        let (sizes, waits) = (values("batch_items"), values("push_wait_seconds"));
        assert!(is_near(&durations, &[2.0]), "{durations:?}");
        assert!(is_near(&ages, &[3.0]), "{ages:?}");
        assert!(is_near(&sizes, &[4.0]), "{sizes:?}");
        assert!(is_near(&waits, &[0.5, 2.0]), "{waits:?}");
    });
}

#[test]
fn a_recorder_that_panics_harms_nobody() {
    recorded(|eye| async move {
        eye.told.trap.set("backpressure_items_accepted_total").unwrap();
        let c = builder(8).spawn(ok(&Log::default())).unwrap();
        (0..8).for_each(|i| c.try_push(i).unwrap());
        let totals = c.drain(SEC).await.totals;
        assert_eq!(totals.delivered, 8);
        assert!(totals.panics > 0);
        assert_eq!(eye.read().count("items_delivered_total"), 8, "the other metrics are published");
    });
}

#[test]
fn a_recorder_that_feeds_the_controller_comes_to_rest() {
    recorded(|eye| async move {
        let c = builder(1024).spawn(ok(&Log::default())).unwrap();
        let weak: WeakController<u64> = c.downgrade();
        let hook = move || {
            let Some(c) = weak.upgrade() else { return };
            let _ = c.try_push(0);
            c.publish();
        };
        eye.told.hook.set(Box::new(hook)).unwrap_or_else(|_| unreachable!("it is set once"));
        c.try_push(1).unwrap();
        tokio::time::sleep(SEC).await;
        let (publications, accepted) = (eye.publications(), c.snapshot().accepted);
        assert!((1..=5).contains(&publications), "{publications}");
        assert!(accepted > 1, "it was fed");
        tokio::time::sleep(HOUR).await;
        assert_eq!((eye.publications(), c.snapshot().accepted), (publications, accepted));
        // What comes from outside is published again.
        c.try_push(1).unwrap();
        tokio::time::sleep(SEC).await;
        assert!(eye.publications() > publications);
    });
}

/// What is inside may be an echo of what was told, so nothing more is told; the flusher runs all the same.
#[test]
fn a_flusher_that_has_nothing_to_tell_has_not_stalled() {
    recorded(|eye| async move {
        let c = builder(8).spawn(ok(&Log::default())).unwrap();
        c.pause();
        let weak: WeakController<u64> = c.downgrade();
        let hook = move || {
            if let Some(c) = weak.upgrade().filter(BackpressureController::is_empty) {
                c.try_push(0).unwrap();
            }
        };
        eye.told.hook.set(Box::new(hook)).unwrap_or_else(|_| unreachable!("it is set once"));
        c.publish();
        assert_eq!(c.len(), 1);
        tokio::time::sleep(secs(30)).await;
        let publications = eye.publications();
        assert!((1..=5).contains(&publications), "{publications}");
        let health = c.health();
        assert!(matches!(health.reasons[..], [HealthReason::Paused { .. }]), "{health}");
    });
}

#[test]
fn handlers_of_scrapes_publish_on_demand() {
    recorded(|eye| async move {
        let c = builder(8).fixed(4, HOUR).spawn(ok(&Log::default())).unwrap();
        let permit = c.try_reserve().unwrap();
        assert_eq!(eye.publications(), 0);
        c.publish();
        assert_eq!((eye.publications(), eye.read().gauge("depth_items")), (1, 1.0));
        drop(permit);
        c.publish();
        assert_eq!(eye.read().gauge("depth_items"), 0.0);
    });
}

#[test]
fn a_consumer_that_pulls_publishes_while_it_waits() {
    recorded(|eye| async move {
        let (c, mut batches) = builder(8).pull().unwrap();
        (0..8).for_each(|i| c.try_push(i).unwrap());
        let consumer = tokio::spawn(async move {
            batches.next().await.expect("a full batch").done();
            drop(batches.next().await);
            let again = batches.next().await.expect("the same");
            assert_eq!(again.attempt(), 2);
            again.done();
            assert!(batches.next().await.is_none());
        });
        tokio::time::sleep(SEC).await;
        let reading = eye.read();
        assert_eq!((reading.count("items_delivered_total"), reading.count("flushes_total{retry,full}")), (8, 1));
        reading.check(&c.snapshot());
        let published = eye.publications();
        tokio::time::sleep(HOUR).await;
        assert_eq!(eye.publications(), published, "it is idle");
        let totals = c.drain(ms(1)).await.totals;
        consumer.await.unwrap();
        eye.read().check(&totals);
    });
}

/// The names that begin as ours do, without what Prometheus adds to those of a histogram.
fn own_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let own = words.filter(|word| word.starts_with("backpressure_"));
    own.map(|name| ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name))
        .collect()
}

#[test]
fn the_guide_names_each_metric_and_no_other() {
    let page = include_str!("../guide/operating.md");
    recorded(move |eye| async move {
        let down = |_: Batch<u64>| std::future::ready(Err(FlushError::permanent("no")));
        let c = builder(4).weigher(|_| 1).spawn(down).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        assert_eq!(c.drain(SEC).await.totals.failed, 4);
        let types = eye.told.types.lock().unwrap().clone();
        let has = |name: &str| eye.told.series.lock().unwrap().iter().any(|key| key.name() == name);
        assert!(types.keys().all(|name| has(name)), "each one is described, and each has a series: {types:?}");
        assert_eq!(types.len(), 29);
        for (name, kind) in &types {
            let row = format!("| `{name}` | {kind}");
            let rows: Vec<_> = page.lines().filter(|line| line.starts_with(&row)).collect();
            let [row] = rows[..] else { panic!("{} rows begin with {row:?}", rows.len()) };
            assert_eq!(row.contains("with a weigher"), name.ends_with("_bytes"), "{row}");
            let series = eye.told.series.lock().unwrap().clone();
            for label in series.iter().filter(|key| key.name() == name).flat_map(Key::labels) {
                let is_named = |text: &str| row.contains(&format!("`{text}`"));
                let is_told = label.key() == "queue"
                    || is_named(label.key()) && (is_named(label.value()) || row.contains("below"));
                assert!(is_told, "{label:?} is not in {row}");
            }
        }
        let known: BTreeSet<_> = types.keys().map(String::as_str).collect();
        let unknown: Vec<_> = own_names(page).difference(&known).copied().collect();
        assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    });
}

/// 1 000 000 items with `BACKPRESSURE_FULL=1`.
#[test]
fn s_r01_no_label_comes_from_data() {
    let n = rounds(1_000_000, 50_000);
    within(300 * SEC, move || {
        let probe = Probe::new();
        let eye = probe.eye.clone();
        let errors = Arc::new(AtomicU64::new(0));
        probe.block_on(&runtime(), async {
            for _ in 0..10 {
                let errors = Arc::clone(&errors);
                let c = BackpressureController::<String>::builder(1000)
                    .name("orders")
                    .retry(Retry::exponential(ms(1), ms(1)).max_attempts(2))
                    .spawn(move |batch: Batch<String>| {
                        let error = errors.fetch_add(1, Ordering::SeqCst);
                        let text = format!("secret error {error} of {}", batch[0]);
                        drop(batch);
                        std::future::ready(match error % 3 {
                            0 => Err(FlushError::retry(text)),
                            1 => Err(FlushError::permanent(text)),
                            _ => Ok(()),
                        })
                    })
                    .unwrap();
                for i in 0..n / 10 {
                    c.push(format!("secret key {i}")).await.unwrap();
                }
                let report = c.drain(60 * SEC).await;
                assert_eq!(report.totals.accepted, n / 10);
            }
        });
        let series = eye.told.series.lock().unwrap().clone();
        assert!((30..=128).contains(&series.len()), "{} series", series.len());
        let closed: BTreeSet<&str> = "orders full timed_out closed sampled too_large would_deadlock no_timer \
            failed evicted expired purged abandoned ok retry throttled permanent panicked cancelled \
            linger room flush drain idle normal elevated critical blocked draining \
            buffered in_flight retry_waiting"
            .split_whitespace()
            .collect();
        for key in &series {
            for label in key.labels() {
                assert!(
                    ["queue", "reason", "outcome", "trigger", "state", "from", "to", "stage"].contains(&label.key())
                );
                assert!(closed.contains(label.value()), "{key}");
            }
        }
    });
}

#[test]
fn scrapes_and_the_flusher_publish_each_increment_once() {
    within(30 * SEC, || {
        static PROBE: OnceLock<Probe> = OnceLock::new();
        let probe = PROBE.get_or_init(Probe::new);
        let listen = || std::mem::forget(set_default_local_recorder(probe));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(listen)
            .build()
            .unwrap();
        let c = builder(64).spawn_on(runtime.handle(), ok(&Log::default())).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    listen();
                    while !is_over.load(Ordering::SeqCst) {
                        c.publish();
                    }
                });
            }
            (0..20_000).for_each(|i| c.blocking_push(i).unwrap());
            is_over.store(true, Ordering::SeqCst);
        });
        listen();
        let report = runtime.block_on(c.drain(SEC));
        probe.eye.read().check(&report.totals);
    });
}
