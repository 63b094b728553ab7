//! Rounds, interleaved: each contestant once in each, and who goes first rotates.

use std::collections::BTreeMap;
use std::fmt;
use std::hint::spin_loop;
use std::iter;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{self, Runtime};

use crate::peer::Peer;

/// The contestant that is judged, in every contest.
pub(crate) const OURS: &str = "backpressure";

/// Everybody does the same work in turn; one or more figures come out.
pub(crate) struct Contest {
    pub(crate) name: String,
    /// What is done, for the reader of the table.
    pub(crate) about: &'static str,
    pub(crate) measures: Vec<Measure>,
    contestants: Vec<Contestant>,
    /// The contestant whose figures are the cost of the harness itself, to be taken off the others'.
    baseline: Option<&'static str>,
}

/// A figure of a contest; less is better.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Below it figures cannot be told apart: as the lower end of both sides of a ratio.
    pub(crate) resolution: f64,
    pub(crate) bars: Vec<Bar>,
}

/// What our figure is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) limit: Limit,
    /// A mark decides about the exit status; an ambition is shown.
    pub(crate) is_mark: bool,
}

/// The most that our figure may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// So many times the peer's in the same round.
    Of(&'static str, f64),
    Value(f64),
}

struct Contestant {
    name: &'static str,
    run: Box<dyn FnMut() -> Vec<f64>>,
}

impl Contest {
    /// With one measure.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, about: &'static str) -> Self {
        let contest = Self { name: name.into(), about, measures: Vec::new(), contestants: Vec::new(), baseline: None };
        contest.measure("", unit, 0.0)
    }

    /// Without a measure as yet.
    pub(crate) fn of_several(name: impl Into<String>, about: &'static str) -> Self {
        let mut contest = Self::new(name, "", about);
        contest.measures.clear();
        contest
    }

    /// Adds a measure; the bars that follow are for this one.
    pub(crate) fn measure(mut self, name: &'static str, unit: &'static str, resolution: f64) -> Self {
        self.measures.push(Measure { name, unit, resolution, bars: Vec::new() });
        self
    }

    pub(crate) fn mark(self, limit: Limit) -> Self {
        self.bar(Bar { limit, is_mark: true })
    }

    pub(crate) fn ambition(self, limit: Limit) -> Self {
        self.bar(Bar { limit, is_mark: false })
    }

    fn bar(mut self, bar: Bar) -> Self {
        self.measures.last_mut().expect("a contest has a measure").bars.push(bar);
        self
    }

    /// Enters a contestant with one figure.
    pub(crate) fn enter(self, name: &'static str, mut run: impl FnMut() -> f64 + 'static) -> Self {
        self.enter_all(name, move || vec![run()])
    }

    /// Enters a contestant with a figure for each measure.
    pub(crate) fn enter_all(mut self, name: &'static str, run: impl FnMut() -> Vec<f64> + 'static) -> Self {
        self.contestants.push(Contestant { name, run: Box::new(run) });
        self
    }

    /// Like [`enter_all`](Self::enter_all), for the contestant whose figures are taken off the others'.
    pub(crate) fn baseline(mut self, name: &'static str, run: impl FnMut() -> Vec<f64> + 'static) -> Self {
        self.baseline = Some(name);
        self.enter_all(name, run)
    }

    /// Runs all rounds.
    pub(crate) fn run(mut self, rounds: usize) -> Outcome {
        let count = self.contestants.len();
        let mut results: Vec<Vec<Vec<f64>>> = vec![Vec::new(); count];
        for round in 0..rounds {
            for turn in 0..count {
                let index = (round + turn) % count;
                let figures = (self.contestants[index].run)();
                assert_eq!(figures.len(), self.measures.len(), "{}: a figure for each measure", self.name);
                results[index].push(figures);
            }
        }
        let baseline = self.baseline.and_then(|name| self.contestants.iter().position(|one| one.name == name));
        let base = baseline.map(|index| results[index].clone());
        let scores = self.contestants.iter().zip(results).enumerate().map(|(index, (contestant, mut rounds))| {
            if let Some(base) = base.as_ref().filter(|_| baseline != Some(index)) {
                take_off(&mut rounds, base);
            }
            Score { name: contestant.name, rounds }
        });
        let scores = scores.collect();
        Outcome { name: self.name, about: self.about, measures: self.measures, scores, baseline: self.baseline }
    }
}

impl fmt::Debug for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contest").field("name", &self.name).field("measures", &self.measures).finish_non_exhaustive()
    }
}

fn take_off(rounds: &mut [Vec<f64>], base: &[Vec<f64>]) {
    for (figures, base) in rounds.iter_mut().zip(base) {
        for (figure, base) in figures.iter_mut().zip(base) {
            *figure -= base;
        }
    }
}

/// A contest that is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) measures: Vec<Measure>,
    pub(crate) scores: Vec<Score>,
    pub(crate) baseline: Option<&'static str>,
}

/// The figures of a contestant, by round and measure.
#[derive(Debug)]
pub(crate) struct Score {
    pub(crate) name: &'static str,
    pub(crate) rounds: Vec<Vec<f64>>,
}

impl Score {
    /// The figures of one measure.
    pub(crate) fn of(&self, measure: usize) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |figures| figures[measure])
    }
}

/// What contestants have lost without a word, by name.
static LOSSES: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Items that were pushed, and that the sink has not seen once all was over.
///
/// # Panics
///
/// If they are ours.
pub(crate) fn note_losses<P: Peer>(items: u64) {
    assert!(items == 0 || P::NAME != OURS, "{items} items have not arrived");
    if items > 0 {
        *LOSSES.lock().entry(P::NAME).or_default() += items;
    }
}

/// All that was lost so far.
pub(crate) fn losses() -> BTreeMap<&'static str, u64> {
    LOSSES.lock().clone()
}

/// Runs each piece of work on a thread of its own, all from the same moment on, until the last one is done.
pub(crate) fn race<W: FnOnce() + Send>(workers: impl IntoIterator<Item = W>) -> Duration {
    let workers: Vec<W> = workers.into_iter().collect();
    let barrier = Barrier::new(workers.len());
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let start = |work: W| {
            let barrier = &barrier;
            scope.spawn(move || {
                let _inside = timers().enter();
                barrier.wait();
                let start = Instant::now();
                work();
                (start, Instant::now())
            })
        };
        let threads: Vec<_> = workers.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let start = spans.iter().map(|span| span.0).min().expect("a worker");
    let end = spans.iter().map(|span| span.1).max().expect("a worker");
    end - start
}

/// How long the work takes on this thread.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The least of so many passes: of work so short that one of them is not interrupted, on a machine that others use.
///
/// # Panics
///
/// If there is none.
pub(crate) fn best(passes: usize, pass: impl FnMut() -> Duration) -> Duration {
    iter::repeat_with(pass).take(passes).min().expect("a pass")
}

pub(crate) fn per_item(time: Duration, items: u64) -> f64 {
    time.as_nanos() as f64 / items as f64
}

/// A runtime whose timers serve those consumers that need some, outside of it.
pub(crate) fn timers() -> &'static Runtime {
    static TIMERS: OnceLock<Runtime> = OnceLock::new();
    TIMERS.get_or_init(|| workers(1))
}

/// A runtime like the usual one, with two workers whatever the machine has.
pub(crate) fn two_workers() -> Runtime {
    workers(2)
}

fn workers(count: usize) -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(count).enable_time().build().expect("a runtime")
}

/// A runtime on this thread.
pub(crate) fn one_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// For whoever finds a queue full, or empty: a few spins, then the thread goes to others.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    spins: u32,
}

impl Patience {
    const SPINS: u32 = 64;

    pub(crate) fn wait(&mut self) {
        if self.spins < Self::SPINS {
            self.spins += 1;
            spin_loop();
        } else {
            thread::yield_now();
        }
    }

    pub(crate) fn reset(&mut self) {
        self.spins = 0;
    }
}
