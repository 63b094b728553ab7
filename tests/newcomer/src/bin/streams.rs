//! Streams go in by two ways, and batches come out as a stream.

use std::error::Error;
use std::time::Duration;

use backpressure::{BackpressureController, BackpressureStreamExt as _, Batch, PushAllError, PushError, Strategy};
use futures::{StreamExt as _, stream};

type Result = std::result::Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result {
    into_a_slow_sink().await?;
    by_forward().await?;
    pull().await?;
    pull_several_at_once().await
}

async fn into_a_slow_sink() -> Result {
    let lines = BackpressureController::builder(50)
        .on_loss(|loss| panic!("nothing is lost while the strategy waits: {loss:?}"))
        .spawn(|batch: Batch<u32>| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(batch.len() <= 25, "half the capacity");
            Ok(())
        })?;
    let forwarded = stream::iter(0..1_000).backpressured(&lines).await;
    println!("{forwarded:?}");
    assert_eq!((forwarded.accepted, forwarded.refused, forwarded.is_cut_off), (1_000, 0, false));
    let report = lines.drain(Duration::from_secs(5)).await;
    println!("{report}");
    assert!(report.is_clean() && report.delivered() == 1_000);
    assert!(report.totals.peak_depth <= 50);
    Ok(())
}

async fn by_forward() -> Result {
    let lines = BackpressureController::builder(50).spawn(|_: Batch<u32>| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(())
    })?;
    stream::iter(0..1_000).map(Ok).forward(lines.sink()).await?; // it ends when all is settled
    assert_eq!(lines.snapshot().delivered, 1_000);

    // A sink has errors, so the first refusal ends the stream, and brings its item back. `backpressured` goes on instead.
    lines.reconfigure(|changes| changes.capacity(10).max_batch(5).strategy(Strategy::DropNewest))?;
    match stream::iter(0..1_000).map(Ok).forward(lines.sink()).await {
        Err(PushError::Full(line)) => println!("{line} came back"),
        other => panic!("{other:?}"),
    }
    let forwarded = stream::iter(0..1_000).backpressured(&lines).await;
    println!("{forwarded:?}");
    assert_eq!(forwarded.accepted + forwarded.refused, 1_000);
    assert!(forwarded.refused > 0);
    Ok(())
}

async fn pull() -> Result {
    let (lines, mut batches) = BackpressureController::builder(50).max_batch(10).pull()?;
    let producer = tokio::spawn(async move {
        lines.push_all(0..1_000).await?;
        lines.close();
        Ok::<_, PushAllError<_>>(lines)
    });
    let mut seen = Vec::new();
    let mut gave_back = false;
    while let Some(batch) = batches.next().await {
        if seen.len() >= 500 && batch.attempt() == 1 && !gave_back {
            gave_back = true;
            continue; // dropped: it comes again, before anything newer
        }
        seen.extend_from_slice(&batch);
        batch.done();
    }
    let lines = producer.await??;
    assert!(seen.into_iter().eq(0..1_000));
    println!("{:?}", lines.snapshot().flushes);
    assert_eq!(lines.snapshot().retried, 10);
    Ok(())
}

async fn pull_several_at_once() -> Result {
    let (lines, batches) = BackpressureController::builder(50).max_batch(10).pull()?;
    let consumer = tokio::spawn(batches.for_each_concurrent(4, |batch: Batch<u32>| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        batch.done();
    }));
    lines.push_all(0..1_000).await?;
    let report = lines.drain(Duration::from_secs(5)).await;
    consumer.await?;
    assert!(report.is_clean());
    assert_eq!(report.delivered(), 1_000);
    Ok(())
}
