//! The load: requests that come at a fixed rate, whatever becomes of those before, and five times as many for a second.

use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use backpressure::State;
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

/// The most items that may be outstanding.
pub(crate) const CAPACITY: usize = 3_000;
/// The most items that the sink takes at once.
pub(crate) const BATCH: usize = 500;
/// How long the sink takes for a batch of whatever size.
pub(crate) const SERVICE: Duration = Duration::from_millis(50);
/// When the load lasts, in ms.
pub(crate) const LOAD: Range<u64> = 0..2_800;
/// When it is five times as high, in ms.
pub(crate) const SPIKE: Range<u64> = 500..1_500;
/// A point of the trace, and a count of what was lost, for so many ms.
pub(crate) const STEP: u64 = 10;

/// Items that come in a millisecond.
pub(crate) fn arrivals(ms: u64) -> u64 {
    if SPIKE.contains(&ms) { 15 } else { 3 }
}

/// What the load is offered to.
pub(crate) trait Intake: Clone + Send + 'static {
    /// Offers an item, and tells if it was accepted.
    fn offer(&self, item: Item) -> impl Future<Output = bool> + Send;

    /// How many items are outstanding now, those in the hands of the sink included, and the state if there is one.
    fn look(&self) -> (u64, Option<State>);
}

/// What comes: a request that knows when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    ms: u64,
    came: Instant,
}

/// One way of buffering under the load.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    /// What it does when there is no room, in a few words.
    pub(crate) rule: &'static str,
    pub(crate) figures: Figures,
    pub(crate) trace: Vec<Point>,
    /// How many items were lost of those that came in each step.
    pub(crate) lost: Vec<u64>,
}

/// What became of all items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    /// What the delivered items stand for.
    pub(crate) estimate: u64,
    pub(crate) lost: u64,
    /// How they were lost, in a word.
    pub(crate) how: &'static str,
    /// The longest time that a request waited for its answer, accepted or not.
    pub(crate) longest_wait: Duration,
    /// The highest age of an item when the sink was done with it.
    pub(crate) oldest: Duration,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) ms: u64,
    pub(crate) depth: u64,
    pub(crate) state: Option<State>,
}

/// What the producers were told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) longest_wait: Duration,
    pub(crate) trace: Vec<Point>,
}

/// Offers the whole load, each item by a task of its own, and waits for all the answers.
pub(crate) async fn offer<I: Intake>(intake: &I, lost: &Lost) -> Told {
    let mut told = Told::default();
    let mut requests = JoinSet::new();
    let mut ticks = time::interval(Duration::from_millis(1));
    for ms in LOAD {
        ticks.tick().await;
        if ms % STEP == 0 {
            let (depth, state) = intake.look();
            told.trace.push(Point { ms, depth, state });
        }
        for _ in 0..arrivals(ms) {
            let (intake, lost) = (intake.clone(), lost.clone());
            requests.spawn(async move {
                let item = Item { ms, came: Instant::now() };
                let is_accepted = intake.offer(item).await;
                if !is_accepted {
                    lost.note(item);
                }
                (is_accepted, item.came.elapsed())
            });
        }
    }
    // A request that panicked was told nothing, which the accounts will find.
    while let Some(answer) = requests.join_next().await {
        let Ok((is_accepted, waited)) = answer else { continue };
        *if is_accepted { &mut told.accepted } else { &mut told.refused } += 1;
        told.longest_wait = told.longest_wait.max(waited);
    }
    told
}

/// What was lost, refused or accepted, by the moment at which it came.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    steps: Arc<[AtomicU64]>,
}

impl Lost {
    pub(crate) fn new() -> Self {
        Self { steps: LOAD.step_by(STEP as usize).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn note(&self, item: Item) {
        self.steps[(item.ms / STEP) as usize].fetch_add(1, Relaxed);
    }

    /// How many, for each step.
    pub(crate) fn steps(&self) -> Vec<u64> {
        self.steps.iter().map(|step| step.load(Relaxed)).collect()
    }
}

/// The slow sink, which keeps an account of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sink {
    delivered: Arc<AtomicU64>,
    estimate: Arc<AtomicU64>,
    in_hand: Arc<AtomicU64>,
    oldest_ms: Arc<AtomicU64>,
}

impl Sink {
    /// Takes its time over a batch of items and their weights.
    pub(crate) async fn write(&self, items: impl Iterator<Item = (&Item, u64)>) {
        let items: Vec<_> = items.collect();
        self.in_hand.store(items.len() as u64, Relaxed);
        time::sleep(SERVICE).await;
        for (item, weight) in &items {
            self.oldest_ms.fetch_max(item.came.elapsed().as_millis() as u64, Relaxed);
            self.estimate.fetch_add(*weight, Relaxed);
        }
        self.in_hand.store(0, Relaxed);
        self.delivered.fetch_add(items.len() as u64, Relaxed);
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    pub(crate) fn estimate(&self) -> u64 {
        self.estimate.load(Relaxed)
    }

    pub(crate) fn in_hand(&self) -> u64 {
        self.in_hand.load(Relaxed)
    }

    pub(crate) fn oldest(&self) -> Duration {
        Duration::from_millis(self.oldest_ms.load(Relaxed))
    }
}
