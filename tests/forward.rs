//! A stream in: every strategy decides about its items as about those of any producer, and nothing is lost in between.

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use backpressure::{
    Admission, Admit, BackpressureController, BackpressureStreamExt as _, Batch, Batches, LossReason, Pressure,
    RefuseReason, Strategy,
};
use futures::stream::{self, Stream};
use tokio::time::timeout;

use self::support::{Drops, HOUR, Log, Losses, SEC, Wakes, gated, idle, ms, now, ok, paused, poll_once};

/// A controller of 4 whose batches of 2 are pulled.
fn pulled(strategy: Strategy<u64>, losses: &Losses<u64>) -> (BackpressureController<u64>, Batches<u64>) {
    BackpressureController::builder(4).fixed(2, HOUR).strategy(strategy).on_loss(losses.hook()).pull().unwrap()
}

async fn next(batches: &mut Batches<u64>) -> Batch<u64> {
    timeout(HOUR, batches.next()).await.expect("a batch is due").expect("it has not ended")
}

/// All that is left, settled.
async fn rest(c: BackpressureController<u64>, mut batches: Batches<u64>) -> Vec<u64> {
    c.close();
    let mut seen = Vec::new();
    while let Some(batch) = batches.next().await {
        seen.extend_from_slice(&batch);
        batch.done();
    }
    c.snapshot().audit().unwrap();
    seen
}

fn refused(item: u64, reason: RefuseReason) -> support::Line<u64> {
    (Some(item), LossReason::Refused(reason), None)
}

#[test]
fn behind_block_nothing_is_pulled_without_room_and_nothing_is_lost() {
    paused(|| async {
        let (losses, given) = (Losses::default(), Arc::new(AtomicU64::new(0)));
        let (c, mut batches) = pulled(Strategy::Block, &losses);
        let counted = {
            let given = Arc::clone(&given);
            stream::iter((0..9).inspect(move |_| {
                given.fetch_add(1, Ordering::Relaxed);
            }))
        };
        let forward = tokio::spawn(counted.backpressured(&c));
        let mut seen = Vec::new();
        for step in 0..3 {
            idle().await;
            assert_eq!(given.load(Ordering::Relaxed), (5 + 2 * step).min(9), "one waits");
            let batch = next(&mut batches).await;
            seen.extend_from_slice(&batch);
            batch.done();
            c.snapshot().audit().unwrap();
        }
        let forwarded = forward.await.unwrap();
        assert_eq!((forwarded.accepted, forwarded.refused, forwarded.is_cut_off), (9, 0, false));
        seen.extend(rest(c, batches).await);
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        assert!(losses.lines().is_empty());
    });
}

#[test]
fn behind_block_for_what_waits_too_long_is_told_and_the_stream_goes_on() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = pulled(Strategy::BlockFor(SEC), &losses);
        let start = now();
        let forward = tokio::spawn(stream::iter(0..9).backpressured(&c));
        tokio::time::sleep(ms(2500)).await;
        next(&mut batches).await.done();
        let forwarded = forward.await.unwrap();
        // 4 and 5 in vain, 6 and 7 in the room that came, 8 in vain.
        assert_eq!(start.elapsed(), ms(3500));
        assert_eq!((forwarded.accepted, forwarded.refused), (6, 3));
        let timed_out = |item| refused(item, RefuseReason::TimedOut);
        assert_eq!(losses.lines(), [timed_out(4), timed_out(5), timed_out(8)]);
        let snapshot = c.snapshot();
        assert_eq!((snapshot.refused.timed_out, snapshot.losses().total(), snapshot.offered), (3, 0, 9));
        assert_eq!(rest(c, batches).await, [2, 3, 6, 7]);
    });
}

#[test]
fn behind_drop_oldest_a_slow_consumer_gets_the_newest() {
    paused(|| async {
        let losses = Losses::default();
        let (c, batches) = pulled(Strategy::DropOldest, &losses);
        let forwarded = stream::iter(0..1000).backpressured(&c).await;
        assert_eq!((forwarded.accepted, forwarded.refused), (1000, 0));
        assert_eq!(rest(c, batches).await, [996, 997, 998, 999]);
        assert_eq!(losses.lines(), (0..996).map(|i| (Some(i), LossReason::Evicted, None)).collect::<Vec<_>>());
    });
}

#[test]
fn behind_drop_newest_what_finds_no_room_is_told() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = pulled(Strategy::DropNewest, &losses);
        let forwarded = stream::iter(0..1000).backpressured(&c).await;
        assert_eq!((forwarded.accepted, forwarded.refused), (4, 996));
        assert_eq!(losses.lines(), (4..1000).map(|i| refused(i, RefuseReason::Full)).collect::<Vec<_>>());
        assert_eq!(c.snapshot().refused.full, 996);
        next(&mut batches).await.done();
        let forwarded = stream::iter([1000, 1001, 1002]).backpressured(&c).await;
        assert_eq!((forwarded.accepted, forwarded.refused), (2, 1));
        assert_eq!(rest(c, batches).await, [2, 3, 1000, 1001]);
    });
}

/// Refuses what is divisible by 3, evicts for what is divisible by 5, lets the others wait.
struct ByNumber;

impl Admit<u64> for ByNumber {
    fn admit(&self, item: &u64, _pressure: &Pressure) -> Admission {
        match item {
            item if item % 3 == 0 => Admission::Refuse,
            item if item % 5 == 0 => Admission::EvictOldest,
            _ => Admission::WaitFor(SEC),
        }
    }
}

#[test]
fn a_custom_strategy_decides_item_by_item() {
    paused(|| async {
        let losses = Losses::default();
        let (c, batches) = pulled(Strategy::Custom(Arc::new(ByNumber)), &losses);
        let forwarded = stream::iter([1, 2, 4, 7, 8, 9, 10]).backpressured(&c).await;
        assert_eq!((forwarded.accepted, forwarded.refused), (5, 2));
        let told =
            [refused(8, RefuseReason::TimedOut), refused(9, RefuseReason::Full), (Some(1), LossReason::Evicted, None)];
        assert_eq!(losses.lines(), told);
        assert_eq!(rest(c, batches).await, [2, 4, 7, 10]);
    });
}

#[test]
fn a_forward_ends_when_the_intake_is_shut_and_pulls_no_more() {
    paused(|| async {
        let losses = Losses::default();
        let (c, batches) = pulled(Strategy::Block, &losses);
        let forward = tokio::spawn(stream::iter(0..).backpressured(&c));
        idle().await;
        c.close();
        let forwarded = forward.await.unwrap();
        assert_eq!((forwarded.accepted, forwarded.refused, forwarded.is_cut_off), (4, 1, true));
        assert_eq!(losses.lines(), [refused(4, RefuseReason::Closed)]);
        let forwarded = stream::iter(0..).inspect_pulls().backpressured(&c).await;
        assert_eq!((forwarded.accepted, forwarded.refused, forwarded.is_cut_off), (0, 0, true));
        assert_eq!(rest(c, batches).await, [0, 1, 2, 3]);
    });
}

/// Fails if it is pulled.
trait InspectPulls: Stream + Sized {
    fn inspect_pulls(self) -> impl Stream<Item = Self::Item> {
        futures::StreamExt::inspect(self, |_| panic!("pulled"))
    }
}

impl<S: Stream> InspectPulls for S {}

#[test]
fn a_forward_holds_a_handle_until_it_ends() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = pulled(Strategy::Block, &losses);
        let mut forward = Box::pin(stream::iter(0..6).backpressured(&c));
        drop(c);
        assert!(poll_once(&mut forward).is_pending());
        next(&mut batches).await.done();
        assert!(poll_once(&mut forward).is_ready());
        // The future is still there, its handle is not.
        let mut seen = Vec::new();
        while let Some(batch) = batches.next().await {
            seen.extend_from_slice(&batch);
            batch.done();
        }
        assert_eq!(seen, [2, 3, 4, 5]);
        assert!(poll_once(&mut forward).is_pending());
    });
}

#[test]
fn a_forward_that_is_dropped_counts_what_it_held_as_cancelled() {
    paused(|| async {
        for served in [false, true] {
            let tokens = Drops::default();
            let (c, mut batches) = BackpressureController::builder(2).fixed(2, HOUR).pull().unwrap();
            let source = tokens.clone();
            let mut forward = Box::pin(stream::iter((0..9).map(move |_| source.next())).backpressured(&c));
            assert!(poll_once(&mut forward).is_pending());
            let batch = timeout(HOUR, batches.next()).await.unwrap().unwrap();
            let mut held = Some(batch);
            if served {
                // Its item is moved in before it is dropped: that one is accepted.
                held.take().map(Batch::done).unwrap();
            }
            drop(forward);
            let snapshot = c.snapshot();
            snapshot.audit().unwrap();
            assert_eq!(
                (snapshot.cancelled, snapshot.accepted, snapshot.waiting),
                if served { (0, 3, 0) } else { (1, 2, 0) }
            );
            drop((held, c, batches));
            tokens.assert_each_once(3);
        }
    });
}

#[test]
fn a_stream_that_is_always_ready_leaves_the_thread_to_the_flusher() {
    for strategy in [Strategy::Block, Strategy::DropOldest, Strategy::DropNewest] {
        paused(|| async {
            let log = Log::default();
            let c = BackpressureController::builder(10_000).fixed(1, HOUR).strategy(strategy).spawn(ok(&log)).unwrap();
            let forwarded = stream::iter(0..10_000_u64).backpressured(&c).await;
            assert_eq!(forwarded.accepted, 10_000);
            let delivered = c.snapshot().delivered;
            assert!(delivered > 5_000, "{delivered} delivered while the stream was forwarded");
        });
    }
}

/// A stream whose items come by hand.
struct ByHand(tokio::sync::mpsc::UnboundedReceiver<u64>);

impl Stream for ByHand {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        self.0.poll_recv(cx)
    }
}

#[test]
fn a_forward_that_has_waited_is_not_woken_by_an_old_time_limit() {
    paused(|| async {
        let (gate, log) = (support::Gate::closed(), Log::default());
        let c = BackpressureController::builder(1)
            .fixed(1, HOUR)
            .strategy(Strategy::BlockFor(SEC))
            .spawn(gated(&gate, &log))
            .unwrap();
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut forward = Box::pin(ByHand(receiver).backpressured(&c));
        let wakes = Wakes::new();
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert!(wakes.poll(&mut forward).is_pending());
        assert_eq!(c.snapshot().waiting, 1);
        gate.open();
        assert!(c.flush().await.all_delivered());
        idle().await;
        assert!(wakes.poll(&mut forward).is_pending());
        let before = wakes.count();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(wakes.count(), before);
        drop(sender);
        let Poll::Ready(forwarded) = wakes.poll(&mut forward) else { panic!("the stream has ended") };
        assert_eq!(forwarded.accepted, 2);
    });
}
