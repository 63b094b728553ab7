//! Pushes from plain threads.

use std::time::Duration;

use super::verdict;
use crate::core::{Admitted, Core, Queued, means_here};
use crate::error::{PushError, RefuseReason};
use crate::gate::{Parked, Wait};
use crate::thread::{may_block, waker};
use crate::time::{ThreadDeadline, park_thread, sooner};

/// Pushes an item; the thread is parked while the strategy waits, for `limit` at most.
pub(crate) fn push_blocking<T>(core: &Core<T>, item: T, limit: Option<Duration>) -> Result<(), PushError<T>> {
    let Err((item, tag)) = core.push(item, means_here) else { return Ok(()) };
    let (item, tag, limit) = match core.admit(item, tag) {
        Admitted::Stored => return Ok(()),
        Admitted::Refused(error) => return Err(error),
        Admitted::Wait(item, tag, waits) => (item, tag, sooner(waits, limit)),
    };
    let forbidden = || (!may_block()).then_some(RefuseReason::WouldDeadlock);
    if let Some(reason) = core.forbids_wait(limit).or_else(forbidden) {
        return Err(core.refuse(reason, item));
    }
    let waker = waker();
    let key = match core.enqueue(Parked::single(item, tag), waker.clone()) {
        Queued::Served => return Ok(()),
        Queued::Waiting(key) => key,
        Queued::Closed(parked) => {
            let refused = parked.into_single().map(|item| core.refuse(RefuseReason::Closed, item));
            return refused.map_or(Ok(()), Err);
        }
    };
    let deadline = ThreadDeadline::after(limit);
    loop {
        match core.poll_waiter(key, waker.clone()) {
            Wait::Queued => {}
            over => return verdict(over, RefuseReason::Closed),
        }
        let left = deadline.left();
        if left == Some(Duration::ZERO) {
            return verdict(core.leave(key, Some(RefuseReason::TimedOut)), RefuseReason::TimedOut);
        }
        park_thread(left);
    }
}
