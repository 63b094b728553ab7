//! A sink out: the contract of `futures`' `Sink`, and that a sink which is ready holds nothing up.

#![cfg(feature = "sink")]

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use backpressure::{
    Admission, BackpressureController, Batch, Batches, LossReason, Pressure, PushError, PushSink, State, Strategy,
};
use futures::future::poll_fn;
use futures::sink::{Sink, SinkExt};
use futures::stream::{self, StreamExt as _};

use self::support::{
    Drops, Gate, HOUR, Log, Losses, SEC, Token, Wakes, gated, idle, ids, ms, now, ok, paused, poll_once,
};

type Answer = Poll<Result<(), PushError<u64>>>;

/// A controller of 2 whose batches of 2 are pulled.
fn pulled(strategy: Strategy<u64>) -> (BackpressureController<u64>, Batches<u64>) {
    BackpressureController::builder(2).fixed(2, HOUR).strategy(strategy).pull().unwrap()
}

fn ready(sink: &mut PushSink<u64>) -> Answer {
    poll_once(&mut poll_fn(|cx| Pin::new(&mut *sink).poll_ready(cx)))
}

fn flush(sink: &mut PushSink<u64>) -> Answer {
    poll_once(&mut poll_fn(|cx| Pin::new(&mut *sink).poll_flush(cx)))
}

fn close(sink: &mut PushSink<u64>) -> Answer {
    poll_once(&mut poll_fn(|cx| Pin::new(&mut *sink).poll_close(cx)))
}

fn send(sink: &mut PushSink<u64>, item: u64) -> Result<(), PushError<u64>> {
    Pin::new(sink).start_send(item)
}

const READY: Answer = Poll::Ready(Ok(()));

#[test]
fn send_all_and_forward_deliver_all_in_order_and_return_when_it_is_settled() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(8).fixed(3, HOUR).spawn(ok(&log)).unwrap();
        let mut sink = c.sink();
        sink.send(0).await.unwrap();
        assert_eq!(log.items(), [0], "send flushes");
        sink.send_all(&mut stream::iter(1..500).map(Ok)).await.unwrap();
        assert_eq!((log.items().len(), c.snapshot().depth), (500, 0));
        stream::iter(500..1000).map(Ok).forward(sink).await.unwrap();
        assert_eq!(log.items(), (0..1000).collect::<Vec<u64>>());
        assert!(!c.is_closed(), "the sink has closed itself and nothing else");
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_sink_is_ready_while_it_holds_no_item_of_its_own() {
    paused(|| async {
        let (c, mut batches) = pulled(Strategy::Block);
        let mut sink = c.sink();
        for item in 0..3 {
            assert_eq!(ready(&mut sink), READY);
            send(&mut sink, item).unwrap();
        }
        let snapshot = c.snapshot();
        assert_eq!((snapshot.buffered, snapshot.reserved, snapshot.offered), (2, 0, 2), "and 2 waits to wait");
        assert!(ready(&mut sink).is_pending());
        assert_eq!((c.snapshot().waiting, c.snapshot().offered), (1, 3));
        // It has not waited for its turn: it is told so, and the item comes back.
        assert_eq!(send(&mut sink, 3), Err(PushError::Full(3)));
        batches.next().await.unwrap().done();
        assert_eq!((c.snapshot().buffered, c.snapshot().waiting), (1, 0));
        assert_eq!(ready(&mut sink), READY);
        send(&mut sink, 4).unwrap();
        c.snapshot().audit().unwrap();
        assert_eq!(&*batches.next().await.unwrap(), [2, 4]);
    });
}

#[test]
fn a_thousand_sinks_that_are_ready_hold_nobody_up() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10).fixed(5, ms(1)).spawn(ok(&log)).unwrap();
        let mut idlers: Vec<_> = (0..1000).map(|_| c.sink()).collect();
        for sink in &mut idlers {
            assert_eq!(ready(sink), READY);
        }
        assert_eq!((c.depth(), c.state()), (0, State::Normal));
        for item in 0..10 {
            c.try_push(item).unwrap();
        }
        let start = now();
        let mut busy = c.sink();
        for item in 10..2000 {
            if item % 2 == 0 { c.push(item).await.unwrap() } else { busy.feed(item).await.unwrap() }
        }
        busy.flush().await.unwrap();
        assert!(start.elapsed() <= ms(1));
        // Dropped while it is ready, or flushed: nothing to do.
        for (i, mut sink) in idlers.into_iter().enumerate() {
            if i % 2 == 0 {
                assert_eq!(flush(&mut sink), READY);
            }
        }
        assert_eq!(log.items(), (0..2000).collect::<Vec<_>>());
        assert_eq!(c.snapshot().cancelled, 0);
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_sink_that_keeps_an_item_and_is_not_polled_holds_nobody_up() {
    paused(|| async {
        let (c, mut batches) = pulled(Strategy::Block);
        let mut sink = c.sink();
        for item in 0..3 {
            send(&mut sink, item).unwrap();
        }
        batches.next().await.unwrap().done();
        for item in 3..7 {
            c.push(item).await.unwrap();
            if item % 2 == 0 {
                batches.next().await.unwrap().done();
            }
        }
        assert_eq!(flush(&mut sink), Poll::Pending);
        assert_eq!(&*batches.next().await.unwrap(), [2]);
    });
}

#[test]
fn a_flush_is_complete_when_all_that_was_sent_is_settled() {
    paused(|| async {
        let (c, mut batches) = pulled(Strategy::Block);
        let mut sink = c.sink();
        assert_eq!(flush(&mut sink), READY, "nothing was sent");
        send(&mut sink, 0).unwrap();
        assert!(flush(&mut sink).is_pending());
        let first = batches.next().await.unwrap();
        assert!(flush(&mut sink).is_pending(), "taken is not settled");
        // What is sent while it waits is covered, too.
        send(&mut sink, 1).unwrap();
        first.done();
        assert!(flush(&mut sink).is_pending());
        let second = batches.next().await.unwrap();
        assert_eq!(&*second, [1]);
        send(&mut sink, 2).unwrap();
        send(&mut sink, 3).unwrap();
        assert!(flush(&mut sink).is_pending(), "it still has an item of its own");
        assert_eq!(c.snapshot().waiting, 1);
        second.done();
        assert!(flush(&mut sink).is_pending());
        // What others push afterwards is not waited for.
        let third = batches.next().await.unwrap();
        assert_eq!(&*third, [2, 3]);
        third.done();
        assert_eq!(flush(&mut sink), READY);
        c.try_push(4).unwrap();
        assert_eq!(flush(&mut sink), READY);
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_flush_is_woken_when_all_is_settled() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let c = BackpressureController::builder(8).fixed(4, HOUR).spawn(gated(&gate, &log)).unwrap();
        let mut sink = c.sink();
        sink.feed(1_u64).await.unwrap();
        let wakes = Wakes::new();
        let mut flush = Box::pin(SinkExt::<u64>::flush(&mut sink));
        assert!(wakes.poll(&mut flush).is_pending());
        idle().await;
        assert_eq!((wakes.count(), c.snapshot().in_flight), (0, 1));
        gate.open();
        idle().await;
        assert_eq!((wakes.count(), log.items()), (1, vec![1]));
        assert_eq!(wakes.poll(&mut flush), READY);
    });
}

#[test]
fn closing_flushes_and_closes_only_itself() {
    paused(|| async {
        let (c, mut batches) = pulled(Strategy::Block);
        let (mut sink, mut other) = (c.sink(), c.sink());
        for item in 0..3 {
            send(&mut sink, item).unwrap();
        }
        assert!(close(&mut sink).is_pending());
        batches.next().await.unwrap().done();
        assert!(close(&mut sink).is_pending());
        batches.next().await.unwrap().done();
        assert_eq!(close(&mut sink), READY);
        assert_eq!(c.snapshot().delivered, 3);
        // It takes nothing any more, and counts nothing.
        assert_eq!(ready(&mut sink), READY);
        assert_eq!(send(&mut sink, 3), Err(PushError::Closed(3)));
        assert_eq!((flush(&mut sink), close(&mut sink)), (READY, READY));
        assert_eq!(c.snapshot().offered, 3);
        send(&mut other, 4).unwrap();
        assert!(!c.is_closed());
        // A sink that was closed keeps nothing open, one that was not does.
        drop(c);
        let batch = batches.next();
        assert!(tokio::time::timeout(SEC, batch).await.is_err());
        drop(other);
        batches.next().await.unwrap().done();
        assert!(batches.next().await.is_none());
        drop(sink);
    });
}

#[test]
fn a_sink_of_a_closed_controller_gives_items_back() {
    paused(|| async {
        let (c, mut batches) = pulled(Strategy::Block);
        let mut sink = c.sink();
        for item in 0..3 {
            send(&mut sink, item).unwrap();
        }
        assert!(ready(&mut sink).is_pending());
        c.close();
        assert_eq!(ready(&mut sink), Poll::Ready(Err(PushError::Closed(2))));
        assert_eq!(ready(&mut sink), READY);
        assert_eq!(send(&mut sink, 3), Err(PushError::Closed(3)));
        assert!(flush(&mut sink).is_pending());
        batches.next().await.unwrap().done();
        assert_eq!((flush(&mut sink), close(&mut sink)), (READY, READY));
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.refused.closed, snapshot.delivered), (2, 2));
    });
}

#[test]
fn each_strategy_decides_about_what_a_sink_sends() {
    paused(|| async {
        let (c, _batches) = pulled(Strategy::DropNewest);
        let mut sink = c.sink();
        let answers = [0, 1, 2].map(|item| send(&mut sink, item));
        assert_eq!(answers, [Ok(()), Ok(()), Err(PushError::Full(2))]);
        assert_eq!((ready(&mut sink), c.snapshot().refused.full), (READY, 1));

        let (c, mut batches) = pulled(Strategy::DropOldest);
        let mut sink = c.sink();
        for item in 0..5 {
            send(&mut sink, item).unwrap();
        }
        assert_eq!((c.snapshot().evicted, &*batches.next().await.unwrap()), (3, &[3, 4][..]));

        let (c, _batches) = pulled(Strategy::BlockFor(SEC));
        let mut sink = c.sink();
        sink.feed(0).await.unwrap();
        sink.feed(1).await.unwrap();
        sink.feed(2).await.unwrap();
        let start = now();
        assert_eq!(sink.feed(3).await, Err(PushError::TimedOut(2)), "the one that it kept");
        assert_eq!((start.elapsed(), c.snapshot().refused.timed_out), (SEC, 1));

        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let strategy = move |_: &u64, _: &Pressure| {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Admission::Wait
        };
        let (c, mut batches) = pulled(Strategy::Custom(Arc::new(strategy)));
        let mut sink = c.sink();
        for item in 0..3 {
            send(&mut sink, item).unwrap();
        }
        assert!(ready(&mut sink).is_pending());
        batches.next().await.unwrap().done();
        assert_eq!(ready(&mut sink), READY);
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1, "asked once about the one without room");
    });
}

#[test]
fn a_sink_that_is_dropped_cancels_its_item_and_drops_it_once() {
    paused(|| async {
        for polled in [false, true] {
            let tokens = Drops::default();
            let (c, mut batches) = BackpressureController::builder(2).fixed(2, HOUR).pull().unwrap();
            let mut sink = c.sink();
            for _ in 0..3 {
                Pin::new(&mut sink).start_send(tokens.next()).unwrap();
            }
            if polled {
                assert!(poll_once(&mut poll_fn(|cx| Pin::new(&mut sink).poll_flush(cx))).is_pending());
            }
            drop(sink);
            let snapshot = c.snapshot();
            snapshot.audit().unwrap();
            assert_eq!((snapshot.cancelled, snapshot.waiting, snapshot.offered), (1, 0, 3));
            assert_eq!(tokens.alive(), 2);
            let batch = batches.next().await.unwrap();
            assert_eq!(ids(&batch), [0, 1]);
            batch.done();
            drop((c, batches));
            tokens.assert_each_once(3);
        }
    });
}

#[test]
fn a_loop_of_sends_that_find_no_room_leaves_the_thread_to_the_flusher() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let c = BackpressureController::builder(10)
            .fixed(5, HOUR)
            .strategy(Strategy::DropOldest)
            .on_loss(losses.hook())
            .spawn(ok(&log))
            .unwrap();
        let mut sink = c.sink();
        for item in 0..10_000_u64 {
            sink.feed(item).await.unwrap();
        }
        assert!(log.calls().len() > 10, "{} calls of the sink", log.calls().len());
        sink.close().await.unwrap();
        assert!(losses.lines().iter().all(|(_, reason, _)| *reason == LossReason::Evicted));
        assert_eq!(log.items().len() + losses.items().len(), 10_000);
    });
}

#[test]
fn a_sink_can_be_sent_and_named() {
    fn is<S: Sink<Token, Error = PushError<Token>> + Send + Sync + Unpin + std::fmt::Debug>() {}
    is::<PushSink<Token>>();
}

#[test]
fn feeding_a_buffer_that_evicts_leaves_the_flusher_its_turn() {
    const ITEMS: u64 = 50_000;
    let delivered = paused(|| async {
        let builder = BackpressureController::builder(100).strategy(Strategy::DropOldest);
        let c = builder.spawn(|_: Batch<u64>| async { Ok(()) }).unwrap();
        let mut sink = c.sink();
        for item in 0..ITEMS {
            sink.feed(item).await.unwrap();
        }
        c.snapshot().delivered
    });
    assert!(delivered > ITEMS / 4, "{delivered} of {ITEMS}");
}
