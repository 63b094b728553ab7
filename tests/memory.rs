//! Scenarios I: memory that is not given back, and items that are kept alive or never handed on.

#![allow(clippy::disallowed_methods, reason = "tests read the clock that they have paused")]

#[path = "support/heap.rs"]
mod heap;
mod support;

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use backpressure::{
    BackpressureController, Batch, BatchSink, FlushError, LossReason, PushError, RefuseReason, Strategy, WeakController,
};
use tokio::time::sleep;

use self::support::{Drops, GUARD, HOUR, Sink, Token, Wakes, ms, paused_for, secs, settled};

/// 256 bytes, and 16 more on the heap.
struct Wide {
    _content: Box<[u8; 16]>,
    _rest: [u8; 248],
}

#[test]
fn s_i01_a_burst_leaves_nothing_behind() {
    const CAPACITY: usize = 1_000_000;
    const KIB: isize = 1024;
    assert_eq!(size_of::<Wide>(), 256);
    paused_for(secs(60), || async {
        let before = heap::held();
        let c = BackpressureController::<Wide>::builder(CAPACITY)
            .spawn(|batch: Batch<Wide>| {
                assert!(batch.len() <= 5000);
                std::future::ready(Ok(()))
            })
            .unwrap();
        // As the docs of `builder` have it: the size of an item and 8 bytes, each.
        let fixed = heap::held() - before;
        assert!(fixed <= (CAPACITY * (256 + 8)) as isize + 64 * KIB, "{fixed} bytes");
        for _ in 0..CAPACITY {
            let item = Wide { _content: Box::new([0; 16]), _rest: [0; 248] };
            assert!(c.try_push(item).is_ok());
        }
        assert_eq!((c.len(), c.snapshot().accepted), (CAPACITY, CAPACITY as u64));
        let full = heap::held() - before;
        assert!(full >= fixed + (CAPACITY * 16) as isize, "the contents are in it: {full}");
        assert!(c.flush().await.all_delivered());
        assert_eq!(c.snapshot().delivered, CAPACITY as u64);
        sleep(secs(1)).await;
        settled().await;
        let idle = heap::held() - before;
        assert!(idle <= fixed + 64 * KIB, "{} KiB more than before the burst", (idle - fixed) / KIB);
        // And it works on.
        assert!(c.try_push(Wide { _content: Box::new([0; 16]), _rest: [0; 248] }).is_ok());
        assert_eq!(c.drain(secs(25)).await.delivered(), CAPACITY as u64 + 1);
        drop(c);
        settled().await;
        let after = heap::held() - before;
        assert!(after <= 64 * KIB, "{after} bytes are left when all is gone");
    });
}

/// Takes no memory, and has a destructor.
struct Nothing;

impl Drop for Nothing {
    fn drop(&mut self) {}
}

/// Hardly more is held a second after a large batch that a sink has treated so than after a batch of one.
fn assert_nothing_stays(treat: impl Fn(&mut Batch<Nothing>) + Send + 'static) {
    const BATCH: usize = 50_000;
    paused_for(secs(60), move || async move {
        let sink = move |mut batch: Batch<Nothing>| {
            treat(&mut batch);
            std::future::ready(Ok(()))
        };
        let c = BackpressureController::builder(BATCH).fixed(BATCH, ms(1)).spawn(sink).unwrap();
        c.push(Nothing).await.unwrap();
        assert!(c.flush().await.all_delivered());
        let before = heap::held();
        (0..BATCH).for_each(|_| assert!(c.try_push(Nothing).is_ok()));
        assert!(c.flush().await.all_delivered());
        sleep(secs(1)).await;
        settled().await;
        let kept = heap::held() - before;
        assert!(kept <= 64 * 1024, "{kept} bytes");
    });
}

#[test]
fn what_was_said_of_each_item_leaves_nothing_behind() {
    assert_nothing_stays(|batch| (0..batch.len()).for_each(|i| batch.deliver(i)));
}

#[test]
fn the_positions_of_a_batch_sent_again_in_part_leave_nothing_behind() {
    assert_nothing_stays(|batch| {
        if batch.len() > 1 && batch.attempt() == 1 {
            (0..batch.len()).step_by(2).for_each(|i| batch.retry(i));
        }
    });
}

/// A call takes 10 ms.
#[derive(Clone)]
struct Slow;

impl BatchSink<[u64; 25]> for Slow {
    async fn flush(&mut self, batch: Batch<[u64; 25]>) -> Result<(), FlushError> {
        sleep(ms(10)).await;
        drop(batch);
        Ok(())
    }
}

#[test]
fn a_trickle_keeps_the_memory_of_one_batch_whatever_the_slots() {
    for slots in [1, 16] {
        paused_for(secs(60), move || async move {
            let builder = BackpressureController::builder(100_000).fixed(5_000, ms(1));
            let c = builder.spawn_concurrent(slots, Slow).unwrap();
            c.push([0; 25]).await.unwrap();
            assert!(c.flush().await.all_delivered());
            let before = heap::held();
            (0..100_000).for_each(|_| c.try_push([0; 25]).unwrap());
            assert!(c.flush().await.all_delivered());
            for _ in 0..100 {
                c.push([0; 25]).await.unwrap();
                sleep(ms(400)).await;
            }
            let kept = (heap::held() - before) / 1024;
            assert!(kept < 2048, "{kept} KiB with {slots} slots");
        });
    }
}

#[test]
fn s_i03_a_parked_push_polled_a_million_times() {
    paused_for(secs(60), || async {
        let sink = Sink::gated();
        let c = BackpressureController::<u64>::builder(1).fixed(1, HOUR).spawn(sink.clone()).unwrap();
        c.push(0).await.unwrap();
        settled().await;
        let (one, two) = (Wakes::new(), Wakes::new());
        let mut push = Box::pin(c.push(1));
        assert!(one.poll(&mut push).is_pending());
        let held = heap::held();
        for _ in 0..1_000_000 {
            assert!(one.poll(&mut push).is_pending());
        }
        let grown = heap::held() - held;
        assert!(grown < 4096, "{grown} bytes with the same waker");
        for _ in 0..500_000 {
            assert!(two.poll(&mut push).is_pending() && one.poll(&mut push).is_pending());
        }
        let grown = heap::held() - held;
        assert!(grown < 4096, "{grown} bytes with alternating wakers");
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (2, 1), "it keeps the last waker only");
        assert_eq!((c.snapshot().waiting, c.snapshot().offered), (1, 2));
        sink.open_one();
        settled().await;
        assert_eq!((one.count(), two.count()), (1, 0), "one wake, of the last waker");
        assert!(matches!(one.poll(&mut push), Poll::Ready(Ok(()))));
        assert_eq!((Arc::strong_count(&one), c.snapshot().waiting_producers), (1, 0));
    });
}

/// The same for the other futures that wait: `flush`, `drain` and `reserve`.
#[test]
fn s_i03_other_waits_polled_a_million_times() {
    paused_for(secs(60), || async {
        let sink = Sink::gated();
        let c = BackpressureController::<u64>::builder(1).fixed(1, HOUR).spawn(sink.clone()).unwrap();
        c.push(0).await.unwrap();
        settled().await;
        let (one, two) = (Wakes::new(), Wakes::new());
        let (mut flush, mut reserve) = (Box::pin(c.flush()), Box::pin(c.reserve()));
        assert!(one.poll(&mut flush).is_pending() && one.poll(&mut reserve).is_pending());
        let held = heap::held();
        for _ in 0..250_000 {
            for wakes in [&two, &one] {
                assert!(wakes.poll(&mut flush).is_pending() && wakes.poll(&mut reserve).is_pending());
            }
        }
        let grown = heap::held() - held;
        assert!(grown < 4096, "{grown} bytes");
        sink.open_one();
        settled().await;
        assert_eq!((one.count(), two.count()), (2, 0));
        assert!(one.poll(&mut flush).is_ready());
        let Poll::Ready(Ok(permit)) = one.poll(&mut reserve) else { panic!("it was granted") };
        let mut drain = Box::pin(c.drain(secs(25)));
        assert!(one.poll(&mut drain).is_pending());
        let held = heap::held();
        for _ in 0..250_000 {
            assert!(two.poll(&mut drain).is_pending() && one.poll(&mut drain).is_pending());
        }
        let grown = heap::held() - held;
        assert!(grown < 4096, "{grown} bytes");
        drop(permit);
        settled().await;
        assert_eq!(one.count(), 3);
        assert!(one.poll(&mut drain).is_ready());
    });
}

#[test]
fn s_i05_evicted_items_are_handed_on() {
    paused_for(GUARD, || async {
        let drops = Drops::default();
        let lost = Arc::new(Mutex::new(Vec::new()));
        let weak: Arc<OnceLock<WeakController<Token>>> = Arc::default();
        let (log, own, more) = (Arc::clone(&lost), Arc::clone(&weak), drops.clone());
        let sink = Sink::ok();
        let (c, flusher) = BackpressureController::<Token>::builder(3)
            .strategy(Strategy::DropOldest)
            .on_loss(move |loss| {
                let item = loss.item.expect("the element itself");
                assert!(loss.error.is_none());
                // Outside all locks, and after the counter has moved: the controller can be asked, and pushed into.
                let c = own.get().unwrap().upgrade().unwrap();
                let snapshot = c.snapshot();
                snapshot.audit().unwrap();
                assert_eq!((snapshot.evicted, snapshot.buffered), (item.id(), 3));
                let refused = c.try_push(more.token(100 + item.id())).unwrap_err();
                assert_eq!(refused.reason(), RefuseReason::Full);
                log.lock().unwrap().push((item, loss.reason));
            })
            .build(sink.clone())
            .unwrap();
        weak.set(c.downgrade()).unwrap();
        for id in 1..=5 {
            c.push(drops.token(id)).await.unwrap();
            let told: Vec<u64> = lost.lock().unwrap().iter().map(|(item, _)| item.id()).collect();
            assert_eq!(
                told,
                (1..=id.saturating_sub(3)).collect::<Vec<_>>(),
                "once each, by the push that displaced it"
            );
        }
        assert!(lost.lock().unwrap().iter().all(|(_, reason)| *reason == LossReason::Evicted));
        assert_eq!(drops.alive(), 5, "the two that were lost are the hook's");
        tokio::spawn(flusher);
        let report = c.drain(secs(25)).await;
        assert_eq!(sink.delivered(), [3, 4, 5]);
        assert_eq!((report.delivered(), report.evicted(), report.totals.panics), (3, 2, 0));
        assert_eq!((report.totals.accepted, report.totals.refused.full), (5, 2));
        report.totals.audit().unwrap();
        lost.lock().unwrap().clear();
        // 1 to 5, and the two that the hook pushed and got back.
        drops.assert_each_once(7);
    });
}

/// Every other way in which an accepted item is not delivered hands it on, too, or gives it back.
#[test]
fn s_i05_every_loss_hands_the_item_on() {
    paused_for(GUARD, || async {
        let drops = Drops::default();
        let lost = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lost);
        let sink = Sink::refuse();
        let c = BackpressureController::<Token>::builder(4)
            .fixed(2, HOUR)
            .on_loss(move |loss| log.lock().unwrap().push((loss.item.unwrap().id(), loss.reason)))
            .spawn(sink)
            .unwrap();
        for id in 1..=2 {
            c.push(drops.token(id)).await.unwrap();
        }
        settled().await;
        assert_eq!(*lost.lock().unwrap(), [(1, LossReason::Failed), (2, LossReason::Failed)]);
        c.pause();
        for id in 3..=4 {
            c.push(drops.token(id)).await.unwrap();
        }
        assert_eq!(c.purge(), [3, 4]);
        c.push(drops.token(5)).await.unwrap();
        let permit = c.reserve().await.unwrap();
        let report = c.drain(ms(0)).await;
        assert_eq!((report.leftovers.len(), report.permits_out), (1, 1));
        assert_eq!(report.leftovers, [5]);
        permit.send(drops.token(6));
        assert_eq!(lost.lock().unwrap()[2..], [(6, LossReason::Abandoned)]);
        let Err(PushError::Closed(back)) = c.try_push(drops.token(7)) else { panic!("it is shut") };
        assert_eq!(back.id(), 7);
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert_eq!((snapshot.failed, snapshot.purged, snapshot.abandoned, snapshot.depth), (2, 2, 2, 0));
        drop((report, back));
        drops.assert_each_once(7);
    });
}
