//! The capacity is exact (I3): no hidden places, no rounding, what the sink holds included.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use backpressure::{BackpressureController, Batch, Batches, FlushError, PushError, WeakController};

use self::support::{Drops, Gate, Log, SEC, Token, gated, idle, ids, ms, ok, paused, workers};

#[test]
fn s_h01_a_clone_brings_no_place_with_it() {
    paused(|| async {
        for keep in [false, true] {
            let (gate, log) = (Gate::closed(), Log::default());
            let c = BackpressureController::builder(1).fixed(1, SEC).spawn(gated(&gate, &log)).unwrap();
            let mut clones = Vec::new();
            let mut accepted = 0;
            for i in 0..100 {
                let clone = c.clone();
                match clone.try_push(i) {
                    Ok(()) => accepted += 1,
                    Err(error) => assert_eq!(error, PushError::Full(i)),
                }
                if keep {
                    clones.push(clone);
                }
                idle().await;
            }
            assert_eq!(accepted, 1, "kept: {keep}");
            let snapshot = c.snapshot();
            assert_eq!((snapshot.accepted, snapshot.refused.full, snapshot.depth), (1, 99, 1));
            // Waiting through clones holds no place either.
            let waits: Vec<_> = (0..100)
                .map(|i| {
                    let clone = c.clone();
                    tokio::spawn(async move { clone.push(i).await })
                })
                .collect();
            idle().await;
            let snapshot = c.snapshot();
            assert_eq!((snapshot.accepted, snapshot.waiting, snapshot.depth), (1, 100, 1));
            snapshot.audit().unwrap();
            gate.open();
            for wait in waits {
                wait.await.unwrap().unwrap();
            }
            let _ = c.flush().await;
            assert_eq!(log.items(), std::iter::once(0).chain(0..100).collect::<Vec<_>>());
            assert_eq!(c.snapshot().peak_depth, 1);
        }
    });
}

#[test]
fn s_h05_no_batch_grows_while_a_call_is_in_progress() {
    const B: usize = 10;
    const C: usize = 10_000;
    paused(|| async {
        let (gate, tokens) = (Gate::closed(), Drops::default());
        let (calls, largest, widest) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let c = BackpressureController::builder(C)
            .fixed(B, SEC)
            .spawn({
                let (gate, calls) = (gate.clone(), Arc::clone(&calls));
                let (largest, widest) = (Arc::clone(&largest), Arc::clone(&widest));
                move |mut batch: Batch<Token>| {
                    let gate = gate.clone();
                    let items = batch.take();
                    calls.fetch_add(1, Ordering::Relaxed);
                    largest.fetch_max(items.len(), Ordering::Relaxed);
                    widest.fetch_max(items.capacity(), Ordering::Relaxed);
                    async move {
                        gate.pass().await;
                        drop(items);
                        Ok(())
                    }
                }
            })
            .unwrap();
        for _ in 0..C {
            c.push(tokens.next()).await.unwrap();
        }
        assert!(c.try_push(tokens.next()).is_err());
        idle().await;
        assert_eq!((tokens.alive(), c.len(), calls.load(Ordering::Relaxed)), (C as u64, C, 1));
        gate.open();
        assert_eq!(c.flush().await.delivered, C as u64);
        assert_eq!((calls.load(Ordering::Relaxed), largest.load(Ordering::Relaxed)), (C / B, B));
        let widest = widest.load(Ordering::Relaxed);
        assert!(widest <= 2 * B, "a Vec of capacity {widest}");
        tokens.assert_each_once(C as u64 + 1);
    });
}

#[test]
fn s_h07_the_capacity_is_what_was_asked_for_through_wraps_and_half_full_drops() {
    paused(|| async {
        for capacity in [1, 3, 5, 7, 1000] {
            let (log, tokens) = (Log::default(), Drops::default());
            let (c, flusher) = BackpressureController::builder(capacity)
                .fixed(1.max(capacity / 2), ms(1))
                .build({
                    let log = log.clone();
                    move |batch: Batch<Token>| {
                        log.add(&ids(&batch));
                        std::future::ready(Ok(()))
                    }
                })
                .unwrap();
            assert_eq!(c.capacity(), capacity);
            let task = tokio::spawn(flusher);
            let mut made = 0;
            for lap in 0..5 {
                c.pause();
                idle().await;
                for _ in 0..capacity {
                    made += 1;
                    c.try_push(tokens.next()).unwrap();
                }
                made += 1;
                let refused = c.try_push(tokens.next());
                assert!(matches!(&refused, Err(PushError::Full(token)) if token.id() == made - 1), "lap {lap}");
                assert_eq!((c.len(), c.snapshot().depth), (capacity, capacity as u64));
                c.resume();
                let report = c.flush().await;
                assert_eq!(report.delivered, capacity as u64);
            }
            c.pause();
            for _ in 0..capacity.div_ceil(2) {
                made += 1;
                c.try_push(tokens.next()).unwrap();
            }
            task.abort();
            idle().await;
            assert_eq!(c.snapshot().abandoned, capacity.div_ceil(2) as u64);
            c.snapshot().audit().unwrap();
            drop(c);
            tokens.assert_each_once(made);
            assert_eq!(log.items().len(), 5 * capacity);
        }
    });
}

#[test]
fn the_first_place_beyond_the_capacity_is_refused_for_every_small_capacity() {
    for capacity in 1..=70 {
        let log = Log::default();
        let (c, flusher) = BackpressureController::builder(capacity).build(ok(&log)).unwrap();
        let accepted = (0..2 * capacity).filter(|i| c.try_push(*i).is_ok()).count();
        assert_eq!((accepted, c.capacity(), c.len()), (capacity, capacity, capacity));
        drop(flusher);
        assert_eq!(c.snapshot().abandoned, capacity as u64);
    }
}

/// Drops its batch, then takes it.
async fn whole<T>(batch: Batch<T>) -> Result<(), FlushError> {
    drop(batch);
    Ok(())
}

/// Notes in its destructor how many items count as in flight then.
struct Witness(Arc<OnceLock<WeakController<Witness>>>, Arc<Mutex<Vec<u64>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        let Some(c) = self.0.get().and_then(WeakController::upgrade) else { return };
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        self.1.lock().unwrap().push(snapshot.in_flight);
    }
}

#[derive(Clone, Default)]
struct Witnesses {
    controller: Arc<OnceLock<WeakController<Witness>>>,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Witnesses {
    /// What each of three items sees that are delivered in one batch.
    fn fill(&self, c: &BackpressureController<Witness>) {
        assert!(self.controller.set(c.downgrade()).is_ok());
        for _ in 0..3 {
            assert!(c.try_push(Witness(Arc::clone(&self.controller), Arc::clone(&self.seen))).is_ok());
        }
    }

    fn assert_all_in_flight(&self) {
        assert_eq!(*self.seen.lock().unwrap(), [3, 3, 3]);
    }
}

/// Else more would be alive than the capacity, for as long as the destructors of a batch take.
#[test]
fn delivered_items_are_gone_before_their_room_is_free() {
    let singly = |mut batch: Batch<Witness>| async move {
        (0..batch.len()).for_each(|i| batch.deliver(i));
        Ok(())
    };
    for is_whole in [true, false] {
        paused(move || async move {
            let witnesses = Witnesses::default();
            let builder = BackpressureController::builder(3).fixed(3, SEC);
            let c = if is_whole { builder.spawn(whole) } else { builder.spawn(singly) }.unwrap();
            witnesses.fill(&c);
            let report = c.drain(SEC).await;
            assert_eq!(report.delivered(), 3);
            witnesses.assert_all_in_flight();
        });
    }
}

#[test]
fn a_pulled_batch_is_gone_before_its_room_is_free() {
    paused(|| async {
        let witnesses = Witnesses::default();
        let (c, mut batches) = BackpressureController::builder(3).fixed(3, SEC).pull().unwrap();
        witnesses.fill(&c);
        batches.next().await.expect("a full batch").done();
        witnesses.assert_all_in_flight();
        assert_eq!((c.snapshot().delivered, c.depth()), (3, 0));
    });
}

/// Ends the stream that its batch came from.
struct Ender(Arc<Mutex<Option<Batches<Ender>>>>);

impl Drop for Ender {
    fn drop(&mut self) {
        let batches = self.0.lock().unwrap().take();
        drop(batches);
    }
}

#[test]
fn an_end_that_comes_while_delivered_items_are_dropped_finds_them_delivered() {
    paused(|| async {
        let (c, mut batches) = BackpressureController::builder(3).fixed(2, SEC).pull().unwrap();
        let stream = Arc::new(Mutex::new(None));
        (0..2).for_each(|_| assert!(c.try_push(Ender(Arc::clone(&stream))).is_ok()));
        let batch = batches.next().await.expect("a full batch");
        *stream.lock().unwrap() = Some(batches);
        batch.done();
        let snapshot = c.snapshot();
        snapshot.audit().unwrap();
        assert!(c.is_closed() && stream.lock().unwrap().is_none());
        assert_eq!((snapshot.delivered, snapshot.abandoned, snapshot.depth), (2, 0, 0));
    });
}

/// Says when its destructor begins, which goes on until it is told.
struct Slow(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        self.1.recv().unwrap();
    }
}

#[test]
fn a_drain_whose_time_is_over_while_a_delivered_item_is_dropped_finds_it_delivered() {
    workers(2).block_on(async {
        let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let c = BackpressureController::builder(1).fixed(1, SEC).spawn(whole).unwrap();
        assert!(c.try_push(Slow(begun, ends)).is_ok());
        tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
        let report = c.drain(ms(20)).await;
        end.send(()).unwrap();
        assert_eq!((report.delivered(), report.abandoned(), report.leftovers.len()), (1, 0, 0));
        c.snapshot().audit().unwrap();
    });
}
