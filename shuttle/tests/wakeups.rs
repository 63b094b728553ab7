//! Nobody looks after it, and it leaves all the same (I5): there is no flush, no drain and no auditor here, so that a
//! wake-up that is lost is a deadlock.

use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};

use crate::harness::explore;
use crate::world::{Answer, Controller, NEVER, Running, World, dice, spawn};

/// The end, once everything has arrived by itself.
async fn end(world: World, (c, flusher): Running) {
    drop(c);
    flusher.await.unwrap();
    assert_eq!(world.delivered().len(), world.made());
}

fn send(world: &World, c: &Controller, producer: u8) -> JoinHandle<()> {
    let (world, c) = (world.clone(), c.clone());
    tokio::spawn(async move {
        match producer {
            0 => {
                for n in 0..2 {
                    world.push(&c, producer, n).await;
                }
            }
            1 => world.push_all(&c, producer, 2).await,
            _ => {
                for (permit, n) in c.reserve_many(2).await.unwrap().zip(0..) {
                    permit.send(world.token(producer, n));
                    world.accepted(1);
                }
            }
        }
    })
}

#[test]
fn a_full_batch_leaves_at_once() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(8).fixed(2, NEVER), world.sink(|_| Answer::Ok));
        let tasks = [0, 1, 2].map(|producer| send(&world, &c, producer));
        // Or all but one: a batch that leaves without an item that is claimed and not written is less than full.
        world.all_delivered(5).await;
        for task in tasks {
            task.await.unwrap();
        }
        end(world, (c, flusher)).await;
    });
}

#[test]
fn a_bulk_that_goes_beyond_the_batch_wakes_too() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(8).fixed(3, NEVER), world.sink(|_| Answer::Ok));
        for _ in 0..dice(3) {
            yield_now().await;
        }
        world.push(&c, 0, 0).await;
        // Neither the first of these nor the one before them makes a batch.
        world.push_all(&c, 1, 3).await;
        world.all_delivered(2).await;
        end(world, (c, flusher)).await;
    });
}

#[test]
fn a_partial_batch_leaves_at_its_linger() {
    explore(|| async {
        let world = World::default();
        let builder = world.builder(8).fixed(4, Duration::from_millis(5));
        let (c, flusher) = spawn(builder, world.sink(|_| Answer::Ok));
        let tasks = [0, 1, 2].map(|producer| send(&world, &c, producer));
        world.all_delivered(6).await;
        for task in tasks {
            task.await.unwrap();
        }
        world.push(&c, 3, 0).await;
        world.all_delivered(7).await;
        end(world, (c, flusher)).await;
    });
}

#[test]
fn a_producer_that_waits_is_a_reason_to_flush() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2).fixed(2, NEVER), world.sink(|_| Answer::Ok));
        world.push(&c, 0, 0).await;
        let mut permits = c.reserve_many(2).await.unwrap();
        assert!(world.is_delivered((0, 0)));
        // And so is a place that a permit holds, once there is no other.
        permits.next().unwrap().send(world.token(1, 0));
        world.accepted(1);
        world.all_delivered(2).await;
        drop(permits);
        end(world, (c, flusher)).await;
    });
}

#[test]
fn a_full_buffer_is_a_reason_to_flush_whoever_holds_the_places() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3).fixed(3, NEVER), world.sink(|_| Answer::Ok));
        let holder = {
            let (world, c) = (world.clone(), c.clone());
            tokio::spawn(async move {
                let permits = c.reserve_many(2).await.unwrap();
                world.all_delivered(2).await;
                drop(permits);
            })
        };
        world.push(&c, 0, 0).await;
        world.push(&c, 0, 1).await;
        world.all_delivered(2).await;
        holder.await.unwrap();
        end(world, (c, flusher)).await;
    });
}

#[test]
fn nobody_overtakes_a_producer_that_waits() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        c.pause();
        let permit = if dice(2) == 0 { Some(c.reserve().await.unwrap()) } else { None };
        let first = if permit.is_some() { 1 } else { 2 };
        for n in 0..first {
            world.push(&c, 0, n).await;
        }
        let waiter = {
            let (world, c) = (world.clone(), c.clone());
            tokio::spawn(async move { world.push(&c, 1, 0).await })
        };
        while c.snapshot().waiting == 0 {
            yield_now().await;
        }
        let overtaker = {
            let (world, c) = (world.clone(), c.clone());
            tokio::spawn(async move {
                for n in 0..4 {
                    world.answered(c.try_push(world.token(2, n)));
                    yield_now().await;
                }
            })
        };
        drop(permit);
        c.resume();
        waiter.await.unwrap();
        overtaker.await.unwrap();
        let _ = c.flush().await;
        let delivered = world.delivered();
        let place = |id| delivered.iter().position(|delivered| *delivered == id);
        let overtaken = (0..4).any(|n| place((2, n)).is_some_and(|other| Some(other) < place((1, 0))));
        assert!(!overtaken, "{delivered:?}");
        drop(c);
        flusher.await.unwrap();
    });
}

#[test]
fn the_last_permit_ends_a_drain() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let permits = c.reserve_many(2).await.unwrap();
        let (mut permits, others): (Vec<_>, Vec<_>) = permits.enumerate().partition(|(n, _)| *n == 0);
        let holders = [permits.pop(), others.into_iter().next()].map(|permit| {
            let (n, permit) = permit.unwrap();
            let world = world.clone();
            tokio::spawn(async move {
                for _ in 0..dice(4) {
                    yield_now().await;
                }
                if n == 0 {
                    permit.release();
                } else {
                    permit.send(world.token(0, 0));
                    world.accepted(1);
                }
            })
        });
        let report = c.drain(NEVER).await;
        assert_eq!((report.totals.delivered, report.totals.reserved), (1, 0));
        for holder in holders {
            holder.await.unwrap();
        }
        end(world, (c, flusher)).await;
    });
}
