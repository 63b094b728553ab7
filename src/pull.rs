//! Pull mode: the batches come to a consumer that asks for them, instead of going to a sink.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::coop;

use crate::batch::Batch;
use crate::core::{Core, Launch, Retries, Returned, Step, Work};
use crate::error::{DriveError, RetriesExhausted};
use crate::flight::{FlightKey, Spare};
use crate::pace::Pace;
use crate::retry::{Due, Tries};
use crate::time::{Clock, NoTimer, Tick, Timer, sooner};

/// The batches of a controller that was built by [`pull`](crate::Builder::pull), as a stream.
///
/// A batch leaves the buffer full, at its linger (5 ms, or as [`fixed`](crate::Builder::fixed) has it), when room is wanted, for
/// `flush` and for `drain`. Nothing adapts, since nobody knows what the consumer does meanwhile.
/// Then it is the consumer's until it is settled, and several may be out at the same time, to be settled in any order:
///
/// - [`done`](Batch::done) delivers all of it that was not [judged](Batch::fail) one by one.
/// - Dropped without it, what is left goes home and comes out of the stream again, as the builder's
///   [`retry`](crate::Builder::retry) has it: the same id, the next attempt. Once that gives up, it has failed. What was
///   moved out has failed at once.
///
/// As long as a batch waits for its next attempt nothing newer comes, so a consumer that handles one batch after the other
/// keeps the order. The builder's flush timeout means nothing here: a batch that is held holds its room.
///
/// A consumer that holds a batch and pushes into the same controller, when that is full, waits for itself: give such a push a
/// time limit. In the sink of a flusher it would be told so; here nobody can know.
///
/// The stream ends when the intake is shut and everything is settled, and at drain's deadline. What the consumer holds then
/// is counted as [not returned](crate::DrainReport::not_returned), and goes to `on_loss` when it lets go of it, done or not.
///
/// # Cancel safety
///
/// Dropping the stream ends the controller: producers that wait get their items back, and all that is not settled is
/// abandoned and goes to the caller of `drain` if there is one, else to `on_loss`.
///
/// # Accounting
///
/// What a batch holds is in flight. In [`flushes`](crate::Snapshot::flushes) a batch that was done counts as `ok`, one that
/// was dropped as `retry`.
///
/// # Panics
///
/// Polled outside a tokio runtime with time enabled, if it has to wait for a linger, a retry or a deadline.
///
/// # Examples
///
/// ```
/// use backpressure::BackpressureController;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (lines, mut batches) = BackpressureController::<&str>::builder(100).pull()?;
/// lines.push("first").await?;
/// lines.push("second").await?;
/// lines.close();
/// while let Some(batch) = batches.next().await {
///     println!("{:?}", &*batch);
///     batch.done();
/// }
/// assert_eq!(lines.snapshot().delivered, 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Batches<T> {
    core: Arc<Core<T>>,
    pace: Box<dyn Pace>,
    retries: Retries,
    /// What is to come again before anything else, by position.
    again: BTreeMap<u64, Again>,
    rest: Pin<Box<Rest>>,
    /// It has found nothing, and waits for the bell or for these moments.
    resting: Option<[Option<Tick>; 2]>,
    is_over: bool,
}

/// A batch that waits for its next attempt.
#[derive(Debug)]
struct Again {
    key: FlightKey,
    due: Due,
    tries: Tries,
}

/// What the stream finds when it looks.
enum Found<T> {
    Batch(Batch<T>),
    /// A batch that was settled meanwhile.
    Gone,
    /// Nothing, before the moment or the bell.
    Nothing(Option<Tick>),
    /// A producer has claimed a slot and not written it.
    Unwritten,
    End,
}

impl<T> Batches<T> {
    pub(crate) fn new(core: Arc<Core<T>>, pace: Box<dyn Pace>) -> Self {
        let retries = Retries::new(&core);
        let rest = Box::pin(Rest::new(core.bell()));
        Self { core, pace, retries, again: BTreeMap::new(), rest, resting: None, is_over: false }
    }

    /// The next batch; `None` when the controller has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: a batch that was not returned comes out of the next call.
    ///
    /// # Panics
    ///
    /// As the [stream](Batches) does.
    pub async fn next(&mut self) -> Option<Batch<T>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Decides about the batches that came home with something left: again, or failed.
    fn gather(&mut self) {
        for Returned { piece, at, mut tries } in self.core.take_returned() {
            match self.retries.next(&self.core, &mut tries, at, Duration::ZERO) {
                Some(due) => drop(self.again.insert(piece.first, Again { key: piece.key, due, tries })),
                None => {
                    let due = Due(Some(at));
                    for half in self.core.condemn(piece, &(Arc::new(RetriesExhausted) as _)).into_iter().flatten() {
                        let again = Again { key: half.key, due, tries: Tries::default() };
                        self.again.insert(half.first, again);
                    }
                }
            }
        }
    }

    fn find(&mut self) -> Found<T> {
        let Some(next) = self.again.first_entry() else {
            let now = self.core.now();
            return match self.core.step(now, &mut *self.pace, &Work::NONE, &mut Spare::new(0)) {
                Step::Launch(piece, launch) => Found::Batch(self.tell(now, piece.key, launch, Tries::default())),
                Step::Sleep(until) => Found::Nothing(until),
                Step::Resend(_) | Step::Yield => Found::Unwritten,
                Step::Drained | Step::Expired => Found::End,
            };
        };
        let Err(deadline) = self.core.end() else { return Found::End };
        match next.get().due {
            Due(Some(at)) if at <= self.core.now() => {
                let Again { key, tries, .. } = next.remove();
                let now = self.core.now();
                let launch = self.core.launch(key, now);
                launch.map_or(Found::Gone, |launch| Found::Batch(self.tell(now, key, launch, tries)))
            }
            Due(_) if self.core.is_to_look_again() => Found::Unwritten,
            Due(at) => Found::Nothing(sooner(at, deadline)),
        }
    }

    fn tell(&self, now: Tick, key: FlightKey, launch: Launch<T>, mut tries: Tries) -> Batch<T> {
        tries.start(now);
        self.core.report_flush(key);
        launch.batch.with_tries(tries)
    }

    fn end(&mut self) {
        self.is_over = true;
        drop(mem::take(&mut self.again));
        self.core.finish();
    }
}

impl<T> Stream for Batches<T> {
    type Item = Batch<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Batch<T>>> {
        let this = &mut *self;
        // A consumer that is never at a loss for a batch must not keep the thread from its producers.
        let budget = ready!(coop::poll_proceed(cx));
        while !this.is_over {
            if let Some(moments) = this.resting {
                // As long as nobody rings there is nothing to find: whoever polls all the time takes no lock, and leaves the
                // producers' word alone.
                let rest = ready!(this.rest.as_mut().poll(this.core.bell(), this.core.clock(), moments, cx));
                this.resting = None;
                // The runtime goes down: nobody will wake us.
                if let Err(NoTimer) = rest {
                    this.end();
                    break;
                }
            }
            this.gather();
            match this.find() {
                Found::Gone => {}
                Found::Batch(batch) => {
                    budget.made_progress();
                    this.core.inform_in_passing(this.core.now());
                    this.rest.as_mut().stop(this.core.clock());
                    return Poll::Ready(Some(batch));
                }
                Found::Nothing(until) => {
                    this.resting = Some([until, this.core.inform(this.core.now())]);
                }
                Found::Unwritten => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Found::End => this.end(),
            }
        }
        Poll::Ready(None)
    }
}

impl<T> FusedStream for Batches<T> {
    fn is_terminated(&self) -> bool {
        self.is_over
    }
}

impl<T> Drop for Batches<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
    }
}

impl<T> fmt::Debug for Batches<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("core", &self.core)
            .field("again", &self.again.len())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The wait for the bell and for the time; it outlives the calls of `next`, so that a bell that was heard is not lost
    /// with one of them.
    struct Rest {
        #[pin]
        bell: OwnedNotified,
        #[pin]
        timer: Timer,
    }
}

impl Rest {
    fn new(bell: &Arc<Notify>) -> Self {
        Self { bell: Arc::clone(bell).notified_owned(), timer: Timer::new() }
    }

    /// Waits for the bell, for the first moment, which needs a timer, or for the second one, if there is a timer.
    fn poll(
        self: Pin<&mut Self>,
        bell: &Arc<Notify>,
        clock: &Clock,
        [until, told]: [Option<Tick>; 2],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), NoTimer>> {
        let mut this = self.project();
        if this.bell.as_mut().poll(cx).is_ready() {
            this.bell.set(Arc::clone(bell).notified_owned());
            return Poll::Ready(Ok(()));
        }
        let first = sooner(until, told);
        if this.timer.as_mut().arm(clock, first).is_err() && until.is_some() {
            panic!("a stream of batches that has to wait for the time: {}", DriveError::NoTimer);
        }
        this.timer.poll(cx)
    }

    /// Nothing is waited for any more.
    fn stop(self: Pin<&mut Self>, clock: &Clock) {
        // No timer is the one thing that can be had everywhere.
        let _ = self.project().timer.arm(clock, None);
    }
}
