//! The figures say what is (I1, I2).

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError, LossReason, RefuseReason, Strategy};

async fn hang() -> Result<(), FlushError> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_guard_is_dropped_early_waits_for_no_retry() {
    let sink = |batch: Batch<u32>| async move {
        drop(batch);
        hang().await
    };
    let c = BackpressureController::builder(2).fixed(1, Duration::ZERO).spawn(sink).unwrap();
    c.try_push(0).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let snapshot = c.snapshot();
    assert_eq!((snapshot.in_flight, snapshot.retry_waiting), (1, 0));
}

/// A sink marks its items, keeps its guard elsewhere and fails; the guard comes home, and the flusher is dropped before it
/// could look: returns the drain's leftovers, what `on_loss` was told, and how many were delivered and have failed.
async fn home_and_never_looked_at(edit: fn(&mut Batch<u32>)) -> (Vec<u32>, Vec<(Option<u32>, LossReason)>, (u64, u64)) {
    let kept = Arc::new(Mutex::new(None));
    let told = Arc::new(Mutex::new(Vec::new()));
    let (keep, tell) = (Arc::clone(&kept), Arc::clone(&told));
    let sink = move |mut batch: Batch<u32>| {
        edit(&mut batch);
        *keep.lock().unwrap() = Some(batch);
        std::future::ready(Err(FlushError::retry("later")))
    };
    let (c, flusher) = BackpressureController::builder(3)
        .fixed(3, Duration::ZERO)
        .on_loss(move |loss| tell.lock().unwrap().push((loss.item, loss.reason)))
        .build(sink)
        .unwrap();
    assert_eq!(c.push_all(0..3).await.unwrap(), 3);
    let mut flusher = Box::pin(flusher);
    assert!(futures::poll!(flusher.as_mut()).is_pending());
    let drain = c.drain(Duration::from_secs(1));
    tokio::pin!(drain);
    assert!(futures::poll!(drain.as_mut()).is_pending());
    let guard = kept.lock().unwrap().take();
    drop(guard);
    drop(flusher);
    let report = drain.await;
    report.totals.audit().unwrap();
    let told = told.lock().unwrap().clone();
    (report.leftovers, told, (report.totals.delivered, report.totals.failed))
}

#[tokio::test(start_paused = true)]
async fn acknowledged_items_are_delivered_although_the_flusher_died_before_it_looked() {
    let (leftovers, told, settled) = home_and_never_looked_at(|batch| batch.deliver(1)).await;
    assert_eq!((leftovers, told, settled), (vec![0, 2], vec![], (1, 0)));
}

#[tokio::test(start_paused = true)]
async fn items_moved_out_have_failed_although_the_flusher_died_before_it_looked() {
    let (leftovers, told, settled) = home_and_never_looked_at(|batch| drop(batch.take())).await;
    assert_eq!((leftovers, told, settled), (vec![], vec![(None, LossReason::Failed); 3], (0, 3)));
}

#[tokio::test(start_paused = true)]
async fn a_second_drain_joins_the_first_and_its_deadline_also_if_that_is_never() {
    let c = BackpressureController::builder(1).fixed(1, Duration::ZERO).spawn(|_: Batch<u32>| hang()).unwrap();
    c.try_push(0).unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let first = c.drain(Duration::MAX);
    tokio::pin!(first);
    assert!(futures::poll!(first.as_mut()).is_pending());
    let second = tokio::time::timeout(Duration::from_secs(10), c.drain(Duration::from_secs(1))).await;
    assert!(second.is_err(), "the second drain had a deadline of its own");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_answers_after_the_end_settles_nothing_twice() {
    let kept = Arc::new(Mutex::new(None));
    let (open, gate) = tokio::sync::oneshot::channel::<()>();
    let (keep, mut gate) = (Arc::clone(&kept), Some(gate));
    let sink = move |batch: Batch<u32>| {
        let (keep, gate) = (Arc::clone(&keep), gate.take());
        async move {
            gate.unwrap().await.unwrap();
            *keep.lock().unwrap() = Some(batch);
            Ok(())
        }
    };
    let (c, flusher) = BackpressureController::builder(2).fixed(1, Duration::ZERO).build(sink).unwrap();
    c.try_push(0).unwrap();
    let mut flusher = Box::pin(flusher);
    assert!(futures::poll!(flusher.as_mut()).is_pending());
    // Nobody drives the flusher meanwhile, as if the sink blocked its thread.
    let report = c.drain(Duration::from_secs(1)).await;
    assert_eq!((report.abandoned(), report.not_returned), (1, 1));
    open.send(()).unwrap();
    flusher.await.unwrap();
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert_eq!((snapshot.abandoned, snapshot.delivered), (1, 0));
    drop(kept.lock().unwrap().take());
}

/// Closes the intake when the last of its wakers is dropped.
struct CloseOnDrop(BackpressureController<u32>);

impl Wake for CloseOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The time of a push is over in the moment in which the intake is shut: after it was counted as closed, before it has looked.
#[tokio::test(start_paused = true)]
async fn a_push_that_is_shut_out_as_its_time_ends_is_told_what_was_counted() {
    async fn refused<F: Future>(
        c: &BackpressureController<u32>,
        push: impl FnOnce(BackpressureController<u32>) -> Pin<Box<F>>,
    ) -> F::Output {
        c.try_push(0).unwrap();
        let mut push = push(c.clone());
        let waker = Waker::from(Arc::new(CloseOnDrop(c.clone())));
        assert!(push.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        tokio::time::advance(Duration::from_secs(2)).await;
        let Poll::Ready(output) = push.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it is over")
        };
        output
    }
    let full = || {
        let builder = BackpressureController::builder(1).strategy(Strategy::BlockFor(Duration::from_secs(1)));
        builder.spawn(|batch: Batch<u32>| async { (batch, hang().await).1 }).unwrap()
    };
    let reasons = {
        let (one, many) = (full(), full());
        let by_push = refused(&one, |c| Box::pin(async move { c.push(1).await })).await.unwrap_err().reason();
        let by_push_all =
            refused(&many, |c| Box::pin(async move { c.push_all([1, 2]).await.map_err(|e| e.reason()) })).await;
        [(one, by_push, 1), (many, by_push_all.unwrap_err(), 2)]
    };
    for (c, told, count) in reasons {
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        let counted = (snapshot.refused.closed, snapshot.refused.timed_out);
        assert_eq!((told, counted), (RefuseReason::Closed, (count, 0)));
    }
}
