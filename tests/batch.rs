//! What the guard of a batch means: what becomes of each item, whatever the sink does with it and answers.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BatchId, FlushError, FlushReason, FlushTimedOut, Loss, LossReason, Retry,
    SinkPanicked, Strategy,
};

use self::support::{Drops, HOUR, Log, Losses, SEC, Token, hung, idle, ids, ms, now, paused};

/// What the sink does with the batch of items 0 to 3 at its first attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Nothing,
    Takes,
    DeliversOne,
    FailsOne,
    RetriesOne,
    DeliversOneAndTakes,
    IsDone,
    TakesAndIsDone,
    FailsOneAndIsDone,
    RetriesOneAndIsDone,
    /// A task holds the guard for 10 s.
    LendsIt,
    /// And then it is done.
    LendsItUntilItIsDone,
    /// A task holds the guard for ever.
    KeepsIt,
}

/// How the first attempt ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Ok,
    Retry,
    Permanent,
    Panic,
    /// Cut off by the flush timeout.
    Timeout,
    /// Cut off by drain's deadline.
    Cancel,
}

/// What became of the items.
#[derive(Debug, Default, PartialEq)]
struct Fate {
    delivered: u64,
    /// What the hook was told as failed: the item if there was one, and the error.
    failed: Vec<(Option<u64>, Option<String>)>,
    /// What the sink was given at the second attempt.
    again: Vec<u64>,
    leftovers: Vec<u64>,
    not_returned: u64,
}

const DOES: [Does; 13] = [
    Does::Nothing,
    Does::Takes,
    Does::DeliversOne,
    Does::FailsOne,
    Does::RetriesOne,
    Does::DeliversOneAndTakes,
    Does::IsDone,
    Does::TakesAndIsDone,
    Does::FailsOneAndIsDone,
    Does::RetriesOneAndIsDone,
    Does::LendsIt,
    Does::LendsItUntilItIsDone,
    Does::KeepsIt,
];
const ENDS: [Ends; 6] = [Ends::Ok, Ends::Retry, Ends::Permanent, Ends::Panic, Ends::Timeout, Ends::Cancel];

impl Does {
    fn lends(self) -> bool {
        matches!(self, Self::LendsIt | Self::LendsItUntilItIsDone)
    }
}

/// The promise, row by row. Item 1 is the one that is judged.
fn promised(does: Does, ends: Ends) -> Fate {
    let error = match ends {
        Ends::Ok | Ends::Cancel => None,
        Ends::Retry => Some("down".to_owned()),
        Ends::Permanent => Some("never".to_owned()),
        Ends::Panic => Some(SinkPanicked.to_string()),
        Ends::Timeout => Some(FlushTimedOut.to_string()),
    };
    let all = vec![0, 1, 2, 3];
    let others = vec![0, 2, 3];
    // Not delivered and not failed: sent again, failed for good, or handed back, each whole and in order.
    let left = |fate: Fate, items: Vec<u64>| match ends {
        Ends::Ok => unreachable!("Ok leaves only what was judged"),
        Ends::Permanent => {
            let failed = items.into_iter().map(|item| (Some(item), error.clone()));
            Fate { failed: fate.failed.into_iter().chain(failed).collect(), ..fate }
        }
        Ends::Cancel => Fate { leftovers: items, ..fate },
        Ends::Retry | Ends::Panic | Ends::Timeout => {
            Fate { delivered: fate.delivered + items.len() as u64, again: items, ..fate }
        }
    };
    let moved_out = |n: usize| vec![(None, error.clone()); n];
    let bad = || vec![(Some(1), Some("bad".to_owned()))];
    match (does, ends) {
        (Does::FailsOne, Ends::Ok) | (Does::FailsOneAndIsDone, _) => {
            Fate { delivered: 3, failed: bad(), ..Fate::default() }
        }
        (Does::RetriesOne | Does::RetriesOneAndIsDone, Ends::Ok) => {
            Fate { delivered: 4, again: vec![1], ..Fate::default() }
        }
        (_, Ends::Ok) => Fate { delivered: 4, ..Fate::default() },
        (Does::Nothing | Does::RetriesOne, _) => left(Fate::default(), all),
        (Does::Takes, _) => Fate { failed: moved_out(4), ..Fate::default() },
        (Does::DeliversOne, _) => left(Fate { delivered: 1, ..Fate::default() }, others),
        (Does::FailsOne, _) => left(Fate { failed: bad(), ..Fate::default() }, others),
        (Does::DeliversOneAndTakes, _) => Fate { delivered: 1, failed: moved_out(3), ..Fate::default() },
        (Does::RetriesOneAndIsDone, _) => left(Fate { delivered: 3, ..Fate::default() }, vec![1]),
        // At drain's deadline, 5 s, it is still lent.
        (Does::LendsIt | Does::LendsItUntilItIsDone, Ends::Cancel) | (Does::KeepsIt, _) => {
            Fate { not_returned: 4, ..Fate::default() }
        }
        (Does::IsDone | Does::TakesAndIsDone | Does::LendsItUntilItIsDone, _) => {
            Fate { delivered: 4, ..Fate::default() }
        }
        (Does::LendsIt, _) => left(Fate::default(), all),
    }
}

/// Runs one life of a controller with one batch.
async fn happened(does: Does, ends: Ends, tokens: &Drops) -> Fate {
    let (calls, failed, abandoned) = <(Log<u64>, Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>)>::default();
    let builder = BackpressureController::builder(4)
        .fixed(4, HOUR)
        .retry(Retry::exponential(SEC, SEC).without_jitter())
        .flush_timeout(if ends == Ends::Timeout { 2 * SEC } else { Duration::MAX })
        .on_loss({
            let (failed, abandoned) = (Arc::clone(&failed), Arc::clone(&abandoned));
            move |loss: Loss<Token>| {
                let item = loss.item.as_ref().map(Token::id);
                match loss.reason {
                    LossReason::Failed => {
                        failed.lock().unwrap().push((item, loss.error.map(|error| error.to_string())));
                    }
                    LossReason::Abandoned => abandoned.lock().unwrap().extend(item),
                    other => panic!("{other}"),
                }
            }
        });
    let log = calls.clone();
    let c = builder
        .spawn(move |mut batch: Batch<Token>| {
            log.add(&ids(&batch));
            async move {
                if batch.attempt() > 1 || batch.len() < 4 {
                    return Ok(());
                }
                let mut taken = Vec::new();
                match does {
                    Does::Nothing | Does::IsDone | Does::LendsIt | Does::LendsItUntilItIsDone | Does::KeepsIt => {}
                    Does::Takes | Does::TakesAndIsDone => taken = batch.take(),
                    Does::DeliversOne => batch.deliver(1),
                    Does::FailsOne | Does::FailsOneAndIsDone => batch.fail(1, "bad"),
                    Does::RetriesOne | Does::RetriesOneAndIsDone => batch.retry(1),
                    Does::DeliversOneAndTakes => {
                        taken = batch.take();
                        batch.deliver(1);
                    }
                }
                let mut here = Some(batch);
                match does {
                    Does::IsDone | Does::TakesAndIsDone | Does::FailsOneAndIsDone | Does::RetriesOneAndIsDone => {
                        if let Some(batch) = here.take() {
                            batch.done();
                        }
                    }
                    Does::LendsIt | Does::LendsItUntilItIsDone | Does::KeepsIt => {
                        let lent = here.take();
                        tokio::spawn(async move {
                            tokio::time::sleep(if does.lends() { 10 * SEC } else { 10 * HOUR }).await;
                            match lent {
                                Some(batch) if does == Does::LendsItUntilItIsDone => batch.done(),
                                lent => drop(lent),
                            }
                        });
                    }
                    _ => {}
                }
                match ends {
                    Ends::Ok => Ok(()),
                    Ends::Retry => Err(FlushError::retry("down")),
                    Ends::Permanent => Err(FlushError::permanent("never")),
                    Ends::Panic => panic!("the sink"),
                    Ends::Timeout | Ends::Cancel => {
                        std::future::pending::<()>().await;
                        drop((here, taken));
                        Ok(())
                    }
                }
            }
        })
        .unwrap();
    for _ in 0..4 {
        c.push(tokens.next()).await.unwrap();
    }
    idle().await;
    c.snapshot().audit().unwrap();
    if does.lends() && !matches!(ends, Ends::Ok | Ends::Cancel) {
        tokio::time::sleep(5 * SEC).await;
        // Lent out: in flight, and nothing happens until it is back.
        assert_eq!((c.snapshot().in_flight, calls.calls().len()), (4, 1), "{does:?} {ends:?}");
    }
    let start = now();
    let report = c.drain(if ends == Ends::Cancel { 5 * SEC } else { HOUR }).await;
    if does.lends() && !matches!(ends, Ends::Ok | Ends::Cancel) {
        assert!(start.elapsed() >= ms(4900) && start.elapsed() < 10 * SEC);
    }
    report.totals.audit().unwrap();
    assert_eq!(report.failed(), failed.lock().unwrap().len() as u64, "{does:?} {ends:?}");
    assert_eq!(report.abandoned(), report.leftovers.len() as u64 + report.not_returned, "{does:?} {ends:?}");
    assert_eq!(report.delivered() + report.failed() + report.abandoned(), 4);
    assert!(abandoned.lock().unwrap().is_empty(), "the leftovers are in the report");
    let flushes = report.totals.flushes;
    let counter = match ends {
        Ends::Ok => flushes.ok,
        Ends::Retry => flushes.retry,
        Ends::Permanent => flushes.permanent,
        Ends::Panic => flushes.panicked,
        Ends::Timeout => flushes.timed_out,
        Ends::Cancel => flushes.cancelled,
    };
    let again = calls.calls().get(1).cloned().unwrap_or_default();
    assert_eq!(
        (counter, flushes.total()),
        (1 + u64::from(ends == Ends::Ok && !again.is_empty()), calls.calls().len() as u64)
    );
    assert_eq!(report.totals.retried, again.len() as u64);
    let fate = Fate {
        delivered: report.delivered(),
        failed: failed.lock().unwrap().clone(),
        again,
        leftovers: ids(&report.leftovers),
        not_returned: report.not_returned,
    };
    // What comes home after the end goes to the hook, and was counted before.
    tokio::time::sleep(20 * HOUR).await;
    assert_eq!(abandoned.lock().unwrap().len() as u64, fate.not_returned, "{does:?} {ends:?}");
    assert_eq!(c.snapshot().abandoned, report.abandoned());
    c.snapshot().audit().unwrap();
    fate
}

#[test]
fn each_use_of_a_batch_with_each_end_has_the_promised_fate() {
    for does in DOES {
        for ends in ENDS {
            let fate = paused(move || async move {
                let tokens = Drops::default();
                let fate = happened(does, ends, &tokens).await;
                idle().await;
                tokens.assert_each_once(4);
                fate
            });
            assert_eq!(fate, promised(does, ends), "the sink {does:?} and the attempt ends by {ends:?}");
        }
    }
}

/// What a sink saw of a batch.
type Seen = (BatchId, u32, Vec<u64>, FlushReason);

fn seen<T>(batch: &Batch<T>) -> Seen {
    (batch.id(), batch.attempt(), (0..batch.len()).map(|i| batch.seq(i)).collect(), batch.reason())
}

#[test]
fn a_batch_has_one_name_over_all_its_attempts_and_its_items_have_one_for_life() {
    paused(|| async {
        let log = Log::<Seen>::default();
        let c = BackpressureController::builder(10)
            .fixed(4, ms(1))
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    log.add(&[seen(&batch)]);
                    std::future::ready(if batch.attempt() < 4 { Err(FlushError::retry("down")) } else { Ok(()) })
                }
            })
            .unwrap();
        c.push_all(0..8).await.unwrap();
        idle().await;
        assert_eq!(c.flush().await.delivered, 8);
        let calls = log.items();
        assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [1, 2, 3, 4, 1, 2, 3, 4]);
        let (first, second) = (calls[0].0, calls[4].0);
        assert_ne!(first, second);
        assert!(calls[..4].iter().all(|call| call.0 == first && call.2 == [0, 1, 2, 3] && call.3 == FlushReason::Full));
        assert!(calls[4..].iter().all(|call| call.0 == second && call.2 == [4, 5, 6, 7]));
        assert_eq!((first.first(), first.part(), second.first(), first.nonce()), (0, 0, 4, second.nonce()));
        assert_eq!(first.to_string(), format!("{:016x}-0-0", first.nonce()));
    });
}

#[test]
fn a_batch_reads_as_the_slice_of_its_items_in_every_way() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10)
            .fixed(3, HOUR)
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    let by_loop: Vec<u32> = (&batch).into_iter().copied().collect();
                    let by_weight: Vec<(u32, u64)> = batch.weighted().map(|(item, weight)| (*item, weight)).collect();
                    log.add(&[(by_loop, batch.as_ref().to_vec(), batch.to_vec(), by_weight)]);
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        c.push_all(7..10).await.unwrap();
        idle().await;
        let items = vec![7, 8, 9];
        assert_eq!(log.items(), [(items.clone(), items.clone(), items, vec![(7, 1), (8, 1), (9, 1)])]);
    });
}

#[test]
fn what_is_too_large_is_halved_under_new_names_until_a_single_item_fails_alone() {
    paused(|| async {
        let (log, losses) = (Log::<Seen>::default(), Losses::default());
        let c = BackpressureController::builder(10)
            .fixed(8, ms(1))
            .on_loss(losses.hook())
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    log.add(&[seen(&batch)]);
                    let fits = !batch.contains(&5);
                    std::future::ready(if fits { Ok(()) } else { Err(FlushError::too_large("large")) })
                }
            })
            .unwrap();
        let start = now();
        c.push_all(0..8).await.unwrap();
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (7, 1));
        assert_eq!(losses.lines(), [(Some(5), LossReason::Failed, Some("large".to_owned()))]);
        assert_eq!(start.elapsed(), Duration::ZERO, "a split is sent at once");
        let calls = log.items();
        let seqs: Vec<_> = calls.iter().map(|call| call.2.clone()).collect();
        assert_eq!(
            seqs,
            [
                vec![0, 1, 2, 3, 4, 5, 6, 7],
                vec![0, 1, 2, 3],
                vec![4, 5, 6, 7],
                vec![4, 5],
                vec![4],
                vec![5],
                vec![6, 7]
            ]
        );
        let mut names: Vec<_> = calls.iter().map(|call| call.0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 7, "each part has a name of its own");
        assert!(calls.iter().all(|call| call.0.first() == call.2[0] && call.0.nonce() == calls[0].0.nonce()));
        assert_eq!((c.snapshot().flushes.too_large, c.snapshot().flushes.ok), (4, 3));
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn a_name_is_given_to_one_set_of_items_only_over_every_kind_of_partial_settling() {
    paused(|| async {
        let log = Log::<(BatchId, Vec<u64>)>::default();
        let c = BackpressureController::builder(8)
            .fixed(8, ms(1))
            .spawn({
                let log = log.clone();
                let mut call = 0;
                move |mut batch: Batch<u32>| {
                    call += 1;
                    log.add(&[(batch.id(), (0..batch.len()).map(|i| batch.seq(i)).collect())]);
                    std::future::ready(match call {
                        1 => Err(FlushError::too_large("large")),
                        2 => {
                            batch.deliver(0);
                            Err(FlushError::retry("down"))
                        }
                        3 => Err(FlushError::too_large("large")),
                        4 => {
                            batch.retry(0);
                            Ok(())
                        }
                        5 => Err(FlushError::retry("down")),
                        _ => Ok(()),
                    })
                }
            })
            .unwrap();
        c.push_all(0..8).await.unwrap();
        assert_eq!(c.flush().await.delivered, 8);
        let mut names = std::collections::HashMap::new();
        for (name, seqs) in log.items() {
            assert_eq!(names.entry(name).or_insert_with(|| seqs.clone()), &seqs, "{name}");
        }
        let seqs: Vec<_> = log.items().into_iter().map(|(_, seqs)| seqs).collect();
        assert_eq!(
            seqs,
            [
                vec![0, 1, 2, 3, 4, 5, 6, 7],
                vec![0, 1, 2, 3],
                vec![1, 2, 3],
                vec![1],
                vec![1],
                vec![1],
                vec![2, 3],
                vec![4, 5, 6, 7]
            ]
        );
    });
}

#[test]
fn what_was_judged_one_by_one_holds_though_the_guard_is_lent_out_when_the_sink_says_ok() {
    paused(|| async {
        let (log, losses) = (Log::default(), Losses::default());
        let c = BackpressureController::builder(4)
            .fixed(4, ms(1))
            .on_loss(losses.hook())
            .spawn({
                let log = log.clone();
                move |mut batch: Batch<u32>| {
                    log.add(&batch);
                    if batch.attempt() == 1 {
                        batch.deliver(0);
                        batch.fail(1, "bad");
                        batch.retry(2);
                        tokio::spawn(async move {
                            tokio::time::sleep(SEC).await;
                            drop(batch);
                        });
                    }
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        let start = now();
        c.push_all(0..4).await.unwrap();
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (3, 1));
        assert_eq!(losses.lines(), [(Some(1), LossReason::Failed, Some("bad".to_owned()))]);
        assert_eq!(log.calls(), [vec![0, 1, 2, 3], vec![2]]);
        assert!(start.elapsed() >= SEC, "the judged items come home with the guard");
        c.snapshot().audit().unwrap();
        assert!(c.drain(SEC).await.is_clean());
    });
}

#[test]
fn an_ok_holds_though_the_flusher_dies_before_it_sees_the_guard_come_home() {
    paused(|| async {
        let (kept, losses) = (Arc::new(Mutex::new(None)), Losses::default());
        let (c, flusher) = BackpressureController::builder(4)
            .fixed(4, ms(1))
            .on_loss(losses.hook())
            .build({
                let kept = Arc::clone(&kept);
                move |mut batch: Batch<u32>| {
                    batch.fail(1, "bad");
                    *kept.lock().unwrap() = Some(batch);
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        let flusher = tokio::spawn(flusher);
        c.push_all(0..4).await.unwrap();
        idle().await;
        assert_eq!((c.snapshot().in_flight, c.snapshot().flushes.ok), (4, 1));
        drop(kept.lock().unwrap().take());
        flusher.abort();
        idle().await;
        let snapshot = c.snapshot();
        assert_eq!((snapshot.delivered, snapshot.failed, snapshot.abandoned), (3, 1, 0));
        assert_eq!(losses.lines(), [(Some(1), LossReason::Failed, Some("bad".to_owned()))]);
        snapshot.audit().unwrap();
    });
}

#[test]
fn reasons_are_told() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(10)
            .fixed(4, ms(5))
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    log.add(&[(batch.reason(), batch.len())]);
                    std::future::ready(Ok(()))
                }
            })
            .unwrap();
        c.push_all(0..5).await.unwrap();
        tokio::time::sleep(ms(6)).await;
        c.push(5).await.unwrap();
        let _ = c.flush().await;
        let places = c.reserve_many(8).await.unwrap();
        c.push_all(6..8).await.unwrap();
        idle().await;
        drop(places);
        c.push(8).await.unwrap();
        let _ = c.drain(SEC).await;
        let expected = [
            (FlushReason::Full, 4),
            (FlushReason::Linger, 1),
            (FlushReason::Flush, 1),
            (FlushReason::Room, 2),
            (FlushReason::Drain, 1),
        ];
        assert_eq!(log.items(), expected);
    });
}

#[test]
fn the_losses_told_before_the_batches_add_up_to_all_losses() {
    paused(|| async {
        let log = Log::default();
        let c = BackpressureController::builder(4)
            .fixed(2, HOUR)
            .strategy(Strategy::DropOldest)
            .retry(Retry::exponential(SEC, SEC).without_jitter().max_attempts(2))
            .spawn({
                let log = log.clone();
                move |batch: Batch<u32>| {
                    log.add(&[(batch[0], batch.attempt(), batch.lost_before())]);
                    std::future::ready(match batch[0] {
                        2 => Err(FlushError::retry("down")),
                        _ => Ok(()),
                    })
                }
            })
            .unwrap();
        // Two are evicted before the first batch; the batch of 2 fails for good; then one is purged.
        for i in 0..6 {
            c.try_push(i).unwrap();
        }
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (2, 2));
        c.pause();
        c.push(6).await.unwrap();
        assert_eq!(c.purge(), [6]);
        c.resume();
        c.push_all(7..9).await.unwrap();
        let _ = c.flush().await;
        let told: Vec<_> = log.items();
        let figures: Vec<_> = told
            .iter()
            .map(|(item, attempt, lost)| (*item, *attempt, lost.evicted, lost.failed, lost.purged))
            .collect();
        // A retry tells what its first attempt told: the sink may not have written it.
        assert_eq!(figures, [(2, 1, 2, 0, 0), (2, 2, 2, 0, 0), (4, 1, 0, 2, 0), (7, 1, 0, 0, 1)]);
        let sum: u64 = told.iter().filter(|(_, attempt, _)| *attempt == 1).map(|(.., lost)| lost.total()).sum();
        assert_eq!(sum, c.snapshot().losses().total());
    });
}

#[test]
fn extend_puts_the_timeout_of_this_attempt_off() {
    paused(|| async {
        for (extra, expected) in [(Duration::ZERO, 2 * SEC), (3 * SEC, 5 * SEC), (HOUR, HOUR + 2 * SEC)] {
            let c = BackpressureController::builder(4)
                .fixed(4, ms(1))
                .flush_timeout(2 * SEC)
                .retry(Retry::never())
                .spawn(move |batch: Batch<u32>| {
                    batch.extend(extra);
                    hung(batch)
                })
                .unwrap();
            let start = now();
            c.push_all(0..4).await.unwrap();
            assert_eq!(c.flush().await.failed, 4);
            assert_eq!(start.elapsed(), expected);
        }
        // For ever.
        let c = BackpressureController::builder(4).fixed(4, ms(1)).flush_timeout(2 * SEC).spawn(|batch: Batch<u32>| {
            batch.extend(Duration::MAX);
            batch.extend(SEC);
            hung(batch)
        });
        let c = c.unwrap();
        c.push_all(0..4).await.unwrap();
        tokio::time::sleep(2 * HOUR).await;
        assert_eq!((c.snapshot().in_flight, c.snapshot().flushes.total()), (4, 0));
        // Also while the call is under way, and only for its attempt.
        let c = BackpressureController::builder(4)
            .fixed(4, ms(1))
            .flush_timeout(2 * SEC)
            .retry(Retry::exponential(SEC, SEC).without_jitter().max_attempts(2))
            .spawn(|batch: Batch<u32>| async move {
                if batch.attempt() == 1 {
                    tokio::time::sleep(SEC).await;
                    batch.extend(SEC);
                    tokio::time::sleep(SEC + ms(500)).await;
                    batch.extend(SEC);
                }
                hung(batch).await
            })
            .unwrap();
        let start = now();
        c.push_all(0..4).await.unwrap();
        assert_eq!(c.flush().await.failed, 4);
        // 2 + 1 + 1, a wait of 1, and 2 again.
        assert_eq!(start.elapsed(), 7 * SEC);
        assert_eq!(c.snapshot().flushes.timed_out, 2);
    });
}

#[test]
fn a_throttling_sink_has_its_pause() {
    paused(|| async {
        for (wait, after, expected) in [(SEC, 7 * SEC, 7 * SEC), (9 * SEC, 7 * SEC, 9 * SEC), (SEC, ms(0), SEC)] {
            let times = Log::default();
            let c = BackpressureController::builder(4)
                .fixed(4, ms(1))
                .retry(Retry::exponential(wait, wait).without_jitter())
                .spawn({
                    let times = times.clone();
                    move |batch: Batch<u32>| {
                        times.add(&[now()]);
                        let is_first = batch.attempt() == 1;
                        std::future::ready(if is_first { Err(FlushError::throttled("busy", after)) } else { Ok(()) })
                    }
                })
                .unwrap();
            c.push_all(0..4).await.unwrap();
            assert_eq!(c.flush().await.delivered, 4);
            let times = times.items();
            assert_eq!((times.len(), times[1] - times[0]), (2, expected));
            assert_eq!(c.snapshot().flushes.throttled, 1);
        }
    });
}
