//! One hot path at a time, for a count of its instructions: `.ci/instructions.sh` runs each under callgrind, for so many
//! turns and for twice as many, so that what comes before and after drops out.
//!
//! `cargo bench --bench instructions -- ROW TURNS` runs one; without arguments it lists the rows.

use std::env;
use std::hint::black_box;
use std::pin::pin;
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Builder, Flusher, Strategy};
use tokio::runtime::Runtime;
use tokio::task::coop::unconstrained;

/// Room for all turns of a row that never flushes.
const CAPACITY: usize = 1 << 20;
const LINGER: Duration = Duration::from_millis(5);

type Queue = BackpressureController<u64>;
type Row = fn(u64);

const ROWS: [(&str, Row); 9] = [
    ("push", push),
    ("push_await", push_await),
    ("push_all_64", push_all),
    ("push_weighed", push_weighed),
    ("refused", refused),
    ("drop_oldest", drop_oldest),
    ("take_and_settle", take_and_settle),
    ("flush_of_one", flush_of_one),
    ("tracked", tracked),
];

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let [name, turns] = &arguments[..] else {
        return ROWS.iter().for_each(|(name, _)| println!("{name}"));
    };
    let row = ROWS.iter().find(|(known, _)| known == name).expect("a row of the list");
    row.1(turns.parse().expect("a number of turns"));
}

fn build(builder: Builder<u64>) -> (Queue, Flusher) {
    let sink = |batch: Batch<u64>| async move {
        black_box(&*batch);
        Ok(())
    };
    builder.build(sink).expect("settings that work")
}

fn unlimited() -> (Queue, Flusher) {
    build(BackpressureController::builder(CAPACITY).fixed(500, LINGER))
}

fn full(strategy: Strategy<u64>) -> (Queue, Flusher) {
    let (queue, flusher) = build(BackpressureController::builder(1_000).strategy(strategy).fixed(500, LINGER));
    for item in 0..1_000 {
        queue.try_push(item).expect("there is room");
    }
    (queue, flusher)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn push(turns: u64) {
    let (queue, _flusher) = unlimited();
    for item in 0..turns {
        black_box(queue.try_push(item)).expect("there is room");
    }
}

fn push_await(turns: u64) {
    let (queue, _flusher) = unlimited();
    futures::executor::block_on(async {
        for item in 0..turns {
            queue.push(item).await.expect("there is room");
        }
    });
}

/// A turn is an item.
fn push_all(turns: u64) {
    let (queue, _flusher) = unlimited();
    futures::executor::block_on(async {
        for chunk in 0..turns / 64 {
            queue.push_all(chunk * 64..(chunk + 1) * 64).await.expect("there is room");
        }
    });
}

fn push_weighed(turns: u64) {
    let weigher = |item: &u64| black_box(*item) & 1 | 8;
    let (queue, _flusher) = build(BackpressureController::builder(CAPACITY).weigher(weigher).fixed(500, LINGER));
    for item in 0..turns {
        black_box(queue.try_push(item)).expect("there is room");
    }
}

fn refused(turns: u64) {
    let (queue, _flusher) = full(Strategy::DropNewest);
    for item in 0..turns {
        black_box(queue.try_push(item)).expect_err("it is full");
    }
}

fn drop_oldest(turns: u64) {
    let (queue, _flusher) = full(Strategy::DropOldest);
    for item in 0..turns {
        black_box(queue.try_push(item)).expect("the oldest goes");
    }
}

/// A turn is an item, and the push of it belongs to the figure.
fn take_and_settle(turns: u64) {
    let (queue, flusher) = unlimited();
    for item in 0..turns {
        queue.try_push(item).expect("there is room");
    }
    queue.close();
    runtime().block_on(flusher).expect("a runtime with time");
}

/// The push belongs to the figure.
fn flush_of_one(turns: u64) {
    let (queue, flusher) = build(BackpressureController::builder(1_000).fixed(1, LINGER));
    runtime().block_on(async {
        let mut flusher = pin!(unconstrained(flusher));
        for item in 0..turns {
            queue.try_push(item).expect("there is room");
            assert!(futures::poll!(flusher.as_mut()).is_pending());
        }
    });
}

/// Neither settled nor told.
fn tracked(turns: u64) {
    let (queue, _flusher) = unlimited();
    futures::executor::block_on(async {
        for item in 0..turns {
            drop(black_box(queue.push_tracked(item).await.expect("there is room")));
        }
    });
}
