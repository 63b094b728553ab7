//! Whatever may hang runs on another thread, and a hang is a failure.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// How long whatever may hang may take in real time.
pub(crate) const GUARD: Duration = Duration::from_secs(5);

/// Runs `test` on another thread; fails if it is not over after `limit` in real time.
pub(crate) fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let name = thread::current().name().unwrap_or("guarded").to_owned();
    let worker = thread::Builder::new().name(name).spawn(move || sender.send(test())).unwrap();
    match receiver.recv_timeout(limit) {
        Ok(result) => {
            let _ = worker.join();
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("the guard fired: not over after {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => resume_unwind(panic),
            Ok(_) => unreachable!("the thread sends before it ends"),
        },
    }
}

/// Runs an asynchronous test on one guarded thread, with tokio's clock paused, for six times [`GUARD`] at most.
pub(crate) fn paused<F>(test: impl FnOnce() -> F + Send + 'static) -> F::Output
where
    F: Future<Output: Send + 'static>,
{
    paused_for(6 * GUARD, test)
}

/// The same, for `limit` at most in real time.
pub(crate) fn paused_for<F>(limit: Duration, test: impl FnOnce() -> F + Send + 'static) -> F::Output
where
    F: Future<Output: Send + 'static>,
{
    within(limit, move || {
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test())
    })
}

/// Runs an asynchronous test on two guarded worker threads, in real time, for `limit` at most.
pub(crate) fn real<F: Future<Output = ()>>(limit: Duration, test: impl FnOnce() -> F + Send + 'static) {
    within(limit, move || workers(2).block_on(test()));
}

/// A runtime whose clock is the machine's.
pub(crate) fn workers(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}
