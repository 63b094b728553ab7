//! Threads that block: whether one may, and how it waits for a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::panics::catch;
use crate::sync::thread::{self, Thread};
use crate::sync::thread_local;
use crate::time::{ThreadDeadline, park_thread};

/// Whether tokio lets this thread block: it runs no asynchronous tasks.
pub(crate) fn may_block() -> bool {
    // tokio answers by a panic only; where there is no runtime, the question is not needed.
    Handle::try_current().is_err()
        || catch(|| {
            let (sender, receiver) = oneshot::channel::<()>();
            drop(sender);
            drop(receiver.blocking_recv());
        })
        .is_some()
}

/// Waits for a future; the thread is parked meanwhile.
pub(crate) fn block_on<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    loop {
        if let Some(output) = block_until(future.as_mut(), ThreadDeadline::after(None)) {
            return output;
        }
    }
}

/// The same, until the deadline; `None` when it has passed.
pub(crate) fn block_until<F: Future>(mut future: Pin<&mut F>, deadline: ThreadDeadline) -> Option<F::Output> {
    let waker = waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        match deadline.left() {
            Some(Duration::ZERO) => return None,
            left => park_thread(left),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The waker of this thread, made once.
pub(crate) fn waker() -> Waker {
    let make = || Waker::from(Arc::new(Unpark(thread::current())));
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    // A wait in the destructor of another thread-local comes after this one is gone.
    WAKER.try_with(Waker::clone).unwrap_or_else(|_| make())
}
