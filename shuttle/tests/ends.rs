//! How a controller ends, whoever is still there.

use std::time::Duration;

use backpressure::Strategy;
use tokio::task::yield_now;

use crate::harness::explore;
use crate::world::{Answer, Controller, NEVER, Running, World, dice, finish, spawn};

async fn push_some(world: World, c: Controller, producer: u8, n: u8) {
    for i in 0..n {
        world.push(&c, producer, i).await;
    }
}

#[test]
fn a_drain_that_races_pushes_delivers_all_that_came_in() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..3).map(|producer| tokio::spawn(push_some(world.clone(), c.clone(), producer, 2))).collect();
        let report = c.drain(NEVER).await;
        assert_eq!(report.totals.accepted, report.totals.delivered);
        for producer in producers {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.refused.closed, 6);
    });
}

#[test]
fn two_drains_at_once_have_one_end() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producer = tokio::spawn(push_some(world.clone(), c.clone(), 0, 4));
        let other = c.clone();
        let drain = tokio::spawn(async move { other.drain(NEVER).await.totals.delivered });
        if dice(2) == 0 {
            drain.abort();
            let _ = drain.await;
        } else {
            let here = c.drain(NEVER).await.totals.delivered;
            assert_eq!(drain.await.unwrap(), here);
        }
        producer.await.unwrap();
        finish(&world, auditor, (c, flusher)).await;
    });
}

/// Drains with a deadline, and closes the books over what is left.
async fn cut_off(world: World, (c, flusher): Running, limit: Duration) {
    let auditor = world.watch_over(&c);
    let producers: Vec<_> =
        (0..2).map(|producer| tokio::spawn(push_some(world.clone(), c.clone(), producer, 3))).collect();
    for _ in 0..dice(6) {
        yield_now().await;
    }
    let report = c.drain(limit).await;
    // Time may have passed so fast that the flusher came after drain's grace, and the sink still held its batch: what was
    // in it goes to the hook.
    assert!(report.leftovers.len() as u64 + report.not_returned <= report.totals.abandoned, "{report:?}");
    world.left_over(report.leftovers);
    for producer in producers {
        producer.await.unwrap();
    }
    let _ = flusher.await;
    auditor.stop().await;
    let totals = c.snapshot();
    drop(c);
    world.close(&totals);
}

#[test]
fn a_drain_that_is_cut_off_gives_back_what_is_left_in_order() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|_| if dice(3) == 0 { Answer::Hang } else { Answer::Retry });
        let running = spawn(world.builder(3), sink);
        cut_off(world, running, Duration::from_millis(3)).await;
    });
}

#[test]
fn a_flusher_that_dies_abandons_what_is_not_settled_and_lets_everybody_go() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        flusher.abort();
        cut_off(world, (c, flusher), NEVER).await;
    });
}

#[test]
fn the_last_handle_shuts_the_intake_and_everything_is_delivered() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..2).map(|producer| tokio::spawn(push_some(world.clone(), c.clone(), producer, 3))).collect();
        drop(c);
        for producer in producers {
            producer.await.unwrap();
        }
        flusher.await.unwrap();
        auditor.stop().await;
        assert_eq!(world.delivered().len(), 6);
    });
}

#[test]
fn a_close_lets_who_waits_go_and_keeps_what_is_in() {
    explore(|| async {
        let world = World::default();
        let strategy = if dice(2) == 0 { Strategy::Block } else { Strategy::DropOldest };
        let (c, flusher) = spawn(world.builder(1).strategy(strategy), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producers: Vec<_> =
            (0..3).map(|producer| tokio::spawn(push_some(world.clone(), c.clone(), producer, 2))).collect();
        for _ in 0..dice(4) {
            yield_now().await;
        }
        c.close();
        let accepted = c.snapshot().accepted;
        for producer in producers {
            producer.await.unwrap();
        }
        assert_eq!(c.snapshot().accepted, accepted, "nothing comes in after it");
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.evicted + totals.refused.total(), 6);
    });
}
