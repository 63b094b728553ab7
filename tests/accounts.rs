//! The figures say what is (I1, I2).

use std::time::Duration;

use backpressure::{BackpressureController, Batch, FlushError};

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
