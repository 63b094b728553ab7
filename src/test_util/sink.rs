//! A sink that follows a script and remembers each call.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::reply::{Kind, Reply, Verdict};
use crate::batch::{Batch, BatchId};
use crate::error::FlushError;
use crate::ledger::Losses;
use crate::pace::FlushReason;
use crate::sink::BatchSink;
use crate::sync::Mutex;
use crate::time::{Clock, Tick, Timer};

/// A sink that answers as it was told, and that a test can ask what it was given.
///
/// Clones are the same sink: one goes to the builder, the other one stays with the test. Without a script, and where the
/// script is over, it delivers everything at once. It works on any controller, on a [`Pipeline`](super::Pipeline) as on a
/// tokio runtime.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use backpressure::test_util::{Reply, ScriptedSink};
///
/// let sink = ScriptedSink::<u32>::new()
///     .then(Reply::retry("down").times(3))
///     .then(Reply::ok().after(Duration::from_millis(20)).forever());
/// assert!(sink.calls().is_empty());
/// ```
pub struct ScriptedSink<T> {
    state: Arc<Mutex<State<T>>>,
}

struct State<T> {
    script: VecDeque<Reply<T>>,
    calls: Vec<Call<T>>,
}

/// One call of a [`ScriptedSink`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call<T> {
    /// What the batch held.
    pub items: Vec<T>,
    /// The position of each item in the order of acceptance.
    pub seqs: Vec<u64>,
    /// [`Batch::weight`] of each item.
    pub weights: Vec<u64>,
    /// [`Batch::id`].
    pub id: BatchId,
    /// [`Batch::attempt`]: 1 for the first.
    pub attempt: u32,
    /// [`Batch::reason`].
    pub reason: FlushReason,
    /// [`Batch::lost_before`].
    pub lost_before: Losses,
    /// When it began: what the manual clock said, or else the time since the controller was built.
    pub at: Duration,
    /// What was delivered of the items. Empty until the sink has answered.
    pub delivered: Vec<T>,
}

impl<T> ScriptedSink<T> {
    /// A sink that delivers everything at once.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State { script: VecDeque::new(), calls: Vec::new() })) }
    }

    /// Adds a line at the end of the script.
    #[must_use = "it is the sink that it was called on"]
    pub fn then(self, reply: Reply<T>) -> Self {
        self.state.lock().script.push_back(reply);
        self
    }

    /// From the next call on, this line instead of what is left of the script. A call that has begun goes on as it was.
    pub fn switch_to(&self, reply: Reply<T>) {
        let over = mem::replace(&mut self.state.lock().script, VecDeque::from([reply]));
        // Its closures are the user's: not under the lock.
        drop(over);
    }

    fn next(&self) -> Reply<T> {
        let mut state = self.state.lock();
        loop {
            match state.script.front_mut() {
                None => return Reply::ok(),
                Some(Reply { times: Some(0), .. }) => {
                    let over = state.script.pop_front();
                    drop(state);
                    drop(over);
                    state = self.state.lock();
                }
                Some(reply) => {
                    reply.times = reply.times.map(|times| times - 1);
                    return reply.clone();
                }
            }
        }
    }
}

impl<T: Clone> ScriptedSink<T> {
    /// All calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call<T>> {
        self.state.lock().calls.clone()
    }

    /// The items of each call, in order.
    #[must_use]
    pub fn batches(&self) -> Vec<Vec<T>> {
        self.calls().into_iter().map(|call| call.items).collect()
    }

    /// What was delivered, in order.
    #[must_use]
    pub fn delivered(&self) -> Vec<T> {
        self.calls().into_iter().flat_map(|call| call.delivered).collect()
    }

    /// Writes a call down; returns its index.
    fn begin(&self, batch: &Batch<T>) -> usize {
        let call = Call {
            items: batch.to_vec(),
            seqs: (0..batch.len()).map(|i| batch.seq(i)).collect(),
            weights: (0..batch.len()).map(|i| batch.weight(i)).collect(),
            id: batch.id(),
            attempt: batch.attempt(),
            reason: batch.reason(),
            lost_before: batch.lost_before(),
            at: batch.clock().now().since(Tick::default()),
            delivered: Vec::new(),
        };
        let calls = &mut self.state.lock().calls;
        calls.push(call);
        calls.len() - 1
    }

    /// Answers the call.
    async fn answer(self, call: usize, mut batch: Batch<T>, reply: Reply<T>) -> Result<(), FlushError> {
        let (kind, delay) = (reply.kind, reply.delay);
        if !delay.is_zero() {
            sleep(batch.clock(), delay).await;
        }
        let delivered = match kind {
            Kind::Ok => batch.to_vec(),
            Kind::Partial(judge) => judge_each(&mut batch, &*judge),
            Kind::Error(error) => return Err(error()),
            Kind::Panic => panic!("the script says so"),
            Kind::Hang => pending().await,
        };
        if let Some(call) = self.state.lock().calls.get_mut(call) {
            call.delivered = delivered;
        }
        Ok(())
    }
}

impl<T: Clone + Send> BatchSink<T> for ScriptedSink<T> {
    fn flush(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), FlushError>> + Send {
        let call = self.begin(&batch);
        let reply = self.next();
        self.clone().answer(call, batch, reply)
    }
}

impl<T> Clone for ScriptedSink<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<T> Default for ScriptedSink<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for ScriptedSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lines, calls) = {
            let state = self.state.lock();
            (state.script.len(), state.calls.len())
        };
        f.debug_struct("ScriptedSink").field("lines", &lines).field("calls", &calls).finish_non_exhaustive()
    }
}

/// Says of each item what the script says; returns what is delivered.
fn judge_each<T: Clone>(batch: &mut Batch<T>, judge: &(dyn Fn(&T) -> Verdict + Send + Sync)) -> Vec<T> {
    let verdicts: Vec<_> = batch.iter().map(judge).collect();
    let mut delivered = Vec::new();
    for (i, verdict) in verdicts.into_iter().enumerate() {
        match verdict {
            Verdict::Deliver => delivered.push(batch[i].clone()),
            Verdict::Fail => batch.fail(i, "the script says so"),
            Verdict::Retry => batch.retry(i),
        }
    }
    delivered
}

/// Waits on the controller's clock; not at all where it has no timers, in a runtime that is going down.
async fn sleep(clock: &Clock, time: Duration) {
    let mut timer = pin!(Timer::new());
    if timer.as_mut().arm(clock, clock.now().after(time)).is_ok() {
        let _ = poll_fn(|cx| timer.as_mut().poll(cx)).await;
    }
}
