//! The main road: build, push, flush, drain.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::test_util::{Pipeline, Reply, ScriptedSink, Step};
use backpressure::{BackpressureController, Builder, Retry, State, Strategy, assert_conserved};

const SEC: Duration = Duration::from_secs(1);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn pipeline(builder: Builder<u32>, sink: &ScriptedSink<u32>) -> Pipeline<u32> {
    Pipeline::new(builder, sink.clone()).unwrap()
}

#[test]
fn a_full_batch_leaves_at_once_and_a_partial_one_at_its_linger() {
    let sink = ScriptedSink::new();
    let pipeline = pipeline(BackpressureController::builder(100).fixed(10, SEC), &sink);
    let c = pipeline.controller();
    for i in 0..25 {
        c.try_push(i).unwrap();
    }
    pipeline.advance(ms(999));
    assert_eq!(sink.batches().len(), 2);
    pipeline.advance(ms(1));
    assert_eq!(sink.batches().iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let report = pipeline.block_on(c.drain(SEC));
    assert!(report.is_clean());
    assert_conserved!(report, delivered = 25);
    assert_eq!(c.state(), State::Draining);
}

#[test]
fn an_outage_is_ridden_out_in_order() {
    let sink =
        ScriptedSink::new().then(Reply::retry("down").after(ms(1)).times(5)).then(Reply::ok().after(ms(1)).forever());
    let builder = BackpressureController::builder(100).fixed(10, ms(10)).retry(Retry::default().without_jitter());
    let pipeline = pipeline(builder, &sink);
    let c = pipeline.controller();
    for i in 0..300 {
        pipeline.block_on(c.push(i)).unwrap();
        assert_conserved!(c);
    }
    assert!(pipeline.block_on(c.flush()).all_delivered());
    assert_eq!(sink.delivered(), (0..300).collect::<Vec<_>>());
    assert_conserved!(pipeline.block_on(c.drain(SEC)), delivered = 300, retried = 50);
}

#[test]
fn drop_oldest_tells_what_it_lost() {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lost);
    let sink = ScriptedSink::new();
    let builder = BackpressureController::builder(3)
        .strategy(Strategy::DropOldest)
        .on_loss(move |loss| log.lock().unwrap().extend(loss.item));
    let pipeline = pipeline(builder, &sink);
    for i in 1..=5 {
        pipeline.controller().try_push(i).unwrap();
        assert_conserved!(pipeline);
    }
    assert_eq!(*lost.lock().unwrap(), [1, 2]);
    assert_conserved!(pipeline.block_on(pipeline.controller().drain(SEC)), evicted = 2, delivered = 3);
    assert_eq!(sink.delivered(), [3, 4, 5]);
    assert_eq!(sink.calls().iter().map(|call| call.lost_before.evicted).sum::<u64>(), 2);
}

#[test]
fn blocked_producers_are_served_in_order() {
    let sink = ScriptedSink::new();
    let pipeline = pipeline(BackpressureController::builder(1), &sink);
    let c = pipeline.controller();
    c.try_push(0).unwrap();
    let mut pushes: Vec<_> = (1..10).map(|i| Box::pin(c.push(i))).collect();
    for push in &mut pushes {
        assert!(pipeline.poll(push.as_mut()).is_pending());
    }
    for settled in 0..10 {
        assert_conserved!(c, delivered = settled, waiting = 9 - settled);
        assert_eq!(pipeline.step(), Step::Progressed);
    }
    for push in pushes {
        pipeline.block_on(push).unwrap();
    }
    assert_conserved!(pipeline.block_on(c.drain(SEC)), delivered = 10);
    assert_eq!(sink.delivered(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_hung_sink_gives_the_leftovers_back_at_the_deadline() {
    let sink = ScriptedSink::new().then(Reply::hang());
    let pipeline = pipeline(BackpressureController::builder(10).fixed(2, Duration::ZERO), &sink);
    let c = pipeline.controller();
    assert_eq!(pipeline.block_on(c.push_all(0..5)).unwrap(), 5);
    pipeline.advance(ms(1));
    let mut drain = pin!(c.drain(2 * SEC));
    assert!(pipeline.poll(drain.as_mut()).is_pending());
    pipeline.advance(2 * SEC - ms(1));
    assert!(pipeline.poll(drain.as_mut()).is_pending());
    let report = pipeline.block_on(drain);
    assert_eq!(pipeline.clock().now(), ms(2001));
    assert_eq!((report.leftovers.as_slice(), report.not_returned), ([0, 1, 2, 3, 4].as_slice(), 0));
    assert_conserved!(report, abandoned = 5);
}
