//! What a flush waits for.

use crate::harness::explore;
use crate::world::{Answer, NEVER, World, dice, finish, spawn};

#[test]
fn s_a01_what_was_pushed_before_a_flush_is_in_the_sink_when_it_ends() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(4), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let (w, controller) = (world.clone(), c.clone());
        let producer = shuttle::thread::spawn(move || {
            w.push_blocking(&controller, 0, 1);
        });
        if dice(2) == 0 {
            let before = world.accepted_so_far();
            let report = c.flush().await;
            for id in before {
                assert!(world.is_delivered(id), "{id:?} was accepted before the flush: {report:?}");
            }
            producer.join().unwrap();
        } else {
            // A push that has ended before a shutdown is delivered by it.
            producer.join().unwrap();
        }
        let report = c.drain(NEVER).await;
        let totals = report.totals;
        assert_eq!((totals.accepted, totals.delivered, totals.buffered, totals.in_flight), (1, 1, 0, 0));
        finish(&world, auditor, (c, flusher)).await;
    });
}

#[test]
fn a_flush_covers_all_that_came_before_it_and_retries_too() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|batch| if batch.attempt() == 1 && dice(2) == 0 { Answer::Retry } else { Answer::Ok });
        let (c, flusher) = spawn(world.builder(3).fixed(3, NEVER), sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let (world, c) = (world.clone(), c.clone());
                tokio::spawn(async move {
                    for n in 0..3 {
                        world.push(&c, producer, n).await;
                    }
                    let before = world.accepted_so_far();
                    let report = c.flush().await;
                    assert!(report.all_delivered(), "{report:?}");
                    for id in before {
                        assert!(world.is_delivered(id), "{id:?}: {report:?}");
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let before = world.accepted_so_far();
            assert!(c.flush().await.all_delivered());
            assert!(before.into_iter().all(|id| world.is_delivered(id)));
        }
        for producer in producers {
            producer.await.unwrap();
        }
        finish(&world, auditor, (c, flusher)).await;
    });
}

#[test]
fn a_flush_that_is_given_up_leaves_nothing_behind() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3).fixed(3, NEVER), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        world.push(&c, 0, 0).await;
        let controller = c.clone();
        let waiting = tokio::spawn(async move { controller.flush().await });
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        world.push(&c, 0, 1).await;
        assert!(c.flush().await.all_delivered());
        assert_eq!(world.delivered(), [(0, 0), (0, 1)]);
        finish(&world, auditor, (c, flusher)).await;
    });
}
