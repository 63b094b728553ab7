//! A minute of load on a sink that is in trouble for a while.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use anyhow::Context as _;
use backpressure::{BackpressureController, Batch, FlushError, Retry, State, Strategy};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

/// How long it takes, in seconds.
pub(crate) const END: f64 = 60.0;
pub(crate) const CAPACITY: usize = 50_000;
pub(crate) const TARGET: Duration = Duration::from_millis(100);
const SLOTS: usize = 32;
const MAX_BATCH: usize = 700;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Items come every so often.
const TICK: Duration = Duration::from_millis(2);
/// A point of the curves is drawn for so many ticks.
const TRACE: u32 = 100;
/// Calls that the sink works on at once; what a call costs, and an item, in seconds.
const SERVERS: usize = 8;
const OVERHEAD: f64 = 0.02;
const PER_ITEM: f64 = 200e-6;
/// Items a second.
const LOAD: f64 = 25_000.0;

/// What happens to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Its work takes four times as long, from 20 s to 40 s.
    Step,
    /// It answers with errors, from 20 s to 30 s.
    Outage,
    /// Its work takes twenty times as long, from 20 s to 30 s, and calls run into the time-out.
    BrownOut,
}

impl Trouble {
    pub(crate) const ALL: [Self; 3] = [Self::Step, Self::Outage, Self::BrownOut];

    const fn name(self) -> &'static str {
        match self {
            Self::Step => "A step: 4 times as slow",
            Self::Outage => "An outage: errors",
            Self::BrownOut => "A brown-out: 20 times as slow, time-out 1 s",
        }
    }

    fn slowness(self, at: f64) -> f64 {
        match self {
            Self::Step if (20.0..40.0).contains(&at) => 4.0,
            Self::BrownOut if (20.0..30.0).contains(&at) => 20.0,
            _ => 1.0,
        }
    }

    fn is_down(self, at: f64) -> bool {
        self == Self::Outage && (20.0..30.0).contains(&at)
    }
}

/// Where everything stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// In seconds.
    pub(crate) at: f64,
    pub(crate) batch: f64,
    pub(crate) slots: f64,
    /// The longest call that ended since the last point, in milliseconds; `None` if none did.
    pub(crate) latency: Option<f64>,
    pub(crate) depth: f64,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<Point>,
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) refused: u64,
}

/// What the calls of the sink share.
struct Sink {
    trouble: Trouble,
    origin: Instant,
    servers: Semaphore,
    chance: AtomicU64,
    /// The longest call since somebody looked, in milliseconds.
    longest: AtomicU64,
}

pub(crate) fn run(trouble: Trouble) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(load(trouble))
}

async fn load(trouble: Trouble) -> anyhow::Result<Run> {
    let sink = Arc::new(Sink {
        trouble,
        origin: Instant::now(),
        servers: Semaphore::new(SERVERS),
        chance: AtomicU64::new(1),
        longest: AtomicU64::new(0),
    });
    let calls = Arc::clone(&sink);
    let controller = BackpressureController::builder(CAPACITY)
        .strategy(Strategy::DropNewest)
        .max_batch(MAX_BATCH)
        .target_latency(TARGET)
        .flush_timeout(TIMEOUT)
        .retry(Retry::exponential(Duration::from_millis(50), Duration::from_secs(1)).jitter_seed(1))
        .spawn_concurrent(SLOTS, move |batch: Batch<()>| flush(Arc::clone(&calls), batch))?;
    let (mut points, mut carry) = (Vec::new(), 0.0);
    for tick in 0.. {
        let at = sink.now();
        if at >= END {
            break;
        }
        carry += LOAD * TICK.as_secs_f64();
        while carry >= 1.0 {
            carry -= 1.0;
            // What finds no room is refused, and counted.
            let _ = controller.try_push(());
        }
        if tick % TRACE == 0 {
            points.push(sink.point(at, &controller));
        }
        sleep(TICK).await;
    }
    let snapshot = controller.snapshot();
    snapshot.audit().context("the books are not in order")?;
    let (offered, delivered, refused) = (snapshot.offered, snapshot.delivered, snapshot.refused.total());
    Ok(Run { name: trouble.name(), points, offered, delivered, refused })
}

async fn flush(sink: Arc<Sink>, batch: Batch<()>) -> Result<(), FlushError> {
    let _timing = Timing { sink: Arc::clone(&sink), started: Instant::now() };
    if sink.trouble.is_down(sink.now()) {
        sleep(Duration::from_millis(10)).await;
        return Err(FlushError::retry("the sink is down"));
    }
    let items = batch.len() as f64;
    // A task of its own: the sink goes on with what its caller has given up.
    let work = tokio::spawn(async move { sink.work(items).await });
    work.await.map_err(FlushError::retry)
}

impl Sink {
    async fn work(&self, items: f64) {
        sleep(Duration::from_secs_f64(OVERHEAD * self.noise())).await;
        let server = self.servers.acquire().await;
        let work = PER_ITEM * items * self.noise() * self.trouble.slowness(self.now());
        sleep(Duration::from_secs_f64(work)).await;
        drop(server);
    }

    fn point(&self, at: f64, controller: &BackpressureController<()>) -> Point {
        let explanation = controller.explain();
        // Ordering: Relaxed, all of it is on one thread.
        let longest = self.longest.swap(0, Ordering::Relaxed);
        Point {
            at,
            batch: explanation.batch_limit as f64,
            slots: explanation.concurrency_limit as f64,
            latency: (longest > 0).then_some(longest as f64),
            depth: controller.depth() as f64,
            state: controller.state(),
        }
    }

    /// Within 10 % of 1, from SplitMix64 (Steele, Lea and Flood, 2014).
    fn noise(&self) -> f64 {
        // Ordering: Relaxed, all of it is on one thread.
        let z = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        0.9 + 0.2 * ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}

/// Notes how long a call took, also one that was given up.
struct Timing {
    sink: Arc<Sink>,
    started: Instant,
}

impl Drop for Timing {
    fn drop(&mut self) {
        // Ordering: Relaxed, all of it is on one thread.
        self.sink.longest.fetch_max(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}
