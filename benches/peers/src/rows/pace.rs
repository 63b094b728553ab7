//! Pipelines at a fixed rate: what they use, and how long an item is on its way.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::harness::{Contest, Limit, OURS, note_losses, two_workers};
use crate::options::Form;
use crate::peer::{Channel, LINGER, Offer, Peer, Pipeline, Settings};
use crate::peers::{ChunksTimeout, EmitBatcher, FuturesBatch, Interval, Kanal, Lingering, MutexNotify, Ours, Tokio};
use crate::sink::{Sink, Work};
use crate::stats::quantile;
use crate::usage::{Usage, thread_cpu};

const MILLIS: u64 = 1000;
const CAPACITY: usize = 10_000;
const PRODUCERS: u64 = 2;
/// How often a producer looks which items are due: often enough that at either rate a batch comes in many pieces.
const TICK: Duration = Duration::from_micros(100);
const NOTHING: &str = "the producers alone";

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let span = Duration::from_millis(form.millis(MILLIS));
    [200_000, 20_000].map(|rate| row(rate, span)).into()
}

fn row(rate: u64, span: Duration) -> Contest {
    let tokio = <Tokio as Channel<u64>>::LOOP;
    let emit = <EmitBatcher<u64> as Peer>::NAME;
    let about = "Two threads push at a fixed rate, looking every 100 us what is due; batches of 500, or what came \
                 within 5 ms. What the producers use between their pushes is not counted, and what the rest uses without \
                 a buffer is taken off; emit_batcher has times and batch sizes of its own.";
    let contest = Contest::of_several(format!("pipeline at {rate}/s"), about)
        .measure("CPU", "ms/s", 0.1)
        .mark(Limit::Of(tokio, 0.35))
        .ambition(Limit::Of(emit, 1.0))
        .measure("voluntary context switches", "per s", 1.0)
        .ambition(Limit::Of(tokio, 0.35))
        .ambition(Limit::Of(emit, 1.0));
    let contest = latency(contest, "p50 from push to sink", false);
    let contest = latency(contest, "p99 from push to sink", rate == 20_000);
    contest
        .baseline(NOTHING, move || nothing(rate, span))
        .enter_all(OURS, move || run::<Ours<u64>>(rate, span))
        .enter_all(tokio, move || run::<Lingering<u64, Tokio>>(rate, span))
        .enter_all(<Kanal as Channel<u64>>::LOOP, move || run::<Lingering<u64, Kanal>>(rate, span))
        .enter_all(<MutexNotify as Channel<u64>>::LOOP, move || run::<Lingering<u64, MutexNotify>>(rate, span))
        .enter_all(emit, move || run::<EmitBatcher<u64>>(rate, span))
        .enter_all(<Interval<u64> as Peer>::NAME, move || run::<Interval<u64>>(rate, span))
        .enter_all(<ChunksTimeout<u64> as Peer>::NAME, move || run::<ChunksTimeout<u64>>(rate, span))
        .enter_all(<FuturesBatch<u64> as Peer>::NAME, move || run::<FuturesBatch<u64>>(rate, span))
}

fn latency(contest: Contest, name: &'static str, is_judged: bool) -> Contest {
    let contest = contest.measure(name, "us", 0.0);
    let tokio = Limit::Of(<Tokio as Channel<u64>>::LOOP, 1.0);
    if is_judged { contest.mark(tokio) } else { contest.ambition(tokio) }
}

/// CPU, switches, and the two latencies.
fn run<P: Pipeline<u64> + 'static>(rate: u64, span: Duration) -> Vec<f64> {
    let runtime = two_workers();
    let begin = Instant::now();
    // An item is the moment of its push.
    let room = (rate as f64 * span.as_secs_f64() * 1.1) as usize;
    let latencies = Arc::new(Mutex::new(Vec::with_capacity(room)));
    let seen = Arc::clone(&latencies);
    let sink = Sink::new(Work::Yield, move |batch: &[u64]| {
        let now = nanos(begin);
        seen.lock().extend(batch.iter().map(|pushed| now - pushed));
    });
    let inside = runtime.enter();
    let pipeline = P::start(Settings::new(CAPACITY, LINGER), sink);
    drop(inside);
    let used = produce(rate, span, || {
        let sender = pipeline.sender();
        move || {
            // There is room, unless the consumer gets no processor for a while.
            while sender.offer(nanos(begin)) {
                thread::sleep(TICK);
            }
        }
    });
    runtime.block_on(pipeline.finish());
    let mut latencies = latencies.lock();
    note_losses::<P>(due(rate / PRODUCERS, span) * PRODUCERS - latencies.len() as u64);
    let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut latencies, share) as f64 / 1e3);
    vec![used.cpu / span.as_secs_f64(), used.switches / span.as_secs_f64(), p50, p99]
}

/// The producers and the runtime, with nothing between them.
fn nothing(rate: u64, span: Duration) -> Vec<f64> {
    let _runtime = two_workers();
    let begin = Instant::now();
    let used = produce(rate, span, || {
        move || {
            black_box(nanos(begin));
        }
    });
    vec![used.cpu / span.as_secs_f64(), used.switches / span.as_secs_f64(), 0.0, 0.0]
}

/// What the process uses from the start of the producers to their end, but for what they use to wake up and to sleep:
/// that is many times what a buffer uses, and changes with what else keeps a processor from idling.
fn produce<P: FnMut() + Send>(rate: u64, span: Duration, producer: impl Fn() -> P) -> Usage {
    thread::scope(|scope| {
        let start = Usage::now();
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                let push = producer();
                scope.spawn(move || keep_rate(rate / PRODUCERS, span, push))
            })
            .collect();
        let between: f64 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        let used = Usage::now() - start;
        Usage { cpu: used.cpu - between, ..used }
    })
}

/// Pushes what is due, looking every tick. Returns what the thread has used between its pushes, in milliseconds.
fn keep_rate(rate: u64, span: Duration, mut push: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut pushed = 0;
    let mut between = 0.0;
    while pushed < due(rate, span) {
        let elapsed = start.elapsed().min(span);
        while pushed < due(rate, elapsed) {
            push();
            pushed += 1;
        }
        let asleep = thread_cpu();
        thread::sleep(TICK);
        between += thread_cpu() - asleep;
    }
    between
}

/// How many items are due after so long.
fn due(rate: u64, elapsed: Duration) -> u64 {
    (u128::from(rate) * elapsed.as_nanos() / 1_000_000_000) as u64
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}
