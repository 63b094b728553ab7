//! Each tracked item's fate is told, exactly once, whatever happens to it.

mod support;

use std::task::Poll;
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, Delivery, Fate, FlushError, LossReason, PushError, Retry, Sample, Strategy,
};

use self::support::{Dice, Drops, HOUR, Token, hung, idle, ms, paused, poll_once, secs};

fn told<T>(delivery: &mut Delivery<T>) -> Option<Fate> {
    match poll_once(delivery) {
        Poll::Ready(fate) => Some(fate),
        Poll::Pending => None,
    }
}

fn loss<T>(delivery: &mut Delivery<T>) -> Option<LossReason> {
    told(delivery).and_then(|fate| fate.loss())
}

fn error_of(fate: Option<Fate>) -> Option<String> {
    match fate {
        Some(Fate::Lost { error, .. }) => error.map(|error| error.to_string()),
        _ => None,
    }
}

#[test]
fn delivered_when_the_sink_says_so_and_not_before() {
    paused(|| async {
        let gate = support::Gate::closed();
        let c = BackpressureController::builder(10)
            .fixed(10, ms(1))
            .spawn(support::gated(&gate, &support::Log::default()))
            .unwrap();
        let mut deliveries = Vec::new();
        for i in 0..3_u64 {
            deliveries.push(c.push_tracked(i).await.unwrap());
        }
        c.push(3).await.unwrap();
        idle().await;
        assert!(deliveries.iter_mut().all(|delivery| told(delivery).is_none()));
        gate.open();
        for delivery in deliveries {
            assert!(delivery.await.is_delivered());
        }
    });
}

#[test]
fn failed_with_the_error_of_the_sink_or_of_the_item() {
    paused(|| async {
        let c = BackpressureController::builder(10)
            .fixed(3, ms(1))
            .spawn(|mut batch: Batch<u64>| async move {
                if batch.contains(&0) {
                    batch.deliver(0);
                    batch.fail(1, "bad row");
                    return Err(FlushError::permanent("no such table"));
                }
                batch.take();
                Err(FlushError::retry("gone"))
            })
            .unwrap();
        let mut fates = Vec::new();
        let mut deliveries = Vec::new();
        for i in 0..6 {
            deliveries.push(c.push_tracked(i).await.unwrap());
        }
        for delivery in deliveries {
            fates.push(Some(delivery.await));
        }
        assert!(fates[0].as_ref().unwrap().is_delivered());
        let errors: Vec<_> = fates.into_iter().skip(1).map(error_of).collect();
        let expected = ["bad row", "no such table", "gone", "gone", "gone"].map(|text| Some(text.to_owned()));
        assert_eq!(errors, expected);
    });
}

#[test]
fn evicted_purged_and_displaced_by_a_sample() {
    paused(|| async {
        let c = BackpressureController::builder(2).strategy(Strategy::DropOldest).spawn(hung).unwrap();
        c.pause();
        let mut first = c.push_tracked(1).await.unwrap();
        let mut second = c.push_tracked(2).await.unwrap();
        assert!(told(&mut first).is_none());
        let mut third = c.push_tracked(3).await.unwrap();
        assert_eq!(loss(&mut first), Some(LossReason::Evicted));
        assert_eq!(c.purge(), [2, 3]);
        assert_eq!(loss(&mut second), Some(LossReason::Purged));
        assert_eq!(loss(&mut third), Some(LossReason::Purged));

        let all = Sample::new().elevated(1).critical(1).seed(1);
        let c = BackpressureController::builder(1).strategy(Strategy::Sample(all)).spawn(hung).unwrap();
        c.pause();
        let mut last = c.push_tracked(0).await.unwrap();
        for i in 1..200 {
            match c.push_tracked(i).await {
                Ok(newer) => {
                    assert_eq!(loss(&mut last), Some(LossReason::Evicted));
                    last = newer;
                }
                Err(PushError::Sampled(back)) => assert_eq!(back, i),
                Err(error) => panic!("{error}"),
            }
            assert!(told(&mut last).is_none());
        }
        assert!(c.snapshot().evicted > 1);
        let report = c.drain(Duration::ZERO).await;
        assert_eq!(report.leftovers.len(), 1);
        assert_eq!(loss(&mut last), Some(LossReason::Abandoned));
    });
}

#[test]
fn abandoned_at_the_deadline_and_when_the_flusher_dies() {
    paused(|| async {
        let c = BackpressureController::builder(10).fixed(2, ms(1)).spawn(hung).unwrap();
        let mut deliveries = Vec::new();
        for i in 0..5 {
            deliveries.push(c.push_tracked(i).await.unwrap());
        }
        idle().await;
        let report = c.drain(secs(1)).await;
        assert_eq!(report.leftovers, [0, 1, 2, 3, 4]);
        assert!(deliveries.iter_mut().all(|delivery| loss(delivery) == Some(LossReason::Abandoned)));

        let (c, flusher) = BackpressureController::builder(10).build(hung).unwrap();
        let mut delivery = c.push_tracked(1).await.unwrap();
        drop(flusher);
        assert_eq!(loss(&mut delivery), Some(LossReason::Abandoned));
        assert!(matches!(c.push_tracked(2).await, Err(PushError::Closed(2))));
    });
}

#[test]
fn an_item_that_waits_is_tracked_from_its_acceptance() {
    paused(|| async {
        let gate = support::Gate::closed();
        let c = BackpressureController::builder(1)
            .fixed(1, ms(1))
            .spawn(support::gated(&gate, &support::Log::default()))
            .unwrap();
        c.push(0_u64).await.unwrap();
        let mut waiting = Box::pin(c.push_tracked(1));
        let mut gives_up = Box::pin(c.push_tracked(2));
        let mut shut_out = Box::pin(c.push_tracked(3));
        for push in [&mut waiting, &mut gives_up, &mut shut_out] {
            assert!(poll_once(push).is_pending());
        }
        drop(gives_up);
        assert_eq!((c.snapshot().waiting, c.snapshot().cancelled), (2, 1));
        gate.let_through(1);
        idle().await;
        let mut delivery = waiting.await.unwrap();
        assert!(told(&mut delivery).is_none());
        c.close();
        assert!(matches!(shut_out.await, Err(PushError::Closed(3))));
        gate.open();
        assert!(delivery.await.is_delivered());
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_permit_given_back_serves_a_tracked_waiter_and_its_receipt_is_its_own() {
    paused(|| async {
        let c = BackpressureController::builder(2).fixed(2, HOUR).spawn(hung).unwrap();
        c.pause();
        let permit = c.try_reserve().unwrap();
        c.push(0).await.unwrap();
        let mut waiting = Box::pin(c.push_tracked(1));
        assert!(poll_once(&mut waiting).is_pending());
        drop(permit);
        let mut delivery = waiting.await.unwrap();
        assert!(told(&mut delivery).is_none());
        assert_eq!(c.purge(), [0, 1]);
        assert_eq!(loss(&mut delivery), Some(LossReason::Purged));
    });
}

#[test]
fn a_delivery_that_is_dropped_changes_nothing() {
    paused(|| async {
        let c = BackpressureController::builder(10).spawn(|_: Batch<u64>| async { Ok(()) }).unwrap();
        drop(c.push_tracked(1).await.unwrap());
        assert_eq!(c.drain(secs(1)).await.delivered(), 1);
    });
}

/// The fates of a storm add up to the ledger's figures, and tokens show that no item was dropped twice.
#[test]
fn the_fates_of_all_items_are_the_ledgers_figures() {
    for seed in 0..20 {
        paused(move || async move {
            let (mut dice, drops) = (Dice(seed), Drops::default());
            let mut answers = Dice(seed ^ 77);
            let strategy = match seed % 3 {
                0 => Strategy::DropOldest,
                1 => Strategy::Sample(Sample::new().seed(seed)),
                _ => Strategy::BlockFor(ms(3)),
            };
            let c = BackpressureController::builder(12)
                .strategy(strategy)
                .fixed(4, ms(2))
                .retry(Retry::exponential(ms(1), ms(5)).max_attempts(3))
                .spawn(move |mut batch: Batch<Token>| {
                    let answer = answers.up_to(7);
                    async move {
                        tokio::time::sleep(ms(answer)).await;
                        match answer {
                            0 => panic!("as the dice say"),
                            1 => return Err(FlushError::permanent("no")),
                            2 => return Err(FlushError::too_large("half")),
                            3 => return Err(FlushError::retry("later")),
                            4 => batch.fail(0, "bad"),
                            5 => drop(batch.take()),
                            _ => {}
                        }
                        Ok(())
                    }
                })
                .unwrap();
            let mut deliveries = Vec::new();
            for _ in 0..400 {
                match dice.up_to(9) {
                    0 => drop(c.purge()),
                    1 => tokio::time::sleep(ms(dice.up_to(19))).await,
                    _ => deliveries.extend(c.push_tracked(drops.next()).await),
                }
                c.snapshot().audit().unwrap();
            }
            let report = c.drain(ms(30)).await;
            let mut counts = [0_u64; 5];
            for delivery in deliveries {
                let told = tokio::time::timeout(ms(1), delivery).await;
                let index = match told.expect("all is settled").loss() {
                    None => 0,
                    Some(LossReason::Failed) => 1,
                    Some(LossReason::Evicted) => 2,
                    Some(LossReason::Purged) => 3,
                    Some(LossReason::Abandoned) => 4,
                    Some(other) => panic!("{other}"),
                };
                counts[index] += 1;
            }
            let t = &report.totals;
            assert_eq!(counts, [t.delivered, t.failed, t.evicted, t.purged, t.abandoned], "seed {seed}");
            assert_eq!(counts.iter().sum::<u64>(), t.accepted);
            drop((c, report));
            assert_eq!(drops.alive(), 0);
        });
    }
}
