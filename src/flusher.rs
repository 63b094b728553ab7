//! The flush loop: the only task of a controller.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::task::coop;

use crate::core::{Core, End, Inside, Left, Retries, Step};
use crate::error::{DriveError, FlushError, FlushTimedOut, RetriesExhausted, SinkPanicked, Verdict};
use crate::flight::FlightKey;
use crate::pace::Pace;
use crate::panics::catch;
use crate::retry::{Due, Tries};
use crate::sink::BatchSink;
use crate::time::{Clock, NoTimer, Tick, Timer, check_timer};

/// The flush loop, to be driven inside a tokio runtime with time enabled.
///
/// It ends when the intake is shut and nothing is outstanding, or at drain's deadline. The sink is dropped before `drain`
/// resolves, unless the flusher is so late that `drain` does not wait for it.
///
/// # Cancel safety
///
/// Dropping it shuts the intake at once: producers that wait get their items back, and all that is not settled is abandoned
/// and goes to the caller of `drain` if there is one, else to `on_loss`.
///
/// # Errors
///
/// [`DriveError`] if it is polled where it cannot run; as long as no timer of it is set, it may then be polled elsewhere.
#[must_use = "nothing is flushed unless the flusher is driven"]
pub struct Flusher {
    /// `None` once it has ended.
    run: Option<Run>,
    core: Arc<dyn Finish>,
    needs_runtime: bool,
    /// The runtime that was checked last: the question costs a timer.
    checked: Option<runtime::Id>,
}

/// The memory of a batch up to this size is kept for good.
const SPARE_BYTES: usize = 64 * 1024;
/// The memory of a larger one is given back after so long without a batch: long beside the pauses between the batches of a
/// busy buffer, so that those cost no allocation.
const SPARE_IDLE: Duration = Duration::from_millis(500);

type Run = Pin<Box<dyn Future<Output = Result<(), NoTimer>> + Send>>;
type SharedError = Arc<dyn Error + Send + Sync>;

/// A core, whatever its items.
trait Finish: Send + Sync {
    fn finish(&self);
}

impl<T: Send> Finish for Core<T> {
    fn finish(&self) {
        Self::finish(self);
    }
}

impl Flusher {
    pub(crate) fn new<T, S>(core: Arc<Core<T>>, sink: S, pace: Box<dyn Pace>) -> Self
    where
        T: Send + 'static,
        S: BatchSink<T> + 'static,
    {
        let retries = Retries::new(&core);
        let needs_runtime = core.clock().needs_runtime();
        let flush_loop = Loop { core: Arc::clone(&core), pace, retries, queue: VecDeque::new(), spare: Vec::new() };
        Self { run: Some(Box::pin(flush_loop.run(sink))), core, needs_runtime, checked: None }
    }

    /// Whether it can run in this context.
    pub(crate) fn check(&mut self) -> Result<(), DriveError> {
        if !self.needs_runtime {
            return Ok(());
        }
        let here = Handle::try_current().map_err(|_| DriveError::NoRuntime)?.id();
        if self.checked != Some(here) {
            check_timer().map_err(|NoTimer| DriveError::NoTimer)?;
            self.checked = Some(here);
        }
        Ok(())
    }

    /// Drops the sink, then ends the controller.
    fn end(&mut self) {
        let run = self.run.take();
        // The destructors of the sink and of its future are the user's.
        let _ = catch(|| drop(run));
        self.core.finish();
    }
}

impl Future for Flusher {
    type Output = Result<(), DriveError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.run.is_some() {
            this.check()?;
        }
        let Some(run) = &mut this.run else { return Poll::Ready(Ok(())) };
        let inside = Inside::enter(Arc::as_ptr(&this.core).cast());
        let result = ready!(run.as_mut().poll(cx));
        drop(inside);
        this.end();
        Poll::Ready(result.map_err(|NoTimer| DriveError::NoTimer))
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if self.run.is_some() {
            self.end();
        }
    }
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flusher").field("is_running", &self.run.is_some()).finish()
    }
}

/// One loop over one sink: one flush in flight, so order holds through retries.
struct Loop<T> {
    core: Arc<Core<T>>,
    pace: Box<dyn Pace>,
    retries: Retries,
    /// The batches to send again before anything else is taken, in order.
    queue: VecDeque<(Due, Attempt)>,
    /// The memory of a settled batch, for the next one.
    spare: Vec<T>,
}

/// A batch that is to be sent.
#[derive(Debug)]
struct Attempt {
    key: FlightKey,
    tries: Tries,
}

/// How a call of the sink ended.
enum Ended {
    Ok,
    Error(FlushError),
    Panicked,
    TimedOut,
    Cancelled,
}

impl<T: Send> Loop<T> {
    async fn run<S: BatchSink<T>>(mut self, mut sink: S) -> Result<(), NoTimer> {
        let mut timer = pin!(Timer::new());
        loop {
            let attempt = match self.queue.pop_front() {
                None => match self.core.step(&mut *self.pace, &mut self.spare) {
                    Step::Launch(key) => {
                        self.core.report_flush(key);
                        Attempt { key, tries: Tries::default() }
                    }
                    Step::Sleep(until) => {
                        self.rest(timer.as_mut(), until).await?;
                        continue;
                    }
                    Step::Yield => {
                        yield_now(self.core.clock()).await;
                        continue;
                    }
                    Step::Drained | Step::Expired => return Ok(()),
                },
                Some(_) if self.core.end().is_some() => return Ok(()),
                Some((Due(Some(at)), attempt)) if at <= self.core.now() => attempt,
                Some((Due(at), attempt)) => {
                    self.queue.push_front((Due(at), attempt));
                    wait(&self.core, timer.as_mut(), at).await?;
                    continue;
                }
            };
            self.send(attempt, &mut sink, timer.as_mut()).await?;
            share(self.core.clock()).await;
        }
    }

    /// Sleeps; if that becomes long, the memory of a large batch is given back.
    async fn rest(&mut self, timer: Pin<&mut Timer>, until: Option<Tick>) -> Result<(), NoTimer> {
        let is_large = self.spare.capacity() * size_of::<T>() > SPARE_BYTES;
        let idle = if is_large { self.core.now().after(SPARE_IDLE) } else { None };
        wait(&self.core, timer, earliest([until, idle])).await?;
        if idle.is_some_and(|idle| idle <= self.core.now()) {
            self.spare = Vec::new();
        }
        Ok(())
    }

    /// Sends a batch once, and settles what can be settled.
    async fn send<S: BatchSink<T>>(
        &mut self,
        mut attempt: Attempt,
        sink: &mut S,
        mut timer: Pin<&mut Timer>,
    ) -> Result<(), NoTimer> {
        attempt.tries.start(self.core.now());
        let ended = call(&self.core, sink, attempt.key, timer.as_mut()).await?;
        let (end, error) = ended.parts();
        if let Some(error) = &error {
            self.core.note_failure(attempt.key, end, error);
        }
        loop {
            match self.core.judge(attempt.key, end, error.as_ref(), &mut self.spare) {
                Left::Nothing => break,
                Left::Some => {
                    self.requeue(attempt, &ended, error.as_ref());
                    break;
                }
                Left::NotHome if self.core.end().is_some() => break,
                Left::NotHome => wait(&self.core, timer.as_mut(), None).await?,
            }
        }
        // The error is the user's.
        catch(|| drop((ended, error)));
        self.core.inform_in_passing();
        Ok(())
    }

    /// Decides about what is left of a batch: again, in halves, or failed.
    fn requeue(&mut self, mut attempt: Attempt, ended: &Ended, error: Option<&SharedError>) {
        let error = error.map_or_else(|| Arc::new(RetriesExhausted) as SharedError, Arc::clone);
        let asked = match ended {
            Ended::Cancelled => return,
            Ended::Ok | Ended::Panicked | Ended::TimedOut => Duration::ZERO,
            Ended::Error(error) => match error.verdict {
                Verdict::Retry => Duration::ZERO,
                Verdict::Throttled(after) => after,
                Verdict::TooLarge => return self.halve(attempt.key, &error.source),
                Verdict::Permanent => return self.core.fail(attempt.key, &error.source),
            },
        };
        match self.retries.next(&self.core, &mut attempt.tries, self.core.now(), asked) {
            Some(due) => self.queue.push_front((due, attempt)),
            None => self.core.fail(attempt.key, &error),
        }
    }

    fn halve(&mut self, key: FlightKey, error: &SharedError) {
        let Some(halves) = self.core.split(key) else { return self.core.fail(key, error) };
        let due = Due(Some(self.core.now()));
        for key in halves.into_iter().rev() {
            self.queue.push_front((due, Attempt { key, tries: Tries::default() }));
        }
    }
}

/// After each batch: a sink that is always ready must not keep the thread from everyone else. Whoever steps the flusher by
/// hand sees each batch.
async fn share(clock: &Clock) {
    if clock.needs_runtime() { coop::consume_budget().await } else { yield_once().await }
}

async fn yield_now(clock: &Clock) {
    if clock.needs_runtime() { tokio::task::yield_now().await } else { yield_once().await }
}

/// Wakes its task at once, where tokio would do so only after the task that runs now.
async fn yield_once() {
    let mut is_over = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the bell, the moment, or drain's deadline; tells meanwhile what is due.
async fn wait<T: Send>(core: &Core<T>, mut timer: Pin<&mut Timer>, until: Option<Tick>) -> Result<(), NoTimer> {
    let mut bell = pin!(core.bell().notified());
    let until = earliest([until, core.deadline()]);
    poll_fn(|cx| {
        loop {
            if bell.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            timer.as_mut().arm(core.clock(), earliest([until, core.inform()]))?;
            ready!(timer.as_mut().poll(cx))?;
            if until.is_some_and(|until| until <= core.now()) {
                return Poll::Ready(Ok(()));
            }
        }
    })
    .await
}

/// `None` is never.
fn earliest<const N: usize>(moments: [Option<Tick>; N]) -> Option<Tick> {
    moments.into_iter().flatten().min()
}

/// One call of the sink, with its panics caught and its time limited.
async fn call<T: Send, S: BatchSink<T>>(
    core: &Arc<Core<T>>,
    sink: &mut S,
    key: FlightKey,
    mut timer: Pin<&mut Timer>,
) -> Result<Ended, NoTimer> {
    let started = core.now();
    let Some((batch, flush_timeout)) = core.launch(key, started) else { return Ok(Ended::Cancelled) };
    let Some(answer) = catch(|| sink.flush(batch)) else { return Ok(Ended::Panicked) };
    let mut answer = pin!(Some(answer));
    let mut bell = pin!(core.bell().notified());
    let ended = poll_fn(|cx| {
        let Some(call) = answer.as_mut().as_pin_mut() else { return Poll::Ready(Ok(Ended::Cancelled)) };
        match catch(|| call.poll(cx)) {
            Some(Poll::Ready(Ok(()))) => return Poll::Ready(Ok(Ended::Ok)),
            Some(Poll::Ready(Err(error))) => return Poll::Ready(Ok(Ended::Error(error))),
            Some(Poll::Pending) => {}
            None => return Poll::Ready(Ok(Ended::Panicked)),
        }
        loop {
            while bell.as_mut().poll(cx).is_ready() {
                bell.set(core.bell().notified());
            }
            let (extra, deadline) = core.limits(key);
            let timeout = flush_timeout.checked_add(extra).and_then(|limit| started.after(limit));
            let first = earliest([timeout, deadline]);
            timer.as_mut().arm(core.clock(), earliest([first, core.inform_in_passing()]))?;
            ready!(timer.as_mut().poll(cx))?;
            if first.is_some_and(|first| first <= core.now()) {
                let is_over = deadline.is_some() && deadline == first;
                return Poll::Ready(Ok(if is_over { Ended::Cancelled } else { Ended::TimedOut }));
            }
        }
    })
    .await;
    timer.arm(core.clock(), None)?;
    // The destructor of the future is the user's.
    if catch(|| answer.set(None)).is_none() {
        return Ok(Ended::Panicked);
    }
    ended
}

impl Ended {
    /// How it counts, and what items have failed with.
    fn parts(&self) -> (End, Option<SharedError>) {
        match self {
            Self::Ok => (End::Ok, None),
            Self::Panicked => (End::Panicked, Some(Arc::new(SinkPanicked))),
            Self::TimedOut => (End::TimedOut, Some(Arc::new(FlushTimedOut))),
            Self::Cancelled => (End::Cancelled, None),
            Self::Error(error) => {
                let end = match error.verdict {
                    Verdict::Retry => End::Retry,
                    Verdict::Throttled(_) => End::Throttled,
                    Verdict::TooLarge => End::TooLarge,
                    Verdict::Permanent => End::Permanent,
                };
                (end, Some(Arc::clone(&error.source)))
            }
        }
    }
}
