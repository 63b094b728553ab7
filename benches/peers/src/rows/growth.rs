//! More producers, and larger buffers: whether the time for an item stays what it is.

use super::enter;
use super::pipeline::{flow, flow_from_threads};
use crate::harness::{Contest, per_item, two_workers};
use crate::options::Form;
use crate::peer::{LINGER, Pipeline, Settings};
use crate::peers::{AsyncChannel, Crossfire, Flume, Kanal, Lingering, MutexNotify, Ours, Tokio};
use crate::sink::Work;

const ITEMS: u64 = 200_000;
const CAPACITY: usize = 10_000;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let threads = [1, 2, 4, 8, 16].map(|threads| by_threads(threads, items));
    let tasks = [1, 10, 100, 1000, 10_000].map(|tasks| by_tasks(tasks, items));
    let capacities = [16, 256, 4096, 65_536, 1_000_000].map(|capacity| by_capacity(capacity, items));
    threads.into_iter().chain(tasks).chain(capacities).collect()
}

fn by_threads(threads: u64, items: u64) -> Contest {
    let about = "Threads push and are parked while there is no room; batches of 500, or what came within 5 ms.";
    let contest = Contest::new(format!("growth, threads: {threads}"), "ns/item", about);
    enter!(contest, from_threads::<_>(threads, items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, MutexNotify>,
        Lingering<u64, Crossfire>, Lingering<u64, Flume>, Lingering<u64, AsyncChannel>)
}

fn by_tasks(tasks: u64, items: u64) -> Contest {
    let about = "Tasks push and wait for room; batches of 500, or what came within 5 ms.";
    let contest = Contest::new(format!("growth, tasks: {tasks}"), "ns/item", about);
    enter!(contest, from_tasks::<_>(CAPACITY, tasks, items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, MutexNotify>,
        Lingering<u64, Crossfire>, Lingering<u64, Flume>, Lingering<u64, AsyncChannel>)
}

fn by_capacity(capacity: usize, items: u64) -> Contest {
    let about = "Two tasks push and wait for room; batches of 500 or of the capacity, or what came within 5 ms.";
    let contest = Contest::new(format!("growth, capacity: {capacity}"), "ns/item", about);
    enter!(contest, from_tasks::<_>(capacity, 2, items):
        Ours<u64>, Lingering<u64, Tokio>, Lingering<u64, Kanal>, Lingering<u64, MutexNotify>,
        Lingering<u64, Crossfire>, Lingering<u64, Flume>, Lingering<u64, AsyncChannel>)
}

fn from_threads<P: Pipeline<u64> + 'static>(threads: u64, items: u64) -> f64 {
    let settings = Settings::new(CAPACITY, LINGER);
    per_item(flow_from_threads::<P>(&two_workers(), settings, Work::Yield, threads, items), items)
}

fn from_tasks<P: Pipeline<u64> + 'static>(capacity: usize, tasks: u64, items: u64) -> f64 {
    let settings = Settings::new(capacity, LINGER);
    per_item(flow::<P>(&two_workers(), settings, Work::Yield, tasks, items), items)
}
