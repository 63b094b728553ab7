//! Places reserved in advance.

use crate::harness::explore;
use crate::world::{Answer, NEVER, World, dice, finish, spawn};

#[test]
fn a_permit_stands_for_a_place_until_it_is_spent_or_given_back() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let reservers: Vec<_> = (0..3)
            .map(|producer| {
                let (world, c) = (world.clone(), c.clone());
                tokio::spawn(async move {
                    for round in 0..2 {
                        let permit = c.reserve().await.unwrap();
                        if (producer + round) % 3 == 0 {
                            permit.release();
                        } else {
                            permit.send(world.token(producer, round));
                            world.accepted(1);
                        }
                    }
                })
            })
            .collect();
        for n in 0..3 {
            world.push(&c, 3, n).await;
        }
        if let Ok(permit) = c.try_reserve() {
            permit.send(world.token(3, 3));
            world.accepted(1);
        }
        for reserver in reservers {
            reserver.await.unwrap();
        }
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!((totals.reserved, totals.refused.total()), (0, 0));
        assert!(totals.delivered >= 7);
    });
}

#[test]
fn many_places_are_had_all_or_none_and_nobody_is_overtaken_for_good() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(3), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let (w, controller) = (world.clone(), c.clone());
        let many = tokio::spawn(async move {
            let permits = controller.reserve_many(3).await.unwrap();
            assert!(controller.snapshot().reserved >= 3);
            for (permit, n) in permits.take(2).zip(0..) {
                permit.send(w.token(0, n));
                w.accepted(1);
            }
        });
        let (w, controller) = (world.clone(), c.clone());
        let pusher = tokio::spawn(async move {
            for n in 0..4 {
                w.push(&controller, 1, n).await;
            }
        });
        many.await.unwrap();
        pusher.await.unwrap();
        let totals = finish(&world, auditor, (c, flusher)).await;
        assert_eq!((totals.delivered, totals.reserved), (6, 0));
    });
}

#[test]
fn a_drain_waits_for_the_permits_that_are_out() {
    explore(|| async {
        let world = World::default();
        let (c, flusher) = spawn(world.builder(2), world.sink(|_| Answer::Ok));
        let auditor = world.watch_over(&c);
        let mut permits = c.reserve_many(2).await.unwrap();
        let (first, second) = (permits.next().unwrap(), permits.next().unwrap());
        let w = world.clone();
        let sender = tokio::spawn(async move {
            if dice(2) == 0 {
                tokio::task::yield_now().await;
            }
            first.send(w.token(0, 0));
            w.accepted(1);
        });
        let holder = tokio::spawn(async move {
            tokio::task::yield_now().await;
            second.release();
        });
        let report = c.drain(NEVER).await;
        assert_eq!((report.totals.delivered, report.permits_out), (1, 0));
        sender.await.unwrap();
        holder.await.unwrap();
        finish(&world, auditor, (c, flusher)).await;
    });
}
