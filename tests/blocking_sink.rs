//! Sinks that block a thread: one call at a time, whatever cuts a call off, and the function is never lost.

#![allow(clippy::disallowed_methods, reason = "a function that blocks sleeps")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BlockingSink, FlushError, LossReason, PushError, Retry, WeakController,
    WouldDeadlock,
};

use self::support::{Drops, GUARD, HOUR, Log, Losses, SEC, Token, ids, ms, real};

/// A blocking function that tells of each call, and then waits for its answer: it owns what it writes to.
struct Function {
    /// As a connection that would be closed if the function were lost.
    calls: u64,
    running: Arc<AtomicUsize>,
    begun: Sender<(u64, Vec<u64>, u32)>,
    answers: Receiver<Answer>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Ok,
    Retry,
    Permanent,
    Panic,
    DeliverOneAndRetry,
}

impl Function {
    fn call(&mut self, mut batch: Batch<Token>) -> Result<(), FlushError> {
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "one call at a time");
        self.calls += 1;
        self.begun.send((self.calls, ids(&batch), batch.attempt())).unwrap();
        let answer = self.answers.recv_timeout(GUARD).unwrap();
        assert_eq!(self.running.fetch_sub(1, Ordering::SeqCst), 1);
        match answer {
            Answer::Ok => Ok(()),
            Answer::Retry => Err(FlushError::retry("down")),
            Answer::Permanent => Err(FlushError::permanent("never")),
            Answer::Panic => panic!("the function"),
            Answer::DeliverOneAndRetry => {
                batch.deliver(0);
                Err(FlushError::retry("down"))
            }
        }
    }
}

struct Setup {
    c: BackpressureController<Token>,
    tokens: Drops,
    lost: Arc<std::sync::Mutex<Vec<(u64, LossReason)>>>,
    begun: Receiver<(u64, Vec<u64>, u32)>,
    answers: Sender<Answer>,
}

fn setup(flush_timeout: Duration) -> Setup {
    let (begun_sender, begun) = channel();
    let (answers, answers_receiver) = channel();
    let mut function = Function { calls: 0, running: Arc::default(), begun: begun_sender, answers: answers_receiver };
    let lost = Arc::<std::sync::Mutex<Vec<_>>>::default();
    let c = BackpressureController::builder(8)
        .fixed(2, HOUR)
        .flush_timeout(flush_timeout)
        .retry(Retry::exponential(ms(1), ms(1)))
        .on_loss({
            let lost = Arc::clone(&lost);
            move |loss: backpressure::Loss<Token>| {
                lost.lock().unwrap().push((loss.item.map_or(u64::MAX, |token| token.id()), loss.reason));
            }
        })
        .spawn(BlockingSink::new(move |batch: Batch<Token>| function.call(batch)))
        .unwrap();
    Setup { c, tokens: Drops::default(), lost, begun, answers }
}

impl Setup {
    async fn push(&self, n: usize) {
        for _ in 0..n {
            self.c.push(self.tokens.next()).await.unwrap();
        }
    }

    fn begun(&self) -> (u64, Vec<u64>, u32) {
        self.begun.recv_timeout(GUARD).unwrap()
    }
}

#[test]
fn a_blocking_function_keeps_its_state_over_errors_and_panics() {
    real(GUARD, || async {
        let s = setup(GUARD);
        s.push(6).await;
        for (answer, call) in [
            (Answer::Retry, (1, vec![0, 1], 1)),
            (Answer::Panic, (2, vec![0, 1], 2)),
            (Answer::DeliverOneAndRetry, (3, vec![0, 1], 3)),
            (Answer::Ok, (4, vec![1], 4)),
            (Answer::Permanent, (5, vec![2, 3], 1)),
            (Answer::Ok, (6, vec![4, 5], 1)),
        ] {
            assert_eq!(s.begun(), call);
            s.c.snapshot().audit().unwrap();
            s.answers.send(answer).unwrap();
        }
        let report = s.c.drain(GUARD).await;
        report.totals.audit().unwrap();
        assert_eq!((report.delivered(), report.failed()), (4, 2));
        let flushes = report.totals.flushes;
        assert_eq!((flushes.ok, flushes.retry, flushes.permanent, flushes.panicked), (2, 2, 1, 1));
        assert_eq!(*s.lost.lock().unwrap(), [(2, LossReason::Failed), (3, LossReason::Failed)]);
        s.tokens.assert_each_once(6);
    });
}

#[test]
fn a_call_that_is_cut_off_keeps_its_batch_and_the_function_until_it_ends() {
    real(GUARD, || async {
        let s = setup(ms(20));
        s.push(4).await;
        assert_eq!(s.begun(), (1, vec![0, 1], 1));
        while s.c.snapshot().flushes.timed_out == 0 {
            tokio::time::sleep(ms(5)).await;
        }
        tokio::time::sleep(ms(50)).await;
        let snapshot = s.c.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.buffered), (2, 2), "it has its batch, and nothing else is flushed");
        assert!(s.begun.try_recv().is_err());
        // Too late: it is sent again, to the function that has come back.
        s.answers.send(Answer::Ok).unwrap();
        assert_eq!(s.begun(), (2, vec![0, 1], 2));
        s.answers.send(Answer::Ok).unwrap();
        assert_eq!(s.begun(), (3, vec![2, 3], 1));
        s.answers.send(Answer::Ok).unwrap();
        let report = s.c.drain(GUARD).await;
        assert_eq!(report.delivered(), 4);
        report.totals.audit().unwrap();
        s.tokens.assert_each_once(4);
    });
}

#[test]
fn what_a_blocking_call_still_holds_at_the_deadline_is_named_and_told_when_it_comes_back() {
    real(GUARD, || async {
        let s = setup(GUARD);
        s.push(3).await;
        assert_eq!(s.begun().1, [0, 1]);
        let report = s.c.drain(ms(30)).await;
        assert_eq!((ids(&report.leftovers), report.not_returned, report.abandoned()), (vec![2], 2, 3));
        assert!(s.lost.lock().unwrap().is_empty());
        s.answers.send(Answer::Ok).unwrap();
        while s.lost.lock().unwrap().len() < 2 {
            tokio::time::sleep(ms(5)).await;
        }
        drop(report);
        assert_eq!(*s.lost.lock().unwrap(), [(0, LossReason::Abandoned), (1, LossReason::Abandoned)]);
        s.c.snapshot().audit().unwrap();
        s.tokens.assert_each_once(3);
    });
}

#[test]
fn a_blocking_function_that_waits_for_its_own_controller_is_told() {
    real(GUARD, || async {
        let own = Arc::new(OnceLock::<WeakController<u64>>::new());
        let (sender, receiver) = channel();
        let function = {
            let own = Arc::clone(&own);
            move |_batch: Batch<u64>| {
                let c = own.get().and_then(WeakController::upgrade).ok_or("gone")?;
                sender.send((c.blocking_push(9), c.blocking_flush()))?;
                Ok(())
            }
        };
        let c = BackpressureController::builder(1).fixed(1, HOUR).spawn(BlockingSink::new(function)).unwrap();
        own.set(c.downgrade()).unwrap();
        c.push(1).await.unwrap();
        let told = tokio::task::spawn_blocking(move || receiver.recv_timeout(GUARD).unwrap()).await.unwrap();
        assert_eq!(told, (Err(PushError::WouldDeadlock(9)), Err(WouldDeadlock)));
        assert_eq!(c.drain(SEC).await.delivered(), 1);
    });
}

#[test]
fn a_runtime_that_goes_down_loses_nothing_that_a_blocking_sink_had() {
    let (log, losses) = (Log::default(), Losses::default());
    let c = {
        let runtime = support::workers(1);
        let seen = log.clone();
        let _entered = runtime.enter();
        let c = BackpressureController::builder(8)
            .fixed(2, HOUR)
            .on_loss(losses.hook())
            .spawn(BlockingSink::new(move |batch: Batch<u64>| {
                std::thread::sleep(ms(20));
                seen.add(&batch);
                Ok(())
            }))
            .unwrap();
        for i in 0..8 {
            c.blocking_push(i).unwrap();
        }
        c
    };
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert_eq!((snapshot.depth, snapshot.accepted), (0, 8));
    assert_eq!(snapshot.abandoned, losses.items().len() as u64);
}

#[test]
fn clones_run_at_once_each_on_a_thread_of_its_own() {
    real(GUARD, || async {
        // Nobody passes alone.
        let meet = Arc::new(std::sync::Barrier::new(2));
        let sink = BlockingSink::new(move |batch: Batch<u64>| {
            meet.wait();
            drop(batch);
            Ok(())
        });
        let c = BackpressureController::builder(8).fixed(1, HOUR).spawn_concurrent(2, sink).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        assert!(c.flush().await.all_delivered());
    });
}

#[test]
fn a_clone_that_panics_leaves_the_original_as_it_was() {
    struct Brittle;

    impl Clone for Brittle {
        fn clone(&self) -> Self {
            panic!("as planned");
        }
    }

    real(GUARD, || async {
        let brittle = Brittle;
        let sink = BlockingSink::new(move |_: Batch<u64>| {
            let _held = &brittle;
            Ok(())
        });
        assert!(catch_unwind(AssertUnwindSafe(|| sink.clone())).is_err());
        let c = BackpressureController::builder(8).fixed(1, HOUR).spawn(sink).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        assert!(c.flush().await.all_delivered());
    });
}
