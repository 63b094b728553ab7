//! Waiting until everything before a position is settled.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::core::Core;
use crate::error::WouldDeadlock;
use crate::report::FlushReport;
use crate::thread::{block_on, may_block};

/// The future of [`flush`](crate::BackpressureController::flush).
#[must_use = "futures do nothing unless polled"]
pub struct Flush<'a, T> {
    core: &'a Core<T>,
    barrier: Option<u64>,
}

impl<'a, T> Flush<'a, T> {
    pub(crate) fn new(core: &'a Core<T>) -> Self {
        Self { core, barrier: None }
    }
}

impl<T> Future for Flush<'_, T> {
    type Output = FlushReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FlushReport> {
        let core = self.core;
        let id = *self.barrier.get_or_insert_with(|| core.open_barrier());
        match core.poll_barrier(id, cx.waker().clone()) {
            Some(report) => Poll::Ready(report),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Flush<'_, T> {
    fn drop(&mut self) {
        if let Some(id) = self.barrier {
            self.core.close_barrier(id);
        }
    }
}

impl<T> fmt::Debug for Flush<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flush")
    }
}

/// A flush on a plain thread, which is parked meanwhile.
pub(crate) fn flush_blocking<T>(core: &Core<T>) -> Result<FlushReport, WouldDeadlock> {
    check_thread(core)?;
    Ok(block_on(pin!(Flush::new(core))))
}

/// Whether this thread may wait for this controller.
pub(crate) fn check_thread<T>(core: &Core<T>) -> Result<(), WouldDeadlock> {
    if core.is_inside() || !may_block() { Err(WouldDeadlock) } else { Ok(()) }
}
