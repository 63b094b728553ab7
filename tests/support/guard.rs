//! Whatever may hang runs on another thread, and a hang is a failure.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

/// How long a test may take in real time, unless it says otherwise.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Runs `test` on another thread, for [`LIMIT`] at most.
pub(crate) fn guarded<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    guarded_for(LIMIT, test)
}

/// Runs `test` on another thread; fails if it is not over after `limit` in real time.
pub(crate) fn guarded_for<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let name = thread::current().name().unwrap_or("guarded").to_owned();
    let worker = thread::Builder::new().name(name).spawn(move || sender.send(test())).unwrap();
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("the guard fired: not over after {limit:?}"),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => resume_unwind(panic),
            Ok(_) => unreachable!("it was sent"),
        },
    }
}

/// Runs an asynchronous test on one guarded thread, with tokio's clock paused.
pub(crate) fn paused<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    paused_for(LIMIT, test);
}

/// The same, for `limit` at most in real time.
pub(crate) fn paused_for<F: Future<Output = ()>>(limit: Duration, test: impl FnOnce() -> F + Send + 'static) {
    guarded_for(limit, move || {
        Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test());
    });
}

/// Runs an asynchronous test on two guarded worker threads, in real time, for `limit` at most.
pub(crate) fn real<F: Future<Output = ()>>(limit: Duration, test: impl FnOnce() -> F + Send + 'static) {
    guarded_for(limit, move || {
        Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(test());
    });
}
