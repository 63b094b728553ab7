//! Nothing to do: what a buffer costs while nobody pushes.

use std::thread;
use std::time::Duration;

use crate::harness::{Contest, Limit, OURS, two_workers};
use crate::options::Form;
use crate::peer::{Channel, LINGER, Offer, Peer, Pipeline, Settings};
use crate::peers::{ChunksTimeout, EmitBatcher, FuturesBatch, Interval, Kanal, Lingering, MutexNotify, Ours, Tokio};
use crate::sink::{Sink, Work};
use crate::usage::Usage;

const MILLIS: u64 = 1000;
/// Long beside whatever somebody does once after the last item.
const CALM: Duration = Duration::from_millis(700);

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let span = Duration::from_millis(form.millis(MILLIS));
    let about = "A thousand items have gone through; then, 0.7 s later, nothing happens for a second. What a runtime \
                 uses alone is taken off.";
    let contest = Contest::of_several("idle", about)
        .measure("CPU", "ms/s", 0.05)
        .ambition(Limit::Of(<Tokio as Channel<u64>>::LOOP, 1.0))
        .measure("voluntary context switches", "per s", 0.0)
        .mark(Limit::Value(0.0))
        .baseline("a runtime alone", move || nothing(span))
        .enter_all(OURS, move || run::<Ours<u64>>(span))
        .enter_all(<Tokio as Channel<u64>>::LOOP, move || run::<Lingering<u64, Tokio>>(span))
        .enter_all(<Kanal as Channel<u64>>::LOOP, move || run::<Lingering<u64, Kanal>>(span))
        .enter_all(<MutexNotify as Channel<u64>>::LOOP, move || run::<Lingering<u64, MutexNotify>>(span))
        .enter_all(<EmitBatcher<u64> as Peer>::NAME, move || run::<EmitBatcher<u64>>(span))
        .enter_all(<Interval<u64> as Peer>::NAME, move || run::<Interval<u64>>(span))
        .enter_all(<ChunksTimeout<u64> as Peer>::NAME, move || run::<ChunksTimeout<u64>>(span))
        .enter_all(<FuturesBatch<u64> as Peer>::NAME, move || run::<FuturesBatch<u64>>(span));
    vec![contest]
}

fn run<P: Pipeline<u64> + 'static>(span: Duration) -> Vec<f64> {
    let runtime = two_workers();
    let (sink, _seen) = Sink::counting(Work::Yield);
    let inside = runtime.enter();
    let pipeline = P::start(Settings::new(10_000, LINGER), sink);
    drop(inside);
    let sender = pipeline.sender();
    (0..1000).for_each(|item| assert!(!sender.offer(item), "there is room"));
    let used = watch(span);
    drop(sender);
    runtime.block_on(pipeline.finish());
    used
}

fn nothing(span: Duration) -> Vec<f64> {
    let _runtime = two_workers();
    watch(span)
}

fn watch(span: Duration) -> Vec<f64> {
    thread::sleep(CALM);
    let start = Usage::now();
    thread::sleep(span);
    let used = Usage::now() - start;
    vec![used.cpu / span.as_secs_f64(), used.switches / span.as_secs_f64()]
}
