//! The run through the controller.

use std::{
    ops::AddAssign,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backpressure::{BackpressureController, DrainReport, Loss, PushError, Snapshot};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    args::Args,
    event::{Event, Events},
    progress::{Audits, Progress},
    sink::Sink,
    store::{Store, Table},
};

/// How long a partial batch waits for more.
const LINGER: Duration = Duration::from_millis(5);

/// How long a flush may take, apart from the delay that was asked for.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the store may take for what is left after a Ctrl-C.
pub(crate) const DRAIN_DEADLINE: Duration = Duration::from_secs(25);

/// What is known when all is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The ledger, read when the last producer had ended.
    pub(crate) totals: Snapshot,
    pub(crate) report: DrainReport<Event>,
    pub(crate) tally: Tally,
    /// Losses that the hook was told of.
    pub(crate) heard: u64,
    pub(crate) audits: Audits,
    pub(crate) elapsed: Duration,
    pub(crate) interrupted: bool,
}

/// What the producers counted themselves, to be held against the ledger.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) offered: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.accepted += other.accepted;
        self.refused += other.refused;
    }
}

/// Makes the events, and waits until the table has all that were accepted, or for the drain after an
/// `interrupt`.
pub(crate) async fn run(args: &Args, interrupt: &mut watch::Receiver<bool>) -> anyhow::Result<Outcome> {
    let heard = Arc::new(AtomicU64::new(0));
    let store = args.db.create(Table::Controller).await.context("cannot create the table")?;
    let controller = build(args, store, &heard).context("the options do not fit together")?;
    let progress = Progress::start(controller.downgrade(), args.events);

    let start = Instant::now();
    let mut tally = Tally::default();
    let mut producers: JoinSet<Tally> = args.shares().map(|(p, share)| produce(controller.clone(), p, share)).collect();
    let interrupted = tokio::select! {
        biased;
        _ = interrupt.wait_for(|told| *told) => true,
        () = finish(&mut producers, &mut tally, &controller) => false,
    };
    // The drain shuts the intake first: a producer that is still there sees `Closed` and stops, maybe
    // after the drain has ended, so the totals of its report may lack that one offer.
    let report = controller.drain(DRAIN_DEADLINE).await;
    let elapsed = start.elapsed();
    join(&mut producers, &mut tally).await;
    let totals = controller.snapshot();

    drop(controller);
    let audits = progress.end().await;
    let heard = heard.load(Ordering::Relaxed); // Relaxed: all who add to it have been waited for
    Ok(Outcome { totals, report, tally, heard, audits, elapsed, interrupted })
}

fn build(
    args: &Args,
    store: Store,
    heard: &Arc<AtomicU64>,
) -> Result<BackpressureController<Event>, backpressure::BuildError> {
    let heard = Arc::clone(heard);
    BackpressureController::<Event>::builder(args.capacity)
        .strategy(args.strategy.into())
        .fixed(args.batch(), LINGER)
        .flush_timeout(FLUSH_TIMEOUT.saturating_add(args.sink_delay))
        .on_loss(move |_: Loss<Event>| {
            heard.fetch_add(1, Ordering::Relaxed); // Relaxed: a count, read at the end
        })
        .spawn_concurrent(args.slots.get(), Sink::new(store, args.sink_delay, args.fail_for))
}

/// Waits for the producers and then for the store to have caught up, however long that takes.
async fn finish(producers: &mut JoinSet<Tally>, tally: &mut Tally, controller: &BackpressureController<Event>) {
    join(producers, tally).await;
    let _ = controller.flush().await; // the ledger at the end says what came of it
}

/// Adds up what the producers counted, as they end.
async fn join(producers: &mut JoinSet<Tally>, tally: &mut Tally) {
    while let Some(counted) = producers.join_next().await {
        // A producer that panicked counted nothing, which the checks will find.
        *tally += counted.unwrap_or_default();
    }
}

/// Offers the `share` of one producer.
async fn produce(controller: BackpressureController<Event>, producer: u64, share: u64) -> Tally {
    let mut tally = Tally::default();
    for event in Events::of(producer, share) {
        tally.offered += 1;
        match controller.push(event).await {
            Ok(()) => tally.accepted += 1,
            Err(PushError::Closed(_)) => {
                tally.refused += 1;
                break;
            }
            Err(_) => tally.refused += 1,
        }
    }
    tally
}
