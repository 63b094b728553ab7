//! Tasks that wait for room in front of a consumer that takes what is there.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::enter;
use super::pipeline::flow;
use crate::harness::{Contest, Limit, one_thread, per_item, two_workers};
use crate::options::Form;
use crate::peer::{Channel, Pipeline, Settings};
use crate::peers::{AsyncChannel, Crossfire, Flume, Kanal, Lingering, MutexNotify, Ours, Thingbuf, Tokio};
use crate::sink::Work;

const ITEMS: u64 = 200_000;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let tokio = <Tokio as Channel<u64>>::LOOP;
    let kanal = <Kanal as Channel<u64>>::LOOP;
    let mut rows = Vec::new();
    for (on, runtime) in [("one thread", one_thread as fn() -> Runtime), ("two workers", two_workers)] {
        for capacity in [1000, 16, 1] {
            let contest = row(on, runtime, capacity, items);
            rows.push(match capacity {
                1000 => contest.mark(Limit::Of(tokio, 0.25)).ambition(Limit::Of(kanal, 1.0)),
                _ => contest.ambition(Limit::Of(tokio, 1.0)).ambition(Limit::Of(kanal, 1.0)),
            });
        }
    }
    rows
}

fn row(on: &'static str, runtime: fn() -> Runtime, capacity: usize, items: u64) -> Contest {
    // A hand-over at a time takes its time.
    let items = if capacity == 1 { items / 4 } else { items };
    let about =
        "One task pushes and waits for room; the consumer takes what is there, up to 500 items, without a linger.";
    let contest = Contest::new(format!("async push that waits, capacity {capacity}, {on}"), "ns/item", about);
    enter!(contest, wait::<_>(runtime, capacity, items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, Flume>, Lingering<u64, Crossfire>,
        Lingering<u64, AsyncChannel>, Lingering<u64, Thingbuf>, Lingering<u64, MutexNotify>)
}

fn wait<P: Pipeline<u64> + 'static>(runtime: fn() -> Runtime, capacity: usize, items: u64) -> f64 {
    let settings = Settings::new(capacity, Duration::ZERO);
    per_item(flow::<P>(&runtime(), settings, Work::None, 1, items), items)
}
