//! Sample keeps a share, and its weights add up to what was offered.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BuildError, FlushError, LossReason, PushError, Sample, State, Strategy, Watermarks,
};

use self::support::{Drops, Log, Losses, Token, ms, paused};

type Weighed = Arc<Mutex<Vec<(u64, u64)>>>;

/// A sink that notes items with their weights.
fn weighing(log: &Weighed) -> impl FnMut(Batch<u64>) -> std::future::Ready<Result<(), FlushError>> + Send + use<> {
    let log = Arc::clone(log);
    move |batch: Batch<u64>| {
        log.lock().unwrap().extend(batch.weighted().map(|(item, weight)| (*item, weight)));
        std::future::ready(Ok(()))
    }
}

/// A controller that takes nothing and is Critical from its second item on.
fn held(capacity: usize, sample: Sample<u64>) -> BackpressureController<u64> {
    let marks = Watermarks::new(0.5 / capacity as f64, 1.5 / capacity as f64).unwrap();
    let strategy = Strategy::Sample(sample);
    let c = BackpressureController::builder(capacity)
        .strategy(strategy)
        .watermarks(marks)
        .fixed(1, Duration::MAX)
        .spawn(|_: Batch<u64>| async { Ok(()) })
        .unwrap();
    c.pause();
    c
}

fn count_kept(c: &BackpressureController<u64>, offers: u64) -> u64 {
    (0..offers)
        .filter(|i| match c.try_push(*i) {
            Ok(()) => true,
            Err(PushError::Sampled(back)) => {
                assert_eq!(back, *i);
                false
            }
            Err(error) => panic!("{error}"),
        })
        .count() as u64
}

#[test]
fn s_p07_one_in_zero_is_an_error_one_in_one_keeps_all() {
    paused(|| async {
        let zero = [Sample::new().normal(0), Sample::new().elevated(0), Sample::new().critical(0)];
        for sample in zero {
            let built = BackpressureController::builder(10)
                .strategy(Strategy::Sample(sample))
                .spawn(|_: Batch<u64>| async { Ok(()) });
            assert_eq!(built.err(), Some(BuildError::SampleRateZero));
        }
        let all = held(20_000, Sample::new().elevated(1).critical(1));
        assert_eq!(count_kept(&all, 9_000), 9_000);
        let third = held(20_000, Sample::new().normal(3).elevated(3).critical(3));
        let kept = count_kept(&third, 9_000);
        assert!(kept.abs_diff(3_000) <= 134, "{kept} of 9 000 at 1 in 3");
        assert_eq!(third.snapshot().refused.sampled, 9_000 - kept);
        assert_eq!(third.snapshot().sample_rate, 3);
    });
}

#[test]
fn s_z08_the_share_does_not_depend_on_what_was_kept_before() {
    paused(|| async {
        for phase in 0..20 {
            let c = held(20_000, Sample::new().elevated(1).seed(phase));
            let before = phase % 10 + 2;
            // Permits are not asked: they set the phase.
            for i in 0..before {
                c.try_reserve().unwrap().send(i);
            }
            assert_eq!(c.state(), State::Critical);
            let kept = count_kept(&c, 10_000);
            assert!(kept.abs_diff(1_000) <= 90, "{kept} of 10 000 at 1 in 10 after {before}");
            let s = c.snapshot();
            s.audit().unwrap();
            assert_eq!((s.offered, s.accepted, s.refused.sampled), (10_000 + before, kept + before, 10_000 - kept));
        }
    });
}

#[test]
fn nothing_is_left_out_below_the_mark() {
    paused(|| async {
        let c = BackpressureController::builder(100)
            .strategy(Strategy::Sample(Sample::new()))
            .fixed(50, Duration::MAX)
            .spawn(|_: Batch<u64>| async { Ok(()) })
            .unwrap();
        c.pause();
        for i in 0..49 {
            c.push(i).await.unwrap();
        }
        assert_eq!((c.state(), c.snapshot().sample_rate), (State::Normal, 1));
        c.push(49).await.unwrap();
        assert_eq!((c.state(), c.snapshot().sample_rate), (State::Elevated, 2));
        c.close();
        assert_eq!((c.state(), c.snapshot().sample_rate), (State::Draining, 1), "nothing comes in");
    });
}

/// Ten classes in a strict rhythm, a sink of 1 000 items/s, an overload of 3 and of 25.
#[test]
fn the_weights_estimate_what_was_offered_without_bias() {
    const CLASSES: usize = 10;
    const SEEDS: u64 = 20;
    for load in [3_u64, 25] {
        let (mut total, mut classes) = (0.0, [0.0; CLASSES]);
        for seed in 0..SEEDS {
            let (offered, estimates) = overload(load, seed);
            total += estimates.iter().sum::<f64>() / offered as f64 - 1.0;
            for (bias, estimate) in classes.iter_mut().zip(estimates) {
                *bias += estimate / (offered as f64 / CLASSES as f64) - 1.0;
            }
        }
        let total = total / SEEDS as f64;
        let worst = classes.map(|bias| (bias / SEEDS as f64).abs()).into_iter().fold(0.0, f64::max);
        println!("{load}x: total bias {:.2} %, worst class {:.2} %", total * 100.0, worst * 100.0);
        assert!(total.abs() <= 0.02, "{load}x: total bias {total}");
        assert!(worst <= 0.04, "{load}x: worst class {worst}");
    }
}

/// Ten seconds at `load` times what the sink takes; the offers, and the estimate for each class.
fn overload(load: u64, seed: u64) -> (u64, [f64; 10]) {
    paused(move || async move {
        let log = Weighed::default();
        let mut sink = weighing(&log);
        let c = BackpressureController::builder(1_000)
            .strategy(Strategy::Sample(Sample::new().seed(seed)))
            .fixed(10, ms(10))
            .spawn(move |batch: Batch<u64>| {
                let taken = sink(batch);
                async move {
                    tokio::time::sleep(ms(10)).await;
                    taken.await
                }
            })
            .unwrap();
        for tick in 0..1_000 {
            for i in 0..load * 10 {
                match c.push((tick * load * 10 + i) % 10).await {
                    Ok(()) | Err(PushError::Sampled(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            tokio::time::sleep(ms(10)).await;
        }
        let report = c.drain(Duration::from_secs(60)).await;
        assert!(report.is_clean());
        report.totals.audit().unwrap();
        assert!(load < 5 || report.evicted() > 0, "the overflow was used");
        let mut estimates = [0.0; 10];
        for (class, weight) in log.lock().unwrap().iter() {
            estimates[*class as usize] += *weight as f64;
        }
        (report.totals.offered, estimates)
    })
}

#[test]
fn without_room_the_weights_are_kept_to_the_unit() {
    paused(|| async {
        let (log, drops) = (Weighed::default(), Drops::default());
        let lost = Arc::new(Mutex::new(Vec::new()));
        let hook = Arc::clone(&lost);
        let sink_log = Arc::clone(&log);
        let c = BackpressureController::builder(4)
            .strategy(Strategy::Sample(Sample::new().elevated(1).critical(1).seed(5)))
            .fixed(3, Duration::MAX)
            .on_loss(move |loss| {
                assert_eq!(loss.reason, LossReason::Evicted);
                hook.lock().unwrap().push(loss.item.map(|token: Token| token.id()));
            })
            .spawn(move |batch: Batch<Token>| {
                let seen = batch.weighted().map(|(token, weight)| (token.id(), weight)).collect::<Vec<_>>();
                sink_log.lock().unwrap().extend(seen);
                std::future::ready(Ok(()))
            })
            .unwrap();
        c.pause();
        let mut sampled = 0;
        for _ in 0..1_000 {
            match c.try_push(drops.next()) {
                Ok(()) => {}
                Err(PushError::Sampled(_)) => sampled += 1,
                Err(error) => panic!("{error}"),
            }
            c.snapshot().audit().unwrap();
            assert!(c.depth() <= 4);
        }
        let s = c.snapshot();
        assert_eq!((s.offered, s.refused.sampled, s.buffered), (1_000, sampled, 4));
        assert_eq!(s.evicted, lost.lock().unwrap().len() as u64);
        assert_eq!(s.accepted, s.evicted + 4);
        let report = c.drain(Duration::from_secs(1)).await;
        assert_eq!(report.delivered(), 4);
        let weights: u64 = log.lock().unwrap().iter().map(|(_, weight)| weight).sum();
        assert_eq!(weights, 1_000, "each offer is stood for");
        drop((c, report));
        drops.assert_each_once(1_000);
    });
}

#[test]
fn when_all_is_in_flight_a_kept_item_is_refused_as_full() {
    paused(|| async {
        let c = held(3, Sample::new().elevated(1).critical(1));
        let permits = c.reserve_many(3).await.unwrap();
        assert_eq!(c.try_push(1), Err(PushError::Full(1)));
        drop(permits);
        assert_eq!(c.try_push(2), Ok(()));
    });
}

#[test]
fn a_batch_leaves_a_unit_of_the_capacity_for_the_overflow() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10)
            .strategy(Strategy::Sample(Sample::new().elevated(1).critical(1)))
            .fixed(10, Duration::MAX)
            .spawn(support::ok(&log))
            .unwrap();
        c.pause();
        for i in 0..10_u64 {
            c.push(i).await.unwrap();
        }
        c.resume();
        assert!(c.flush().await.all_delivered());
        assert_eq!(log.sizes(), [9, 1]);
    });
}

#[test]
fn by_key_all_of_a_key_or_nothing_and_nested_over_rates() {
    paused(|| async {
        let by_key =
            |rate| held(20_000, Sample::new().normal(rate).elevated(rate).critical(rate).seed(9).by_key(|i| i / 10));
        let kept_keys = |c: &BackpressureController<u64>| {
            let kept: Vec<u64> = (0..5_000).filter(|i| c.try_push(*i).is_ok()).collect();
            let mut keys: Vec<u64> = kept.iter().map(|i| i / 10).collect();
            keys.dedup();
            assert_eq!(keys.len() * 10, kept.len(), "ten items a key, all or none");
            keys
        };
        let (half, tenth) = (kept_keys(&by_key(2)), kept_keys(&by_key(10)));
        assert!(half.len().abs_diff(250) < 40 && tenth.len().abs_diff(50) < 21, "{} {}", half.len(), tenth.len());
        assert!(tenth.iter().all(|key| half.contains(key)), "nested");
        // Without room a key is not broken up.
        let c = held(2, Sample::new().elevated(1).critical(1).by_key(|i| *i));
        assert_eq!(count_kept(&c, 2), 2);
        assert_eq!(c.try_push(7), Err(PushError::Full(7)));
        assert_eq!(c.snapshot().evicted, 0);
    });
}

#[test]
fn a_panicking_key_costs_the_item_its_place_and_nothing_else() {
    paused(|| async {
        let c = held(10, Sample::new().normal(2).by_key(|i| if *i == 3 { panic!("no key") } else { 0 }));
        assert_eq!(c.try_push(3), Err(PushError::Full(3)));
        assert_eq!(c.snapshot().panics, 1);
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn push_all_goes_on_and_tells_the_hook_what_was_left_out() {
    paused(|| async {
        let lost = Losses::default();
        let c = BackpressureController::builder(20_000)
            .strategy(Strategy::Sample(Sample::new().normal(4)))
            .fixed(1, Duration::MAX)
            .on_loss(lost.hook())
            .spawn(|_: Batch<u64>| async { Ok(()) })
            .unwrap();
        c.pause();
        let accepted = c.push_all(0..1_000_u64).await.unwrap();
        let s = c.snapshot();
        assert_eq!(s.accepted, accepted as u64);
        assert_eq!((s.offered, s.refused.sampled), (1_000, 1_000 - s.accepted));
        let lines = lost.lines();
        assert_eq!(lines.len() as u64, s.refused.sampled);
        assert!(
            lines.iter().all(|(_, reason, _)| matches!(reason, LossReason::Refused(why) if why.as_str() == "sampled"))
        );
        assert_eq!(s.losses().total(), 0, "refused, not lost");
        assert!(accepted.abs_diff(250) < 60, "{accepted}");
    });
}

#[test]
fn weights_stay_with_their_items_over_retries_and_splits() {
    paused(|| async {
        let log = Weighed::default();
        let mut sink = weighing(&log);
        let mut attempt = 0;
        let c = BackpressureController::builder(8)
            .strategy(Strategy::Sample(Sample::new().elevated(1).critical(1).seed(3)))
            .fixed(4, Duration::MAX)
            .spawn(move |mut batch: Batch<u64>| {
                attempt += 1;
                let answer = match attempt {
                    1 => Some(Err(FlushError::retry("down"))),
                    2 => Some(Err(FlushError::too_large("in halves"))),
                    3 => {
                        batch.retry(1);
                        None
                    }
                    _ => None,
                };
                // Of the third call only the first item is delivered.
                let taken = if attempt == 3 { None } else { answer.is_none().then(|| sink(batch)) };
                async move {
                    match (answer, taken) {
                        (Some(answer), _) => answer,
                        (None, Some(taken)) => taken.await,
                        (None, None) => Ok(()),
                    }
                }
            })
            .unwrap();
        c.pause();
        for i in 0..100 {
            let _ = c.try_push(i);
        }
        c.resume();
        let report = c.drain(Duration::from_secs(60)).await;
        assert_eq!(report.delivered(), 8);
        let log = log.lock().unwrap();
        // Seven of eight were noted, each of the first ones standing for itself; the youngest stands for all the overflow.
        assert_eq!(log.len(), 7);
        assert_eq!(log.iter().map(|(_, weight)| weight).sum::<u64>(), 99);
        assert_eq!(log.iter().map(|(_, weight)| *weight).max(), Some(93));
    });
}
