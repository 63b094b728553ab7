//! Flush and drain end exactly (I10), whatever producers do meanwhile.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backpressure::{BackpressureController, Batch, DrainReport, FlushError, PushError, Retry, State, Strategy};

use self::support::{Dice, Drops, SEC, Token, hung, idle, ids, ms, now, paused, poll_once};

#[test]
fn s_o01_flush_and_drain_end_while_producers_go_on() {
    const C: u64 = 100;
    const B: u64 = 10;
    paused(|| async {
        let c = BackpressureController::builder(C as usize)
            .fixed(B as usize, ms(1))
            .spawn(|batch: Batch<u64>| async move {
                tokio::time::sleep(ms(1)).await;
                drop(batch);
                Ok(())
            })
            .unwrap();
        let pushed = Arc::new(AtomicU64::new(0));
        let producers: Vec<_> = (0..8_u64)
            .map(|_| {
                let (c, pushed) = (c.clone(), Arc::clone(&pushed));
                tokio::spawn(async move {
                    loop {
                        let i = pushed.fetch_add(1, Ordering::Relaxed);
                        match c.push(i).await {
                            Ok(()) => {}
                            Err(PushError::Closed(back)) => return assert_eq!(back, i),
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(ms(50)).await;
        for _ in 0..20 {
            let before = c.snapshot();
            assert_eq!(before.waiting_producers, 8, "the sink is slower than they are");
            let ahead = before.buffered + before.in_flight;
            let report = c.flush().await;
            let after = c.snapshot();
            assert_eq!((report.total(), report.delivered), (ahead, ahead));
            assert!(report.all_delivered());
            let delivered = after.delivered - before.delivered;
            assert!((ahead..=ahead + C + B).contains(&delivered), "{delivered} delivered for {ahead} ahead");
            assert!(after.buffered > 0);
            after.audit().unwrap();
        }
        let (before, start) = (c.snapshot(), now());
        let mut drain = Box::pin(c.drain(25 * SEC));
        assert!(poll_once(&mut drain).is_pending());
        assert_eq!(c.state(), State::Draining);
        assert_eq!(c.snapshot().refused.closed, 8, "those who waited have their items back at once");
        let report = drain.await;
        assert!(start.elapsed() <= ms(C / B + 1));
        assert_eq!(report.delivered(), before.accepted);
        assert_eq!((report.totals.depth, report.totals.accepted), (0, before.accepted));
        assert!(report.is_clean());
        for producer in producers {
            producer.await.unwrap();
        }
        assert_eq!(c.snapshot().offered, pushed.load(Ordering::Relaxed));
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn s_o03_every_history_ends_empty() {
    for seed in 1..=1000 {
        let report = paused(move || history(seed));
        assert!(report.is_clean() && report.leftovers.is_empty(), "history {seed}");
        assert_eq!((report.totals.depth, report.totals.in_flight, report.totals.buffered), (0, 0, 0));
    }
}

/// A random life: pushes of every kind, permits used and not, cancelled waits, failures, evictions, purges.
async fn history(seed: u64) -> DrainReport<Token> {
    let mut dice = Dice(seed);
    let strategy = match dice.up_to(2) {
        0 => Strategy::DropOldest,
        1 => Strategy::DropNewest,
        _ => Strategy::BlockFor(ms(3)),
    };
    let (tokens, mut made) = (Drops::default(), 0);
    let mut fate = Dice(seed + 1_000_000);
    let capacity = 1 + dice.up_to(11) as usize;
    let c = BackpressureController::builder(capacity)
        .fixed(1 + dice.up_to(capacity as u64 - 1) as usize, ms(dice.up_to(2)))
        .strategy(strategy)
        .retry(Retry::exponential(ms(1), ms(4)).max_attempts(3))
        .flush_timeout(ms(10))
        .spawn(move |mut batch: Batch<Token>| {
            let fate = fate.up_to(11);
            async move {
                match fate {
                    0 => Err(FlushError::retry("down")),
                    1 => Err(FlushError::permanent("never")),
                    2 => Err(FlushError::too_large("large")),
                    3 => panic!("the sink"),
                    4 => {
                        let _moved_out = batch.take();
                        Err(FlushError::retry("gone"))
                    }
                    5 => {
                        batch.fail(0, "bad");
                        Ok(())
                    }
                    6 => {
                        batch.retry(batch.len() - 1);
                        Ok(())
                    }
                    7 => hung(batch).await,
                    8 => {
                        tokio::time::sleep(ms(2)).await;
                        drop(batch);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        })
        .unwrap();
    let mut permits = Vec::new();
    for _ in 0..30 {
        let mut token = || {
            made += 1;
            tokens.next()
        };
        match dice.up_to(8) {
            0 | 1 => drop(c.try_push(token())),
            2 => drop(c.push(token()).await),
            3 => drop(c.push_all([token(), token(), token()]).await),
            4 => permits.extend(c.try_reserve()),
            5 => {
                if let Some(permit) = permits.pop() {
                    permit.send(token());
                }
            }
            6 => drop(permits.pop()),
            7 => {
                let mut push = Box::pin(c.push(token()));
                let _ = tokio::time::timeout(ms(1), &mut push).await;
            }
            _ => match dice.up_to(3) {
                0 => drop(c.purge()),
                1 => drop(c.flush().await),
                _ => tokio::time::sleep(ms(dice.up_to(4))).await,
            },
        }
        c.snapshot().audit().unwrap_or_else(|error| panic!("history {seed}: {error}"));
    }
    drop(permits);
    let report = c.flush().await;
    let snapshot = c.snapshot();
    assert_eq!((snapshot.depth, c.depth(), c.len()), (0, 0, 0), "history {seed}: {report:?}");
    assert!(c.is_empty());
    assert_eq!(c.state(), State::Normal);
    let report = c.drain(25 * SEC).await;
    report.totals.audit().unwrap();
    assert_eq!(report.totals.offered, made);
    drop(c);
    idle().await;
    tokens.assert_each_once(made);
    report
}

#[test]
fn leftovers_go_to_the_first_caller_that_is_still_there() {
    paused(|| async {
        let tokens = Drops::default();
        let c = BackpressureController::builder(8).fixed(2, ms(1)).spawn(hung).unwrap();
        for _ in 0..8 {
            c.try_push(tokens.next()).unwrap();
        }
        idle().await;
        let start = now();
        let mut gone = Box::pin(c.drain(2 * SEC));
        assert!(poll_once(&mut gone).is_pending());
        // The second call joins the first and its deadline.
        let mut second = Box::pin(c.drain(60 * SEC));
        assert!(poll_once(&mut second).is_pending());
        drop(gone);
        let report = second.await;
        assert_eq!(start.elapsed(), 2 * SEC);
        assert_eq!(ids(&report.leftovers), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((report.abandoned(), report.not_returned, report.permits_out), (8, 0, 0));
        assert_eq!(c.drain(SEC).await.leftovers.len(), 0);
        drop(report);
        tokens.assert_each_once(8);
    });
}
