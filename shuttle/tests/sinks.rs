//! Sinks that fail, in every way that they can.

use std::time::Duration;

use backpressure::Retry;

use crate::harness::explore;
use crate::world::{Answer, Controller, NEVER, World, dice, finish, spawn, spawn_concurrent};

const FAULTS: [Answer; 8] = [
    Answer::Retry,
    Answer::Throttled,
    Answer::TooLarge,
    Answer::Permanent,
    Answer::Panic,
    Answer::PanicAtOnce,
    Answer::Steal,
    Answer::Elsewhere,
];

async fn push_four(world: World, c: Controller, producer: u8) {
    for n in 0..4 {
        world.push(&c, producer, n).await;
    }
}

#[test]
fn a_sink_that_fails_in_every_way_loses_only_what_it_judges() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|_| if dice(2) == 0 { Answer::Ok } else { FAULTS[dice(8) as usize] });
        let retry = Retry::exponential(Duration::from_millis(1), Duration::from_millis(4));
        let (c, flusher) = spawn(world.builder(3).fixed(3, NEVER).retry(retry.without_jitter().max_attempts(3)), sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..2).map(|producer| tokio::spawn(push_four(world.clone(), c.clone(), producer))).collect();
        let report = c.flush().await;
        assert_eq!(report.total(), report.delivered + report.failed);
        for producer in producers {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.failed, 8);
    });
}

#[test]
fn several_calls_that_end_in_any_order_and_fail_in_every_way_lose_only_what_they_judge() {
    explore(|| async {
        let world = World::default();
        let sink = world.sinks(|_| if dice(2) == 0 { Answer::Ok } else { FAULTS[dice(8) as usize] });
        let retry = Retry::exponential(Duration::from_millis(1), Duration::from_millis(4));
        let retry = retry.without_jitter().max_attempts(3);
        let builder = world.builder(4).fixed(2, NEVER).retry(retry).bisect(dice(2) == 0);
        let (c, flusher) = spawn_concurrent(&world, builder, 2 + dice(2) as usize, sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..2).map(|producer| tokio::spawn(push_four(world.clone(), c.clone(), producer))).collect();
        let report = c.flush().await;
        assert_eq!(report.total(), report.delivered + report.failed);
        for producer in producers {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.failed, 8);
    });
}

#[test]
fn a_sink_that_judges_one_by_one_gets_back_what_it_asks_for() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|batch| if batch.attempt() == 1 { Answer::OneByOne } else { Answer::Ok });
        let (c, flusher) = spawn(world.builder(4).fixed(4, NEVER), sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..2).map(|producer| tokio::spawn(push_four(world.clone(), c.clone(), producer))).collect();
        for producer in producers {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.failed, 8);
    });
}

#[test]
fn a_sink_that_hangs_is_cut_off_and_asked_again() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|batch| if batch.attempt() == 1 && dice(2) == 0 { Answer::Hang } else { Answer::Ok });
        let (c, flusher) = spawn(world.builder(2).flush_timeout(Duration::from_secs(1)), sink);
        let auditor = world.watch_over(&c);
        push_four(world.clone(), c.clone(), 0).await;
        assert!(c.flush().await.all_delivered());
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered, 4);
    });
}
