//! A consumer alone: it takes out what lies there.

use backpressure::{BackpressureController, Batch};
use futures::FutureExt;
use tokio::sync::mpsc;

use super::enter;
use crate::harness::{Contest, Limit, OURS, best, one_thread, per_item, timed};
use crate::options::Form;
use crate::payload::{Bytes64, Bytes128, Payload, look};
use crate::peer::{BATCH, Drain, LINGER, Peer, Queue, TryPush};
use crate::peers::{
    ArrayQueue, AsyncChannel, ConcurrentQueue, Crossfire, Flume, Kanal, MutexDeque, Ours, Rtrb, Thingbuf, Tokio,
};

const ITEMS: u64 = 50_000;
const PASSES: usize = 5;

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let items = form.items(ITEMS);
    let bars = |contest: Contest| contest.ambition(Limit::Of(Tokio::NAME, 0.30)).ambition(SWAP);
    let rows = [
        row::<u64>(items).mark(Limit::Of(Tokio::NAME, 0.30)).ambition(SWAP),
        bars(row::<Bytes64>(items)),
        bars(row::<Bytes128>(items)),
        bars(row::<String>(items)),
    ];
    rows.into_iter().chain([10, 100, 5000].map(|batch| by_batch(batch, items))).collect()
}

const SWAP: Limit = Limit::Of("Mutex<VecDeque>", 1.0);

fn row<T: Payload>(items: u64) -> Contest {
    let about = "One thread takes out and drops what is there, in batches of 500, or all at once where a peer does so.";
    let contest = Contest::new(format!("drain, {}", T::NAME), "ns/item", about)
        .enter(OURS, move || flush::<T>(items, BATCH))
        .enter("backpressure, pulled", move || drain::<Ours<T>, T>(items));
    enter!(contest, drain::<_, T>(items):
        Tokio, Kanal, Flume, Crossfire, AsyncChannel, Thingbuf, ArrayQueue<T>, ConcurrentQueue<T>, MutexDeque<T>, Rtrb)
}

/// What a flush costs besides its items, which a channel does not have.
fn by_batch(batch: usize, items: u64) -> Contest {
    let about = "One thread takes out and drops what is there, in batches of that size.";
    Contest::new(format!("drain, u64, batches of {batch}"), "ns/item", about)
        .enter(OURS, move || flush::<u64>(items, batch))
        .enter(Tokio::NAME, move || receive(items, batch))
}

fn drain<Q: Queue<T>, T: Payload>(items: u64) -> f64 {
    let (mut sender, mut receiver) = Q::bounded(items as usize);
    take_out(items, |item| sender.try_push(item).is_ok(), || receiver.drain(look))
}

fn receive(items: u64, batch: usize) -> f64 {
    let (sender, mut receiver) = mpsc::channel::<u64>(items as usize);
    let mut taken = Vec::with_capacity(batch);
    let take = || {
        let count = receiver.recv_many(&mut taken, batch).now_or_never().unwrap_or(0);
        look(&taken);
        taken.clear();
        count
    };
    take_out(items, |item| sender.try_send(item).is_ok(), take)
}

/// Of passes that each put all items in, the least time for taking them out.
fn take_out<T: Payload>(items: u64, mut put: impl FnMut(T) -> bool, mut take: impl FnMut() -> usize) -> f64 {
    let pass = || {
        for item in T::supply(items) {
            assert!(put(item), "there is room");
        }
        let mut count = 0;
        timed(|| {
            while count < items {
                count += take() as u64;
            }
        })
    };
    per_item(best(PASSES, pass), items)
}

/// By the flusher, into a sink.
fn flush<T: Payload>(items: u64, batch: usize) -> f64 {
    let runtime = one_thread();
    let builder = BackpressureController::builder(items as usize).fixed(batch, LINGER);
    let sink = |batch: Batch<T>| async move {
        look(&batch);
        Ok(())
    };
    let queue = builder.spawn_on(runtime.handle(), sink).expect("valid settings");
    let pass = || {
        for item in T::supply(items) {
            assert!(queue.try_push(item).is_ok(), "there is room");
        }
        timed(|| {
            let report = runtime.block_on(queue.flush());
            assert_eq!((report.delivered, report.unsettled), (items, 0));
        })
    };
    per_item(best(PASSES, pass), items)
}
