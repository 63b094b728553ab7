//! A consumer that pulls.

use backpressure::Batches;
use tokio::task::JoinHandle;

use crate::harness::explore;
use crate::world::{NEVER, Token, World, dice};

/// Pulls until the end: a batch is done, dropped, judged, or taken apart.
fn consumer(world: &World, mut batches: Batches<Token>) -> JoinHandle<()> {
    let world = world.clone();
    tokio::spawn(async move {
        while let Some(mut batch) = batches.next().await {
            match dice(4) {
                0 => drop(batch),
                1 => {
                    let last = batch.len() - 1;
                    world.delivers(&batch[..last]);
                    batch.fail(last, "down");
                    batch.done();
                }
                2 => {
                    world.delivers(&batch);
                    let tokens = batch.take();
                    batch.done();
                    drop(tokens);
                }
                _ => {
                    world.delivers(&batch);
                    batch.done();
                }
            }
        }
    })
}

#[test]
fn what_is_pulled_is_settled_or_comes_again() {
    explore(|| async {
        let world = World::default();
        let (c, batches) = world.builder(3).pull().unwrap();
        let auditor = world.watch_over(&c);
        let consumer = consumer(&world, batches);
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let (world, c) = (world.clone(), c.clone());
                tokio::spawn(async move {
                    for n in 0..4 {
                        world.push(&c, producer, n).await;
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.await.unwrap();
        }
        let report = c.drain(NEVER).await;
        consumer.await.unwrap();
        auditor.stop().await;
        assert!(report.leftovers.is_empty() && report.not_returned == 0, "{report:?}");
        let totals = c.snapshot();
        assert_eq!(totals.accepted, 8);
        drop(c);
        world.close(&totals);
    });
}

#[test]
fn a_consumer_that_goes_away_lets_everybody_go() {
    explore(|| async {
        let world = World::default();
        let (c, mut batches) = world.builder(2).pull().unwrap();
        let auditor = world.watch_over(&c);
        let (w, controller) = (world.clone(), c.clone());
        let producer = tokio::spawn(async move {
            for n in 0..5 {
                w.push(&controller, 0, n).await;
            }
        });
        let held = if dice(2) == 0 { batches.next().await } else { None };
        drop(batches);
        drop(held);
        producer.await.unwrap();
        auditor.stop().await;
        let totals = c.snapshot();
        assert!(c.is_closed() && totals.delivered == 0, "{totals:?}");
        drop(c);
        world.close(&totals);
    });
}
