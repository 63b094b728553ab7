//! The simulated sink: servers behind one queue, an overhead for each call, work for each item, noise, and whatever goes wrong.
//!
//! A call of n items sleeps for `a·u`, waits for one of `k` servers (first come, first served), and sleeps for
//! `b·n·g(c)·u·m(t)`, both rounded up to the millisecond, which is the grain of tokio's timers. A caller that gives up leaves
//! the work running, as in real life.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::rng::Rng;

/// What a sink is like; times in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Overhead of a call.
    pub(crate) overhead: f64,
    /// Work of an item.
    pub(crate) per_item: f64,
    /// Calls that are worked on at once; `None` for all.
    pub(crate) servers: Option<usize>,
    /// How calls at once hinder each other: contention and coherence of the Universal Scalability Law (Gunther, 1993).
    pub(crate) scaling: Option<(f64, f64)>,
    pub(crate) noise: Noise,
    /// From a time on, the work takes so many times as long.
    pub(crate) steps: &'static [(f64, f64)],
    /// Every call fails that starts between these times.
    pub(crate) outage: Option<(f64, f64)>,
    /// Calls a second, and how many may come at once.
    pub(crate) calls_limit: Option<(f64, f64)>,
    /// Items a second, and how many may come at once.
    pub(crate) items_limit: Option<(f64, f64)>,
}

/// A factor with mean 1 on each duration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Noise {
    /// Even within so much of 1.
    Uniform(f64),
    /// The deviation of its logarithm.
    LogNormal(f64),
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    Throttled,
}

/// How long it takes to say no.
const ERROR_AFTER: Duration = Duration::from_millis(10);
const THROTTLED_AFTER: Duration = Duration::from_millis(5);

impl Spec {
    /// With one server, 10 % of noise, and nothing that goes wrong.
    pub(crate) const fn new(overhead: f64, per_item: f64) -> Self {
        Self {
            overhead,
            per_item,
            servers: Some(1),
            scaling: None,
            noise: Noise::Uniform(0.1),
            steps: &[],
            outage: None,
            calls_limit: None,
            items_limit: None,
        }
    }

    /// The last step before `at` says by how much the work is slower.
    fn slowness(&self, at: f64) -> f64 {
        self.steps.iter().take_while(|step| step.0 <= at).last().map_or(1.0, |step| step.1)
    }

    /// How much longer the work takes with so many calls in service.
    fn hindrance(&self, calls: usize) -> f64 {
        let others = calls as f64 - 1.0;
        self.scaling
            .map_or(1.0, |(contention, coherence)| 1.0 + contention * others + coherence * calls as f64 * others)
    }
}

/// A sink in operation, shared by all who call it.
#[derive(Debug)]
pub(crate) struct Sink {
    spec: Spec,
    origin: Instant,
    servers: Semaphore,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    in_service: usize,
    calls: Bucket,
    items: Bucket,
}

impl Sink {
    /// The times of its spec count from now.
    pub(crate) fn start(spec: Spec, seed: u64) -> Arc<Self> {
        let inner = Inner {
            rng: Rng::new(seed, 1),
            in_service: 0,
            calls: Bucket::full(spec.calls_limit),
            items: Bucket::full(spec.items_limit),
        };
        let servers = Semaphore::new(spec.servers.unwrap_or(Semaphore::MAX_PERMITS));
        Arc::new(Self { spec, origin: Instant::now(), servers, inner: Mutex::new(inner) })
    }

    /// A call of so many items.
    pub(crate) async fn call(self: &Arc<Self>, items: u64) -> Result<(), Fault> {
        let now = self.now();
        if self.spec.outage.is_some_and(|(from, until)| (from..until).contains(&now)) {
            sleep(ERROR_AFTER).await;
            return Err(Fault::Error);
        }
        if !self.admits(now, items as f64) {
            sleep(THROTTLED_AFTER).await;
            return Err(Fault::Throttled);
        }
        let sink = Arc::clone(self);
        // A task of its own: it goes on when nobody waits for it any more.
        tokio::spawn(async move { sink.work(items).await }).await.expect("the work does not panic");
        Ok(())
    }

    async fn work(&self, items: u64) {
        let overhead = self.spec.overhead * self.noise();
        sleep(whole_millis(overhead)).await;
        let server = self.servers.acquire().await.expect("it is not closed");
        let hindrance = {
            let mut inner = self.lock();
            inner.in_service += 1;
            self.spec.hindrance(inner.in_service)
        };
        let work = self.spec.per_item * items as f64 * hindrance * self.noise() * self.spec.slowness(self.now());
        sleep(whole_millis(work)).await;
        self.lock().in_service -= 1;
        drop(server);
    }

    /// Both limits are asked before either is charged.
    fn admits(&self, now: f64, items: f64) -> bool {
        let mut inner = self.lock();
        let is_admitted = inner.calls.holds(now, 1.0) && inner.items.holds(now, items);
        if is_admitted {
            inner.calls.level -= 1.0;
            inner.items.level -= items;
        }
        is_admitted
    }

    fn noise(&self) -> f64 {
        let rng = &mut self.lock().rng;
        match self.spec.noise {
            Noise::Uniform(width) => 1.0 + width * (2.0 * rng.unit() - 1.0),
            Noise::LogNormal(sigma) => (sigma * rng.gauss() - 0.5 * sigma * sigma).exp(),
        }
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    level: f64,
    at: f64,
}

impl Bucket {
    fn full(limit: Option<(f64, f64)>) -> Self {
        let (rate, burst) = limit.unwrap_or((f64::INFINITY, f64::INFINITY));
        Self { rate, burst, level: burst, at: 0.0 }
    }

    fn holds(&mut self, now: f64, tokens: f64) -> bool {
        if self.burst.is_finite() {
            self.level = self.burst.min(self.level + (now - self.at) * self.rate);
            self.at = now;
        }
        self.level >= tokens - 1e-9
    }
}

fn whole_millis(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1000.0 - 1e-9).ceil() as u64)
}
