//! What the scenario tests share: gates, logs, tokens that tell when they are dropped, and a guard against hanging.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests read tokio's clock, which they own")]

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use backpressure::{Batch, FlushError, Loss, LossReason};
use tokio::sync::Semaphore;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long whatever may hang may take.
pub(crate) const GUARD: Duration = Duration::from_secs(5);

pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<(), FlushError>> + Send>>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The full numbers of the scenarios, instead of those that a debug build does in a few seconds.
pub(crate) fn is_full() -> bool {
    std::env::var_os("BACKPRESSURE_FULL").is_some_and(|full| full == "1")
}

pub(crate) fn scaled(quick: usize, full: usize) -> usize {
    if is_full() { full } else { quick }
}

/// Runs `test` on another thread, and fails if it takes longer than `limit` of real time.
pub(crate) fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(test());
    });
    match receiver.recv_timeout(limit) {
        Ok(result) => {
            let _ = thread.join();
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("still running after {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => unreachable!("the thread sends before it ends"),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Runs a future on a current_thread runtime with a paused clock, on another thread with the guard of [`within`].
pub(crate) fn paused<F>(test: impl FnOnce() -> F + Send + 'static) -> F::Output
where
    F: Future,
    F::Output: Send + 'static,
{
    within(6 * GUARD, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(test())
    })
}

/// A runtime whose clock is the machine's.
pub(crate) fn workers(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

/// tokio's clock.
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Lets everything run that can run: on a paused clock, time moves only when all tasks wait.
pub(crate) async fn idle() {
    tokio::time::sleep(ms(1)).await;
}

/// Polls once, with a waker that wakes nobody.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What a sink was given, call by call.
#[derive(Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<Vec<T>>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Log<T> {
    pub(crate) fn add(&self, items: &[T]) {
        self.0.lock().unwrap().push(items.to_vec());
    }

    pub(crate) fn calls(&self) -> Vec<Vec<T>> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn items(&self) -> Vec<T> {
        self.0.lock().unwrap().concat()
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(Vec::len).collect()
    }
}

/// Holds calls of the sink until the test lets them through.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// For all calls, from now on.
    pub(crate) fn open(&self) {
        self.0.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// For so many calls.
    pub(crate) fn let_through(&self, calls: usize) {
        self.0.add_permits(calls);
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }
}

/// A sink that takes all at once.
pub(crate) fn ok<T: Clone + Send + 'static>(
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> std::future::Ready<Result<(), FlushError>> + Send + use<T> {
    let log = log.clone();
    move |batch: Batch<T>| {
        log.add(&batch);
        std::future::ready(Ok(()))
    }
}

/// A sink that waits at the gate, then takes all.
pub(crate) fn gated<T: Clone + Send + Sync + 'static>(
    gate: &Gate,
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> Answer + Send + use<T> {
    let (gate, log) = (gate.clone(), log.clone());
    move |batch: Batch<T>| {
        let (gate, log) = (gate.clone(), log.clone());
        Box::pin(async move {
            gate.pass().await;
            log.add(&batch);
            Ok(())
        })
    }
}

/// A sink that fails so often, then takes all; it logs only what it took.
pub(crate) fn failing<T: Clone + Send + 'static>(
    mut times: usize,
    log: &Log<T>,
) -> impl FnMut(Batch<T>) -> std::future::Ready<Result<(), FlushError>> + Send + use<T> {
    let log = log.clone();
    move |batch: Batch<T>| {
        if times > 0 {
            times -= 1;
            return std::future::ready(Err(FlushError::retry("down")));
        }
        log.add(&batch);
        std::future::ready(Ok(()))
    }
}

/// A sink that never answers, and keeps its batch.
pub(crate) async fn hung<T: Send>(batch: Batch<T>) -> Result<(), FlushError> {
    std::future::pending::<()>().await;
    drop(batch);
    Ok(())
}

/// The item, the reason, and what the error says.
pub(crate) type Line<T> = (Option<T>, LossReason, Option<String>);

/// What a loss hook was told, one line for each item.
#[derive(Debug)]
pub(crate) struct Losses<T>(Arc<Mutex<Vec<Line<T>>>>);

impl<T> Default for Losses<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Losses<T> {
    pub(crate) fn hook(&self) -> impl Fn(Loss<T>) + Send + Sync + use<T> {
        let lines = Arc::clone(&self.0);
        move |loss| {
            lines.lock().unwrap().push((loss.item, loss.reason, loss.error.map(|error| error.to_string())));
        }
    }

    pub(crate) fn lines(&self) -> Vec<Line<T>> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn items(&self) -> Vec<T> {
        self.0.lock().unwrap().iter().filter_map(|(item, ..)| item.clone()).collect()
    }
}

/// Counts how often each token was dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    drops: Arc<Mutex<Vec<u32>>>,
    live: Arc<AtomicUsize>,
}

/// An item that may be dropped once.
#[derive(Debug)]
pub(crate) struct Token {
    id: usize,
    tokens: Tokens,
}

impl Tokens {
    pub(crate) fn make(&self) -> Token {
        let mut drops = self.drops.lock().unwrap();
        drops.push(0);
        self.live.fetch_add(1, Ordering::Relaxed);
        Token { id: drops.len() - 1, tokens: self.clone() }
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// So many were made, and each was dropped exactly once.
    pub(crate) fn assert_each_dropped_once(&self, made: usize) {
        let drops = self.drops.lock().unwrap();
        assert_eq!(drops.len(), made, "tokens made");
        let wrong: Vec<_> = drops.iter().enumerate().filter(|(_, drops)| **drops != 1).collect();
        assert!(wrong.is_empty(), "tokens and how often they were dropped: {wrong:?}");
    }
}

impl Token {
    pub(crate) fn id(&self) -> usize {
        self.id
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.live.fetch_sub(1, Ordering::Relaxed);
        if let Ok(mut drops) = self.tokens.drops.lock() {
            drops[self.id] += 1;
        }
    }
}

pub(crate) fn ids(tokens: &[Token]) -> Vec<usize> {
    tokens.iter().map(Token::id).collect()
}
