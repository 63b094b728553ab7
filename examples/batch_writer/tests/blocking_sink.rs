//! A connection that is owned by a blocking sink, and written to a real file: through a lock held by somebody else, a
//! statement that is refused, a panic in the middle of a transaction, and a call that is cut off.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use anyhow::Context as _;
use backpressure::{BackpressureController, Batch, BlockingSink, FlushError, Retry};
use rusqlite::{Connection, ErrorCode, params};

const ITEMS: u64 = 10_000;
const BATCH: usize = 100;
/// The first attempt at the batch that begins there panics.
const PANICS: u64 = 1_000;
/// The first attempt at the batch that begins there is cut off.
const HANGS: u64 = 3_000;
/// This item breaks a rule of the table.
const REFUSED: u64 = 5_050;

/// A file that is gone when the test is over.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // there is nobody to tell
    }
}

/// Writes a batch in one transaction; its rows are named by position, so a batch that is sent again finds them.
fn write(connection: &mut Connection, batch: &Batch<u64>, cut_off: &Receiver<()>) -> Result<(), FlushError> {
    let hangs = batch.attempt() == 1 && batch.first() == Some(&HANGS);
    if !hangs {
        // A slow machine, or a backtrace, is no reason to be cut off.
        batch.extend(Duration::from_secs(60));
    }
    let transaction = connection.transaction()?;
    for (i, item) in batch.iter().enumerate() {
        let insert = "INSERT OR REPLACE INTO items (seq, item) VALUES (?1, ?2)";
        match transaction.execute(insert, params![batch.seq(i), item]) {
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Err(FlushError::permanent(error));
            }
            Err(error) => return Err(FlushError::retry(error)),
        }
        assert!(!(batch.attempt() == 1 && *item == PANICS + 50), "in the middle of a transaction");
    }
    transaction.commit()?;
    if hangs {
        // Written, but nobody waits for the answer any more.
        cut_off.recv()?;
    }
    Ok(())
}

fn create(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch(&format!(
        "CREATE TABLE items (seq INTEGER PRIMARY KEY, item INTEGER NOT NULL CHECK (item <> {REFUSED}))"
    ))?;
    Ok(connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_blocking_sink_writes_each_item_once_whatever_goes_wrong() -> anyhow::Result<()> {
    let file = Scratch(env::temp_dir().join(format!("blocking_sink-{}.sqlite", process::id())));
    let mut connection = create(&file.0)?;
    let other = Connection::open(&file.0)?;
    let (sender, failed) = channel();
    let (go_on, cut_off) = channel();

    let items = BackpressureController::builder(1_000)
        .fixed(BATCH, Duration::from_secs(3600)) // full batches only, so that each begins where the test says
        .flush_timeout(Duration::from_millis(500)) // a busy machine needs some of it before a call can ask for more
        .retry(Retry::exponential(Duration::from_millis(5), Duration::from_millis(5)))
        .on_loss(move |loss| drop(sender.send((loss.item, loss.error.map(|error| error.to_string())))))
        .spawn(BlockingSink::new(move |batch| write(&mut connection, &batch, &cut_off)))?;

    let watched = items.clone();
    tokio::spawn(async move {
        while watched.snapshot().flushes.timed_out == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        go_on.send(())
    });

    // Busy, until the other connection lets go.
    other.execute_batch("BEGIN IMMEDIATE")?;
    for item in 0..500 {
        items.push(item).await?;
    }
    while items.snapshot().flushes.retry < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(items.snapshot().delivered, 0);
    other.execute_batch("COMMIT")?;

    for item in 500..ITEMS {
        items.push(item).await?;
    }
    let report = items.drain(Duration::from_secs(60)).await;
    report.totals.audit()?;
    let flushes = report.totals.flushes;
    assert_eq!((flushes.panicked, flushes.timed_out, flushes.permanent), (1, 1, 1));
    assert!(report.is_clean() && flushes.retry >= 3, "{flushes:?}");

    // The batch that was refused is named item by item; everything else is in the file, once, in order.
    let failed: Vec<_> = failed.try_iter().collect();
    assert_eq!(failed.len() as u64, report.failed());
    let lost: Vec<u64> = failed.iter().filter_map(|(item, _)| *item).collect();
    assert!(lost.contains(&REFUSED) && lost.len() <= BATCH, "{lost:?}");
    assert!(failed.iter().all(|(_, error)| error.as_deref().is_some_and(|error| error.contains("CHECK"))));
    let stored: Vec<u64> = other
        .prepare("SELECT item FROM items ORDER BY seq")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let expected: Vec<u64> = (0..ITEMS).filter(|item| !lost.contains(item)).collect();
    assert_eq!(stored, expected);
    assert_eq!(report.delivered(), stored.len() as u64);
    drop(items);
    drop(other);
    fs::metadata(&file.0).context("the file is there until the test is over")?;
    Ok(())
}
