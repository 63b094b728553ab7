//! Every way in, with strategies that keep what was accepted.

use std::time::Duration;

use backpressure::{State, Strategy};
use shuttle::thread;

use crate::harness::explore;
use crate::world::{Answer, Controller, NEVER, World, dice, finish, spawn};

async fn push_some(world: World, c: Controller, producer: u8, n: u8) {
    for i in 0..n {
        world.push(&c, producer, i).await;
    }
}

async fn push_all(world: World, c: Controller, producer: u8, n: u8) {
    world.push_all(&c, producer, n).await;
}

#[test]
fn every_kind_of_push_waits_for_its_turn_and_gets_it() {
    explore(|| async {
        let world = World::default();
        let linger = if dice(2) == 0 { NEVER } else { Duration::from_millis(5) };
        let (c, flusher) = spawn(world.builder(3).fixed(2, linger), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let tasks = [
            tokio::spawn(push_some(world.clone(), c.clone(), 0, 3)),
            tokio::spawn(push_all(world.clone(), c.clone(), 1, 4)),
        ];
        let (w, blocking) = (world.clone(), c.clone());
        let thread = thread::spawn(move || {
            for i in 0..3 {
                w.push_blocking(&blocking, 2, i);
            }
        });
        for i in 0..2 {
            world.answered(c.try_push(world.token(3, i)));
        }
        for task in tasks {
            task.await.unwrap();
        }
        thread.join().unwrap();
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.refused.full, 12);
        assert!(totals.refused.full <= 2, "only who does not wait is refused: {totals:?}");
    });
}

#[test]
fn a_push_with_a_limit_is_in_or_comes_back() {
    explore(|| async {
        let world = World::default();
        let builder = world.builder(1).strategy(Strategy::BlockFor(Duration::from_millis(3)));
        let (c, flusher) = spawn(builder, world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let tasks: Vec<_> = (0..3)
            .map(|producer| {
                let (world, c) = (world.clone(), c.clone());
                tokio::spawn(async move {
                    for i in 0..2 {
                        let limit = Duration::from_millis(u64::from(dice(5)));
                        world.answered(c.push_timeout(world.token(producer, i), limit).await);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.refused.timed_out, 6);
    });
}

#[test]
fn a_wait_that_is_cancelled_loses_nothing() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let tasks: Vec<_> = (0..3)
            .map(|producer| {
                let (world, c) = (world.clone(), c.clone());
                match producer {
                    0 => tokio::spawn(push_some(world, c, producer, 3)),
                    1 => tokio::spawn(push_all(world, c, producer, 3)),
                    _ => tokio::spawn(async move {
                        let permits = c.reserve_many(2).await.unwrap();
                        for (permit, n) in permits.zip(0..) {
                            permit.send(world.token(producer, n));
                            world.accepted(1);
                        }
                    }),
                }
            })
            .collect();
        for _ in 0..dice(8) {
            tokio::task::yield_now().await;
        }
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            let _ = task.await;
        }
        // Whoever comes now is served: nothing is held by those who went.
        world.push(&c, 3, 0).await;
        world.push(&c, 3, 1).await;
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!((totals.refused.total(), totals.reserved), (0, 0));
        assert!(world.is_delivered((3, 0)) && world.is_delivered((3, 1)));
    });
}

#[test]
fn paused_holds_what_is_not_asked_for_and_resumes() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producer = tokio::spawn(push_some(world.clone(), c.clone(), 0, 6));
        c.pause();
        let pusher = tokio::spawn(push_some(world.clone(), c.clone(), 1, 2));
        if dice(2) == 0 {
            assert!(c.flush().await.all_delivered());
        }
        c.resume();
        producer.await.unwrap();
        pusher.await.unwrap();
        if dice(2) == 0 {
            c.pause();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered, 8);
    });
}

#[test]
fn a_watcher_sees_the_last_state() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(4), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let mut watch = c.watch();
        let watcher = tokio::spawn(async move {
            let mut last = watch.current();
            while let Some(state) = watch.changed().await {
                assert_ne!(last, State::Draining, "nothing comes after it");
                last = state;
                if state == State::Draining {
                    break;
                }
            }
            last
        });
        let producers: Vec<_> =
            (0..2).map(|producer| tokio::spawn(push_some(world.clone(), c.clone(), producer, 4))).collect();
        for producer in producers {
            producer.await.unwrap();
        }
        assert!(c.flush().await.all_delivered());
        assert_eq!((c.state(), c.depth()), (State::Normal, 0));
        // It is published after the flush is told, but it is.
        let mut late = c.watch();
        while late.current() != State::Normal {
            late.changed().await.expect("it is not over");
        }
        finish(&world, auditor, (c, flusher)).await;
        assert_eq!(watcher.await.unwrap(), State::Draining);
    });
}

#[test]
fn whoever_begins_to_watch_while_the_state_changes_sees_the_last_one() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let seen_by = |c: Controller| async move {
            let mut watch = c.watch();
            drop(c);
            let mut last = watch.current();
            while let Some(state) = watch.changed().await {
                last = state;
                if state == State::Draining {
                    break;
                }
            }
            last
        };
        // The first one comes when nobody watches, and so nobody is told.
        let watchers = [tokio::spawn(seen_by(c.clone())), tokio::spawn(seen_by(c.clone()))];
        push_some(world.clone(), c.clone(), 0, 3).await;
        finish(&world, auditor, (c, flusher)).await;
        for watcher in watchers {
            assert_eq!(watcher.await.unwrap(), State::Draining);
        }
    });
}
