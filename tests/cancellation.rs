//! Scenarios C: futures that are dropped part-way, and the item, the place or the wake that they might take along.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

#[path = "support/heap.rs"]
mod heap;
mod support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use backpressure::{
    BackpressureController, Batch, FlushError, Permits, PushError, RefuseReason, ReserveError, Strategy,
};
use tokio::time::Instant;

use self::support::{Dice, Drops, GUARD, HOUR, Sink, Token, Wakes, ms, paused_for, real, secs, settled};

/// A controller of one place, which the sink holds at its gate.
async fn full_of_one() -> (BackpressureController<u64>, Sink) {
    let sink = Sink::gated();
    let c = BackpressureController::<u64>::builder(1).fixed(1, HOUR).spawn(sink.clone()).unwrap();
    c.push(0).await.unwrap();
    settled().await;
    assert_eq!((c.snapshot().in_flight, sink.calls().len()), (1, 1));
    (c, sink)
}

#[test]
fn s_c03_a_served_push_that_is_dropped_unpolled_is_accepted() {
    paused_for(GUARD, || async {
        let (c, sink) = full_of_one().await;
        let (wakes1, wakes2) = (Wakes::new(), Wakes::new());
        let (mut first, mut second) = (Box::pin(c.push(1)), Box::pin(c.push(2)));
        assert!(wakes1.poll(&mut first).is_pending() && wakes2.poll(&mut second).is_pending());
        assert_eq!((c.snapshot().waiting, c.snapshot().waiting_producers), (2, 2));
        sink.open_one();
        settled().await;
        assert_eq!((wakes1.count(), wakes2.count()), (1, 0));
        drop(first);
        assert_eq!((c.snapshot().accepted, c.snapshot().cancelled), (2, 0));
        assert!(wakes2.poll(&mut second).is_pending());
        sink.open_one();
        settled().await;
        assert_eq!(wakes2.count(), 1, "the next place is the second one's");
        assert!(matches!(wakes2.poll(&mut second), Poll::Ready(Ok(()))));
        sink.open();
        let report = c.drain(secs(25)).await;
        assert_eq!(sink.delivered(), [0, 1, 2]);
        assert_eq!((report.delivered(), report.totals.waiting, report.totals.waiting_producers), (3, 0, 0));
        report.totals.audit().unwrap();
    });
}

#[test]
fn s_c03_those_that_gave_up_before_take_no_place() {
    paused_for(GUARD, || async {
        let (c, sink) = full_of_one().await;
        let wakes = Wakes::new();
        let mut pushes: Vec<_> = (1..=50).map(|i| Box::pin(c.push(i))).collect();
        assert!(pushes.iter_mut().all(|push| wakes.poll(push).is_pending()));
        assert_eq!(c.snapshot().waiting, 50);
        let mut last = pushes.pop().unwrap();
        drop(pushes);
        assert_eq!((c.snapshot().waiting, c.snapshot().cancelled), (1, 49));
        sink.open_one();
        settled().await;
        assert_eq!(wakes.count(), 1);
        assert!(matches!(wakes.poll(&mut last), Poll::Ready(Ok(()))), "at that one release");
        sink.open();
        let report = c.drain(secs(25)).await;
        assert_eq!(sink.delivered(), [0, 50]);
        assert_eq!((report.totals.offered, report.totals.cancelled, report.totals.waiting_producers), (51, 49, 0));
        report.totals.audit().unwrap();
    });
}

#[test]
fn s_c03_a_granted_reservation_that_is_dropped_unpolled_goes_to_the_next() {
    paused_for(GUARD, || async {
        let (c, sink) = full_of_one().await;
        let (wakes1, wakes2) = (Wakes::new(), Wakes::new());
        let (mut first, mut second) = (Box::pin(c.reserve()), Box::pin(c.reserve()));
        assert!(wakes1.poll(&mut first).is_pending() && wakes2.poll(&mut second).is_pending());
        sink.open_one();
        settled().await;
        assert_eq!((wakes1.count(), wakes2.count(), c.snapshot().reserved), (1, 0, 1));
        drop(first);
        assert_eq!(wakes2.count(), 1, "with no other event");
        let Poll::Ready(Ok(permit)) = wakes2.poll(&mut second) else { panic!("the place is the second one's") };
        assert_eq!((c.snapshot().waiting_producers, c.snapshot().reserved, c.depth()), (0, 1, 1));
        permit.send(1);
        sink.open();
        let report = c.drain(secs(25)).await;
        assert_eq!((sink.delivered(), report.totals.cancelled), (vec![0, 1], 0));
        report.totals.audit().unwrap();
    });
}

/// How three reserved places end while a drain waits for them.
#[derive(Clone, Copy, Debug)]
enum Way {
    Send,
    Drop,
    Release,
    /// Each in another way.
    Mixed,
    /// The rest of a reservation of several, dropped together.
    DropPermits,
    ReleasePermits,
    /// The permits, and with them the last handles, go with the task that owns them.
    AbortOwner,
    /// On another thread.
    OtherThread,
}

#[test]
fn s_c05_drain_ends_with_the_last_permit_however_it_ends() {
    use Way::{AbortOwner, Drop, DropPermits, Mixed, OtherThread, Release, ReleasePermits, Send};
    paused_for(GUARD, || async {
        for way in [Send, Drop, Release, Mixed, DropPermits, ReleasePermits, AbortOwner, OtherThread] {
            let sink = Sink::ok();
            let c = BackpressureController::<u64>::builder(5).fixed(5, HOUR).spawn(sink.clone()).unwrap();
            let permits = c.reserve_many(3).await.unwrap();
            c.push(0).await.unwrap();
            let start = Instant::now();
            let drain = tokio::spawn(async move { c.drain(secs(25)).await });
            tokio::time::sleep(ms(10)).await;
            assert!(!drain.is_finished(), "{way:?}: three places are out");
            assert_eq!(sink.delivered(), [0], "{way:?}: what is buffered need not wait for them");
            let sent = end(way, permits).await;
            let report = drain.await.unwrap();
            assert_eq!(start.elapsed(), ms(10), "{way:?}");
            assert_eq!((report.delivered(), report.permits_out), (1 + sent, 0), "{way:?}");
            assert!(report.is_clean(), "{way:?}");
            report.totals.audit().unwrap();
        }
    });
}

/// Ends the permits; returns how many items were sent.
async fn end(way: Way, mut permits: Permits<u64>) -> u64 {
    match way {
        Way::Send => return permits.zip(1..).map(|(permit, i)| permit.send(i)).count() as u64,
        Way::Drop => permits.for_each(drop),
        Way::Release => permits.for_each(backpressure::Permit::release),
        Way::Mixed => {
            drop(permits.next());
            permits.next().unwrap().send(1);
            permits.next().unwrap().release();
            return 1;
        }
        Way::DropPermits => {
            permits.next().unwrap().send(1);
            drop(permits);
            return 1;
        }
        Way::ReleasePermits => permits.release(),
        Way::AbortOwner => {
            let owner = tokio::spawn(async move {
                let _permits = permits;
                std::future::pending::<()>().await;
            });
            settled().await;
            owner.abort();
        }
        Way::OtherThread => std::thread::spawn(move || drop(permits)).join().unwrap(),
    }
    0
}

#[test]
fn s_c05_a_parked_reservation_holds_no_drain_up() {
    paused_for(GUARD, || async {
        for cancel_first in [false, true] {
            let c = BackpressureController::<u64>::builder(5).fixed(5, HOUR).spawn(Sink::ok()).unwrap();
            let permits = c.reserve_many(3).await.unwrap();
            let wakes = Wakes::new();
            let mut parked = Box::pin(c.reserve_many(3));
            assert!(wakes.poll(&mut parked).is_pending());
            assert_eq!((c.snapshot().reserved, c.snapshot().waiting_producers), (5, 1), "it has gathered two");
            let start = Instant::now();
            let other = c.clone();
            let drain = tokio::spawn(async move { other.drain(secs(25)).await });
            settled().await;
            assert_eq!((wakes.count(), c.snapshot().reserved), (1, 3), "shut out, and its two given back");
            assert!(!drain.is_finished());
            if cancel_first {
                drop(parked);
                drop(permits);
            } else {
                drop(permits);
                assert!(matches!(wakes.poll(&mut parked), Poll::Ready(Err(ReserveError::Closed))));
            }
            let report = drain.await.unwrap();
            assert_eq!(start.elapsed(), ms(0));
            assert_eq!((report.delivered(), report.permits_out, report.totals.reserved), (0, 0, 0));
            report.totals.audit().unwrap();
        }
    });
}

#[test]
fn s_c05_a_parked_reservation_cancelled_gives_its_places_to_the_next() {
    paused_for(GUARD, || async {
        let c = BackpressureController::<u64>::builder(5).fixed(5, HOUR).spawn(Sink::ok()).unwrap();
        let permits = c.reserve_many(3).await.unwrap();
        let (wakes, next) = (Wakes::new(), Wakes::new());
        let (mut parked, mut behind) = (Box::pin(c.reserve_many(3)), Box::pin(c.reserve_many(2)));
        assert!(wakes.poll(&mut parked).is_pending() && next.poll(&mut behind).is_pending());
        drop(parked);
        assert_eq!((wakes.count(), next.count()), (0, 1));
        let Poll::Ready(Ok(two)) = next.poll(&mut behind) else { panic!("two places are free") };
        assert_eq!((two.len(), c.snapshot().reserved, c.snapshot().waiting_producers), (2, 5, 0));
        drop((two, permits));
        let start = Instant::now();
        assert!(c.drain(secs(25)).await.is_clean());
        assert_eq!(start.elapsed(), ms(0));
    });
}

#[test]
fn s_c05_permits_are_the_last_handles() {
    paused_for(GUARD, || async {
        let sink = Sink::ok();
        let (c, flusher) = BackpressureController::<u64>::builder(5).fixed(5, HOUR).build(sink.clone()).unwrap();
        let driver = tokio::spawn(flusher);
        let mut permits = c.reserve_many(3).await.unwrap();
        drop(c);
        permits.next().unwrap().send(1);
        tokio::time::sleep(ms(10)).await;
        assert!(!driver.is_finished(), "a permit keeps the intake open");
        let start = Instant::now();
        drop(permits);
        driver.await.unwrap().unwrap();
        assert_eq!((start.elapsed(), sink.delivered()), (ms(0), vec![1]));
    });
}

#[test]
fn s_c07_ninety_nine_of_a_hundred_give_up() {
    paused_for(secs(60), || async {
        let (c, sink) = full_of_one().await;
        let cycle = |sink: Sink| {
            let c = c.clone();
            async move {
                let wakes = Wakes::new();
                let mut pushes: Vec<_> = (1..=100).map(|i| Box::pin(c.push(i))).collect();
                assert!(pushes.iter_mut().all(|push| wakes.poll(push).is_pending()));
                assert_eq!((c.snapshot().waiting, c.snapshot().waiting_producers), (100, 100));
                let mut last = pushes.pop().unwrap();
                drop(pushes);
                sink.open_one();
                settled().await;
                assert_eq!(wakes.count(), 1);
                assert!(matches!(wakes.poll(&mut last), Poll::Ready(Ok(()))));
                assert_eq!((c.snapshot().waiting, c.snapshot().waiting_producers), (0, 0));
            }
        };
        cycle(sink.clone()).await;
        let (delivered, cancelled) = (c.snapshot().delivered, c.snapshot().cancelled);
        assert_eq!((delivered, cancelled, c.snapshot().accepted), (1, 99, 2));
        // 1 000 times the same: no more memory than for the 100 that wait at once. What the sink remembers is its own.
        for _ in 0..10 {
            cycle(sink.clone()).await;
        }
        let held = heap::held() - sink.footprint();
        for _ in 0..1000 {
            cycle(sink.clone()).await;
        }
        let grown = heap::held() - sink.footprint() - held;
        assert!(grown < 1024, "{grown} bytes");
        assert_eq!(c.snapshot().cancelled, 99 * 1011);
        c.snapshot().audit().unwrap();
    });
}

#[test]
fn s_c09_a_cancelled_push_is_counted_wherever_it_is_cut_off() {
    paused_for(secs(60), || async {
        let (drops, mut dice) = (Drops::default(), Dice(9));
        let sink = Sink::gated();
        let c = BackpressureController::<Token>::builder(1).fixed(1, HOUR).spawn(sink.clone()).unwrap();
        c.push(drops.token(0)).await.unwrap();
        let n = 10_000;
        let (mut cancelled, mut accepted, mut refused) = (0, 1, 0);
        for id in 1..=n {
            let wakes = Wakes::new();
            let mut push = Box::pin(c.push(drops.token(id)));
            match dice.up_to(3) {
                // Never polled: never offered.
                0 => {}
                1 => {
                    assert!(wakes.poll(&mut push).is_pending());
                    cancelled += 1;
                }
                // Cut off between the request and the answer that it was served.
                2 => {
                    assert!(wakes.poll(&mut push).is_pending());
                    sink.open_one();
                    settled().await;
                    accepted += 1;
                }
                _ => {
                    let error = c.try_push(drops.token(n + id)).unwrap_err();
                    assert_eq!((error.reason(), error.into_inner().id()), (RefuseReason::Full, n + id));
                    refused += 1;
                }
            }
            drop(push);
        }
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.accepted, snapshot.cancelled, snapshot.refused.full), (accepted, cancelled, refused));
        assert_eq!((snapshot.offered, snapshot.waiting), (accepted + cancelled + refused, 0));
        sink.open();
        assert_eq!(c.drain(secs(25)).await.delivered(), accepted);
        drop(c);
        drops.assert_each_once(1 + n + refused);
    });
}

#[test]
fn s_c09_cancelled_on_two_threads_while_the_sink_works() {
    real(secs(60), || async {
        let drops = Drops::default();
        let seen = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&seen);
        let c = BackpressureController::<Token>::builder(2)
            .fixed(1, HOUR)
            .strategy(Strategy::Block)
            .spawn(move |batch: Batch<Token>| {
                count.fetch_add(batch.len() as u64, Ordering::SeqCst);
                async move {
                    tokio::task::yield_now().await;
                    drop(batch);
                    Ok::<_, FlushError>(())
                }
            })
            .unwrap();
        let n = 2_500;
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let (c, drops) = (c.clone(), drops.clone());
                tokio::spawn(async move {
                    let mut dice = Dice(producer);
                    let mut offered = 0;
                    for i in 0..n {
                        let mut push = pin!(c.push(drops.token(producer * n + i)));
                        // Polled up to 4 times, whatever happens, and then dropped: most are cut off.
                        let mut left = dice.up_to(4);
                        offered += u64::from(left > 0);
                        poll_fn(|cx| {
                            if left == 0 {
                                return Poll::Ready(());
                            }
                            left -= 1;
                            if push.as_mut().poll(cx).is_ready() {
                                return Poll::Ready(());
                            }
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        })
                        .await;
                    }
                    offered
                })
            })
            .collect();
        let mut offered = 0;
        for producer in producers {
            offered += producer.await.unwrap();
            c.snapshot().audit().unwrap();
        }
        let totals = c.drain(secs(25)).await.totals;
        totals.audit().unwrap();
        assert_eq!(totals.offered, offered);
        assert_eq!((totals.accepted + totals.cancelled, totals.refused.total()), (offered, 0));
        assert_eq!((totals.delivered, seen.load(Ordering::SeqCst)), (totals.accepted, totals.accepted));
        assert!(totals.cancelled > 0 && totals.accepted > 0);
        drop(c);
        drops.assert_each_once(4 * n);
    });
}

/// A push that is shut out while its future is not polled is refused, counted once, and gives its item back or drops it.
#[test]
fn s_c09_shut_out_and_cancelled_counts_once() {
    paused_for(GUARD, || async {
        let (drops, wakes) = (Drops::default(), Wakes::new());
        let c = BackpressureController::<Token>::builder(1).fixed(1, HOUR).spawn(Sink::gated()).unwrap();
        c.push(drops.token(0)).await.unwrap();
        let (mut first, mut second) = (Box::pin(c.push(drops.token(1))), Box::pin(c.push(drops.token(2))));
        assert!(wakes.poll(&mut first).is_pending() && wakes.poll(&mut second).is_pending());
        c.close();
        drop(first);
        let Poll::Ready(Err(PushError::Closed(back))) = wakes.poll(&mut second) else { panic!("it is shut") };
        assert_eq!(back.id(), 2);
        drop((back, second));
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.offered, snapshot.refused.closed, snapshot.cancelled, snapshot.waiting), (3, 2, 0, 0));
        let report = c.drain(ms(1)).await;
        assert_eq!(report.leftovers, [0]);
        drop(report);
        drops.assert_each_once(3);
    });
}
