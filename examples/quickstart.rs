//! A batch writer that survives an outage of its store and tells what it lost.
//!
//! ```text
//! cargo run --example quickstart
//! ```

use std::{io, sync::atomic::AtomicU32, sync::atomic::Ordering::Relaxed, time::Duration};

use backpressure::{BackpressureController, Batch, Loss, Strategy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let events = BackpressureController::<String>::builder(1_000) // buffered or being written
        .strategy(Strategy::DropOldest) // the default waits for room and loses nothing
        .on_loss(|loss: Loss<String>| println!("lost {:?}: {}", loss.item, loss.reason))
        .spawn(|batch: Batch<String>| async move {
            insert(&batch).await?; // on an error the batch goes back and is tried again
            Ok(())
        })?;

    for n in 1..=1_003 {
        events.push(format!("event {n}")).await?;
    }
    let report = events.drain(Duration::from_secs(25)).await;
    let (delivered, evicted) = (report.delivered(), report.evicted());
    println!("{delivered} delivered, {evicted} evicted, {} sent again", report.totals.retried);
    Ok(())
}

/// Stands in for a database that cannot be reached at first.
async fn insert(_rows: &[String]) -> io::Result<()> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    match CALLS.fetch_add(1, Relaxed) {
        0..3 => Err(io::Error::other("connection refused")),
        _ => Ok(()),
    }
}
