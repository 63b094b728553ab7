//! More than the sink can take: whether each says what it lost, and keeps to its bound.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::harness::{Contest, Limit, OURS, race, two_workers};
use crate::living::{Living, Token};
use crate::options::Form;
use crate::peer::{Channel, LINGER, Offer, Peer, Pipeline, Settings};
use crate::peers::{
    AsyncChannel, ChunksTimeout, Crossfire, EmitBatcher, EmitTruncating, Flume, FuturesBatch, Interval, Kanal,
    Lingering, MutexNotify, Ours, OursEvicting, Tokio,
};
use crate::sink::{Sink, Work};

const MILLIS: u64 = 100;
const CAPACITY: usize = 1_000;
const PRODUCERS: usize = 2;
/// What the sink takes for a batch.
const WORK: Duration = Duration::from_millis(2);

pub(crate) fn rows(form: Form) -> Vec<Contest> {
    let span = Duration::from_millis(form.millis(MILLIS));
    let about = "Two threads offer as fast as they can for a tenth of a second, by the push that does not wait, into a \
                 buffer of 1000 in front of a sink that takes 2 ms for a batch. An item counts from the offer to its \
                 drop; what the two producers have in hand is taken off.";
    vec![
        Contest::of_several("overload", about)
            .measure("lost and not told", "items", 0.0)
            .mark(Limit::Value(0.0))
            .measure("held beyond the bound", "items", 0.0)
            .mark(Limit::Value(0.0))
            .enter_all(OURS, move || run::<Ours<Token>>(span))
            .enter_all(OursEvicting::<Token>::NAME, move || run::<OursEvicting<Token>>(span))
            .enter_all(<Tokio as Channel<Token>>::LOOP, move || run::<Lingering<Token, Tokio>>(span))
            .enter_all(<Kanal as Channel<Token>>::LOOP, move || run::<Lingering<Token, Kanal>>(span))
            .enter_all(<Flume as Channel<Token>>::LOOP, move || run::<Lingering<Token, Flume>>(span))
            .enter_all(<Crossfire as Channel<Token>>::LOOP, move || run::<Lingering<Token, Crossfire>>(span))
            .enter_all("async-channel force_send + linger", move || run::<Lingering<Token, AsyncChannel>>(span))
            .enter_all(<MutexNotify as Channel<Token>>::LOOP, move || run::<Lingering<Token, MutexNotify>>(span))
            .enter_all("emit_batcher try_send", move || run::<EmitBatcher<Token>>(span))
            .enter_all(EmitTruncating::<Token>::NAME, move || run::<EmitTruncating<Token>>(span))
            .enter_all(Interval::<Token>::NAME, move || run::<Interval<Token>>(span))
            .enter_all(ChunksTimeout::<Token>::NAME, move || run::<ChunksTimeout<Token>>(span))
            .enter_all(FuturesBatch::<Token>::NAME, move || run::<FuturesBatch<Token>>(span)),
    ]
}

/// What is lost in silence, and what is held beyond the bound.
pub(crate) fn run<P: Pipeline<Token> + 'static>(span: Duration) -> Vec<f64> {
    let runtime = two_workers();
    let living = Arc::new(Living::default());
    let (sink, delivered) = Sink::counting(Work::Sleep(WORK));
    let inside = runtime.enter();
    let pipeline = P::start(Settings::new(CAPACITY, LINGER), sink);
    drop(inside);
    let mut tallies = [(0, 0); PRODUCERS];
    race(tallies.iter_mut().map(|tally| {
        let sender = pipeline.sender();
        let living = Arc::clone(&living);
        move || *tally = offer_for(span, &sender, &living)
    }));
    let told_later = runtime.block_on(async {
        let told = pipeline.told();
        pipeline.finish().await;
        told
    });
    let offered: u64 = tallies.iter().map(|tally| tally.0).sum();
    let told: u64 = tallies.iter().map(|tally| tally.1).sum();
    let silent = offered - delivered.load(Ordering::Relaxed) - told - told_later;
    let beyond = living.peak() - (CAPACITY + PRODUCERS) as i64;
    vec![silent as f64, beyond.max(0) as f64]
}

/// How many items were offered, and how many of them are known to be lost.
fn offer_for(span: Duration, sender: &impl Offer<Token>, living: &Arc<Living>) -> (u64, u64) {
    let start = Instant::now();
    let (mut offered, mut told) = (0, 0);
    while start.elapsed() < span {
        for _ in 0..64 {
            offered += 1;
            told += u64::from(sender.offer(Token::new(living)));
        }
    }
    (offered, told)
}
