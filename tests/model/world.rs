//! What the real side leaves behind: tokens that know when they are dropped, and a log of what happened in user code.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use backpressure::{Batch, BatchId, FlushReason, LossReason, PushError, RefuseReason, WeakController};

use super::case::Outcome;
use super::oracle_offers::Asked;

pub type Id = u32;

/// Every token that was made, and whether it was dropped.
#[derive(Debug, Default)]
pub struct Ledger {
    dropped: Mutex<Vec<bool>>,
    twice: AtomicBool,
    /// Panics that a token's `Drop` has thrown.
    pub thrown: AtomicU64,
}

impl Ledger {
    pub fn token(self: &Arc<Self>, id: Id, panics: bool) -> Token {
        let mut dropped = lock(&self.dropped);
        let len = dropped.len().max(id as usize + 1);
        dropped.resize(len, true);
        assert!(std::mem::replace(&mut dropped[id as usize], false), "token {id} was made twice");
        Token { id, panics, ledger: Arc::clone(self) }
    }

    /// Each token was dropped exactly once.
    pub fn check(&self) {
        assert!(!self.twice.load(Ordering::Relaxed), "a token was dropped twice");
        let dropped = lock(&self.dropped);
        let alive: Vec<_> = (0..dropped.len()).filter(|id| !dropped[*id]).collect();
        assert!(alive.is_empty(), "never dropped: {alive:?}");
    }
}

/// An item.
#[derive(Debug)]
pub struct Token {
    pub id: Id,
    panics: bool,
    ledger: Arc<Ledger>,
}

impl Token {
    /// It is ours again, and need not panic on us.
    pub fn disarm(mut self) -> Id {
        self.panics = false;
        self.id
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let twice = std::mem::replace(&mut lock(&self.ledger.dropped)[self.id as usize], true);
        if twice {
            self.ledger.twice.store(true, Ordering::Relaxed);
        }
        if self.panics && !std::thread::panicking() {
            self.ledger.thrown.fetch_add(1, Ordering::Relaxed);
            panic!("expected: a token that panics when it is dropped");
        }
    }
}

/// What happened in user code, in order.
#[derive(Debug)]
pub enum Event {
    Called(Calling),
    /// The call whose batch begins at this position followed this outcome.
    Acted(u64, Outcome),
    /// The call was dropped before it had answered.
    Cut(u64),
    /// `on_loss` was called.
    Lost {
        id: Option<Id>,
        reason: LossReason,
        said: Option<String>,
    },
    /// Whoever waits for the fate of an item was woken, when so many were settled.
    Woken {
        id: Id,
        settled: u64,
    },
    /// Somebody inside the sink or `on_loss` is about to push.
    Pushing {
        id: Id,
        by_hook: bool,
    },
    Pushed(Result<(), RefuseReason>),
}

/// A call of the sink.
#[derive(Debug)]
pub struct Calling {
    pub id: BatchId,
    pub seqs: Vec<u64>,
    pub items: Vec<Id>,
    pub weights: Vec<u64>,
    pub attempt: u32,
    pub reason: FlushReason,
    pub lost_before: u64,
}

/// A guard that the sink has put elsewhere.
#[derive(Debug)]
pub struct Kept {
    pub batch: Batch<Token>,
    pub first: u64,
}

#[derive(Debug, Default)]
pub struct Script {
    pub outcomes: VecDeque<Outcome>,
    /// What the sink does when there is no outcome left.
    pub default: Option<Outcome>,
    /// Of the calls that wait for an outcome.
    pub wakers: Vec<Waker>,
    pub kept: Vec<Kept>,
}

#[derive(Debug, Default)]
pub struct World {
    pub ledger: Arc<Ledger>,
    pub drop_panics: bool,
    pub script: Mutex<Script>,
    pub weak: OnceLock<WeakController<Token>>,
    pub log: Mutex<Vec<Event>>,
    pub next: Mutex<Id>,
    /// What strategies of the user's were asked.
    pub asked: Mutex<Vec<Asked>>,
}

impl World {
    pub fn note(&self, event: Event) {
        lock(&self.log).push(event);
    }

    pub fn take_log(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.log))
    }

    /// `n` ids in a row.
    pub fn ids(&self, n: u32) -> Id {
        let mut next = lock(&self.next);
        *next += n;
        *next - n
    }

    pub fn token(&self, id: Id) -> Token {
        self.ledger.token(id, self.drop_panics && id % 8 == 3)
    }

    pub fn new_token(&self) -> Token {
        self.token(self.ids(1))
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    /// A push from inside user code that must not wait.
    pub fn push_from_inside(&self, by_hook: bool) {
        let Some(handle) = self.weak.get().and_then(WeakController::upgrade) else { return };
        let token = self.new_token();
        self.note(Event::Pushing { id: token.id, by_hook });
        let pushed = if by_hook { handle.try_push(token) } else { poll_inside(handle.push(token)) };
        self.note(Event::Pushed(pushed.map_err(given_back)));
    }
}

fn poll_inside(push: impl Future<Output = Result<(), PushError<Token>>>) -> Result<(), PushError<Token>> {
    let push = std::pin::pin!(tokio::task::unconstrained(push));
    match push.poll(&mut std::task::Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("a sink waits for room in its own controller"),
    }
}

/// A refused token is ours again.
pub fn given_back(error: PushError<Token>) -> RefuseReason {
    let reason = error.reason();
    error.into_inner().disarm();
    reason
}

/// A waker that remembers.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics whose message begins with "expected" are not printed, nor are those inside [`verdict`].
pub fn silence_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if message_of(info).is_some_and(|message| message.starts_with("expected")) {
                return;
            }
            let is_captured = LAST.with_borrow_mut(|last| {
                // The first one counts: what comes while it unwinds is its consequence.
                let message = last.as_mut().filter(|message| message.is_empty()).map(|m| *m = info.to_string());
                message.is_some() || last.is_some()
            });
            if !is_captured {
                before(info);
            }
        }));
    });
}

/// Runs `code`; `Err` is the message of its panic.
pub fn verdict(code: impl FnOnce()) -> Result<(), String> {
    silence_expected_panics();
    LAST.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(code));
    let message = LAST.take().unwrap_or_default();
    result.map_err(|_| message)
}

fn message_of<'a>(info: &'a std::panic::PanicHookInfo<'_>) -> Option<&'a str> {
    let payload = info.payload();
    payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
