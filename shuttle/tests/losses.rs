//! Strategies and calls that lose items, or refuse them.

use std::sync::{Arc, OnceLock};

use backpressure::{Strategy, WeakController};
use tokio::task::JoinHandle;

use crate::harness::explore;
use crate::world::{Answer, Controller, Token, World, dice, finish, spawn};

/// Producers that push `n` items each.
fn producers(world: &World, c: &Controller, count: u8, n: u8) -> Vec<JoinHandle<()>> {
    let produce = |producer| {
        let (world, c) = (world.clone(), c.clone());
        tokio::spawn(async move {
            for i in 0..n {
                let token = world.token(producer, i);
                let answer = if i % 2 == 0 { c.push(token).await } else { c.try_push(token) };
                world.answered(answer);
            }
        })
    };
    (0..count).map(produce).collect()
}

#[test]
fn drop_oldest_displaces_one_for_one_and_tells() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2).strategy(Strategy::DropOldest), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        for producer in producers(&world, &c, 3, 3) {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.evicted + totals.refused.full, 9);
    });
}

#[test]
fn drop_oldest_displaces_nobody_while_permits_and_waiters_come_and_go() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3).strategy(Strategy::DropOldest), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let tasks = producers(&world, &c, 2, 3);
        let (w, controller) = (world.clone(), c.clone());
        let reserver = tokio::spawn(async move {
            for i in 0..2 {
                let permits = controller.reserve_many(2).await.unwrap();
                for permit in permits.take(1 + dice(2) as usize) {
                    if dice(2) == 0 {
                        permit.send(w.token(2 + i, w.made_by(2 + i)));
                        w.accepted(1);
                    }
                }
            }
        });
        for task in tasks {
            task.await.unwrap();
        }
        reserver.await.unwrap();
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.reserved, 0);
    });
}

#[test]
fn drop_newest_gives_back_what_finds_no_room() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2).strategy(Strategy::DropNewest), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        for producer in producers(&world, &c, 3, 3) {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.refused.full, 9);
    });
}

#[test]
fn a_purge_takes_what_is_buffered_and_serves_who_waits() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let tasks = producers(&world, &c, 2, 3);
        for _ in 0..3 {
            tokio::task::yield_now().await;
            world.purged(c.purge());
        }
        for task in tasks {
            task.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(totals.delivered + totals.purged + totals.refused.full, 6);
    });
}

#[test]
fn a_hook_that_pushes_never_evicts() {
    explore(|| async {
        let world = World::default();
        let (w, weak) = (world.clone(), Arc::new(OnceLock::<WeakController<Token>>::new()));
        let own = Arc::clone(&weak);
        let builder = world.builder(2).strategy(Strategy::DropOldest).on_loss(move |loss| {
            let Some(token) = loss.item else { return };
            w.lost(&token, loss.reason);
            let controller = own.get().and_then(WeakController::upgrade);
            if let Some(controller) = controller.filter(|_| token.id().0 < 5) {
                // In its place comes one of the hook's own.
                let answer = controller.try_push(w.token(token.id().0 + 5, token.id().1));
                w.answered(answer);
            }
        });
        let (c, flusher) = spawn(builder, world.sink(|_| Answer::Ok));
        weak.set(c.downgrade()).expect("once");
        let auditor = world.watch_over(&c);
        for producer in producers(&world, &c, 2, 3) {
            producer.await.unwrap();
        }
        finish(&world, auditor, (c, flusher)).await;
    });
}
