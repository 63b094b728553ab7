//! Tasks that wait for room in front of a consumer that takes what is there.

use std::time::Duration;

use super::enter;
use super::pipeline::flow;
use crate::harness::{Contest, Limit, best, one_thread, per_item, two_workers};
use crate::options::Form;
use crate::peer::{Channel, Pipeline, Settings};
use crate::peers::{AsyncChannel, Crossfire, Flume, Kanal, Lingering, MutexNotify, Ours, Thingbuf, Tokio};
use crate::sink::Work;

const ITEMS: u64 = 100_000;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let tokio = <Tokio as Channel<u64>>::LOOP;
    let kanal = <Kanal as Channel<u64>>::LOOP;
    let mut rows = Vec::new();
    for on in [On::OneThread, On::TwoWorkers] {
        for capacity in [1000, 16, 1] {
            let contest = row(on, capacity, items);
            rows.push(match capacity {
                1000 => contest.mark(Limit::Of(tokio, 0.25)).ambition(Limit::Of(kanal, 1.0)),
                _ => contest.ambition(Limit::Of(tokio, 1.0)).ambition(Limit::Of(kanal, 1.0)),
            });
        }
    }
    rows
}

fn row(on: On, capacity: usize, items: u64) -> Contest {
    // A hand-over takes its time, and passes on one thread are to be short.
    let items = if capacity == 1000 { items } else { items / 10 };
    let items = if on == On::OneThread { items / 5 } else { items };
    let about =
        "One task pushes and waits for room; the consumer takes what is there, up to 500 items, without a linger.";
    let contest =
        Contest::new(format!("async push that waits, capacity {capacity}, {}", on.as_str()), "ns/item", about);
    enter!(contest, wait::<_>(on, capacity, items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, Flume>, Lingering<u64, Crossfire>,
        Lingering<u64, AsyncChannel>, Lingering<u64, Thingbuf>, Lingering<u64, MutexNotify>)
}

fn wait<P: Pipeline<u64> + 'static>(on: On, capacity: usize, items: u64) -> f64 {
    let settings = Settings::new(capacity, Duration::ZERO);
    let (runtime, passes) = match on {
        On::OneThread => (one_thread(), 20),
        On::TwoWorkers => (two_workers(), 1),
    };
    per_item(best(passes, || flow::<P>(&runtime, settings, Work::None, 1, items)), items)
}

/// Where the two tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    OneThread,
    TwoWorkers,
}

impl On {
    fn as_str(self) -> &'static str {
        match self {
            Self::OneThread => "one thread",
            Self::TwoWorkers => "two workers",
        }
    }
}
