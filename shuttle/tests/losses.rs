//! Strategies and calls that lose items, or refuse them.

use std::sync::{Arc, Mutex, OnceLock};

use backpressure::{BackpressureController, Batch, Strategy, WeakController};
use tokio::task::{JoinHandle, yield_now};

use crate::harness::explore;
use crate::world::{Answer, Controller, NEVER, Token, World, dice, finish, spawn};

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

/// Plain numbers, of which nobody minds an evicted one: what takes the lock comes in between evictions that take none.
#[test]
fn what_nobody_minds_is_evicted_and_counted() {
    const PRODUCERS: u32 = 3;
    explore(|| async {
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let sink = {
            let delivered = Arc::clone(&delivered);
            move |batch: Batch<u32>| {
                delivered.lock().unwrap().extend_from_slice(&batch);
                async {
                    yield_now().await;
                    Ok(())
                }
            }
        };
        let builder = BackpressureController::<u32>::builder(8).strategy(Strategy::DropOldest).fixed(2, NEVER);
        let (c, flusher) = builder.flush_timeout(NEVER).build(sink).unwrap();
        let flusher = tokio::spawn(async move { flusher.await.unwrap() });
        let pushed: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let c = c.clone();
                tokio::spawn(async move {
                    let mut accepted = 0;
                    for i in 0..8 {
                        let item = i * PRODUCERS + producer;
                        let is_in = if dice(4) == 0 { c.push(item).await.is_ok() } else { c.try_push(item).is_ok() };
                        accepted += u64::from(is_in);
                    }
                    accepted
                })
            })
            .collect();
        let mut accepted = 0;
        for _ in 0..4 {
            match dice(3) {
                0 => {
                    let _ = c.flush().await;
                }
                1 => {
                    if let Ok(permit) = c.try_reserve() {
                        permit.send(PRODUCERS * 100);
                        accepted += 1;
                    }
                }
                _ => {}
            }
            let now = c.snapshot();
            now.audit().unwrap();
            assert!(now.buffered + now.in_flight + now.reserved <= 8, "{now:?}");
            yield_now().await;
        }
        for task in pushed {
            accepted += task.await.unwrap();
        }
        let report = c.drain(NEVER).await;
        assert!(report.leftovers.is_empty(), "{report:?}");
        flusher.await.unwrap();
        let (totals, delivered) = (c.snapshot(), delivered.lock().unwrap());
        assert_eq!((totals.accepted, totals.delivered), (accepted, delivered.len() as u64));
        assert_eq!(totals.delivered + totals.evicted, accepted);
        for producer in 0..PRODUCERS {
            let ours = delivered.iter().filter(|item| **item < PRODUCERS * 100 && *item % PRODUCERS == producer);
            assert!(ours.is_sorted(), "{delivered:?}");
        }
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
