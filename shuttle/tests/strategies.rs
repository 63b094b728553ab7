//! Strategies that are asked, items whose fate is told, settings that change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backpressure::{Fate, LossReason, Sample, Strategy};
use tokio::task::{JoinHandle, yield_now};

use crate::harness::explore;
use crate::world::{Answer, Controller, World, dice, finish, spawn};

/// A producer that pushes `n` items, now and then without waiting.
fn producer(world: &World, c: &Controller, producer: u8, n: u8) -> JoinHandle<()> {
    let (world, c) = (world.clone(), c.clone());
    tokio::spawn(async move {
        for i in 0..n {
            let token = world.token(producer, i);
            let answer = if dice(2) == 0 { c.push(token).await } else { c.try_push(token) };
            world.answered(answer);
        }
    })
}

#[test]
fn what_a_sample_keeps_stands_for_all_that_found_no_room() {
    explore(|| async {
        let world = World::default();
        let mass = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&mass);
        let sink = world.sink(move |batch| {
            let weights: u64 = batch.weighted().map(|(_, weight)| weight).sum();
            sum.fetch_add(weights, Ordering::Relaxed);
            Answer::Ok
        });
        // Nothing is drawn: all that does not stay is merged into what does.
        let all = Sample::new().normal(1).elevated(1).critical(1);
        let (c, flusher) = spawn(world.builder(2).strategy(Strategy::Sample(all)), sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> = (0..3).map(|number| producer(&world, &c, number, 3)).collect();
        for producer in producers {
            producer.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!(mass.load(Ordering::Relaxed) + totals.refused.full, 9, "{totals:?}");
    });
}

#[test]
fn each_item_that_is_drawn_comes_back_or_stays() {
    explore(|| async {
        let world = World::default();
        let sample = Sample::new().normal(2).elevated(2).critical(2);
        let sink = world.sink(|batch| if batch.attempt() == 1 && dice(2) == 0 { Answer::Retry } else { Answer::Ok });
        let (c, flusher) = spawn(world.builder(3).strategy(Strategy::Sample(sample)), sink);
        let auditor = world.watch_over(&c);
        let producers: Vec<_> = (0..2).map(|number| producer(&world, &c, number, 4)).collect();
        let purged = c.purge();
        world.purged(purged);
        for producer in producers {
            producer.await.unwrap();
        }
        finish(&world, auditor, (c, flusher)).await;
    });
}

#[test]
fn a_tracked_item_is_told_of_once_whatever_becomes_of_it() {
    explore(|| async {
        let world = World::default();
        let sink = world.sink(|_| match dice(4) {
            0 => Answer::Permanent,
            1 => Answer::OneByOne,
            2 => Answer::Panic,
            _ => Answer::Ok,
        });
        let strategy = if dice(2) == 0 { Strategy::DropOldest } else { Strategy::Block };
        // Whoever waits for a fate sends nothing that would fill the batch.
        let builder = world.builder(2).strategy(strategy).fixed(2, Duration::from_millis(1));
        let (c, flusher) = spawn(builder, sink);
        let auditor = world.watch_over(&c);
        let track = |number| {
            let (world, c) = (world.clone(), c.clone());
            tokio::spawn(async move {
                for i in 0..3 {
                    let delivery = match c.push_tracked(world.token(number, i)).await {
                        Ok(delivery) => delivery,
                        Err(error) => {
                            world.answered(Err(error));
                            continue;
                        }
                    };
                    world.answered(Ok(()));
                    match delivery.await {
                        Fate::Delivered => assert!(world.is_delivered((number, i)), "the sink has it"),
                        Fate::Lost { reason, .. } => {
                            assert!(matches!(reason, LossReason::Failed | LossReason::Evicted), "{reason}");
                            assert!(!world.is_delivered((number, i)), "the sink has it");
                        }
                        fate => panic!("{fate:?}"),
                    }
                }
            })
        };
        let tracked: Vec<_> = (0..2).map(track).collect();
        producer(&world, &c, 2, 3).await.unwrap();
        for producer in tracked {
            producer.await.unwrap();
        }
        finish(&world, auditor, (c, flusher)).await;
    });
}

#[test]
fn a_flusher_that_dies_tells_of_every_tracked_item() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let (w, controller) = (world.clone(), c.clone());
        let tracked = tokio::spawn(async move {
            for i in 0..4 {
                match controller.push_tracked(w.token(0, i)).await {
                    Ok(delivery) => {
                        w.answered(Ok(()));
                        // It resolves, or the model hangs.
                        let fate = delivery.await;
                        assert_eq!(fate.is_delivered(), w.is_delivered((0, i)), "{fate:?}");
                    }
                    Err(error) => return w.answered(Err(error)),
                }
            }
        });
        for _ in 0..dice(6) {
            yield_now().await;
        }
        flusher.abort();
        let _ = flusher.await;
        tracked.await.unwrap();
        let totals = c.snapshot();
        drop(c);
        world.close(&totals);
    });
}

#[test]
fn levers_move_under_load_and_nothing_is_lost() {
    explore(|| async {
        let world = World::default();
        world.resizes();
        let (c, flusher) = spawn(world.builder(4), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let producers: Vec<_> = (0..2).map(|number| producer(&world, &c, number, 4)).collect();
        for _ in 0..3 {
            let capacity = 2 + dice(3) as usize;
            let strategy = match dice(4) {
                0 => Strategy::Block,
                1 => Strategy::DropOldest,
                2 => Strategy::DropNewest,
                _ => Strategy::Sample(Sample::new()),
            };
            let batch = 1 + dice(2) as usize;
            c.reconfigure(|changes| {
                changes.capacity(capacity).strategy(strategy).max_batch(batch).linger(Duration::from_millis(1))
            })
            .unwrap();
            assert_eq!(c.capacity(), capacity);
            yield_now().await;
        }
        for producer in producers {
            producer.await.unwrap();
        }
        finish(&world, auditor, (c, flusher)).await;
    });
}
