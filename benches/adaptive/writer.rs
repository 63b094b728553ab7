//! The contestants: the adaptive controller, and two that others use in its place.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Explanation, FlushError, Flusher, Retry, Snapshot, Strategy};

use crate::course::{BUFFER, Course};
use crate::interval::IntervalOnly;
use crate::meter::Item;
use crate::rig::{Pending, Rig};
use crate::sink::Fault;

/// Who is to run a course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Adaptive,
    /// 500 items or 50 ms, one flush at a time.
    Fixed,
    IntervalOnly,
}

impl Who {
    pub(crate) const ALL: [Self; 3] = [Self::Adaptive, Self::Fixed, Self::IntervalOnly];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::IntervalOnly => "interval-only",
        }
    }
}

pub(crate) const FIXED_BATCH: usize = 500;
pub(crate) const FIXED_LINGER: Duration = Duration::from_millis(50);

pub(crate) enum Writer {
    Crate { controller: BackpressureController<Item>, polls: Arc<AtomicU64> },
    IntervalOnly(Arc<IntervalOnly>),
}

/// A flusher whose polls are counted.
struct Counted {
    flusher: Flusher,
    polls: Arc<AtomicU64>,
}

impl Future for Counted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Ordering: Relaxed, all of it is on one thread.
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.flusher).poll(cx).map(|end| end.expect("a runtime with time"))
    }
}

/// What the books of a writer say, once they have been found in order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Books {
    pub(crate) accepted: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) buffered: u64,
    /// The most items of a flush, and the most flushes at once, at present.
    pub(crate) batch: f64,
    pub(crate) slots: f64,
    /// It says that the target cannot be met.
    pub(crate) is_unreachable: bool,
}

impl Writer {
    /// Needs a runtime; what is random in it is told by the seed.
    pub(crate) fn start(who: Who, course: &Course, rig: &Arc<Rig>, seed: u64) -> Self {
        let (controller, flusher) = match who {
            Who::Adaptive => adaptive(course, rig, seed),
            Who::Fixed => fixed(course, rig, seed),
            Who::IntervalOnly => {
                return Self::IntervalOnly(IntervalOnly::spawn(Arc::clone(rig), course.target));
            }
        };
        let polls = Arc::default();
        tokio::spawn(Counted { flusher, polls: Arc::clone(&polls) });
        Self::Crate { controller, polls }
    }

    /// How often its task has been polled; 0 if it is not one of the crate.
    pub(crate) fn polls(&self) -> u64 {
        match self {
            // Ordering: Relaxed, all of it is on one thread.
            Self::Crate { polls, .. } => polls.load(Ordering::Relaxed),
            Self::IntervalOnly(_) => 0,
        }
    }

    /// Whether it was taken.
    pub(crate) fn push(&self, item: Item) -> bool {
        match self {
            Self::Crate { controller, .. } => controller.try_push(item).is_ok(),
            Self::IntervalOnly(controller) => {
                controller.push(item);
                true
            }
        }
    }

    /// The books, which must be in order at any time (I1).
    pub(crate) fn audit(&self) -> Books {
        match self {
            Self::Crate { controller, .. } => {
                let snapshot = controller.snapshot();
                snapshot.audit().expect("the books are in order");
                books(&snapshot, &controller.explain())
            }
            Self::IntervalOnly(controller) => {
                let queue = controller.queue();
                let gone = queue.delivered + queue.lost;
                assert_eq!(queue.accepted, gone + queue.in_flight + queue.buffered(), "the books are in order");
                Books {
                    accepted: queue.accepted,
                    delivered: queue.delivered,
                    lost: queue.lost,
                    buffered: queue.buffered(),
                    batch: 100.0,
                    slots: 1.0,
                    is_unreachable: false,
                }
            }
        }
    }
}

fn books(snapshot: &Snapshot, explanation: &Explanation) -> Books {
    Books {
        accepted: snapshot.accepted,
        delivered: snapshot.delivered,
        lost: snapshot.losses().total(),
        buffered: snapshot.buffered,
        batch: explanation.batch_limit as f64,
        slots: explanation.concurrency_limit as f64,
        is_unreachable: explanation.is_target_unreachable,
    }
}

fn adaptive(course: &Course, rig: &Arc<Rig>, seed: u64) -> (BackpressureController<Item>, Flusher) {
    // What is in flight counts in the crate: so the buffer is as large as the others'.
    BackpressureController::builder(BUFFER as usize + course.max_batch * course.slots)
        .strategy(Strategy::DropNewest)
        .max_batch(course.max_batch)
        .initial_batch(100)
        .target_latency(Duration::from_secs_f64(course.target))
        .min_interval(Duration::from_millis(5))
        .max_interval(Duration::from_secs(1))
        .flush_timeout(timeout(course))
        .retry(retry(course, seed))
        .build_concurrent(course.slots, sink(rig))
        .expect("the settings are valid")
}

fn fixed(course: &Course, rig: &Arc<Rig>, seed: u64) -> (BackpressureController<Item>, Flusher) {
    BackpressureController::builder(BUFFER as usize + FIXED_BATCH)
        .strategy(Strategy::DropNewest)
        .fixed(FIXED_BATCH.min(course.max_batch), FIXED_LINGER)
        .flush_timeout(timeout(course))
        .retry(retry(course, seed))
        .build(sink(rig))
        .expect("the settings are valid")
}

fn timeout(course: &Course) -> Duration {
    course.timeout.map_or(Duration::from_secs(30), Duration::from_secs_f64)
}

fn retry(course: &Course, seed: u64) -> Retry {
    let cap = course.retry_cap.map_or(Duration::from_secs(10), Duration::from_secs_f64);
    Retry::exponential(Duration::from_millis(50), cap).jitter_seed(seed)
}

/// The rig as a sink of the crate.
fn sink(rig: &Arc<Rig>) -> impl FnMut(Batch<Item>) -> Pending + Clone + Send + 'static {
    let rig = Arc::clone(rig);
    move |batch| {
        let rig = Arc::clone(&rig);
        Box::pin(async move {
            rig.flush(&batch).await.map_err(|fault| match fault {
                Fault::Error => FlushError::retry("the sink is down"),
                Fault::Throttled => FlushError::throttled("too much at once", Duration::ZERO),
            })
        })
    }
}
