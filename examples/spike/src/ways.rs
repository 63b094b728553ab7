//! The ways of buffering: each strategy of a controller, and a channel in two uses.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, ensure};
use backpressure::{BackpressureController, Batch, Loss, Sample, Snapshot, State, Strategy};
use tokio::{runtime::Builder, sync::mpsc, task};

use crate::load::{self, BATCH, CAPACITY, Figures, Intake, Item, Lost, Run, Sink, Told};

/// How long a partial batch waits.
const LINGER: Duration = Duration::from_millis(5);
/// How long `BlockFor` lets a request wait.
const PATIENCE: Duration = Duration::from_millis(100);
/// Makes the draws of `Sample` the same each time.
const SEED: u64 = 1;
/// What is outstanding at the end takes the sink a third of a second.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs the load through all of them, each on a clock of its own.
pub(crate) fn run_all() -> anyhow::Result<Vec<Run>> {
    Ok(vec![
        controller("Block", "waits for room", Strategy::Block)?,
        controller("BlockFor", "waits for 100 ms at most", Strategy::BlockFor(PATIENCE))?,
        controller("DropOldest", "makes room", Strategy::DropOldest)?,
        controller("DropNewest", "refuses", Strategy::DropNewest)?,
        controller("Sample", "1 in 2, then 1 in 10", Strategy::Sample(Sample::new().seed(SEED)))?,
        channel("tokio mpsc", "send().await", true)?,
        channel("tokio mpsc", "try_send()", false)?,
    ])
}

fn on_paused_clock<R>(run: impl Future<Output = anyhow::Result<R>>) -> anyhow::Result<R> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.context("cannot start the runtime")?.block_on(run)
}

fn controller(name: &'static str, rule: &'static str, strategy: Strategy<Item>) -> anyhow::Result<Run> {
    on_paused_clock(async {
        let (sink, lost) = (Sink::default(), Lost::new());
        let evicted = lost.clone();
        let controller = BackpressureController::builder(CAPACITY)
            .strategy(strategy)
            .fixed(BATCH, LINGER)
            .on_loss(move |loss: Loss<Item>| loss.item.into_iter().for_each(|item| evicted.note(item)))
            .spawn_with(sink.clone(), |sink, batch: Batch<Item>| async move {
                sink.write(batch.weighted()).await;
                Ok(())
            })?;
        let told = load::offer(&controller, &lost).await;
        let totals = controller.drain(DRAIN).await.totals;
        check(&totals, &told, &sink).with_context(|| format!("the accounts of {name} do not add up"))?;
        let (how, count) = losses(&totals);
        let figures = Figures {
            offered: totals.offered,
            delivered: totals.delivered,
            estimate: sink.estimate(),
            lost: count,
            how,
            longest_wait: told.longest_wait,
            oldest: sink.oldest(),
        };
        run(name, rule, figures, told, &lost)
    })
}

/// Puts a run together, if every loss was seen where it happened.
fn run(name: &'static str, rule: &'static str, figures: Figures, told: Told, lost: &Lost) -> anyhow::Result<Run> {
    let lost = lost.steps();
    let seen: u64 = lost.iter().sum();
    ensure!(seen == figures.lost, "{name}: {seen} losses were seen, {} counted", figures.lost);
    ensure!(figures.offered == figures.delivered + figures.lost, "{name}: {figures:?} do not add up");
    Ok(Run { name, rule, figures, trace: told.trace, lost })
}

impl Intake for BackpressureController<Item> {
    async fn offer(&self, item: Item) -> bool {
        self.push(item).await.is_ok()
    }

    fn look(&self) -> (u64, Option<State>) {
        let snapshot = self.snapshot();
        (snapshot.depth, Some(snapshot.state))
    }
}

/// Every item that was offered is found again: in the ledger, with the producers, and with the sink.
fn check(totals: &Snapshot, told: &Told, sink: &Sink) -> anyhow::Result<()> {
    totals.audit()?;
    let offered: u64 = load::LOAD.map(load::arrivals).sum();
    ensure!(totals.offered == offered, "{offered} items came, {} were offered", totals.offered);
    ensure!((totals.accepted, totals.refused.total()) == (told.accepted, told.refused), "{totals:?}, but {told:?}");
    ensure!(totals.delivered == sink.delivered(), "{totals:?}, but the sink has {}", sink.delivered());
    ensure!(totals.peak_depth <= CAPACITY as u64, "the bound was {CAPACITY}, the depth {}", totals.peak_depth);
    Ok(())
}

/// What was lost, and the word for most of it.
fn losses(totals: &Snapshot) -> (&'static str, u64) {
    let refused = totals.refused;
    let ways = [
        ("evicted", totals.evicted),
        ("timed out", refused.timed_out),
        ("refused", refused.full),
        ("sampled", refused.sampled),
    ];
    let total = ways.iter().map(|(_, count)| count).sum();
    let most = ways.into_iter().filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count);
    (most.map_or("lost", |(word, _)| word), total)
}

/// The channel takes as many items as the controller, and its receiver as many at once.
fn channel(name: &'static str, rule: &'static str, waits: bool) -> anyhow::Result<Run> {
    on_paused_clock(async {
        let (sink, lost) = (Sink::default(), Lost::new());
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let receiver = task::spawn(receive(receiver, sink.clone()));
        let intake = Channel { sender, waits, sink: sink.clone() };
        let told = load::offer(&intake, &lost).await;
        drop(intake);
        receiver.await?;
        let figures = Figures {
            offered: told.accepted + told.refused,
            delivered: sink.delivered(),
            estimate: sink.estimate(),
            lost: told.refused,
            how: "refused",
            longest_wait: told.longest_wait,
            oldest: sink.oldest(),
        };
        run(name, rule, figures, told, &lost)
    })
}

async fn receive(mut receiver: mpsc::Receiver<Item>, sink: Sink) {
    let mut items = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut items, BATCH).await > 0 {
        sink.write(items.iter().map(|item| (item, 1))).await;
        items.clear();
    }
}

#[derive(Clone, Debug)]
struct Channel {
    sender: mpsc::Sender<Item>,
    waits: bool,
    sink: Sink,
}

impl Intake for Channel {
    async fn offer(&self, item: Item) -> bool {
        if self.waits { self.sender.send(item).await.is_ok() } else { self.sender.try_send(item).is_ok() }
    }

    fn look(&self) -> (u64, Option<State>) {
        let queued = self.sender.max_capacity() - self.sender.capacity();
        (queued as u64 + self.sink.in_hand(), None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// They are the same each time, so once is enough.
    static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| run_all().unwrap_or_else(|error| panic!("{error:#}")));

    #[test]
    fn each_way_does_what_it_says() {
        assert!(RUNS.iter().all(|run| run.figures.offered == 20_400), "{RUNS:?}");
        let [block, block_for, drop_oldest, drop_newest, sample, send, try_send] = &RUNS[..] else {
            panic!("{RUNS:?}")
        };
        for run in [block, send] {
            assert_eq!(run.figures.lost, 0);
            assert!(run.figures.longest_wait > PATIENCE);
        }
        assert_eq!((block_for.figures.longest_wait, block_for.figures.how), (PATIENCE, "timed out"));
        for run in [drop_oldest, drop_newest, sample, try_send] {
            assert!(run.figures.lost > 0);
            assert_eq!(run.figures.longest_wait, Duration::ZERO);
        }
    }

    #[test]
    fn the_weights_of_a_sample_add_up_to_about_what_was_offered() {
        for Figures { offered, delivered, estimate, how, .. } in RUNS.iter().map(|run| &run.figures) {
            if *how == "sampled" {
                assert!(estimate.abs_diff(*offered) < offered / 50, "{estimate} for {offered}");
            } else {
                assert_eq!(estimate, delivered);
            }
        }
    }

    #[test]
    fn evicted_items_came_before_refused_ones() {
        let first = |run: &Run| run.lost.iter().position(|lost| *lost > 0);
        assert!(first(&RUNS[2]) < first(&RUNS[3]));
    }

    #[test]
    fn only_the_channel_holds_more_than_its_capacity() {
        for run in RUNS.iter() {
            let peak = run.trace.iter().map(|point| point.depth).max();
            assert_eq!(peak > Some(CAPACITY as u64), run.name == "tokio mpsc", "{}: {peak:?}", run.name);
        }
    }
}
