//! The hot paths beside tokio's channel, in one process and interleaved: `cargo bench --bench core`.
//!
//! Each round runs every contestant once, in turn; the table shows medians over the rounds, and the median of the ratios
//! within a round, which hold on a noisy machine where absolute times do not. It ends with status 1 when a mark is missed.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backpressure::{BackpressureController, Batch, Flusher, Strategy};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const ITEMS: u64 = 100_000;
const PIPELINE_ITEMS: u64 = 1_000_000;
const PRODUCERS: u64 = 2;
const BATCH: usize = 500;
const LINGER: Duration = Duration::from_millis(5);
const ROUNDS: usize = 15;

/// A row: our time and the peer's for the same work, and the most that ours may be of the peer's.
struct Row {
    name: &'static str,
    peer: &'static str,
    mark: Option<f64>,
    items: u64,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Row {
    fn new(name: &'static str, peer: &'static str, items: u64, mark: Option<f64>) -> Self {
        Self { name, peer, mark, items, ours: Vec::new(), theirs: Vec::new() }
    }

    /// Runs both once; which goes first alternates.
    fn round(&mut self, ours: impl Fn() -> Duration, theirs: impl Fn() -> Duration) {
        let per_item = |time: Duration| time.as_nanos() as f64 / self.items as f64;
        if self.ours.len() % 2 == 0 {
            self.ours.push(per_item(ours()));
            self.theirs.push(per_item(theirs()));
        } else {
            self.theirs.push(per_item(theirs()));
            self.ours.push(per_item(ours()));
        }
    }

    /// Prints the row; whether its mark is met.
    fn print(&self) -> bool {
        let ratio = median(self.ours.iter().zip(&self.theirs).map(|(a, b)| a / b));
        let is_met = self.mark.is_none_or(|mark| ratio <= mark);
        println!(
            "| {:<34} | {:>8.2} | {:<22} | {:>8.2} | {:>6.2} | {:>6} | {:<6} |",
            self.name,
            median(self.ours.iter().copied()),
            self.peer,
            median(self.theirs.iter().copied()),
            ratio,
            self.mark.map_or(String::new(), |mark| format!("{mark:.2}")),
            if is_met { "ok" } else { "MISSED" },
        );
        is_met
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

type Ours = BackpressureController<u64>;

async fn deliver(batch: Batch<u64>) -> Result<(), backpressure::FlushError> {
    black_box(&*batch);
    Ok(())
}

/// Not driven, so that only the producer's side is measured.
fn undriven(capacity: u64) -> (Ours, Flusher) {
    let builder = BackpressureController::builder(capacity as usize).fixed(BATCH.min(capacity as usize), LINGER);
    builder.build(deliver).expect("valid settings")
}

fn push_ours() -> Duration {
    let (queue, _flusher) = undriven(ITEMS);
    // Touch the memory first, as it is in a buffer that has run for a while.
    fill(&queue);
    drop(queue.purge());
    timed(|| fill(&queue))
}

/// Items of different weights, with room for all of them.
fn push_weighed() -> Duration {
    let builder = BackpressureController::builder(ITEMS as usize).fixed(BATCH, LINGER).strategy(Strategy::DropOldest);
    let weighed = builder.weigher(|item| *item & 15).capacity_weight(16 * ITEMS);
    let (queue, _flusher) = weighed.build(deliver).expect("valid settings");
    fill(&queue);
    drop(queue.purge());
    timed(|| fill(&queue))
}

fn fill(queue: &Ours) {
    for i in 0..ITEMS {
        black_box(queue.try_push(i)).expect("there is room");
    }
}

fn push_all_ours() -> Duration {
    let (queue, _flusher) = undriven(ITEMS);
    fill(&queue);
    drop(queue.purge());
    timed(|| {
        futures::executor::block_on(async {
            for chunk in 0..ITEMS / 64 {
                queue.push_all(chunk * 64..(chunk + 1) * 64).await.expect("there is room");
            }
        });
    })
}

fn push_tokio() -> Duration {
    let (sender, mut receiver) = mpsc::channel(ITEMS as usize);
    let fill = |sender: &mpsc::Sender<u64>| {
        for i in 0..ITEMS {
            black_box(sender.try_send(i)).expect("there is room");
        }
    };
    fill(&sender);
    while receiver.try_recv().is_ok() {}
    timed(|| fill(&sender))
}

fn refused_ours() -> Duration {
    let (queue, _flusher) = undriven(1);
    queue.try_push(0).expect("there is room");
    timed(|| {
        for i in 0..ITEMS {
            black_box(queue.try_push(i)).expect_err("it is full");
        }
    })
}

fn refused_tokio() -> Duration {
    let (sender, _receiver) = mpsc::channel(1);
    sender.try_send(0).expect("there is room");
    timed(|| {
        for i in 0..ITEMS {
            black_box(sender.try_send(i)).expect_err("it is full");
        }
    })
}

fn drain_ours(runtime: &Runtime) -> Duration {
    let (queue, flusher) = undriven(ITEMS);
    fill(&queue);
    queue.close();
    timed(|| runtime.block_on(flusher).expect("a runtime with time"))
}

fn drain_tokio(runtime: &Runtime) -> Duration {
    let (sender, mut receiver) = mpsc::channel(ITEMS as usize);
    for i in 0..ITEMS {
        sender.try_send(i).expect("there is room");
    }
    drop(sender);
    timed(|| {
        runtime.block_on(async {
            let mut batch = Vec::with_capacity(BATCH);
            while receiver.recv_many(&mut batch, BATCH).await > 0 {
                black_box(&*batch);
                batch.clear();
            }
        });
    })
}

fn pipeline_ours(runtime: &Runtime) -> Duration {
    timed(|| {
        runtime.block_on(async {
            let queue = BackpressureController::builder(10_000)
                .fixed(BATCH, LINGER)
                .spawn(|batch: Batch<u64>| async move {
                    tokio::task::yield_now().await;
                    black_box(&*batch);
                    Ok(())
                })
                .expect("a runtime with time");
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|_| {
                    let queue = queue.clone();
                    tokio::spawn(async move {
                        for i in 0..PIPELINE_ITEMS / PRODUCERS {
                            queue.push(i).await.expect("it is open");
                        }
                    })
                })
                .collect();
            for producer in producers {
                producer.await.expect("no panic");
            }
            let report = queue.drain(Duration::MAX).await;
            assert_eq!(report.delivered(), PIPELINE_ITEMS);
        });
    })
}

fn pipeline_tokio(runtime: &Runtime) -> Duration {
    timed(|| {
        runtime.block_on(async {
            let (sender, receiver) = mpsc::channel(10_000);
            let consumer = tokio::spawn(batches(receiver));
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|_| {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        for i in 0..PIPELINE_ITEMS / PRODUCERS {
                            sender.send(i).await.expect("it is open");
                        }
                    })
                })
                .collect();
            drop(sender);
            for producer in producers {
                producer.await.expect("no panic");
            }
            assert_eq!(consumer.await.expect("no panic"), PIPELINE_ITEMS);
        });
    })
}

/// The loop that people write: a full batch, or what came before the linger of its first item was over.
async fn batches(mut receiver: mpsc::Receiver<u64>) -> u64 {
    let mut batch = Vec::with_capacity(BATCH);
    let mut delivered = 0;
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        let deadline = tokio::time::Instant::now() + LINGER;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            match tokio::time::timeout_at(deadline, receiver.recv_many(&mut batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        tokio::task::yield_now().await;
        black_box(&*batch);
        delivered += batch.len() as u64;
        batch.clear();
    }
    delivered
}

/// What any push with one read-modify-write must cost.
fn floor() -> Duration {
    let tail = AtomicU64::new(0);
    let slots: Vec<(AtomicU64, AtomicU64)> = (0..ITEMS).map(|_| <_>::default()).collect();
    let work = || {
        for i in 0..ITEMS {
            let place = tail.load(Ordering::Relaxed);
            tail.compare_exchange_weak(place, place + 1, Ordering::AcqRel, Ordering::Relaxed).expect("alone");
            let slot = &slots[(place % ITEMS) as usize];
            slot.0.store(i, Ordering::Relaxed);
            slot.1.store(1, Ordering::Release);
        }
    };
    work();
    tail.store(0, Ordering::Relaxed);
    timed(work)
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let mut rows = [
        Row::new("push, one thread", "tokio try_send", ITEMS, Some(0.5)),
        Row::new("push_all(64), per item", "tokio try_send", ITEMS, None),
        Row::new("refused push, counted", "tokio try_send, uncounted", ITEMS, None),
        Row::new("drain, per item", "tokio recv_many", ITEMS, None),
        Row::new("pipeline flat out, 2 producers", "recv_many + linger", PIPELINE_ITEMS, Some(0.7)),
        Row::new("push, one thread", "the floor: CAS + store", ITEMS, None),
        Row::new("weighed push, drop oldest", "push without a weigher", ITEMS, None),
    ];
    for _ in 0..ROUNDS {
        rows[0].round(push_ours, push_tokio);
        rows[1].round(push_all_ours, push_tokio);
        rows[2].round(refused_ours, refused_tokio);
        rows[3].round(|| drain_ours(&runtime), || drain_tokio(&runtime));
        rows[4].round(|| pipeline_ours(&runtime), || pipeline_tokio(&runtime));
        rows[5].round(push_ours, floor);
        rows[6].round(push_weighed, push_ours);
    }
    println!("{ROUNDS} rounds, medians, ns per item\n");
    println!(
        "| row                                | ours     | peer                   | peer ns  | ratio  | mark   |        |"
    );
    println!(
        "|------------------------------------|----------|------------------------|----------|--------|--------|--------|"
    );
    let missed = rows.iter().filter(|row| !row.print()).count();
    if missed > 0 {
        println!("\n{missed} missed");
        std::process::exit(1);
    }
}
