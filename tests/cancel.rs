//! Any future may be dropped at any poll (I8): each is dropped after 0, 1, 2 ... polls, until it completes, in each
//! situation; then everything must still add up, and everything must still move.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backpressure::{BackpressureController, Batch, Flusher, Snapshot, State, Strategy};
use tokio::task::{coop, yield_now};

/// An item that is dropped once.
#[derive(Debug)]
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Controller = BackpressureController<Token>;

/// A controller of capacity 2 whose sink works, with a flusher that runs only when it is polled.
struct Rig {
    c: Controller,
    flusher: Pin<Box<Flusher>>,
    made: usize,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    fn new(strategy: Strategy<Token>) -> Self {
        let sink = |_: Batch<Token>| async {
            yield_now().await;
            Ok(())
        };
        let (c, flusher) = Controller::builder(2).strategy(strategy).fixed(1, Duration::ZERO).build(sink).unwrap();
        Self { c, flusher: Box::pin(flusher), made: 0, dropped: Arc::default() }
    }

    fn token(&mut self) -> Token {
        self.made += 1;
        Token(Arc::clone(&self.dropped))
    }

    fn fill(&mut self) {
        while self.c.len() < 2 {
            let token = self.token();
            self.c.try_push(token).unwrap();
        }
    }

    fn check(&self) -> Snapshot {
        let snapshot = self.c.snapshot();
        snapshot.audit().unwrap();
        assert!(self.c.depth() <= 2);
        snapshot
    }

    /// The flusher takes, sends and settles one batch.
    async fn flush_one(&mut self) {
        let before = self.c.snapshot().delivered;
        for _ in 0..10 {
            if self.c.snapshot().delivered > before {
                break;
            }
            let _ = poll_once(self.flusher.as_mut()).await;
        }
    }

    /// Nothing is left behind: nobody waits, another push goes through, all of it is settled, each token dropped once.
    async fn end(mut self, cancelled: u64) {
        let snapshot = self.check();
        assert_eq!((snapshot.waiting, snapshot.waiting_producers, snapshot.reserved), (0, 0, 0));
        assert_eq!(snapshot.cancelled, cancelled, "cancelled");
        let c = self.c.clone();
        if !c.is_closed() {
            let token = self.token();
            let mut push = pin!(c.push(token));
            for _ in 0..100 {
                if poll_once(push.as_mut()).await.is_ready() {
                    break;
                }
                let _ = poll_once(self.flusher.as_mut()).await;
            }
        }
        let mut drain = Box::pin(c.drain(Duration::from_secs(1)));
        let report = loop {
            if let Poll::Ready(report) = poll_once(drain.as_mut()).await {
                break report;
            }
            let _ = poll_once(self.flusher.as_mut()).await;
        };
        drop(drain);
        report.totals.audit().unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!((c.depth(), c.state()), (0, State::Draining));
        drop(report);
        let Self { c: main, flusher, made, dropped } = self;
        drop((main, c, flusher));
        assert_eq!(dropped.load(Ordering::Relaxed), made, "each token is dropped once");
    }
}

async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    // A fresh budget, so that only what waits is pending.
    yield_now().await;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Situation {
    Room,
    Full,
    Closed,
    /// It waits; then room comes, and it is not polled again.
    ServedAndNotPolled,
    /// It waits; then the intake is shut, and it is not polled again.
    ShutAndNotPolled,
}

const SITUATIONS: [Situation; 5] =
    [Situation::Room, Situation::Full, Situation::Closed, Situation::ServedAndNotPolled, Situation::ShutAndNotPolled];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Push,
    PushTimeout,
    PushTracked,
    /// A tracked push, and its delivery.
    Deliver,
    PushAll,
    Reserve,
    ReserveMany,
    Flush,
    Drain,
}

const CALLS: [Call; 9] = [
    Call::Push,
    Call::PushTimeout,
    Call::PushTracked,
    Call::Deliver,
    Call::PushAll,
    Call::Reserve,
    Call::ReserveMany,
    Call::Flush,
    Call::Drain,
];

type Any<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn start<'a>(call: Call, c: &'a Controller, mut tokens: Vec<Token>) -> Any<'a> {
    let minute = Duration::from_secs(60);
    match call {
        Call::Push => {
            let push = c.push(tokens.remove(0));
            Box::pin(async move { drop(push.await) })
        }
        Call::PushTimeout => {
            let push = c.push_timeout(tokens.remove(0), minute);
            Box::pin(async move { drop(push.await) })
        }
        Call::PushTracked => {
            let push = c.push_tracked(tokens.remove(0));
            Box::pin(async move { drop(push.await) })
        }
        Call::Deliver => {
            let push = c.push_tracked(tokens.remove(0));
            Box::pin(async move {
                let Ok(delivery) = push.await else { return };
                let fate = delivery.await;
                assert!(fate.is_delivered(), "{fate}");
            })
        }
        Call::PushAll => Box::pin(async move { drop(c.push_all(tokens).await) }),
        Call::Reserve => Box::pin(async move { drop(c.reserve().await) }),
        Call::ReserveMany => Box::pin(async move { drop(c.reserve_many(2).await) }),
        Call::Flush => Box::pin(async move {
            let _ = c.flush().await;
        }),
        Call::Drain => Box::pin(async move {
            let _ = c.drain(minute).await;
        }),
    }
}

/// Drops `call` after `n` polls; whether it had completed.
async fn drop_after(call: Call, situation: Situation, n: usize) -> bool {
    let mut rig = Rig::new(Strategy::Block);
    match situation {
        Situation::Room => {}
        Situation::Closed => rig.c.close(),
        _ => rig.fill(),
    }
    let items = match call {
        Call::Push | Call::PushTimeout | Call::PushTracked | Call::Deliver => 1,
        Call::PushAll => 3,
        _ => 0,
    };
    let tokens: Vec<_> = (0..items).map(|_| rig.token()).collect();
    let c = rig.c.clone();
    let before = rig.check();
    let mut future = start(call, &c, tokens);
    let mut is_complete = false;
    for polls in 0..n {
        if poll_once(future.as_mut()).await.is_ready() {
            is_complete = true;
            break;
        }
        rig.check();
        if polls + 1 < n {
            // Something happens between two polls.
            rig.flush_one().await;
        }
    }
    match situation {
        Situation::ServedAndNotPolled => rig.flush_one().await,
        Situation::ShutAndNotPolled => rig.c.close(),
        _ => {}
    }
    let (waiting, cancelled) = (rig.check().waiting, rig.check().cancelled);
    drop(future);
    let after = rig.check();
    assert_eq!(after.cancelled, cancelled + waiting, "who was still waiting has cancelled");
    assert!(after.accepted >= before.accepted);
    if n == 0 {
        assert_eq!((after.offered, after.cancelled), (before.offered, 0), "what was never polled was never offered");
        assert_eq!(c.is_closed(), matches!(situation, Situation::Closed | Situation::ShutAndNotPolled));
    }
    drop(c);
    rig.end(after.cancelled).await;
    is_complete
}

#[tokio::test(start_paused = true)]
async fn every_future_may_be_dropped_at_every_poll_in_every_situation() {
    for call in CALLS {
        for situation in SITUATIONS {
            for n in 0.. {
                assert!(n < 50, "{call:?} in {situation:?} does not complete");
                if drop_after(call, situation, n).await {
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_flusher_may_be_dropped_at_every_poll() {
    for n in 0..20 {
        for is_draining in [false, true] {
            let mut rig = Rig::new(Strategy::Block);
            rig.fill();
            let (c, token) = (rig.c.clone(), rig.token());
            let mut push = Box::pin(c.push(token));
            assert!(poll_once(push.as_mut()).await.is_pending());
            let drain = Box::pin(c.drain(Duration::from_secs(1)));
            let mut drain = is_draining.then_some(drain);
            if let Some(drain) = &mut drain {
                assert!(poll_once(drain.as_mut()).await.is_pending());
            }
            let Rig { c: main, mut flusher, made, dropped } = rig;
            for _ in 0..n {
                let _ = poll_once(flusher.as_mut()).await;
            }
            drop(flusher);
            let snapshot = main.snapshot();
            snapshot.audit().unwrap();
            assert_eq!((snapshot.depth, snapshot.waiting, snapshot.state), (0, 0, State::Draining));
            let Poll::Ready(pushed) = poll_once(push.as_mut()).await else { panic!("a push outlives the flusher") };
            if let Some(drain) = &mut drain {
                let Poll::Ready(report) = poll_once(drain.as_mut()).await else { panic!("a drain outlives it") };
                assert_eq!(report.leftovers.len() as u64, report.abandoned());
            }
            drop((drain, push, pushed));
            drop((main, c));
            assert_eq!(dropped.load(Ordering::Relaxed), made);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_watch_loses_no_state() {
    for n in 0..3 {
        let mut rig = Rig::new(Strategy::Block);
        let mut watch = rig.c.watch();
        {
            let mut changed = Box::pin(watch.changed());
            for _ in 0..n {
                assert!(poll_once(changed.as_mut()).await.is_pending());
            }
            rig.fill();
        }
        assert_eq!(watch.current(), State::Blocked);
        assert_eq!(watch.changed().await, Some(State::Blocked));
        rig.flush_one().await;
        rig.flush_one().await;
        assert_eq!(watch.changed().await, Some(State::Normal));
        rig.end(0).await;
        assert_eq!((watch.changed().await, watch.changed().await), (Some(State::Draining), None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_is_not_in_the_way_of_the_next() {
    // Of 50 that wait, all but one give up, each possible one once.
    for survivor in 0..50 {
        let mut rig = Rig::new(Strategy::Block);
        rig.fill();
        let c = rig.c.clone();
        let mut pushes = Vec::new();
        for _ in 0..50 {
            let mut push = Box::pin(c.push(rig.token()));
            assert!(poll_once(push.as_mut()).await.is_pending());
            pushes.push(push);
        }
        let mut push = pushes.swap_remove(survivor);
        drop(pushes);
        assert_eq!(rig.check().waiting, 1);
        rig.flush_one().await;
        assert!(poll_once(push.as_mut()).await.is_ready());
        drop(push);
        rig.end(49).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_granted_permit_that_nobody_fetches_goes_to_the_next() {
    let mut rig = Rig::new(Strategy::Block);
    rig.fill();
    let c = rig.c.clone();
    let mut first = Box::pin(c.reserve());
    assert!(poll_once(first.as_mut()).await.is_pending());
    let mut second = Box::pin(c.push(rig.token()));
    assert!(poll_once(second.as_mut()).await.is_pending());
    rig.flush_one().await;
    assert_eq!(rig.check().reserved, 1);
    drop(first);
    assert!(poll_once(second.as_mut()).await.is_ready());
    drop(second);
    rig.end(0).await;
}

/// Uses up the budget of the running task.
async fn exhaust() {
    poll_fn(|cx| {
        while let Poll::Ready(budget) = coop::poll_proceed(cx) {
            budget.made_progress();
        }
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_push_that_had_no_budget_and_gave_up_is_cancelled() {
    let (c, _flusher) = BackpressureController::builder(1).build(|_| std::future::ready(Ok(()))).unwrap();
    c.try_push(0).unwrap();
    exhaust().await;
    {
        let push = pin!(c.push(1));
        assert!(push.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let snapshot = c.snapshot();
    assert_eq!((snapshot.offered, snapshot.accepted, snapshot.cancelled), (2, 1, 1));
}
