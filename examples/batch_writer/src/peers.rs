//! Two ways of doing without a controller, into tables of the same database.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::mpsc;

use crate::{
    args::Args,
    event::Events,
    sink::{Chunk, Sink},
    store::Table,
};

/// Rows of the row by row writer, which would take too long over a million.
const SINGLE_ROWS: u64 = 20_000;

/// When the row by row writer stops in any case, since a slow sink delays each of its rows.
const SINGLE_LIMIT: Duration = Duration::from_secs(10);

/// Rows that were written, and the time from the first event to the last commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) rows: u64,
    pub(crate) elapsed: Duration,
}

impl Measured {
    /// Rows a second.
    pub(crate) fn rate(self) -> f64 {
        self.rows as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// A bounded channel, its receiver taking as many as there are up to a batch.
///
/// A place of the channel is free again once its event is taken, not once it is written, so it holds a
/// batch more than its capacity. It gives up at the first error, and what it had taken is gone.
pub(crate) async fn channel(args: &Args) -> anyhow::Result<Measured> {
    let mut sink = Sink::new(args.db.create(Table::Channel).await?, args.sink_delay, Duration::ZERO);
    let start = Instant::now();
    let (sender, mut receiver) = mpsc::channel(args.capacity);
    for (producer, share) in args.shares() {
        let sender = sender.clone();
        tokio::spawn(async move {
            for event in Events::of(producer, share) {
                if sender.send(event).await.is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);

    let mut rows = 0;
    let mut chunk = Chunk { first: 0, events: Vec::with_capacity(args.batch()) };
    while receiver.recv_many(&mut chunk.events, args.batch()).await > 0 {
        rows += chunk.events.len() as u64;
        chunk = sink.write(chunk).await?;
        chunk.events.clear();
        chunk.first = rows;
    }
    checked(args, Table::Channel, Measured { rows, elapsed: start.elapsed() }).await
}

/// A transaction for each row, in a loop of its own.
pub(crate) async fn singly(args: &Args) -> anyhow::Result<Measured> {
    let mut store = args.db.create(Table::Singly).await?;
    let (events, start) = (Events::of(0, args.events.min(SINGLE_ROWS)), Instant::now());
    let rows = store.write_singly(events, args.sink_delay, start + SINGLE_LIMIT).await?;
    checked(args, Table::Singly, Measured { rows, elapsed: start.elapsed() }).await
}

/// A peer that did not do its work is no peer.
async fn checked(args: &Args, table: Table, measured: Measured) -> anyhow::Result<Measured> {
    let count = args.db.count(table).await?;
    ensure!(
        count.rows == measured.rows && count.events == measured.rows,
        "{} rows were written, but the table has {} of {} events",
        measured.rows,
        count.rows,
        count.events,
    );
    Ok(measured)
}
