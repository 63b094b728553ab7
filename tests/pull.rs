//! Pull mode: what is promised of a sink is promised of whoever asks for batches.

mod support;

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, Batches, FlushReason, Loss, LossReason, PushError, Retry, Snapshot, State, Strategy,
};
use futures::StreamExt;
use tokio::time::timeout;

use self::support::{
    Dice, Drops, GUARD, HOUR, Losses, SEC, Token, Wakes, ids, ms, now, paused, poll_once, rounds, settled, within,
};

type Pair<T> = (BackpressureController<T>, Batches<T>);

/// A controller of capacity 8 with batches of 2 and no linger to wait for.
fn pair() -> Pair<u64> {
    BackpressureController::builder(8).fixed(2, HOUR).pull().unwrap()
}

/// What a batch that is there holds.
async fn next<T>(batches: &mut Batches<T>) -> Batch<T> {
    timeout(HOUR, batches.next()).await.expect("a batch is due").expect("it has not ended")
}

fn is_pending<T>(batches: &mut Batches<T>) -> bool {
    poll_once(&mut pin!(batches.next())).is_pending()
}

fn audited<T>(c: &BackpressureController<T>) -> Snapshot {
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    snapshot
}

/// Polls one call once, pushes, drops the call unpolled, and calls again.
async fn check_rounds_of_dropped_calls(with_next: bool, linger: Duration) {
    let tokens = Drops::default();
    let (c, mut batches) = BackpressureController::builder(4).fixed(4, linger).pull().unwrap();
    for round in 0..1000 {
        let mut call: Pin<Box<dyn Future<Output = Option<Batch<Token>>>>> =
            if with_next { Box::pin(batches.next()) } else { Box::pin(StreamExt::next(&mut batches)) };
        assert!(poll_once(&mut call).is_pending());
        c.try_push(tokens.next()).unwrap();
        if !linger.is_zero() {
            tokio::time::advance(linger).await;
        }
        drop(call);
        let batch = if with_next { next(&mut batches).await } else { StreamExt::next(&mut batches).await.unwrap() };
        assert_eq!(ids(&batch), [round]);
        batch.done();
        audited(&c);
    }
    let report = c.drain(SEC).await;
    assert_eq!((report.delivered(), report.leftovers.len()), (1000, 0));
    tokens.assert_each_once(1000);
}

#[test]
fn s_c01_a_call_that_is_dropped_after_the_push_leaves_the_item_to_the_next_one() {
    for with_next in [true, false] {
        for linger in [ms(0), ms(5)] {
            paused(move || check_rounds_of_dropped_calls(with_next, linger));
        }
    }
}

#[test]
fn batches_leave_as_for_a_sink() {
    paused(|| async {
        let (c, mut batches) = BackpressureController::builder(6).fixed(4, ms(10)).pull().unwrap();
        let start = now();
        assert_eq!(c.push_all(0..5_u64).await.unwrap(), 5);
        let full = next(&mut batches).await;
        assert_eq!(
            (&*full, full.reason(), full.attempt(), start.elapsed()),
            (&[0, 1, 2, 3][..], FlushReason::Full, 1, ms(0))
        );
        let partial = next(&mut batches).await;
        assert_eq!((&*partial, partial.reason(), partial.seq(0)), (&[4][..], FlushReason::Linger, 4));
        assert_eq!(start.elapsed(), ms(10));
        c.try_push(5).unwrap();
        let room = next(&mut batches).await;
        assert_eq!((&*room, room.reason()), (&[5][..], FlushReason::Room));
        assert_eq!(c.state(), State::Blocked);
        assert_eq!(c.try_push(6), Err(PushError::Full(6)));
        for (batch, left) in [(full, 2), (partial, 1), (room, 0)] {
            batch.done();
            assert_eq!(audited(&c).in_flight, left);
        }
        c.try_push(6).unwrap();
        let mut flush = Box::pin(c.flush());
        assert!(poll_once(&mut flush).is_pending());
        let flushed = next(&mut batches).await;
        assert_eq!(flushed.reason(), FlushReason::Flush);
        flushed.done();
        assert_eq!(flush.await.delivered, 1);
        c.try_push(7).unwrap();
        c.close();
        let last = next(&mut batches).await;
        assert_eq!((&*last, last.reason()), (&[7][..], FlushReason::Drain));
        assert!(is_pending(&mut batches), "it is not settled yet");
        last.done();
        assert!(batches.next().await.is_none());
        assert!(batches.next().await.is_none());
        let flushes = audited(&c).flushes;
        assert_eq!((flushes.ok, flushes.total()), (5, 5));
    });
}

#[test]
fn a_batch_that_is_dropped_comes_again_by_the_schedule_and_before_anything_newer() {
    paused(|| async {
        let (c, mut batches) = BackpressureController::builder(8)
            .fixed(2, HOUR)
            .retry(Retry::exponential(SEC, 60 * SEC).without_jitter())
            .pull()
            .unwrap();
        c.push_all(0..6_u64).await.unwrap();
        let first = next(&mut batches).await;
        let (id, start) = (first.id(), now());
        drop(first);
        assert_eq!((audited(&c).in_flight, c.snapshot().retry_waiting), (2, 2), "it holds its room");
        // The wait counts from the drop, not from when the consumer looks.
        tokio::time::sleep(ms(900)).await;
        let again = next(&mut batches).await;
        assert_eq!((&*again, again.id(), again.attempt(), start.elapsed()), (&[0, 1][..], id, 2, SEC));
        assert_eq!(audited(&c).retry_waiting, 0);
        let second = next(&mut batches).await;
        assert_eq!(&*second, [2, 3]);
        drop(second);
        drop(again);
        let start = now();
        let order = [next(&mut batches).await, next(&mut batches).await, next(&mut batches).await];
        assert_eq!(order.each_ref().map(|batch| (batch[0], batch.attempt())), [(0, 3), (2, 2), (4, 1)]);
        assert_eq!(start.elapsed(), 2 * SEC, "the oldest is waited for");
        let [first, second, third] = order;
        third.done();
        first.done();
        second.done();
        let snapshot = audited(&c);
        assert_eq!((snapshot.delivered, snapshot.retried, snapshot.depth), (6, 6, 0));
        assert_eq!((snapshot.flushes.ok, snapshot.flushes.retry), (3, 3));
    });
}

#[test]
fn a_consumer_that_waits_is_told_what_becomes_of_a_batch_elsewhere() {
    paused(|| async {
        let (c, mut batches) = pair();
        c.push_all(0..2).await.unwrap();
        let batch = next(&mut batches).await;
        let wakes = Wakes::new();
        let mut call = Box::pin(batches.next());
        assert!(wakes.poll(&mut call).is_pending());
        drop(batch);
        assert_eq!(wakes.count(), 1);
        let again = call.await.unwrap();
        assert_eq!((&*again, again.attempt()), (&[0, 1][..], 2));
        c.close();
        let mut call = Box::pin(batches.next());
        assert!(wakes.poll(&mut call).is_pending());
        again.done();
        assert_eq!(wakes.count(), 2);
        assert!(matches!(wakes.poll(&mut call), Poll::Ready(None)));
    });
}

#[test]
fn a_batch_that_is_dropped_too_often_has_failed() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = BackpressureController::builder(8)
            .fixed(2, HOUR)
            .retry(Retry::exponential(ms(1), ms(1)).max_attempts(3))
            .on_loss(losses.hook())
            .pull()
            .unwrap();
        c.push_all(0..4_u64).await.unwrap();
        for attempt in 1..=3 {
            let batch = next(&mut batches).await;
            assert_eq!((&*batch, batch.attempt()), (&[0, 1][..], attempt));
        }
        let batch = next(&mut batches).await;
        assert_eq!((&*batch, batch.attempt(), batch.lost_before().failed), (&[2, 3][..], 1, 2));
        let told = |item| (Some(item), LossReason::Failed, Some("the retries are used up".to_owned()));
        assert_eq!(losses.lines(), [told(0), told(1)]);
        batch.done();
        let report = c.drain(SEC).await;
        report.totals.audit().unwrap();
        assert_eq!((report.delivered(), report.failed()), (2, 2));
    });
}

#[test]
fn items_are_judged_one_by_one() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = BackpressureController::builder(4)
            .fixed(4, HOUR)
            .retry(Retry::exponential(ms(1), ms(1)))
            .on_loss(losses.hook())
            .pull()
            .unwrap();
        c.push_all(0..4_u64).await.unwrap();
        let mut batch = next(&mut batches).await;
        let id = batch.id();
        batch.deliver(0);
        batch.fail(1, "bad");
        drop(batch);
        assert_eq!((audited(&c).delivered, c.snapshot().failed), (1, 1), "at once, whoever looks");
        assert_eq!(losses.lines(), [(Some(1), LossReason::Failed, Some("bad".to_owned()))]);
        let mut batch = next(&mut batches).await;
        assert_eq!((&*batch, batch.seq(1)), (&[2, 3][..], 3));
        assert_ne!(batch.id(), id, "it is another batch");
        batch.retry(1);
        batch.done();
        assert_eq!(audited(&c).delivered, 2);
        let mut batch = next(&mut batches).await;
        let moved_out = batch.take();
        drop(batch);
        assert_eq!((moved_out, audited(&c).failed), (vec![3], 2), "what was moved out cannot come again");
        c.try_push(4).unwrap();
        let mut flush = Box::pin(c.flush());
        assert!(poll_once(&mut flush).is_pending());
        let mut batch = next(&mut batches).await;
        assert_eq!(batch.take(), [4]);
        batch.done();
        assert!(flush.await.all_delivered());
        assert_eq!((audited(&c).delivered, c.snapshot().failed, c.depth()), (3, 2, 0));
    });
}

#[test]
fn several_are_out_and_settle_in_any_order() {
    paused(|| async {
        let (c, mut batches) = pair();
        c.push_all(0..8).await.unwrap();
        let mut out = VecDeque::new();
        for _ in 0..4 {
            out.push_back(next(&mut batches).await);
        }
        assert!(is_pending(&mut batches));
        // Covers all that is out, and nothing of what comes.
        let mut flush = Box::pin(c.flush());
        assert!(poll_once(&mut flush).is_pending());
        let mut waiting = Box::pin(c.push_all(8..12));
        assert!(poll_once(&mut waiting).is_pending());
        // Nobody looks into the stream: the room is there at once, and who waits for it gets it.
        for (index, room) in [(2, 2), (0, 4)] {
            out.remove(index).unwrap().done();
            let snapshot = audited(&c);
            assert_eq!((snapshot.delivered, snapshot.buffered, snapshot.waiting), (room, room, 4 - room));
            assert!(poll_once(&mut flush).is_pending());
        }
        assert_eq!(waiting.await.unwrap(), 4);
        let newer = next(&mut batches).await;
        assert_eq!(&*newer, [8, 9]);
        newer.done();
        out.remove(1).unwrap().done();
        assert!(poll_once(&mut flush).is_pending());
        out.remove(0).unwrap().done();
        assert_eq!(flush.await.delivered, 8);
        let last = next(&mut batches).await;
        let taken = tokio::spawn(async move {
            tokio::time::sleep(SEC).await;
            last.done();
        });
        let start = now();
        assert!(c.drain(HOUR).await.is_clean());
        assert_eq!(start.elapsed(), SEC);
        taken.await.unwrap();
        assert!(batches.next().await.is_none());
    });
}

#[test]
fn a_drain_ends_exactly_though_nobody_looks_into_the_stream() {
    paused(|| async {
        let start = now();
        let (c, batches) = pair();
        assert!(c.drain(HOUR).await.is_clean());
        drop(batches);

        let (c, batches) = pair();
        let permit = c.try_reserve().unwrap();
        let mut drain = Box::pin(c.drain(HOUR));
        assert!(poll_once(&mut drain).is_pending());
        drop(permit);
        assert!(drain.await.is_clean());
        drop(batches);

        let (c, batches) = pair();
        c.try_push(1).unwrap();
        let mut drain = Box::pin(c.drain(HOUR));
        assert!(poll_once(&mut drain).is_pending());
        assert_eq!(c.purge(), [1]);
        assert_eq!(drain.await.totals.purged, 1);
        drop(batches);

        let (c, mut batches) = pair();
        c.try_push(1).unwrap();
        c.close();
        let batch = next(&mut batches).await;
        let mut drain = Box::pin(c.drain(HOUR));
        assert!(poll_once(&mut drain).is_pending());
        batch.done();
        assert_eq!(drain.await.delivered(), 1);
        assert_eq!(start.elapsed(), ms(0));
    });
}

#[test]
fn what_is_held_at_the_deadline_is_not_returned_and_told_when_it_comes_back() {
    paused(|| async {
        let (tokens, told) = (Drops::default(), Arc::new(Mutex::new(Vec::new())));
        let hook = Arc::clone(&told);
        let (c, mut batches) = BackpressureController::builder(8)
            .fixed(2, HOUR)
            .retry(Retry::exponential(HOUR, HOUR))
            .on_loss(move |loss: Loss<Token>| hook.lock().unwrap().push((loss.item.unwrap().id(), loss.reason)))
            .pull()
            .unwrap();
        for _ in 0..7 {
            c.try_push(tokens.next()).unwrap();
        }
        let (dropped, held) = (next(&mut batches).await, next(&mut batches).await);
        drop(dropped);
        let start = now();
        let mut drain = Box::pin(c.drain(SEC));
        assert!(poll_once(&mut drain).is_pending());
        // It waits for its retry, and nothing newer comes meanwhile: then the deadline ends the stream.
        assert!(batches.next().await.is_none());
        assert_eq!(start.elapsed(), SEC);
        let report = drain.await;
        assert_eq!((ids(&report.leftovers), report.not_returned), (vec![0, 1, 4, 5, 6], 2));
        assert_eq!((report.abandoned(), report.totals.flushes.cancelled), (7, 1));
        report.totals.audit().unwrap();
        held.done();
        assert_eq!(*told.lock().unwrap(), [(2, LossReason::Abandoned), (3, LossReason::Abandoned)]);
        assert_eq!(audited(&c).abandoned, 7);
        drop(report);
        tokens.assert_each_once(7);
    });
}

#[test]
fn a_stream_that_is_dropped_ends_the_controller() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = BackpressureController::builder(4).fixed(2, HOUR).on_loss(losses.hook()).pull().unwrap();
        c.push_all(0..4_u64).await.unwrap();
        let held = next(&mut batches).await;
        let mut waiting = Box::pin(c.push(4));
        assert!(poll_once(&mut waiting).is_pending());
        drop(batches);
        assert_eq!(waiting.await, Err(PushError::Closed(4)));
        let snapshot = audited(&c);
        assert_eq!((snapshot.abandoned, snapshot.depth, snapshot.state), (4, 0, State::Draining));
        assert_eq!(losses.items(), [2, 3]);
        drop(held);
        assert_eq!(losses.items(), [2, 3, 0, 1]);
        assert_eq!(c.drain(HOUR).await.not_returned, 2);
        audited(&c);
    });
}

#[test]
fn without_handles_the_stream_gives_what_is_left_and_ends() {
    paused(|| async {
        let (c, mut batches) = pair();
        c.push_all(0..3).await.unwrap();
        drop(c);
        let mut seen = Vec::new();
        while let Some(batch) = batches.next().await {
            seen.extend_from_slice(&batch);
            batch.done();
        }
        assert_eq!(seen, [0, 1, 2]);
    });
}

#[test]
fn a_pause_holds_all_but_flush_and_drain() {
    paused(|| async {
        let (c, mut batches) = BackpressureController::builder(8).fixed(2, ms(10)).pull().unwrap();
        c.pause();
        c.push_all(0..4).await.unwrap();
        assert!(timeout(10 * SEC, batches.next()).await.is_err());
        let mut flush = Box::pin(c.flush());
        assert!(poll_once(&mut flush).is_pending());
        next(&mut batches).await.done();
        next(&mut batches).await.done();
        assert_eq!(flush.await.delivered, 4);
        c.push_all(4..6).await.unwrap();
        let mut call = Box::pin(batches.next());
        assert!(poll_once(&mut call).is_pending());
        c.resume();
        assert_eq!(&*call.await.unwrap(), [4, 5]);
    });
}

#[test]
fn a_slow_consumer_behind_drop_oldest_gets_the_newest() {
    paused(|| async {
        let losses = Losses::default();
        let (c, mut batches) = BackpressureController::builder(10)
            .fixed(5, HOUR)
            .strategy(Strategy::DropOldest)
            .on_loss(losses.hook())
            .pull()
            .unwrap();
        let producer = {
            let c = c.clone();
            tokio::spawn(async move {
                for i in 0..1000_u64 {
                    c.push(i).await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                }
            })
        };
        let (mut seen, mut pushed) = (Vec::new(), 0);
        while pushed < 1000 {
            tokio::time::sleep(ms(100)).await;
            let batch = next(&mut batches).await;
            pushed = audited(&c).accepted;
            assert!(batch[0] + 10 >= pushed, "{:?} after {pushed} pushes", &*batch);
            seen.extend_from_slice(&batch);
            batch.done();
        }
        producer.await.unwrap();
        c.close();
        while let Some(batch) = batches.next().await {
            seen.extend_from_slice(&batch);
            batch.done();
        }
        assert!(seen.is_sorted() && seen.ends_with(&[995, 996, 997, 998, 999]));
        let mut all = [seen, losses.items()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn a_consumer_that_is_never_at_a_loss_leaves_the_thread_to_others() {
    paused(|| async {
        let (c, mut batches) = BackpressureController::builder(1000).fixed(1, HOUR).pull().unwrap();
        c.push_all(0..1000_u64).await.unwrap();
        let mut other = tokio::spawn(async {});
        let (mut given, mut turns) = (0, 0);
        while given < 1000 {
            next(&mut batches).await.done();
            given += 1;
            turns += u32::from(other.is_finished());
            if other.is_finished() {
                other = tokio::spawn(async {});
            }
        }
        assert!(turns >= 3, "{turns} turns of others in 1000 batches");
    });
}

#[test]
fn an_idle_stream_is_woken_for_nothing() {
    paused(|| async {
        let (c, mut batches) = pair();
        let wakes = Wakes::new();
        assert!(wakes.poll(&mut pin!(batches.next())).is_pending());
        settled().await;
        assert_eq!(wakes.count(), 0);
        c.try_push(0).unwrap();
        let first = wakes.count();
        assert!(wakes.poll(&mut pin!(batches.next())).is_pending());
        tokio::time::sleep(ms(1)).await;
        c.try_push(1).unwrap();
        assert_eq!(wakes.count(), first + 1, "a full batch");
        let Poll::Ready(Some(batch)) = wakes.poll(&mut pin!(batches.next())) else { panic!("it is full") };
        tokio::time::sleep(10 * HOUR).await;
        batch.done();
        tokio::time::sleep(10 * HOUR).await;
        assert_eq!(wakes.count(), first + 1);
    });
}

#[test]
fn a_stream_needs_a_runtime_only_for_the_time() {
    within(GUARD, || {
        let (c, mut batches) = BackpressureController::builder(4).fixed(2, ms(0)).pull().unwrap();
        futures::executor::block_on(async {
            c.push(1_u64).await.unwrap();
            batches.next().await.unwrap().done();
            c.push(2).await.unwrap();
            c.close();
            batches.next().await.unwrap().done();
            assert!(batches.next().await.is_none());
        });
        let (c, mut batches) = BackpressureController::builder(4).fixed(2, SEC).pull().unwrap();
        c.try_push(1_u64).unwrap();
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = futures::executor::block_on(batches.next());
        }));
        assert!(outside.unwrap_err().downcast_ref::<String>().unwrap().contains("runtime with time"));
        // And no harm is done.
        c.try_push(2).unwrap();
        assert_eq!(futures::executor::block_on(batches.next()).unwrap().len(), 2);
    });
}

/// A random life, audited after each step: batches are taken, and settled in every way and order.
async fn history(seed: u64) {
    let (mut dice, tokens, mut made) = (Dice(seed), Drops::default(), 0);
    let strategy = match dice.up_to(2) {
        0 => Strategy::DropOldest,
        1 => Strategy::DropNewest,
        _ => Strategy::BlockFor(ms(3)),
    };
    let capacity = 1 + dice.up_to(11) as usize;
    let (c, mut batches) = BackpressureController::builder(capacity)
        .fixed(1 + dice.up_to(capacity as u64 - 1) as usize, ms(dice.up_to(3)))
        .strategy(strategy)
        .retry(Retry::exponential(ms(1), ms(4)).max_attempts(3))
        .pull()
        .unwrap();
    let (mut out, mut permits) = (Vec::<Batch<Token>>::new(), Vec::new());
    for step in 0..60 {
        let mut token = || {
            made += 1;
            tokens.next()
        };
        match dice.up_to(11) {
            0 | 1 => drop(c.try_push(token())),
            2 => drop(c.push(token()).await),
            3 => drop(c.push_all([token(), token(), token()]).await),
            4 => permits.extend(c.try_reserve()),
            5 => {
                if let Some(permit) = permits.pop() {
                    if dice.up_to(1) == 0 { permit.send(token()) } else { permit.release() }
                }
            }
            6 | 7 => out.extend(timeout(ms(2), batches.next()).await.ok().flatten()),
            8 | 9 if !out.is_empty() => {
                let mut batch = out.swap_remove(dice.up_to(out.len() as u64 - 1) as usize);
                match dice.up_to(5) {
                    0 => batch.fail(0, "bad"),
                    1 => batch.retry(batch.len() - 1),
                    2 => batch.deliver(0),
                    3 => drop(batch.take()),
                    _ => {}
                }
                if dice.up_to(2) == 0 { drop(batch) } else { batch.done() }
            }
            10 => drop(c.purge()),
            _ => tokio::time::sleep(ms(dice.up_to(5))).await,
        }
        c.snapshot().audit().unwrap_or_else(|error| panic!("history {seed}, step {step}: {error}"));
    }
    drop(permits);
    // What is kept until the deadline is not returned, and is all that is abandoned.
    let kept = if dice.up_to(1) == 0 { out.pop() } else { None };
    out.clear();
    let ending = tokio::spawn({
        let c = c.clone();
        async move { c.drain(SEC).await }
    });
    while let Some(batch) = batches.next().await {
        batch.done();
    }
    let report = ending.await.unwrap();
    report.totals.audit().unwrap();
    assert_eq!((report.totals.offered, report.totals.depth), (made, 0), "history {seed}");
    assert_eq!(report.not_returned > 0, kept.is_some(), "history {seed}");
    assert!(report.leftovers.is_empty() || kept.is_some(), "history {seed}: {report:?}");
    drop((kept, report, c, batches));
    tokens.assert_each_once(made);
}

#[test]
fn every_history_of_pulled_batches_ends_empty() {
    for seed in 1..=rounds(1000, 300) {
        paused(move || history(seed));
    }
}
