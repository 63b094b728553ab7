//! Any future may be dropped at any poll (I8).
#![allow(clippy::disallowed_methods, reason = "tests own the clock")]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use backpressure::BackpressureController;
use tokio::task::coop;

/// Uses up the budget of the running task.
async fn exhaust() {
    poll_fn(|cx| {
        while let Poll::Ready(budget) = coop::poll_proceed(cx) {
            budget.made_progress();
        }
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_push_that_had_no_budget_and_gave_up_is_cancelled() {
    let (c, _flusher) = BackpressureController::builder(1).build(|_| std::future::ready(Ok(()))).unwrap();
    c.try_push(0).unwrap();
    exhaust().await;
    {
        let push = pin!(c.push(1));
        assert!(push.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let snapshot = c.snapshot();
    assert_eq!((snapshot.offered, snapshot.accepted, snapshot.cancelled), (2, 1, 1));
}
