//! Several calls of the sink at once: what holds all the same, and what does not.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use backpressure::{
    BackpressureController, Batch, BatchSink, BuildError, Builder, FlushError, HealthReason, LossReason,
    MAX_CONCURRENCY, Retry,
};
use tokio::sync::oneshot;

use self::support::{Drops, HOUR, Losses, Token, idle, ids, ms, now, paused, secs, settled};

/// A sink whose calls are answered by the test, by the first item that they have; clones share all.
#[derive(Clone, Default)]
struct Desk(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Open>>,
    sinks: AtomicUsize,
    /// The most calls at once, and those under way.
    most: AtomicUsize,
    now: AtomicUsize,
    attempts: Mutex<Vec<(Vec<u64>, u32, u64)>>,
}

struct Open {
    items: Vec<u64>,
    answer: oneshot::Sender<Answer>,
}

enum Answer {
    Ok,
    Error(FlushError),
    Panic,
}

struct Slot {
    desk: Desk,
}

impl Desk {
    fn sink(&self) -> Slot {
        self.0.sinks.fetch_add(1, Ordering::SeqCst);
        Slot { desk: self.clone() }
    }

    /// The batches that are with the sink, in the order of their calls.
    fn open(&self) -> Vec<Vec<u64>> {
        self.0.calls.lock().unwrap().iter().filter(|call| !call.answer.is_closed()).map(|c| c.items.clone()).collect()
    }

    /// Answers the call whose batch begins with `first`.
    fn answer(&self, first: u64, answer: Answer) {
        let mut calls = self.0.calls.lock().unwrap();
        let at = calls.iter().position(|call| call.items[0] == first && !call.answer.is_closed());
        let call = calls.remove(at.unwrap_or_else(|| panic!("no call with {first}")));
        assert!(call.answer.send(answer).is_ok());
    }

    fn ok(&self, first: u64) {
        self.answer(first, Answer::Ok);
    }

    fn fail(&self, first: u64, error: FlushError) {
        self.answer(first, Answer::Error(error));
    }

    fn sinks(&self) -> usize {
        self.0.sinks.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    /// Items, attempt and first position of each call so far.
    fn attempts(&self) -> Vec<(Vec<u64>, u32, u64)> {
        self.0.attempts.lock().unwrap().clone()
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        self.desk.sink()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.desk.0.sinks.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BatchSink<Token> for Slot {
    fn flush(&mut self, batch: Batch<Token>) -> impl Future<Output = Result<(), FlushError>> + Send {
        let shared = Arc::clone(&self.desk.0);
        let items = ids(&batch);
        shared.attempts.lock().unwrap().push((items.clone(), batch.attempt(), batch.seq(0)));
        let (answer, said) = oneshot::channel();
        shared.calls.lock().unwrap().push(Open { items, answer });
        let busy = shared.now.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(busy, Ordering::SeqCst);
        async move {
            let _under_way = UnderWay(shared);
            let said = said.await;
            drop(batch);
            match said.expect("the test answers") {
                Answer::Ok => Ok(()),
                Answer::Error(error) => Err(error),
                Answer::Panic => panic!("the test says so"),
            }
        }
    }
}

struct UnderWay(Arc<Shared>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

type Controller = BackpressureController<Token>;

/// 100 items, batches of 2, no linger that a test waits for.
fn builder() -> Builder<Token> {
    BackpressureController::builder(100).fixed(2, HOUR).retry(Retry::exponential(secs(1), secs(1)).without_jitter())
}

fn start(builder: Builder<Token>, n: usize) -> (Controller, Desk) {
    let desk = Desk::default();
    (builder.spawn_concurrent(n, desk.sink()).unwrap(), desk)
}

fn push(c: &Controller, drops: &Drops, n: u64) {
    for _ in 0..n {
        c.try_push(drops.next()).unwrap();
    }
}

#[test]
fn the_number_of_calls_is_checked_when_it_is_built() {
    let build = |n| Builder::build_concurrent(builder(), n, Desk::default().sink()).map(drop);
    assert_eq!(build(0), Err(BuildError::ConcurrencyZero));
    assert_eq!(build(MAX_CONCURRENCY + 1), Err(BuildError::ConcurrencyTooLarge { max: MAX_CONCURRENCY }));
    assert_eq!((build(1), build(MAX_CONCURRENCY)), (Ok(()), Ok(())));
}

#[test]
fn as_many_calls_as_slots_and_a_clone_of_the_sink_for_each() {
    paused(|| async {
        for n in [1, 3, MAX_CONCURRENCY] {
            let drops = Drops::default();
            let (c, desk) = start(BackpressureController::builder(1000).fixed(2, HOUR), n);
            push(&c, &drops, 700);
            idle().await;
            assert_eq!((desk.sinks(), desk.open().len()), (n, n));
            assert_eq!((c.snapshot().in_flight, c.explain().calls), (2 * n as u64, n as u64));
            while !c.is_empty() {
                let first = desk.open()[0][0];
                desk.ok(first);
                settled().await;
                c.snapshot().audit().unwrap();
            }
            assert_eq!((desk.most(), c.snapshot().delivered), (n, 700));
            drops.assert_each_once(700);
        }
    });
}

#[test]
fn one_slot_keeps_the_order_through_retries() {
    paused(|| async {
        let (c, desk) = start(builder(), 1);
        let drops = Drops::default();
        push(&c, &drops, 6);
        idle().await;
        desk.fail(0, FlushError::retry("down"));
        idle().await;
        assert!(desk.open().is_empty(), "nothing overtakes a batch that waits for its retry");
        tokio::time::advance(secs(1)).await;
        for first in [0, 2, 4] {
            settled().await;
            desk.ok(first);
        }
        settled().await;
        let order: Vec<_> = desk.attempts().into_iter().map(|(items, attempt, _)| (items[0], attempt)).collect();
        assert_eq!((order, desk.most()), (vec![(0, 1), (0, 2), (2, 1), (4, 1)], 1));
    });
}

#[test]
fn settled_in_any_order_and_the_room_is_free_at_once() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(BackpressureController::builder(6).fixed(2, HOUR), 3);
        push(&c, &drops, 6);
        idle().await;
        let blocked = tokio::spawn({
            let (c, token) = (c.clone(), drops.next());
            async move { c.push(token).await.is_ok() }
        });
        settled().await;
        assert_eq!((c.depth(), c.snapshot().waiting_producers), (6, 1));
        desk.ok(4);
        settled().await;
        assert!(blocked.is_finished(), "the last batch was settled first, and its room is a producer's");
        assert_eq!(desk.open(), [vec![0, 1], vec![2, 3]]);
        c.snapshot().audit().unwrap();
        desk.ok(0);
        settled().await;
        desk.ok(2);
        settled().await;
        assert_eq!((c.len(), c.snapshot().delivered, drops.alive()), (1, 6, 1));
    });
}

#[test]
fn flush_waits_for_what_was_accepted_before_it_and_for_nothing_else() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 4);
        push(&c, &drops, 5);
        idle().await;
        let mut flush = pin!(c.flush());
        let poll = |flush: &mut Pin<&mut _>| Future::poll(Pin::as_mut(flush), &mut Context::from_waker(Waker::noop()));
        assert!(poll(&mut flush).is_pending());
        settled().await;
        assert_eq!(desk.open(), [vec![0, 1], vec![2, 3], vec![4]], "it takes the partial batch along");
        push(&c, &drops, 2);
        idle().await;
        for first in [5, 4, 0] {
            if first != 5 {
                desk.ok(first);
            }
            settled().await;
            assert!(poll(&mut flush).is_pending());
        }
        desk.fail(2, FlushError::permanent("no"));
        settled().await;
        let Poll::Ready(report) = poll(&mut flush) else { panic!("all before it is settled") };
        assert_eq!((report.delivered, report.failed), (3, 2));
        assert_eq!(desk.open(), [[5, 6]], "what came after it is still out");
    });
}

#[test]
fn a_panic_in_one_slot_costs_nobody_else_anything() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 3);
        push(&c, &drops, 6);
        idle().await;
        desk.answer(2, Answer::Panic);
        settled().await;
        assert_eq!(desk.open(), [vec![0, 1], vec![4, 5]], "the others go on");
        desk.ok(0);
        desk.ok(4);
        tokio::time::sleep(ms(1001)).await;
        assert_eq!(desk.open(), [[2, 3]]);
        desk.ok(2);
        settled().await;
        let s = c.snapshot();
        assert_eq!((s.flushes.panicked, s.flushes.ok, s.delivered, desk.sinks()), (1, 3, 6, 3));
    });
}

#[test]
fn a_call_that_hangs_costs_its_slot_until_its_timeout() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder().flush_timeout(secs(5)), 2);
        push(&c, &drops, 8);
        idle().await;
        let began = now();
        // The first one hangs; the other slot takes the rest.
        for first in [2, 4, 6] {
            tokio::time::sleep(secs(1)).await;
            desk.ok(first);
            settled().await;
        }
        assert_eq!((desk.open(), c.snapshot().delivered), (vec![vec![0, 1]], 6));
        tokio::time::sleep_until(began + secs(5)).await;
        assert_eq!((c.snapshot().flushes.timed_out, desk.open().len()), (1, 0));
        tokio::time::sleep(ms(1001)).await;
        desk.ok(0);
        settled().await;
        assert_eq!(desk.attempts().last().unwrap(), &(vec![0, 1], 2, 0), "the same items at the same positions");
        assert!(c.is_empty());
    });
}

#[test]
fn more_time_is_the_calls_own() {
    paused(|| async {
        let sink = |batch: Batch<u64>| async move {
            if batch[0] == 0 {
                batch.extend(secs(3));
            }
            pending::<()>().await;
            drop(batch);
            Ok(())
        };
        let c = BackpressureController::builder(10)
            .fixed(1, HOUR)
            .flush_timeout(secs(2))
            .retry(Retry::never())
            .spawn_concurrent(2, sink)
            .unwrap();
        c.try_push(0).unwrap();
        c.try_push(1).unwrap();
        tokio::time::sleep(ms(2001)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 1);
        tokio::time::sleep(ms(2998)).await;
        assert_eq!(c.snapshot().flushes.timed_out, 1);
        tokio::time::sleep(ms(2)).await;
        assert_eq!((c.snapshot().flushes.timed_out, c.snapshot().failed), (2, 2));
    });
}

#[test]
fn while_a_batch_waits_to_be_sent_again_no_other_leaves_and_the_oldest_goes_first() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 3);
        push(&c, &drops, 20);
        idle().await;
        for first in [4, 0] {
            desk.fail(first, FlushError::retry("down"));
            settled().await;
        }
        tokio::time::sleep(ms(990)).await;
        assert_eq!(desk.open(), [[2, 3]], "a failing sink is left in peace");
        tokio::time::sleep(ms(20)).await;
        assert_eq!(desk.open(), [[2, 3], [0, 1], [4, 5]]);
        assert_eq!((c.snapshot().retried, c.snapshot().retry_waiting), (4, 0));
    });
}

#[test]
fn drain_ends_when_the_last_one_is_settled_and_the_sinks_are_gone_before() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 4);
        push(&c, &drops, 7);
        idle().await;
        let drain = tokio::spawn({
            let (c, desk) = (c.clone(), desk.clone());
            async move { (c.drain(HOUR).await, desk.sinks()) }
        });
        settled().await;
        assert_eq!(desk.open().len(), 4, "the partial batch leaves as well");
        for first in [6, 2, 4, 0] {
            assert!(!drain.is_finished());
            desk.ok(first);
            settled().await;
        }
        let (report, sinks) = drain.await.unwrap();
        assert_eq!((report.delivered(), sinks), (7, 0));
        report.totals.audit().unwrap();
        drops.assert_each_once(7);
    });
}

#[test]
fn drains_deadline_cuts_all_calls_and_hands_back_what_they_had_in_order() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 3);
        push(&c, &drops, 9);
        idle().await;
        // One waits for its retry, one is with the sink again after it, the others are.
        desk.fail(2, FlushError::retry("down"));
        settled().await;
        let report = c.drain(ms(500)).await;
        assert_eq!(ids(&report.leftovers), (0..9).collect::<Vec<_>>());
        assert_eq!((report.not_returned, report.totals.flushes.cancelled, desk.sinks()), (0, 2, 0));
        report.totals.audit().unwrap();
        drop(report);
        drops.assert_each_once(9);
    });
}

#[test]
fn what_sinks_have_put_elsewhere_is_named_at_the_deadline() {
    paused(|| async {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let sink = move |batch: Batch<u64>| {
            keep.lock().unwrap().push(batch);
            pending::<Result<(), FlushError>>()
        };
        let losses = Losses::default();
        let c = BackpressureController::builder(10)
            .fixed(2, HOUR)
            .on_loss(losses.hook())
            .spawn_concurrent(2, sink)
            .unwrap();
        (0..5).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        let report = c.drain(ms(100)).await;
        assert_eq!((report.not_returned, report.leftovers), (4, vec![4]));
        drop(std::mem::take(&mut *kept.lock().unwrap()));
        let abandoned: Vec<_> = losses.lines().into_iter().map(|(item, reason, _)| (item, reason)).collect();
        assert_eq!(abandoned, (0..4).map(|i| (Some(i), LossReason::Abandoned)).collect::<Vec<_>>());
    });
}

#[test]
fn a_batch_that_a_sink_keeps_holds_its_own_slot_only() {
    paused(|| async {
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        let sink = move |batch: Batch<u64>| {
            if batch[0] == 0 && batch.attempt() == 1 {
                *keep.lock().unwrap() = Some(batch);
                return std::future::ready(Err(FlushError::retry("kept")));
            }
            std::future::ready(Ok(()))
        };
        let c = BackpressureController::builder(10)
            .fixed(1, HOUR)
            .retry(Retry::exponential(ms(10), ms(10)))
            .spawn_concurrent(2, sink)
            .unwrap();
        for i in 0..4 {
            c.try_push(i).unwrap();
            idle().await;
        }
        assert_eq!((c.snapshot().delivered, c.snapshot().in_flight), (3, 1));
        drop(kept.lock().unwrap().take());
        tokio::time::sleep(ms(20)).await;
        assert_eq!((c.snapshot().delivered, c.snapshot().in_flight), (4, 0));
    });
}

#[test]
fn purge_and_close_leave_alone_what_is_out() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder(), 2);
        push(&c, &drops, 9);
        idle().await;
        assert_eq!(ids(&c.purge()), [4, 5, 6, 7, 8]);
        push(&c, &drops, 1);
        c.close();
        desk.ok(2);
        settled().await;
        assert_eq!(desk.open(), [vec![0, 1], vec![9]], "closed: also a partial batch leaves");
        desk.ok(9);
        desk.ok(0);
        settled().await;
        let s = c.snapshot();
        assert_eq!((s.delivered, s.purged, s.depth, desk.sinks()), (5, 5, 0, 0));
    });
}

#[test]
fn a_dropped_flusher_abandons_all_that_is_out() {
    paused(|| async {
        let (drops, lost, desk) = (Drops::default(), Arc::new(Mutex::new(Vec::new())), Desk::default());
        let told = Arc::clone(&lost);
        let (c, flusher) = builder()
            .on_loss(move |loss| told.lock().unwrap().extend(loss.item.as_ref().map(Token::id)))
            .build_concurrent(3, desk.sink())
            .unwrap();
        let task = tokio::spawn(flusher);
        push(&c, &drops, 7);
        idle().await;
        assert_eq!(desk.open().len(), 3);
        task.abort();
        idle().await;
        let s = c.snapshot();
        s.audit().unwrap();
        assert_eq!((s.abandoned, s.flushes.cancelled, desk.sinks(), c.is_closed()), (7, 3, 0, true));
        assert_eq!(*lost.lock().unwrap(), (0..7).collect::<Vec<_>>(), "in order");
        drops.assert_each_once(7);
    });
}

#[test]
fn health_names_the_call_that_takes_longest() {
    paused(|| async {
        let drops = Drops::default();
        let (c, desk) = start(builder().flush_timeout(HOUR), 2);
        push(&c, &drops, 2);
        tokio::time::sleep(secs(5)).await;
        push(&c, &drops, 2);
        tokio::time::sleep(secs(6)).await;
        let hangs = |c: &Controller| {
            c.health().reasons.iter().find_map(|reason| match reason {
                HealthReason::SinkHangs { since } => Some(since.as_secs()),
                _ => None,
            })
        };
        assert_eq!(hangs(&c), Some(11));
        desk.ok(0);
        settled().await;
        tokio::time::sleep(secs(12)).await;
        assert_eq!(hangs(&c), Some(18), "the other one");
    });
}

#[test]
fn only_what_was_woken_is_polled() {
    paused(|| async {
        let polls = Arc::new(Mutex::new([0; 3]));
        let count = Arc::clone(&polls);
        let sink = move |batch: Batch<u64>| {
            let count = Arc::clone(&count);
            async move {
                let index = batch[0] as usize;
                let mut sleep = pin!(tokio::time::sleep(ms(10 * (batch[0] + 1))));
                std::future::poll_fn(|cx| {
                    count.lock().unwrap()[index] += 1;
                    sleep.as_mut().poll(cx)
                })
                .await;
                Ok(())
            }
        };
        let c = BackpressureController::builder(10).fixed(1, HOUR).spawn_concurrent(3, sink).unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(ms(100)).await;
        assert_eq!((*polls.lock().unwrap(), c.snapshot().delivered), ([2; 3], 3));
    });
}

#[test]
fn a_sink_that_is_always_ready_starves_no_other_slot() {
    paused(|| async {
        let first = Arc::new(tokio::sync::Notify::new());
        let (held, calls) = (Arc::clone(&first), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&calls);
        let sink = move |batch: Batch<u64>| {
            let (held, call) = (Arc::clone(&held), count.fetch_add(1, Ordering::SeqCst));
            async move {
                if call == 0 {
                    held.notified().await;
                } else if call == 10 {
                    held.notify_one();
                }
                drop(batch);
                Ok(())
            }
        };
        let c = BackpressureController::builder(1000).fixed(1, HOUR).spawn_concurrent(2, sink).unwrap();
        (0..1000).for_each(|i| c.try_push(i).unwrap());
        while c.snapshot().delivered < 50 {
            tokio::task::yield_now().await;
        }
        let oldest_is_settled = c.snapshot().in_flight <= 1;
        assert!(oldest_is_settled, "{:?}", c.snapshot());
    });
}

#[test]
fn an_explanation_says_what_is_tried_at_most() {
    paused(|| async {
        let (c, _desk) = start(builder(), 8);
        let told = c.explain();
        assert_eq!((told.batch_limit, told.max_batch, told.concurrency_limit, told.max_concurrency), (2, 2, 8, 8));
        assert_eq!((told.calls, told.count, told.decisions.len(), told.rate, told.is_down), (0, 0, 0, None, false));
        assert_eq!(c.snapshot().concurrency_limit, 8);
        assert!(told.to_string().starts_with("batches of up to 2 items (at most 2), 0 calls under way of 8"));
    });
}
