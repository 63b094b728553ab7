//! Tokens, the sink that takes them, and the books that a model keeps of them.
//!
//! The books are under `std`'s mutex, which shuttle does not see: keeping them changes no schedule.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, Builder, FlushError, Loss, LossReason, PushError, Retry, Snapshot, WeakController,
};
use shuttle::rand::Rng;
use tokio::task::{JoinHandle, yield_now};

pub(crate) type Controller = BackpressureController<Token>;

/// Producer and number.
pub(crate) type Id = (u8, u8);

/// A time that never comes.
pub(crate) const NEVER: Duration = Duration::MAX;

/// An item that is dropped exactly once, or the model fails.
pub(crate) struct Token {
    id: Id,
    world: World,
}

impl Token {
    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        *self.world.books().dropped.entry(self.id).or_default() += 1;
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

/// What a model knows of its items.
#[derive(Clone, Default)]
pub(crate) struct World {
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    made: Vec<Id>,
    dropped: BTreeMap<Id, u32>,
    begun: u64,
    ended: u64,
    /// Of these the producer has been told.
    accepted: Vec<Id>,
    delivered: Vec<Id>,
    /// Who waits for more to be delivered.
    waits: Vec<Waker>,
    lost: Vec<(Id, LossReason)>,
    /// Came back to a caller.
    back: Vec<Id>,
    /// Came back from a purge.
    purged: Vec<Id>,
    /// Came back from a drain.
    leftovers: Vec<Id>,
    /// The capacity changes: what is inside may be more than it for a while.
    resizes: bool,
}

/// What a sink does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Retry,
    Throttled,
    TooLarge,
    Permanent,
    /// Panics when it is polled for the second time.
    Panic,
    /// Panics while the sink makes its future.
    PanicAtOnce,
    /// Moves all items out, and fails.
    Steal,
    /// Delivers the first item, fails the last one, and asks for the others again.
    OneByOne,
    /// Never answers.
    Hang,
    /// Gives the batch to another task, and fails.
    Elsewhere,
}

pub(crate) fn dice(n: u32) -> u32 {
    shuttle::rand::thread_rng().gen_range(0..n)
}

/// An error of a sink.
fn down() -> &'static str {
    "down"
}

impl World {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An item that is about to be offered.
    pub(crate) fn token(&self, producer: u8, n: u8) -> Token {
        let mut books = self.books();
        books.made.push((producer, n));
        books.begun += 1;
        Token { id: (producer, n), world: self.clone() }
    }

    pub(crate) fn tokens(&self, producer: u8, n: u8) -> Vec<Token> {
        (0..n).map(|n| self.token(producer, n)).collect()
    }

    /// An offer has been answered: the item was taken, or comes back.
    pub(crate) fn answered(&self, answer: Result<(), PushError<Token>>) {
        if let Err(error) = answer {
            self.came_back(error.into_inner());
        }
        self.books().ended += 1;
    }

    /// Pushes, and waits as long as it takes.
    pub(crate) async fn push(&self, controller: &Controller, producer: u8, n: u8) {
        let answer = controller.push(self.token(producer, n)).await;
        if answer.is_ok() {
            self.books().accepted.push((producer, n));
        }
        self.answered(answer);
    }

    /// Pushes `n` items at once.
    pub(crate) async fn push_all(&self, controller: &Controller, producer: u8, n: u8) {
        let accepted = match controller.push_all(self.tokens(producer, n)).await {
            Ok(accepted) => accepted,
            Err(error) => {
                let accepted = error.accepted();
                error.into_rest().for_each(|token| self.came_back(token));
                accepted
            }
        };
        let mut books = self.books();
        books.ended += u64::from(n);
        books.accepted.extend((0..accepted as u8).map(|n| (producer, n)));
    }

    /// The same on a plain thread.
    pub(crate) fn push_blocking(&self, controller: &Controller, producer: u8, n: u8) {
        let answer = controller.blocking_push(self.token(producer, n));
        if answer.is_ok() {
            self.books().accepted.push((producer, n));
        }
        self.answered(answer);
    }

    /// What producers know to be accepted.
    pub(crate) fn accepted_so_far(&self) -> Vec<Id> {
        self.books().accepted.clone()
    }

    pub(crate) fn accepted(&self, n: u64) {
        self.books().ended += n;
    }

    /// How many items of a producer there were.
    pub(crate) fn made_by(&self, producer: u8) -> u8 {
        self.books().made.iter().filter(|id| id.0 == producer).count() as u8
    }

    pub(crate) fn lost(&self, token: &Token, reason: LossReason) {
        self.books().lost.push((token.id, reason));
    }

    pub(crate) fn came_back(&self, token: Token) {
        self.books().back.push(token.id);
    }

    pub(crate) fn purged(&self, tokens: Vec<Token>) {
        self.books().purged.extend(tokens.iter().map(Token::id));
    }

    pub(crate) fn left_over(&self, tokens: Vec<Token>) {
        self.books().leftovers.extend(tokens.iter().map(Token::id));
    }

    /// A consumer has these.
    pub(crate) fn delivers(&self, tokens: &[Token]) {
        self.books().delivered.extend(tokens.iter().map(Token::id));
    }

    /// The capacity is going to change.
    pub(crate) fn resizes(&self) {
        self.books().resizes = true;
    }

    pub(crate) fn is_delivered(&self, id: Id) -> bool {
        self.books().delivered.contains(&id)
    }

    /// Waits until so many are delivered.
    pub(crate) async fn all_delivered(&self, count: usize) {
        poll_fn(|cx| {
            let mut books = self.books();
            if books.delivered.len() >= count {
                return Poll::Ready(());
            }
            books.waits.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// How many items there were.
    pub(crate) fn made(&self) -> usize {
        self.books().made.len()
    }

    pub(crate) fn delivered(&self) -> Vec<Id> {
        self.books().delivered.clone()
    }

    /// A builder whose times never come, unless a model sets them.
    pub(crate) fn builder(&self, capacity: usize) -> Builder<Token> {
        let world = self.clone();
        Controller::builder(capacity)
            .fixed(capacity.min(2), NEVER)
            .flush_timeout(NEVER)
            .drain_on_drop(NEVER)
            .retry(Retry::exponential(Duration::from_millis(1), Duration::from_millis(1)).without_jitter())
            .on_loss(move |loss: Loss<Token>| {
                // One that the sink has moved out is in the books already.
                if let Some(token) = loss.item {
                    world.books().lost.push((token.id, loss.reason));
                }
            })
    }

    /// A sink that does what `answer` says.
    pub(crate) fn sink(
        &self,
        mut answer: impl FnMut(&Batch<Token>) -> Answer + Send + 'static,
    ) -> impl FnMut(Batch<Token>) -> Pin<Box<dyn Future<Output = Result<(), FlushError>> + Send>> + Send + 'static {
        let world = self.clone();
        move |batch| {
            let answer = answer(&batch);
            if answer == Answer::PanicAtOnce {
                // Not by `panic!`: shuttle would take it for a failure, and write its schedule down.
                resume_unwind(Box::new("as asked"));
            }
            Box::pin(world.clone().flush(batch, answer))
        }
    }

    async fn flush(self, mut batch: Batch<Token>, answer: Answer) -> Result<(), FlushError> {
        if dice(2) == 0 {
            yield_now().await;
        }
        match answer {
            Answer::Ok => {
                let waits = {
                    let mut books = self.books();
                    books.delivered.extend(batch.iter().map(Token::id));
                    mem::take(&mut books.waits)
                };
                waits.into_iter().for_each(Waker::wake);
                Ok(())
            }
            Answer::Retry => Err(FlushError::retry(down())),
            Answer::Throttled => Err(FlushError::throttled(down(), Duration::from_millis(5))),
            Answer::TooLarge => Err(FlushError::too_large(down())),
            Answer::Permanent => Err(FlushError::permanent(down())),
            Answer::Panic | Answer::PanicAtOnce => resume_unwind(Box::new("as asked")),
            Answer::Steal => {
                let lost = batch.take().iter().map(|token| (token.id, LossReason::Failed)).collect::<Vec<_>>();
                self.books().lost.extend(lost);
                Err(FlushError::retry(down()))
            }
            Answer::OneByOne => {
                let last = batch.len() - 1;
                for index in 1..last {
                    batch.retry(index);
                }
                if last > 0 {
                    batch.fail(last, down());
                }
                batch.deliver(0);
                let first = batch[0].id;
                self.books().delivered.push(first);
                Ok(())
            }
            Answer::Hang => std::future::pending().await,
            Answer::Elsewhere => {
                drop(tokio::spawn(async move {
                    yield_now().await;
                    drop(batch);
                }));
                Err(FlushError::retry(down()))
            }
        }
    }

    /// Looks at all figures once (I1, I3).
    pub(crate) fn audit(&self, controller: &Controller) -> Snapshot {
        let ended = self.books().ended;
        let snapshot = controller.snapshot();
        let begun = self.books().begun;
        snapshot.audit().expect("I1 holds");
        assert!(
            ended <= snapshot.offered && snapshot.offered <= begun,
            "{ended} offers have ended, {begun} have begun: {snapshot:?}"
        );
        let resizes = self.books().resizes;
        let bound = if resizes { snapshot.max_capacity } else { snapshot.capacity };
        assert!(snapshot.depth <= bound && snapshot.peak_depth <= bound, "{snapshot:?}");
        let capacity = if resizes { controller.max_capacity() } else { controller.capacity() };
        let (depth, len) = (controller.depth(), controller.len());
        assert!(depth <= capacity && len <= capacity, "depth {depth}, len {len}");
        snapshot
    }

    /// Audits from a task of its own until it is told to stop.
    pub(crate) fn watch_over(&self, controller: &Controller) -> Auditor {
        let (world, weak, stop) = (self.clone(), controller.downgrade(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&stop);
        let task = tokio::spawn(async move { world.audit_all_along(&weak, &told).await });
        Auditor { stop, task }
    }

    async fn audit_all_along(&self, weak: &WeakController<Token>, stop: &AtomicBool) {
        let mut before = Snapshot::default();
        while !stop.load(Ordering::Relaxed) {
            // Not a handle for longer than a look: the last one must be able to go.
            let Some(controller) = weak.upgrade() else { return };
            let now = self.audit(&controller);
            drop(controller);
            let settled = |snapshot: &Snapshot| snapshot.delivered + snapshot.losses().total();
            assert!(now.accepted >= before.accepted && settled(&now) >= settled(&before), "{before:?} then {now:?}");
            before = now;
            yield_now().await;
        }
    }

    /// The books of a model that is over: each item had one fate, and the figures say which.
    pub(crate) fn close(&self, totals: &Snapshot) {
        let books = self.books();
        let mut fates: BTreeMap<Id, Vec<&str>> = books.made.iter().map(|id| (*id, Vec::new())).collect();
        let mut say = |id: Id, fate| fates.get_mut(&id).expect("was made").push(fate);
        books.delivered.iter().for_each(|id| say(*id, "delivered"));
        books.lost.iter().for_each(|(id, reason)| say(*id, reason.as_str()));
        books.back.iter().for_each(|id| say(*id, "came back"));
        books.purged.iter().for_each(|id| say(*id, "purged"));
        books.leftovers.iter().for_each(|id| say(*id, "left over"));
        let twice: Vec<_> = fates.iter().filter(|(_, fates)| fates.len() > 1).collect();
        assert!(twice.is_empty(), "more than one fate: {twice:?}");
        // Whoever cancels a push does not know what became of its item.
        let unknown = fates.values().filter(|fates| fates.is_empty()).count() as u64;
        assert_eq!(unknown, totals.cancelled, "{fates:?} {totals:?}");
        let lost = |reason| books.lost.iter().filter(|(_, why)| *why == reason).count() as u64;
        assert_eq!(books.delivered.len() as u64, totals.delivered, "{fates:?} {totals:?}");
        assert_eq!(lost(LossReason::Failed), totals.failed, "{fates:?}");
        assert_eq!(lost(LossReason::Evicted), totals.evicted, "{fates:?}");
        assert_eq!(books.purged.len() as u64, totals.purged, "{fates:?}");
        assert_eq!(lost(LossReason::Abandoned) + books.leftovers.len() as u64, totals.abandoned, "{fates:?}");
        assert_eq!((totals.offered, totals.depth, totals.waiting), (books.begun, 0, 0), "{totals:?}");
        totals.audit().expect("I1 holds");
        let wrong: Vec<_> = books.made.iter().filter(|id| books.dropped.get(id) != Some(&1)).collect();
        assert!(wrong.is_empty(), "not dropped once: {wrong:?} of {:?}", books.dropped);
        in_order(&books.delivered);
        in_order(&books.leftovers);
    }
}

/// Each producer's items are in their order (I7).
fn in_order(ids: &[Id]) {
    let mut last = BTreeMap::new();
    for (producer, n) in ids {
        let before = last.insert(*producer, *n);
        assert!(before < Some(*n), "out of order: {ids:?}");
    }
}

/// Audits until it is stopped.
pub(crate) struct Auditor {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Auditor {
    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("every audit is right");
    }
}

/// A controller and its flusher's task.
pub(crate) type Running = (Controller, JoinHandle<()>);

/// Builds, and spawns the flusher.
pub(crate) fn spawn(
    builder: Builder<Token>,
    sink: impl FnMut(Batch<Token>) -> Pin<Box<dyn Future<Output = Result<(), FlushError>> + Send>> + Send + 'static,
) -> Running {
    let (controller, flusher) = builder.build(sink).expect("settings that work");
    let task = tokio::spawn(async move { flusher.await.expect("it can run here") });
    (controller, task)
}

/// Drains without a deadline, waits for the flusher, and closes the books.
pub(crate) async fn finish(world: &World, auditor: Auditor, (controller, flusher): Running) -> Snapshot {
    let report = controller.drain(NEVER).await;
    flusher.await.expect("it ends by itself");
    auditor.stop().await;
    assert!(report.leftovers.is_empty() && report.not_returned == 0, "{report:?}");
    let totals = controller.snapshot();
    drop(controller);
    world.close(&totals);
    totals
}
