//! The testing tools themselves: the clock, the pipeline, the scripted sink, the checked accounts.

use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use backpressure::test_util::{ManualClock, Pipeline, Reply, ScriptedSink, Step, Verdict};
use backpressure::{
    BackpressureController, Batch, Builder, FlushError, FlushReason, LossReason, PushError, Retry, Strategy,
    assert_conserved,
};

const SEC: Duration = Duration::from_secs(1);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn builder(capacity: usize) -> Builder<u32> {
    BackpressureController::builder(capacity)
}

/// The message and the line of the panic of `code`.
fn panic_of(code: impl FnOnce()) -> (String, u32) {
    static HOOK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = HOOK.lock().unwrap();
    let line = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&line);
    let own = thread::current().id();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == own {
            *seen.lock().unwrap() = info.location().unwrap().line();
        }
    }));
    let result = catch_unwind(AssertUnwindSafe(code));
    let _ = panic::take_hook();
    let line = *line.lock().unwrap();
    (*result.unwrap_err().downcast::<String>().unwrap(), line)
}

#[test]
fn every_time_of_a_controller_is_on_its_clock_and_needs_no_runtime() {
    // Linger.
    let sink = ScriptedSink::new();
    let pipeline = Pipeline::new(builder(10).fixed(5, SEC), sink.clone()).unwrap();
    pipeline.clock().advance(7 * SEC);
    pipeline.controller().try_push(1).unwrap();
    pipeline.advance(2 * SEC);
    assert_eq!((sink.calls()[0].at, sink.calls()[0].reason), (8 * SEC, FlushReason::Linger));

    // Flush timeout, then the wait before the retry.
    let sink = ScriptedSink::new().then(Reply::hang());
    let builder = builder(1).fixed(1, SEC).flush_timeout(3 * SEC).retry(Retry::exponential(SEC, SEC).without_jitter());
    let pipeline = Pipeline::new(builder, sink.clone()).unwrap();
    let c = pipeline.controller();
    c.try_push(1).unwrap();
    pipeline.run_until_idle();
    // The time limit of a push; then a drain and its deadline.
    let mut push = pin!(c.push_timeout(2, SEC));
    assert!(pipeline.poll(push.as_mut()).is_pending());
    pipeline.advance(ms(999));
    assert!(pipeline.poll(push.as_mut()).is_pending());
    pipeline.advance(ms(1));
    let Poll::Ready(Err(PushError::TimedOut(2))) = pipeline.poll(push.as_mut()) else { panic!("its time is over") };
    pipeline.advance(3 * SEC);
    assert_eq!(sink.calls().iter().map(|call| (call.at, call.attempt)).collect::<Vec<_>>(), [(ms(0), 1), (4 * SEC, 2)]);
    sink.switch_to(Reply::hang().forever());
    c.try_push(3).unwrap();
    let report = pipeline.block_on(c.drain(2 * SEC));
    assert_eq!((pipeline.clock().now(), report.leftovers.as_slice()), (6 * SEC, [3].as_slice()));
    assert_conserved!(report, delivered = 1, abandoned = 1, refused.timed_out = 1, flushes.timed_out = 1);
    assert_eq!(pipeline.step(), Step::Ended);
}

#[test]
fn a_spawned_controller_obeys_the_clock_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (clock, sink) = (ManualClock::new(), ScriptedSink::new());
        let c = builder(10).fixed(5, SEC).clock(&clock).spawn(sink.clone()).expect("no timer of tokio's is needed");
        c.push(1).await.unwrap();
        for (wait, calls) in [(ms(0), 0), (ms(999), 0), (ms(1), 1)] {
            clock.advance(wait);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(sink.calls().len(), calls);
        }
        assert_conserved!(c, delivered = 1);
    });
}

#[test]
fn a_step_is_one_call_of_the_sink_and_an_idle_flusher_is_not_polled() {
    let sink = ScriptedSink::new().then(Reply::ok().after(SEC));
    let pipeline = Pipeline::new(builder(10).fixed(2, SEC), sink.clone()).unwrap();
    assert_eq!((pipeline.step(), pipeline.step()), (Step::Progressed, Step::Idle));
    for n in 0..6 {
        pipeline.controller().try_push(n).unwrap();
    }
    assert_eq!((pipeline.step(), pipeline.step()), (Step::Progressed, Step::Idle));
    assert_conserved!(pipeline, buffered = 4, in_flight = 2, delivered = 0);
    pipeline.clock().advance(SEC);
    let mut delivered = Vec::new();
    while pipeline.step() == Step::Progressed {
        delivered.push(pipeline.controller().snapshot().delivered);
    }
    assert_eq!(delivered, [2, 4, 6, 6]);
}

#[test]
fn time_passes_moment_by_moment() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let clock = ManualClock::new();
    let sink = |name: &'static str| {
        let (clock, log) = (clock.clone(), Arc::clone(&log));
        move |batch: Batch<u32>| {
            let (clock, log) = (clock.clone(), Arc::clone(&log));
            async move {
                log.lock().unwrap().push((name, clock.now(), batch[0]));
                clock.sleep(3 * SEC).await;
                log.lock().unwrap().push(("done", clock.now(), batch[0]));
                Ok(())
            }
        }
    };
    let pipeline = Pipeline::new(builder(10).fixed(1, SEC).clock(&clock), sink("call")).unwrap();
    for n in 1..=3 {
        pipeline.controller().try_push(n).unwrap();
    }
    pipeline.advance(7 * SEC);
    assert_eq!(clock.now(), 7 * SEC);
    let expected = [("call", 0, 1), ("done", 3, 1), ("call", 3, 2), ("done", 6, 2), ("call", 6, 3)]
        .map(|(a, at, n)| (a, at * SEC, n));
    assert_eq!(*log.lock().unwrap(), expected);
    pipeline.advance(Duration::MAX);
    assert_conserved!(pipeline, delivered = 3);
}

#[test]
fn the_same_test_gives_the_same_run() {
    let run = || {
        let sink = ScriptedSink::new().then(Reply::retry("down").times(20));
        let pipeline = Pipeline::new(builder(100).fixed(10, ms(5)), sink.clone()).unwrap();
        pipeline.block_on(pipeline.controller().push_all(0..50)).unwrap();
        assert!(pipeline.block_on(pipeline.controller().flush()).all_delivered());
        sink.calls()
    };
    let calls = run();
    assert_eq!(calls.len(), 25);
    assert_eq!(calls, run(), "jitter and ids too");
    // Two controllers on one clock have different ids all the same.
    let (clock, sink) = (ManualClock::new(), ScriptedSink::new());
    for _ in 0..2 {
        let pipeline = Pipeline::new(builder(1).clock(&clock), sink.clone()).unwrap();
        pipeline.controller().try_push(1).unwrap();
        pipeline.run_until_idle();
    }
    assert_ne!(sink.calls()[0].id, sink.calls()[1].id);
}

/// Inside a task, tokio's budget would stop the loop after 128 calls, and its `yield_now` wakes only after the task.
#[test]
fn it_works_inside_a_runtime_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sink = ScriptedSink::new();
        let pipeline = Pipeline::new(builder(10).fixed(1, SEC), sink.clone()).unwrap();
        for n in 0..1000 {
            pipeline.block_on(pipeline.controller().push(n)).unwrap();
        }
        assert_eq!(pipeline.block_on(pipeline.controller().drain(SEC)).delivered(), 1000);
        assert_eq!(sink.calls().len(), 1000);
    });
}

#[test]
fn what_cannot_progress_panics_with_the_snapshot() {
    let pipeline =
        Pipeline::new(builder(1).flush_timeout(Duration::MAX), ScriptedSink::new().then(Reply::hang())).unwrap();
    let c = pipeline.controller();
    c.try_push(1).unwrap();
    let (message, line) = panic_of(|| {
        let _ = pipeline.block_on(c.push(2));
    });
    assert_eq!(line, line!() - 2);
    assert!(message.contains("neither the flusher nor the clock") && message.contains("in_flight: 1"), "{message}");
    assert_conserved!(c, cancelled = 1, in_flight = 1);

    let failing = ScriptedSink::new().then(Reply::retry("down").forever());
    let retry = Retry::exponential(Duration::ZERO, Duration::ZERO);
    let pipeline = Pipeline::new(builder(1).retry(retry), failing).unwrap();
    pipeline.controller().try_push(1).unwrap();
    let (message, line) = panic_of(|| {
        pipeline.run_until_idle();
    });
    assert_eq!(line, line!() - 2);
    assert!(message.contains("no end of it") && message.contains("retried:"), "{message}");
}

#[test]
fn the_script_is_followed_and_each_call_remembered() {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&lost);
    let sink = ScriptedSink::new()
        .then(Reply::retry("down").times(2))
        .then(Reply::panic())
        .then(Reply::ok().times(0))
        .then(Reply::throttled("busy", 5 * SEC).after(SEC))
        .then(Reply::too_large("too much"))
        .then(Reply::partial(|n: &u32| match n {
            0 => Verdict::Deliver,
            1 => Verdict::Fail,
            _ => Verdict::Retry,
        }))
        .then(Reply::permanent("never"));
    let builder = builder(10)
        .fixed(6, SEC)
        .retry(Retry::exponential(SEC, SEC).without_jitter())
        .on_loss(move |loss| told.lock().unwrap().push((loss.item, loss.reason, loss.error.map(|e| e.to_string()))));
    let pipeline = Pipeline::new(builder, sink.clone()).unwrap();
    pipeline.block_on(pipeline.controller().push_all(0..6)).unwrap();
    pipeline.advance(20 * SEC);

    let calls: Vec<_> =
        sink.calls().into_iter().map(|call| (call.at.as_secs(), call.attempt, call.items, call.delivered)).collect();
    let all = vec![0, 1, 2, 3, 4, 5];
    assert_eq!(
        calls,
        [
            (0, 1, all.clone(), vec![]),
            (1, 2, all.clone(), vec![]),
            (2, 3, all.clone(), vec![]),
            (3, 4, all.clone(), vec![]),
            // It was asked after 4 s for a pause of 5 s.
            (9, 5, all, vec![]),
            (9, 1, vec![0, 1, 2], vec![0]),
            // What is sent again comes first.
            (10, 2, vec![2], vec![]),
            (10, 1, vec![3, 4, 5], vec![3, 4, 5]),
        ]
    );
    assert_eq!(sink.calls()[6].seqs, [2]);
    assert_eq!(sink.delivered(), [0, 3, 4, 5]);
    let says = |text: &str| Some(text.to_owned());
    assert_eq!(
        *lost.lock().unwrap(),
        [(Some(1), LossReason::Failed, says("the script says so")), (Some(2), LossReason::Failed, says("never"))]
    );
    assert_conserved!(
        pipeline,
        delivered = 4,
        failed = 2,
        flushes = 8,
        flushes.ok = 2,
        flushes.retry = 2,
        flushes.panicked = 1,
        flushes.throttled = 1,
        flushes.too_large = 1,
        flushes.permanent = 1,
    );
}

#[test]
fn an_outage_begins_and_ends_when_the_test_says_so() {
    let sink = ScriptedSink::new().then(Reply::ok().forever()).then(Reply::panic());
    let pipeline = Pipeline::new(builder(100).fixed(1, SEC), sink.clone()).unwrap();
    pipeline.controller().try_push(1).unwrap();
    pipeline.run_until_idle();
    sink.switch_to(Reply::retry("down").forever());
    pipeline.controller().try_push(2).unwrap();
    pipeline.advance(3600 * SEC);
    assert_eq!(sink.delivered(), [1]);
    assert_conserved!(pipeline, delivered = 1, in_flight = 1, retry_waiting = 1, flushes.panicked = 0);
    sink.switch_to(Reply::ok().forever());
    pipeline.advance(10 * SEC);
    assert_eq!(sink.delivered(), [1, 2]);
}

#[test]
fn accounts_that_are_not_as_expected_panic_at_the_callers_line() {
    let builder = builder(1).strategy(Strategy::DropNewest);
    let pipeline = Pipeline::new(builder, ScriptedSink::new()).unwrap();
    let c = pipeline.controller();
    c.try_push(1).unwrap();
    c.try_push(2).unwrap_err();
    assert_conserved!(c);
    assert_conserved!(&c, offered = 2, buffered = 1, refused = 1, refused.full = 1);

    let (message, line) = panic_of(|| assert_conserved!(c, offered = 2, delivered = 1, refused.closed = 1));
    assert_eq!(line, line!() - 1);
    for part in ["delivered is 0, not 1", "refused.closed is 0, not 1", "buffered: 1"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("offered is"), "{message}");

    let mut snapshot = c.snapshot();
    snapshot.delivered += 1;
    let (message, line) = panic_of(|| assert_conserved!(snapshot));
    assert_eq!(line, line!() - 1);
    assert!(message.contains("accepted = delivered + failed") && message.contains("capacity: 1"), "{message}");
}

/// What the sink waits for may come from the test.
#[test]
fn a_sink_of_the_users_own_is_woken_by_the_test() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let mut receiver = Some(receiver);
    let sink = move |batch: Batch<u32>| {
        let receiver = receiver.take();
        async move {
            receiver.ok_or("once only")?.await?;
            assert_eq!(batch.len(), 3);
            Ok::<_, FlushError>(())
        }
    };
    let pipeline = Pipeline::new(builder(10).fixed(3, SEC), sink).unwrap();
    for n in 0..3 {
        pipeline.controller().try_push(n).unwrap();
    }
    assert_eq!(pipeline.run_until_idle(), Step::Idle);
    assert_conserved!(pipeline, in_flight = 3);
    sender.send(()).unwrap();
    assert_eq!(pipeline.step(), Step::Progressed);
    assert_conserved!(pipeline, delivered = 3);
}

#[test]
fn a_pipeline_steps_several_calls_at_once() {
    let sink = ScriptedSink::new().then(Reply::ok().after(3 * SEC)).then(Reply::ok().after(SEC).forever());
    let pipeline = Pipeline::concurrent(builder(10).fixed(2, SEC), 2, sink.clone()).unwrap();
    (0..6).for_each(|i| pipeline.controller().try_push(i).unwrap());
    assert_eq!((pipeline.step(), sink.batches()), (Step::Progressed, vec![vec![0, 1], vec![2, 3]]));
    assert_eq!(pipeline.step(), Step::Idle);
    pipeline.advance(SEC);
    assert_eq!(sink.batches().len(), 3);
    assert_conserved!(pipeline, delivered = 2, in_flight = 4);
    pipeline.advance(SEC);
    assert_conserved!(pipeline, delivered = 4, in_flight = 2);
    assert_eq!(sink.calls().iter().map(|call| call.at).collect::<Vec<_>>(), [Duration::ZERO, Duration::ZERO, SEC]);
    pipeline.advance(SEC);
    assert_conserved!(pipeline, delivered = 6, in_flight = 0);
}

#[test]
fn a_sink_may_move_the_clock_past_where_it_is_moved_to() {
    let clock = ManualClock::new();
    let mover = clock.clone();
    let sink = move |_: Batch<u32>| {
        mover.advance(10 * SEC);
        std::future::ready(Ok(()))
    };
    let pipeline = Pipeline::new(builder(10).fixed(1, Duration::ZERO).clock(&clock), sink).unwrap();
    pipeline.controller().try_push(1).unwrap();
    pipeline.advance(SEC);
    assert_conserved!(pipeline, delivered = 1);
}
