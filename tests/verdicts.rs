//! Scenarios F and J: what a sink says of a batch or of its items, and what is done about it, with one call at a time and with
//! several.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

mod support;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, Builder, DeadLetter, FlushError, ItemOutcome, LossReason, PushError, Retry, State,
    Strategy, WrongOutcomes,
};

use self::support::{Gate, HOUR, Log, Losses, YEAR, gated, idle, ms, now, paused, paused_for, secs, settled};

const ONE_AND_FOUR: [usize; 2] = [1, 4];

fn builder(capacity: usize, batch: usize) -> Builder<u64> {
    BackpressureController::builder(capacity).fixed(batch, HOUR)
}

/// A retry every second, without end.
fn each_second() -> Retry {
    Retry::exponential(secs(1), secs(1)).without_jitter()
}

/// Each call: when, and what it held.
type Calls = Arc<Mutex<Vec<(Duration, Vec<u64>)>>>;

/// A sink that notes each call and answers as `answer` says.
fn noting<F>(
    calls: &Calls,
    answer: F,
) -> impl Fn(Batch<u64>) -> std::future::Ready<Result<(), FlushError>> + Clone + Send + use<F>
where
    F: Fn(&[u64], u32) -> Result<(), FlushError> + Clone + Send + Sync + 'static,
{
    let (calls, start) = (Arc::clone(calls), now());
    move |batch: Batch<u64>| {
        calls.lock().unwrap().push((start.elapsed(), batch.to_vec()));
        std::future::ready(answer(&batch, batch.attempt()))
    }
}

#[test]
fn s_f01_a_busy_sink_is_not_asked_again_and_again() {
    paused(|| async {
        let (gate, log) = (Gate::closed(), Log::default());
        let (c, flusher) = builder(100, 10).build(gated(&gate, &log)).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let mut flusher = Box::pin(flusher);
        let task = tokio::spawn(std::future::poll_fn(move |cx| {
            count.fetch_add(1, Ordering::SeqCst);
            flusher.as_mut().poll(cx)
        }));
        (0..100).for_each(|i| c.try_push(i).unwrap());
        settled().await;
        let before = polls.load(Ordering::SeqCst);
        // The figures are published while something is outstanding: each second.
        tokio::time::sleep(secs(10)).await;
        let asked = polls.load(Ordering::SeqCst) - before;
        assert!(asked <= 11, "polled {asked} times while the sink was busy");
        assert_eq!(log.calls().len(), 0);
        gate.open();
        assert_eq!(c.drain(HOUR).await.delivered(), 100);
        task.await.unwrap().unwrap();
    });
}

#[test]
fn s_f03_whoever_has_let_go_wakes_nobody() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let sink = |batch: Batch<u64>| async move {
                tokio::time::sleep(ms(10)).await;
                drop(batch);
                Ok(())
            };
            let (c, flusher) = builder(100, 5).build_concurrent(n, sink).unwrap();
            let polls = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&polls);
            let mut flusher = Box::pin(flusher);
            let task = tokio::spawn(std::future::poll_fn(move |cx| {
                count.fetch_add(1, Ordering::SeqCst);
                flusher.as_mut().poll(cx)
            }));
            // All that the loop listens to or tells, dropped before there is work, and while there is.
            for _ in 0..2 {
                drop((c.watch(), c.downgrade(), c.clone(), c.try_reserve().unwrap()));
                drop(c.push_tracked(0).await.unwrap());
                let flush = tokio::spawn({
                    let c = c.clone();
                    async move { c.flush().await.all_delivered() }
                });
                settled().await;
                flush.abort();
                (1..20).for_each(|i| c.try_push(i).unwrap());
                settled().await;
            }
            assert!(c.flush().await.all_delivered());
            tokio::time::sleep(secs(1)).await;
            assert_eq!(c.snapshot().delivered, 40);
            let before = polls.load(Ordering::SeqCst);
            tokio::time::sleep(secs(10)).await;
            assert_eq!(polls.load(Ordering::SeqCst), before, "an idle controller does nothing at all");
            drop(c);
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn s_f05_an_outage_is_no_hammering_with_one_slot_or_several() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let calls = Calls::default();
            let down = noting(&calls, |_, _| Err(FlushError::retry("down")));
            let sink = move |batch: Batch<u64>| {
                let answer = down(batch);
                async move {
                    // Else the first failure is known before the second call could begin.
                    tokio::task::yield_now().await;
                    answer.await
                }
            };
            let c = builder(500, 10)
                .retry(Retry::exponential(ms(100), secs(10)).without_jitter())
                .spawn_concurrent(n, sink)
                .unwrap();
            (0..500).for_each(|i| c.try_push(i).unwrap());
            tokio::time::sleep(secs(60)).await;
            let mut by_batch = BTreeMap::<u64, Vec<u128>>::new();
            for (at, items) in calls.lock().unwrap().iter() {
                by_batch.entry(items[0]).or_default().push(at.as_millis());
            }
            assert_eq!(by_batch.len(), n, "no more batches than slots");
            for times in by_batch.values() {
                assert_eq!(*times, [0, 100, 300, 700, 1500, 3100, 6300, 12_700, 22_700, 32_700, 42_700, 52_700]);
            }
            assert_eq!(c.purge().len(), 500 - 10 * n);
        }
    });
}

#[test]
fn a_throttling_sink_is_left_alone_by_all_slots_and_producers_feel_it() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let calls = Calls::default();
            let throttled = Arc::new(AtomicUsize::new(0));
            let once = Arc::clone(&throttled);
            // It gives the batch up: also then nothing else is sent before the pause is over.
            let sink = noting(&calls, move |_, _| match once.fetch_add(1, Ordering::SeqCst) {
                0 => Err(FlushError::throttled("slower", secs(30))),
                _ => Ok(()),
            });
            let c = builder(20, 2).retry(Retry::never()).spawn_concurrent(n, sink).unwrap();
            (0..2).for_each(|i| c.try_push(i).unwrap());
            settled().await;
            assert_eq!((c.snapshot().flushes.throttled, c.snapshot().failed), (1, 2));
            assert_eq!(c.explain().pause, Some(secs(30)));
            (2..22).for_each(|i| c.try_push(i).unwrap());
            let blocked = tokio::spawn({
                let c = c.clone();
                async move { c.push(22).await.map(drop) }
            });
            tokio::time::sleep(secs(29)).await;
            assert!(c.explain().to_string().contains("left alone for another 1.0 s"), "{}", c.explain());
            assert_eq!((calls.lock().unwrap().len(), c.state(), c.pressure()), (1, State::Blocked, 1.0));
            assert!(matches!(c.try_push(23), Err(PushError::Full(23))) && !blocked.is_finished());
            // Not even for a flush.
            let flush = tokio::spawn({
                let c = c.clone();
                async move { c.flush().await.all_delivered() }
            });
            settled().await;
            assert_eq!(calls.lock().unwrap().len(), 1);
            tokio::time::sleep(secs(1)).await;
            assert!(flush.await.unwrap());
            blocked.await.unwrap().unwrap();
            assert_eq!((calls.lock().unwrap()[1].0, c.explain().pause), (secs(30), None));
        }
    });
}

#[test]
fn the_longest_pause_counts_and_calls_under_way_go_on() {
    paused(|| async {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let sink = move |_: Batch<u64>| {
            let call = count.fetch_add(1, Ordering::SeqCst) as u64;
            async move {
                tokio::time::sleep(ms(call + 1)).await;
                match call {
                    0 => Err(FlushError::throttled("slower", secs(10))),
                    1 => Err(FlushError::throttled("slower", secs(2))),
                    _ => Ok(()),
                }
            }
        };
        let c = builder(100, 1).retry(each_second()).spawn_concurrent(3, sink).unwrap();
        (0..20).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(10)).await;
        assert_eq!((begun.load(Ordering::SeqCst), c.snapshot().delivered), (3, 1));
        tokio::time::sleep(ms(2)).await;
        assert_eq!(begun.load(Ordering::SeqCst), 6);
    });
}

#[test]
fn a_pause_without_end_is_ended_by_the_drain() {
    paused(|| async {
        let calls = Calls::default();
        let sink = noting(&calls, |_, _| Err(FlushError::throttled("never again", Duration::MAX)));
        let c = builder(10, 1).spawn_concurrent(2, sink).unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(HOUR).await;
        assert!(c.explain().pause.is_some_and(|pause| pause > YEAR), "{}", c.explain());
        let report = c.drain(secs(1)).await;
        assert_eq!((report.leftovers, calls.lock().unwrap().len()), (vec![0, 1, 2], 1));
    });
}

#[test]
fn s_j03_a_batch_that_is_too_large_is_halved_until_it_fits() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let (calls, losses) = (Calls::default(), Losses::default());
            let sink =
                noting(
                    &calls,
                    |items, _| {
                        if items.contains(&7) { Err(FlushError::too_large("too large")) } else { Ok(()) }
                    },
                );
            let c = builder(2048, 1024).on_loss(losses.hook()).spawn_concurrent(n, sink).unwrap();
            (0..1024).for_each(|i| c.try_push(i).unwrap());
            idle().await;
            let s = c.snapshot();
            s.audit().unwrap();
            assert_eq!((calls.lock().unwrap().len(), s.delivered, s.failed), (21, 1023, 1));
            assert_eq!(losses.lines(), [(Some(7), LossReason::Failed, Some("too large".to_owned()))]);
            let order: Vec<_> = calls.lock().unwrap().iter().map(|(_, items)| items[0]).collect();
            assert!(n > 1 || order.is_sorted(), "{order:?}");
        }
    });
}

#[test]
fn a_poisoned_batch_is_halved_until_the_bad_item_stands_alone() {
    paused(|| async {
        for (n, bad, slots) in [(1024, 0, 1), (1024, 1023, 1), (1024, 700, 4), (1000, 500, 1), (1, 0, 1), (3, 1, 2)] {
            let (calls, losses) = (Calls::default(), Losses::default());
            let sink = noting(
                &calls,
                move |items, _| {
                    if items.contains(&bad) { Err(FlushError::permanent("poison")) } else { Ok(()) }
                },
            );
            let builder = builder(2048, n as usize).bisect(true).on_loss(losses.hook());
            let c = builder.spawn_concurrent(slots, sink).unwrap();
            (0..n).for_each(|i| c.try_push(i).unwrap());
            idle().await;
            let most = 2 * n.next_power_of_two().ilog2() as usize + 1;
            let made = calls.lock().unwrap().len();
            assert!(made <= most, "{made} calls for {n} items");
            assert_eq!((c.snapshot().delivered, c.snapshot().failed), (n - 1, 1));
            assert_eq!(losses.lines(), [(Some(bad), LossReason::Failed, Some("poison".to_owned()))]);
            let order: Vec<_> = calls.lock().unwrap().iter().map(|(_, items)| items[0]).collect();
            assert!(slots > 1 || order.is_sorted(), "{order:?}");
        }
    });
}

#[test]
fn without_bisect_the_whole_batch_fails() {
    paused(|| async {
        let calls = Calls::default();
        let c = builder(8, 4).spawn(noting(&calls, |_, _| Err(FlushError::permanent("poison")))).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        assert_eq!((calls.lock().unwrap().len(), c.snapshot().failed), (1, 4));
    });
}

#[test]
fn a_batch_whose_retries_are_used_up_is_halved_too_each_half_with_retries_of_its_own() {
    paused(|| async {
        let calls = Calls::default();
        let sink = noting(&calls, |items, _| if items.contains(&2) { Err(FlushError::retry("no")) } else { Ok(()) });
        let retry = each_second().max_attempts(2);
        let c = builder(8, 4).bisect(true).retry(retry).spawn(sink).unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(10)).await;
        let batches: Vec<_> = calls.lock().unwrap().iter().map(|(_, items)| items.clone()).collect();
        let all = vec![0, 1, 2, 3];
        assert_eq!(batches, [all.clone(), all, vec![0, 1], vec![2, 3], vec![2, 3], vec![2], vec![2], vec![3]]);
        assert_eq!((c.snapshot().delivered, c.snapshot().failed), (3, 1));
    });
}

#[test]
fn a_pulled_batch_that_is_given_up_is_halved_too() {
    paused(|| async {
        let (c, mut batches) = builder(8, 4).bisect(true).retry(Retry::never()).pull().unwrap();
        (0..4).for_each(|i| c.try_push(i).unwrap());
        let mut seen = Vec::new();
        c.close();
        while let Some(batch) = batches.next().await {
            seen.push(batch.to_vec());
            if !batch.contains(&3) {
                batch.done();
            }
        }
        assert_eq!(seen, [vec![0, 1, 2, 3], vec![0, 1], vec![2, 3], vec![2], vec![3]]);
        assert_eq!((c.snapshot().delivered, c.snapshot().failed), (3, 1));
    });
}

#[test]
fn s_j05_attempts_are_counted_for_each_batch() {
    paused_for(secs(60), || async {
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&attempts);
        let sink = move |batch: Batch<u64>| {
            if batch.contains(&500) {
                note.lock().unwrap().push(batch.attempt());
                return std::future::ready(Err(FlushError::retry("always")));
            }
            std::future::ready(Ok(()))
        };
        let c = builder(1_000, 10).retry(each_second().max_attempts(5)).spawn_concurrent(4, sink).unwrap();
        (0..1_000).for_each(|i| c.try_push(i).unwrap());
        let report = c.drain(secs(100)).await;
        assert_eq!(*attempts.lock().unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!((report.delivered(), report.totals.failed), (990, 10));
    });
}

#[test]
fn s_j07_each_item_has_the_outcome_that_was_said_of_it() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let (calls, losses) = (Calls::default(), Losses::default());
            let note = Arc::clone(&calls);
            let sink = move |mut batch: Batch<u64>| {
                note.lock().unwrap().push((Duration::ZERO, batch.to_vec()));
                let outcomes: Vec<_> = batch
                    .iter()
                    .map(|item| match item {
                        1 if batch.attempt() == 1 => ItemOutcome::Retry,
                        3 => ItemOutcome::failed("item 3 is bad"),
                        _ => ItemOutcome::Delivered,
                    })
                    .collect();
                std::future::ready(batch.judge(outcomes).map_err(FlushError::from))
            };
            let builder = builder(10, 5).retry(each_second()).on_loss(losses.hook());
            let c = builder.spawn_concurrent(n, sink).unwrap();
            (0..5).for_each(|i| c.try_push(i).unwrap());
            tokio::time::sleep(secs(5)).await;
            let batches: Vec<_> = calls.lock().unwrap().iter().map(|(_, items)| items.clone()).collect();
            assert_eq!(batches, [vec![0, 1, 2, 3, 4], vec![1]]);
            assert_eq!((c.snapshot().delivered, c.snapshot().failed), (4, 1));
            assert_eq!(losses.lines(), [(Some(3), LossReason::Failed, Some("item 3 is bad".to_owned()))]);
        }
    });
}

#[test]
fn a_result_for_each_item_is_an_outcome_for_each() {
    paused(|| async {
        let losses = Losses::default();
        let sink = |mut batch: Batch<u64>| {
            let answers: Vec<_> =
                batch.iter().map(|item| if *item == 1 { Err("one is bad") } else { Ok(()) }).collect();
            std::future::ready(batch.judge(answers).map_err(FlushError::from))
        };
        let c = builder(10, 3).retry(each_second()).on_loss(losses.hook()).spawn(sink).unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        let report = c.flush().await;
        assert_eq!((report.delivered, report.failed), (2, 1));
        assert_eq!(report.to_string(), "delivered 2, failed 1, evicted 0, expired 0, purged 0, abandoned 0");
        assert_eq!(losses.lines(), [(Some(1), LossReason::Failed, Some("one is bad".to_owned()))]);
    });
}

#[test]
fn outcomes_that_are_not_as_many_as_the_items_judge_nothing() {
    paused(|| async {
        let said = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&said);
        let sink = move |mut batch: Batch<u64>| {
            let outcomes = match batch.attempt() {
                1 => batch.judge(vec![ItemOutcome::failed("no"); 2]),
                2 => batch.judge(std::iter::repeat(ItemOutcome::failed("no"))),
                _ => batch.judge(vec![ItemOutcome::Delivered; 3]),
            };
            note.lock().unwrap().push(outcomes);
            std::future::ready(outcomes.map_err(FlushError::from))
        };
        let c = builder(10, 3).retry(each_second()).spawn(sink).unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(secs(5)).await;
        let said: Vec<_> =
            said.lock().unwrap().iter().map(|said| said.map_err(|e: WrongOutcomes| e.to_string())).collect();
        let wrong = |text: &str| Err(text.to_owned());
        assert_eq!(
            said,
            [wrong("2 outcomes for a batch of 3 items"), wrong("4 or more outcomes for a batch of 3 items"), Ok(())]
        );
        assert_eq!((c.snapshot().delivered, c.snapshot().failed, c.snapshot().flushes.retry), (3, 0, 2));
    });
}

#[test]
fn s_j09_a_batch_that_fails_leaves_the_others_alone() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let calls = Calls::default();
            let sink =
                noting(&calls, |items, _| if items.contains(&15) { Err(FlushError::permanent("no")) } else { Ok(()) });
            let c = builder(30, 10).spawn_concurrent(n, sink).unwrap();
            (0..30).for_each(|i| c.try_push(i).unwrap());
            idle().await;
            assert_eq!((calls.lock().unwrap().len(), c.snapshot().delivered, c.snapshot().failed), (3, 20, 10));
        }
    });
}

#[test]
fn s_j11_an_answer_after_the_timeout_gives_no_room_twice() {
    paused(|| async {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let sink = move |batch: Batch<u64>| {
            let hangs = batch.attempt() == 1;
            if hangs {
                keep.lock().unwrap().push(batch);
            }
            async move {
                if hangs {
                    pending::<()>().await;
                }
                Ok(())
            }
        };
        let c = builder(10, 5).flush_timeout(secs(1)).retry(each_second()).spawn_concurrent(2, sink).unwrap();
        (0..10).for_each(|i| c.try_push(i).unwrap());
        tokio::time::sleep(ms(1_500)).await;
        assert_eq!((c.snapshot().flushes.timed_out, c.depth()), (2, 10), "the sink still has them");
        // The late answers: acknowledged, after the call was given up.
        std::mem::take(&mut *kept.lock().unwrap()).into_iter().for_each(Batch::done);
        tokio::time::sleep(secs(5)).await;
        let s = c.snapshot();
        s.audit().unwrap();
        assert_eq!((s.delivered, s.depth), (10, 0));
        let accepted = (0..).take_while(|i| c.try_push(*i).is_ok()).count();
        assert_eq!(accepted, 10, "room for as many as the capacity, and no more");
    });
}

/// The pace that adapts cuts a batch that timed out: what was sent keeps its name, its positions and its number of attempts.
#[test]
fn a_hung_batch_is_cut_off_and_sent_again_in_parts_that_keep_their_positions() {
    paused(|| async {
        for n in ONE_AND_FOUR {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let note = Arc::clone(&seen);
            let sink = move |batch: Batch<u64>| {
                let seqs: Vec<_> = (0..batch.len()).map(|i| batch.seq(i)).collect();
                note.lock().unwrap().push((batch.id(), batch.attempt(), seqs.clone(), batch.to_vec()));
                async move {
                    if seqs.len() > 25 {
                        pending::<()>().await;
                    }
                    Ok(())
                }
            };
            let c = BackpressureController::builder(1_000)
                .max_batch(100)
                .flush_timeout(secs(2))
                .retry(each_second())
                .spawn_concurrent(n, sink)
                .unwrap();
            (0..100).for_each(|i| c.try_push(i).unwrap());
            let report = c.drain(secs(60)).await;
            let seen = seen.lock().unwrap();
            assert_eq!((report.delivered(), report.leftovers.len()), (100, 0), "{seen:?}");
            assert!(report.totals.flushes.timed_out >= 1, "{seen:?}");
            let mut names = BTreeMap::new();
            for (id, _, seqs, items) in seen.iter() {
                assert_eq!((seqs, id.first()), (items, items[0]), "each item keeps its position");
                assert_eq!(names.entry(*id).or_insert_with(|| items.clone()), items, "a name is for the same items");
            }
            assert!(seen.iter().skip(1).any(|(id, attempt, ..)| id.part() > 0 && *attempt > 1), "{seen:?}");
        }
    });
}

#[test]
fn dead_letters_go_to_a_queue_of_their_own_and_what_it_refuses_to_the_hook() {
    paused(|| async {
        let (gate, letters) = (Gate::closed(), Arc::new(Mutex::new(Vec::new())));
        let (pass, note) = (gate.clone(), Arc::clone(&letters));
        let dead = BackpressureController::builder(4)
            .fixed(1, HOUR)
            .spawn(move |batch: Batch<DeadLetter<u64>>| {
                let (gate, note) = (pass.clone(), Arc::clone(&note));
                async move {
                    gate.pass().await;
                    let said = |letter: &DeadLetter<u64>| {
                        let error = letter.error.as_ref().map(ToString::to_string);
                        (letter.item, error, letter.queue.to_string())
                    };
                    note.lock().unwrap().extend(batch.iter().map(said));
                    Ok(())
                }
            })
            .unwrap();
        let losses = Losses::default();
        let sink = |batch: Batch<u64>| async move {
            if batch[0] < 6 { Err(FlushError::permanent("bad")) } else { pending().await }
        };
        let builder = builder(10, 1).name("numbers").dead_letters(&dead).on_loss(losses.hook());
        let c = builder.spawn(sink).unwrap();
        (0..8).for_each(|i| c.try_push(i).unwrap());
        idle().await;
        assert_eq!(c.snapshot().failed, 6);
        let refused: Vec<_> = [4, 5].map(|i| (Some(i), LossReason::Failed, Some("bad".to_owned()))).into();
        assert_eq!(losses.lines(), refused, "it is full");
        assert_eq!((c.snapshot().failed, dead.snapshot().accepted, dead.snapshot().refused.full), (6, 4, 2));
        gate.open();
        let report = c.drain(ms(10)).await;
        assert_eq!((report.leftovers, report.totals.failed), (vec![6, 7], 6));
        assert_eq!(dead.drain(secs(1)).await.delivered(), 4);
        let expected: Vec<_> = (0..4).map(|i| (i, Some("bad".to_owned()), "numbers".to_owned())).collect();
        assert_eq!(*letters.lock().unwrap(), expected);
    });
}

#[test]
fn a_dead_letter_queue_that_fails_tells_its_own_hook() {
    paused(|| async {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lost);
        let dead = BackpressureController::<DeadLetter<u64>>::builder(10)
            .fixed(10, ms(5))
            .on_loss(move |loss| {
                let error = loss.error.map(|error| error.to_string());
                told.lock().unwrap().push((loss.item.map(|letter| letter.item), loss.reason, error));
            })
            .spawn(|_| async { Err(FlushError::permanent("the dead letters' store is gone")) })
            .unwrap();
        let c = builder(10, 1).dead_letters(&dead).spawn(|_| async { Err(FlushError::permanent("bad")) }).unwrap();
        c.try_push(1).unwrap();
        idle().await;
        assert!(!dead.flush().await.all_delivered());
        let why = Some("the dead letters' store is gone".to_owned());
        assert_eq!(*lost.lock().unwrap(), [(Some(1), LossReason::Failed, why)]);
        assert_eq!((c.snapshot().failed, dead.snapshot().failed), (1, 1));
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn evicted_and_abandoned_items_are_no_dead_letters() {
    paused(|| async {
        let dead = BackpressureController::<DeadLetter<u64>>::builder(10).spawn(|_| async { Ok(()) }).unwrap();
        let losses = Losses::default();
        let builder = builder(2, 1).strategy(Strategy::DropOldest).dead_letters(&dead).on_loss(losses.hook());
        let (c, flusher) = builder.build(|_| std::future::ready(Ok(()))).unwrap();
        (0..3).for_each(|i| c.try_push(i).unwrap());
        drop(flusher);
        let reasons: Vec<_> = losses.lines().into_iter().map(|(item, reason, _)| (item, reason)).collect();
        let abandoned = |i| (Some(i), LossReason::Abandoned);
        assert_eq!(reasons, [(Some(0), LossReason::Evicted), abandoned(1), abandoned(2)]);
        assert_eq!(dead.snapshot().offered, 0);
    });
}
