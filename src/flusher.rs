//! The flush loop: the only task of a controller.

mod slots;
mod wakes;

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

use self::slots::Slots;
pub use self::wakes::MAX_CONCURRENCY;
use crate::core::{Core, End, Inside, Launch, Left, Retries, Step, Work};
use crate::error::{DriveError, FlushError, FlushTimedOut, RetriesExhausted, SinkPanicked, Verdict};
use crate::flight::{Piece, SPARE_BYTES, Spare};
use crate::pace::{Again, Outcome, Pace, Sample, Ticket};
use crate::panics::catch;
use crate::retry::{Due, Tries};
use crate::sink::BatchSink;
use crate::time::{Clock, NoTimer, Tick, Timer, check_timer, sooner};

/// The flush loop, to be driven inside a tokio runtime with time enabled.
///
/// It ends when the intake is shut and nothing is outstanding, or at drain's deadline. The sink, with all its clones, is
/// dropped before `drain` resolves, unless the flusher is so late that `drain` does not wait for it.
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

/// More memory than [`SPARE_BYTES`] is given back after so long without a batch: long beside the pauses between the batches of a
/// busy buffer, so that those cost no allocation.
const SPARE_IDLE: Duration = Duration::from_millis(500);

/// How often a flusher that never waits looks for calls that take too long: as exact as a timer of tokio's.
const CUT: Duration = Duration::from_millis(1);

type Run = Pin<Box<dyn Future<Output = Result<(), NoTimer>> + Send>>;
type SharedError = Arc<dyn Error + Send + Sync>;

/// A core, whatever its items.
trait Finish: Send + Sync {
    fn give_up(&self);
    fn finish(&self);
}

impl<T: Send> Finish for Core<T> {
    fn give_up(&self) {
        Self::give_up(self);
    }

    fn finish(&self) {
        Self::finish(self);
    }
}

impl Flusher {
    /// A slot for each of the sinks, from 1 to [`MAX_CONCURRENCY`].
    pub(crate) fn new<T, S>(core: Arc<Core<T>>, sinks: Vec<S>, pace: Box<dyn Pace>) -> Self
    where
        T: Send + 'static,
        S: BatchSink<T> + 'static,
    {
        let retries = Retries::new(&core);
        core.note_standing(&*pace);
        let needs_runtime = core.clock().needs_runtime();
        let flush_loop = Loop {
            core: Arc::clone(&core),
            pace,
            retries,
            spare: Spare::new(sinks.len()),
            slots: Slots::new(sinks),
            again: VecDeque::new(),
            kept: Vec::new(),
            has_yielded: false,
            looked: None,
        };
        Self { run: Some(Box::pin(flush_loop.run())), core, needs_runtime, checked: None }
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
        // First of all: whatever its destructors push, nobody is there to make room for it.
        self.core.give_up();
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

/// One loop over all slots: it plans, sends and settles; with one slot there is one flush in flight, so order holds through
/// retries.
struct Loop<T> {
    core: Arc<Core<T>>,
    pace: Box<dyn Pace>,
    retries: Retries,
    slots: Slots<T>,
    /// The batches to send again: with one slot by position, with several by when they are due.
    again: VecDeque<(Due, Attempt)>,
    /// Slots whose calls have ended while their batch is not home, in that order.
    kept: Vec<usize>,
    /// The memory of settled batches, for the next ones.
    spare: Spare<T>,
    /// Since it last sent something, or slept, it has given its thread away.
    has_yielded: bool,
    /// When it has looked for calls that take too long, since it last waited for something.
    looked: Option<Tick>,
}

/// A batch that is to be sent.
#[derive(Debug)]
struct Attempt {
    piece: Piece,
    tries: Tries,
}

/// A call of the sink.
struct Call {
    attempt: Attempt,
    ticket: Ticket,
    started: Tick,
    /// How long it may take, for ever if that is `Duration::MAX`, and how much more time it has been given, as far as is known.
    limit: Duration,
    extra: Duration,
    ended: Option<Ended>,
    /// How long it took, once that is so.
    took: Duration,
}

/// How a call of the sink ended.
enum Ended {
    Ok,
    Error(FlushError),
    Panicked,
    TimedOut,
}

/// What the loop does next.
enum Next {
    /// Polls the slots, and decides again.
    Turn,
    /// The same, when the others had their turn.
    Yield,
    /// It is `now`: sleeps until the moment, or something else happens.
    Sleep {
        now: Tick,
        until: Option<Tick>,
    },
    /// The same while all slots are taken.
    Wait(Option<Tick>),
    End,
}

impl<T: Send> Loop<T> {
    async fn run(mut self) -> Result<(), NoTimer> {
        let mut timer = pin!(Timer::new());
        loop {
            // What has ended comes first: its room and its slot are what others wait for.
            self.settle_kept();
            let mut over = poll_fn(|cx| Poll::Ready(self.slots.poll(cx))).await;
            if over.is_pending() {
                match self.decide() {
                    Next::Turn => continue,
                    Next::Yield => {
                        yield_now(self.core.clock()).await;
                        continue;
                    }
                    Next::Sleep { now, until } => over = self.rest(timer.as_mut(), now, until).await?,
                    Next::Wait(until) => over = self.wait(timer.as_mut(), None, until).await?,
                    Next::End => return Ok(()),
                }
            }
            if let Poll::Ready(slot) = over {
                self.settle(slot);
                share(self.core.clock()).await;
            }
        }
    }

    fn decide(&mut self) -> Next {
        let work = Work {
            calls: self.slots.taken() as u64,
            slots: self.slots.len() as u64,
            again: self.again.front().map(|(due, attempt)| Again { items: attempt.piece.items, due: due.0 }),
            // Whoever steps it by hand has others run between two steps anyway.
            yields: !self.has_yielded && self.core.clock().needs_runtime(),
        };
        if work.calls == work.slots {
            return match self.core.end() {
                Ok(_) => Next::End,
                Err(_) if self.core.is_to_look_again() => {
                    self.cut_late(self.core.now());
                    Next::Yield
                }
                Err(deadline) => Next::Wait(deadline),
            };
        }
        let now = self.core.now();
        let step = self.core.step(now, &mut *self.pace, &work, &mut self.spare);
        self.has_yielded = matches!(step, Step::Yield);
        let next = match step {
            Step::Launch(piece, launch) => {
                self.core.report_flush(piece.key);
                self.start(now, Attempt { piece, tries: Tries::default() }, launch);
                Next::Turn
            }
            Step::Resend(most) => {
                if let Some((due, attempt)) = self.again.pop_front() {
                    let attempt = self.cut(due, attempt, most);
                    // All of it may be too old by now.
                    if let Some(launch) = self.core.launch(attempt.piece.key, now) {
                        self.start(now, attempt, launch);
                    }
                }
                Next::Turn
            }
            Step::Sleep(until) => Next::Sleep { now, until },
            Step::Yield => Next::Yield,
            Step::Drained | Step::Expired => Next::End,
        };
        // What was decided just now is done first: the sink has not failed yet.
        if !matches!(next, Next::End) {
            self.cut_late(now);
        }
        next
    }

    /// Where nothing is waited for, no timer is looked at: calls that take too long are looked for now and then.
    fn cut_late(&mut self, now: Tick) {
        let looked = *self.looked.get_or_insert(now);
        if self.slots.taken() > 0 && now.since(looked) >= CUT {
            self.looked = Some(now);
            let core = &self.core;
            self.slots.cut(now, |call| core.extra(call.attempt.piece.key));
        }
    }

    /// What is above `most` items of a batch goes back to the front of the queue.
    fn cut(&mut self, due: Due, attempt: Attempt, most: u64) -> Attempt {
        let Some([piece, rest]) = self.core.cut(attempt.piece, most) else { return attempt };
        let tries = attempt.tries.of_a_part();
        self.enqueue(due, Attempt { piece: rest, tries });
        Attempt { piece, ..attempt }
    }

    /// Begins a call of the sink, on a slot that is free.
    fn start(&mut self, now: Tick, mut attempt: Attempt, Launch { batch, limit }: Launch<T>) {
        attempt.tries.start(now);
        // Some of it may have been too old.
        attempt.piece.items = batch.len() as u64;
        let ticket = self.pace.started(now, attempt.piece.items);
        let (extra, took) = (Duration::ZERO, Duration::ZERO);
        self.slots.begin(Call { attempt, ticket, started: now, limit, extra, ended: None, took }, batch);
    }

    /// Settles what can be settled of a call that has ended.
    fn settle(&mut self, slot: usize) {
        let mut now = self.core.now();
        let Some(call) = self.slots.call(slot) else { return };
        call.took = now.since(call.started);
        let key = call.attempt.piece.key;
        let ended = call.ended.as_ref().filter(|ended| !matches!(ended, Ended::Ok));
        if let Some((end, Some(error))) = ended.map(Ended::parts) {
            self.core.note_failure(key, end, &error);
            // The destructor of the error before it is the user's, and may have taken long.
            now = self.core.now();
        }
        self.judge(slot, now);
    }

    /// The batches that the sink has kept may have come home.
    fn settle_kept(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        for slot in mem::take(&mut self.kept) {
            self.judge(slot, self.core.now());
        }
    }

    fn judge(&mut self, slot: usize, now: Tick) {
        let Some(call) = self.slots.call(slot) else { return };
        let (Piece { key, items, .. }, ticket, latency) = (call.attempt.piece, call.ticket, call.took);
        let Some(ended) = &call.ended else { return };
        let (mut outcome, (end, error)) = (ended.outcome(now), ended.parts());
        // Those that go on beside it.
        let calls = self.slots.taken() as u64 - 1;
        let sample = Sample { ticket, items, latency, outcome, buffered: 0, calls };
        match self.core.judge(key, end, now, error.as_ref(), Some((&mut *self.pace, sample)), &mut self.spare) {
            Left::Nothing => {}
            Left::NotHome if self.core.end().is_err() => return self.kept.push(slot),
            left => {
                if let Left::Some(piece) = left {
                    self.requeue(slot, piece, &mut outcome, error.as_ref());
                }
                self.core.call_ended(&mut *self.pace, now, Sample { outcome, ..sample });
            }
        }
        self.slots.release(slot);
        if error.is_some() {
            // It is the user's.
            catch(|| drop(error));
        }
        self.core.inform_in_passing(now);
    }

    /// Decides about what is left of a batch: again, and when; in halves, or failed.
    #[cold]
    fn requeue(&mut self, slot: usize, piece: Piece, outcome: &mut Outcome, error: Option<&SharedError>) {
        let asked = match self.slots.call(slot).and_then(|call| call.ended.as_ref()) {
            None => return,
            Some(Ended::Ok | Ended::Panicked | Ended::TimedOut) => Duration::ZERO,
            Some(Ended::Error(FlushError { verdict, source })) => match *verdict {
                Verdict::Retry => Duration::ZERO,
                Verdict::Throttled(after) => after,
                Verdict::TooLarge => {
                    let source = Arc::clone(source);
                    return self.halve(piece, &source);
                }
                Verdict::Permanent => {
                    let source = Arc::clone(source);
                    return self.condemn(piece, &source);
                }
            },
        };
        let mut tries = self.slots.take_tries(slot);
        match self.retries.next(&self.core, &mut tries, self.core.now(), asked) {
            Some(due) => {
                if let Outcome::Failed { until } | Outcome::TimedOut { until } = outcome {
                    *until = due.0;
                }
                self.enqueue(due, Attempt { piece, tries });
            }
            None => {
                let error = error.map_or_else(|| Arc::new(RetriesExhausted) as SharedError, Arc::clone);
                self.condemn(piece, &error);
            }
        }
    }

    fn condemn(&mut self, piece: Piece, error: &SharedError) {
        if let Some(halves) = self.core.condemn(piece, error) {
            self.send_halves(halves);
        }
    }

    fn halve(&mut self, piece: Piece, error: &SharedError) {
        match self.core.halve(piece) {
            Some(halves) => self.send_halves(halves),
            None => self.core.fail(piece.key, error),
        }
    }

    fn send_halves(&mut self, halves: [Piece; 2]) {
        let due = Due(Some(self.core.now()));
        for piece in halves {
            self.enqueue(due, Attempt { piece, tries: Tries::default() });
        }
    }

    fn enqueue(&mut self, due: Due, attempt: Attempt) {
        // One slot keeps the order of the items; on several each batch goes when it is due.
        let has_order = self.slots.len() == 1;
        let rank = |due: Due, attempt: &Attempt| (if has_order { Due(None) } else { due }, attempt.piece.first);
        let own = rank(due, &attempt);
        let at = self.again.partition_point(|(due, other)| rank(*due, other) < own);
        self.again.insert(at, (due, attempt));
    }

    /// Sleeps; if that becomes long, the memory of a large batch is given back.
    async fn rest(&mut self, timer: Pin<&mut Timer>, now: Tick, until: Option<Tick>) -> Waited {
        let is_large = self.spare.bytes() > SPARE_BYTES;
        let idle = if is_large { now.after(SPARE_IDLE) } else { None };
        let over = self.wait(timer, Some(now), sooner(until, idle)).await?;
        if idle.is_some_and(|idle| idle <= self.core.now()) {
            self.spare.clear();
        }
        Ok(over)
    }

    /// Waits for the end of a call, the bell, or the moment; tells meanwhile what is due. `looked`, if it is known, is the time.
    async fn wait(&mut self, mut timer: Pin<&mut Timer>, mut looked: Option<Tick>, until: Option<Tick>) -> Waited {
        self.looked = None;
        let Self { core, slots, .. } = self;
        let mut bell = pin!(core.bell().notified());
        poll_fn(|cx| {
            loop {
                if bell.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(Poll::Pending));
                }
                if let over @ Poll::Ready(_) = slots.poll(cx) {
                    return Poll::Ready(Ok(over));
                }
                let now = looked.take().unwrap_or_else(|| core.now());
                let told = if slots.taken() > 0 { core.inform_in_passing(now) } else { core.inform(now) };
                timer.as_mut().arm(core.clock(), sooner(until, sooner(slots.timeout(), told)))?;
                ready!(timer.as_mut().poll(cx))?;
                let now = core.now();
                if until.is_some_and(|until| until <= now) {
                    return Poll::Ready(Ok(Poll::Pending));
                }
                slots.cut(now, |call| core.extra(call.attempt.piece.key));
            }
        })
        .await
    }
}

/// The slot of a call that has ended, if it was that.
type Waited = Result<Poll<usize>, NoTimer>;

impl Call {
    /// When its time is over, if it goes on.
    fn timeout(&self) -> Option<Tick> {
        self.ended.is_none().then_some(())?;
        self.started.after(self.limit.checked_add(self.extra)?)
    }

    fn is_late(&self, now: Tick) -> bool {
        self.timeout().is_some_and(|timeout| timeout <= now)
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

impl Ended {
    /// How it counts, and what items have failed with.
    fn parts(&self) -> (End, Option<SharedError>) {
        match self {
            Self::Ok => (End::Ok, None),
            Self::Panicked => (End::Panicked, Some(Arc::new(SinkPanicked))),
            Self::TimedOut => (End::TimedOut, Some(Arc::new(FlushTimedOut))),
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
    /// What it says of the sink, unless the batch is sent again later than `now`.
    fn outcome(&self, now: Tick) -> Outcome {
        let until = Some(now);
        match self {
            Self::Ok => Outcome::Ok,
            Self::Panicked => Outcome::Failed { until },
            Self::TimedOut => Outcome::TimedOut { until },
            Self::Error(error) => match error.verdict {
                Verdict::Retry => Outcome::Failed { until },
                Verdict::Throttled(after) => Outcome::Throttled(after),
                Verdict::TooLarge => Outcome::TooLarge,
                Verdict::Permanent => Outcome::Void,
            },
        }
    }
}
