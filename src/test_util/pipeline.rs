//! A controller whose flusher is polled by hand.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::task::coop::unconstrained;

use crate::builder::Builder;
use crate::controller::BackpressureController;
use crate::error::BuildError;
use crate::flusher::Flusher;
use crate::sink::BatchSink;
use crate::time::ManualClock;

/// So many steps in which nothing is settled are taken for a loop that has no end.
const PATIENCE: u32 = 50_000;

/// A controller with its flusher and its clock, on one thread and without a runtime.
///
/// Nothing happens but by its methods, so a test sees each moment between two steps. The flusher is polled only when
/// something has woken it, as an executor would do it. What the sink waits for has to be on the clock
/// ([`ManualClock::sleep`]) or to come from the test.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use backpressure::test_util::{Pipeline, ScriptedSink};
/// use backpressure::{BackpressureController, assert_conserved};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sink = ScriptedSink::new();
/// let builder = BackpressureController::builder(100).fixed(10, Duration::from_secs(1));
/// let pipeline = Pipeline::new(builder, sink.clone())?;
/// for n in 1..=3 {
///     pipeline.controller().try_push(n)?;
/// }
/// pipeline.advance(Duration::from_millis(999));
/// assert_eq!(sink.batches().len(), 0);
/// pipeline.advance(Duration::from_millis(1));
/// assert_eq!(sink.batches(), [[1, 2, 3]]);
/// assert_conserved!(pipeline, delivered = 3);
/// # Ok(())
/// # }
/// ```
pub struct Pipeline<T> {
    controller: BackpressureController<T>,
    flusher: RefCell<Flusher>,
    clock: ManualClock,
    bell: Arc<Bell>,
}

/// What a [`step`](Pipeline::step) has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: the flusher waits for an item, for the sink, or for the clock.
    Idle,
    /// The flusher was woken, and went on until it had to wait or had finished one call of the sink.
    Progressed,
    /// The flusher has ended: all is settled and the intake is shut, or drain's deadline has passed.
    Ended,
}

impl<T: Send + 'static> Pipeline<T> {
    /// Builds a controller on the clock that the builder was given, else on one of its own.
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work.
    pub fn new<S: BatchSink<T> + 'static>(builder: Builder<T>, sink: S) -> Result<Self, BuildError> {
        Self::with(builder, |builder| builder.build(sink))
    }

    /// The same with up to `n` calls of the sink at once, each with a clone of it: see
    /// [`spawn_concurrent`](Builder::spawn_concurrent).
    ///
    /// # Errors
    ///
    /// [`BuildError`] for a setting that cannot work.
    pub fn concurrent<S>(builder: Builder<T>, n: usize, sink: S) -> Result<Self, BuildError>
    where
        S: BatchSink<T> + Clone + 'static,
    {
        Self::with(builder, |builder| builder.build_concurrent(n, sink))
    }

    fn with(
        builder: Builder<T>,
        build: impl FnOnce(Builder<T>) -> Result<(BackpressureController<T>, Flusher), BuildError>,
    ) -> Result<Self, BuildError> {
        let clock = builder.own_clock().cloned().unwrap_or_default();
        let (controller, flusher) = build(builder.clock(&clock))?;
        Ok(Self { controller, flusher: RefCell::new(flusher), clock, bell: Bell::rung() })
    }
}

impl<T> Pipeline<T> {
    /// The handle of the pipeline; clone it for others.
    #[must_use]
    pub fn controller(&self) -> &BackpressureController<T> {
        &self.controller
    }

    /// The clock. When it is moved by hand, the flusher has only been woken: [`run_until_idle`](Self::run_until_idle) then
    /// lets it act.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Polls the flusher once, if something has woken it since the last time.
    ///
    /// A step holds at most the end of one call of the sink, and the starts of others: of one, unless several calls may be under
    /// way at once.
    ///
    /// # Panics
    ///
    /// If the sink calls it.
    pub fn step(&self) -> Step {
        let mut flusher = self.flusher.borrow_mut();
        if !self.bell.take() {
            return Step::Idle;
        }
        let waker = Waker::from(Arc::clone(&self.bell));
        match poll_once(Pin::new(&mut *flusher), &waker) {
            Poll::Pending => Step::Progressed,
            Poll::Ready(_) => {
                // It stays ended, and says so each time.
                self.bell.ring();
                Step::Ended
            }
        }
    }

    /// Steps until nothing is left to do at this moment, or until the end. Says which: `Idle` or `Ended`.
    ///
    /// # Panics
    ///
    /// If it goes on and on and settles nothing, for 50 000 steps: a sink that always fails, with no pause before the retry.
    #[track_caller]
    pub fn run_until_idle(&self) -> Step {
        let mut patience = Patience::default();
        loop {
            match self.step() {
                Step::Progressed if patience.is_exhausted(&self.controller) => self.give_up("there is no end of it"),
                Step::Progressed => {}
                over => return over,
            }
        }
    }

    /// Lets `time` pass: runs until idle, moves the clock to the next moment that somebody waits for, runs again, and so
    /// on, so that each acts at its own moment and in order.
    ///
    /// # Panics
    ///
    /// As for [`run_until_idle`](Self::run_until_idle).
    #[track_caller]
    pub fn advance(&self, time: Duration) {
        let end = self.clock.now().saturating_add(time);
        self.run_until_idle();
        while let Some(at) = self.clock.next_timer().filter(|at| *at <= end) {
            self.clock.advance(at.saturating_sub(self.clock.now()));
            self.run_until_idle();
        }
        self.clock.advance(end.saturating_sub(self.clock.now()));
        self.run_until_idle();
    }

    /// Polls a push, a flush, a drain or another future once, and nothing else.
    ///
    /// A future that is polled so is not woken: poll it again after the steps that it waits for.
    pub fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        poll_once(future, Waker::noop())
    }

    /// Steps, and lets the time pass where nothing else is left to do, until the future is ready.
    ///
    /// # Panics
    ///
    /// With a [`Snapshot`](crate::Snapshot) if neither steps nor time can make it ready, or if 50 000 of them settle nothing.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let bell = Bell::rung();
        let waker = Waker::from(Arc::clone(&bell));
        let mut patience = Patience::default();
        while !patience.is_exhausted(&self.controller) {
            if bell.take() {
                if let Poll::Ready(output) = poll_once(future.as_mut(), &waker) {
                    return output;
                }
            }
            if self.step() == Step::Progressed || bell.is_rung() {
                continue;
            }
            let Some(at) = self.clock.next_timer() else {
                self.give_up("the future waits for something that neither the flusher nor the clock will bring");
            };
            self.clock.advance(at - self.clock.now());
        }
        self.give_up("the future is not ready");
    }

    #[track_caller]
    fn give_up(&self, what: &str) -> ! {
        let (now, snapshot) = (self.clock.now(), self.controller.snapshot());
        panic!("{what}, at {now:?} on the clock: {snapshot:#?}");
    }
}

impl<T> fmt::Debug for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("controller", &self.controller)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// Polls a future as if tokio were not there: inside a task of a runtime, its budget would stop the pipeline.
fn poll_once<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    pin!(unconstrained(future)).poll(&mut Context::from_waker(waker))
}

/// How long a loop may go on.
#[derive(Default)]
struct Patience {
    steps: u32,
    settled: u64,
}

impl Patience {
    fn is_exhausted<T>(&mut self, controller: &BackpressureController<T>) -> bool {
        self.steps += 1;
        if self.steps < PATIENCE {
            return false;
        }
        self.steps = 0;
        let snapshot = controller.snapshot();
        let settled = snapshot.delivered + snapshot.losses().total();
        mem::replace(&mut self.settled, settled) == settled
    }
}

/// Remembers that it was rung.
#[derive(Debug)]
struct Bell(AtomicBool);

impl Bell {
    /// Whoever was never polled has to be.
    fn rung() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn ring(&self) {
        // Ordering: Release pairs with the Acquire of `take`: what was done before a wake-up from another thread is seen.
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        // Ordering: Acquire, as above.
        self.0.swap(false, Ordering::Acquire)
    }

    fn is_rung(&self) -> bool {
        // Ordering: Relaxed, since `take` looks again.
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
