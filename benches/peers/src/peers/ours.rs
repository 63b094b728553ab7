//! This crate, by its public face: counters, states and strategy are on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backpressure::{
    BackpressureController, Batch, BatchSink, Batches, Builder, Flusher, Loss, LossReason, PushError, Strategy,
};
use futures::FutureExt;
use parking_lot::Mutex;

use crate::harness::OURS;
use crate::payload::Payload;
use crate::peer::{BATCH, Drain, Evicting, LINGER, Offer, Peer, Pipeline, Push, Queue, Settings, TryPush};
use crate::sink::Sink;

/// A controller with the default strategy, which waits and loses nothing.
#[derive(Debug)]
pub(crate) struct Ours<T> {
    queue: BackpressureController<T>,
}

impl<T> Peer for Ours<T> {
    const NAME: &'static str = OURS;
}

/// Without a sink: the batches are pulled, and come full or after their linger.
impl<T: Send + 'static> Queue<T> for Ours<T> {
    type Sender = BackpressureController<T>;
    type Receiver = Batches<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        pulled(capacity, LINGER)
    }
}

/// The same without a linger: a batch is what is there.
#[derive(Debug)]
pub(crate) struct OursEager;

impl Peer for OursEager {
    const NAME: &'static str = "backpressure, no linger";
}

impl<T: Send + 'static> Queue<T> for OursEager {
    type Sender = BackpressureController<T>;
    type Receiver = Batches<T>;

    fn bounded(capacity: usize) -> (Self::Sender, Self::Receiver) {
        pulled(capacity, Duration::ZERO)
    }
}

fn pulled<T: Send + 'static>(capacity: usize, linger: Duration) -> (BackpressureController<T>, Batches<T>) {
    let builder = BackpressureController::builder(capacity).fixed(BATCH.min(capacity), linger);
    builder.pull().expect("valid settings")
}

impl<T: Send + 'static> TryPush<T> for BackpressureController<T> {
    type Refusal = PushError<T>;

    fn try_push(&mut self, item: T) -> Result<(), Self::Refusal> {
        Self::try_push(self, item)
    }

    fn item(refusal: Self::Refusal) -> T {
        refusal.into_inner()
    }
}

impl<T: Send + 'static> Drain<T> for Batches<T> {
    fn drain(&mut self, mut see: impl FnMut(&[T])) -> usize {
        let Some(Some(batch)) = self.next().now_or_never() else { return 0 };
        see(&batch);
        let count = batch.len();
        batch.done();
        count
    }
}

impl<T: Send + 'static> Pipeline<T> for Ours<T> {
    type Sender = BackpressureController<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let builder = BackpressureController::builder(settings.capacity).fixed(settings.batch, settings.linger);
        Self { queue: builder.spawn(into(sink)).expect("a runtime with time") }
    }

    fn sender(&self) -> Self::Sender {
        self.queue.clone()
    }

    async fn finish(self) {
        let report = self.queue.drain(Duration::MAX).await;
        assert!(report.leftovers.is_empty(), "there is no deadline");
    }
}

impl<T: Send + 'static> Push<T> for BackpressureController<T> {
    type Error = PushError<T>;

    fn push(&self, item: T) -> impl Future<Output = Result<(), Self::Error>> + Send {
        Self::push(self, item)
    }

    fn into_blocking(self) -> impl FnMut(T) + Send + 'static {
        move |item| self.blocking_push(item).expect("it is open")
    }
}

impl<T: Send + 'static> Offer<T> for BackpressureController<T> {
    fn offer(&self, item: T) -> bool {
        self.try_push(item).is_err()
    }
}

/// The same in front of a sink, by the strategy that displaces the oldest item and tells a hook.
#[derive(Debug)]
pub(crate) struct OursEvicting<T> {
    inner: Ours<T>,
    lost: Arc<AtomicU64>,
}

impl<T> Peer for OursEvicting<T> {
    const NAME: &'static str = "backpressure, DropOldest";
}

impl<T: Send + 'static> Pipeline<T> for OursEvicting<T> {
    type Sender = BackpressureController<T>;

    fn start(settings: Settings, sink: Sink<T>) -> Self {
        let lost = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&lost);
        let hook = move |loss: Loss<T>| {
            assert_eq!(loss.reason, LossReason::Evicted);
            told.fetch_add(1, Ordering::Relaxed);
        };
        let builder = BackpressureController::builder(settings.capacity).fixed(settings.batch, settings.linger);
        let builder = builder.strategy(Strategy::DropOldest).on_loss(hook);
        Self { inner: Ours { queue: builder.spawn(into(sink)).expect("a runtime with time") }, lost }
    }

    fn sender(&self) -> Self::Sender {
        self.inner.sender()
    }

    async fn finish(self) {
        self.inner.finish().await;
    }

    fn told(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn into<T: Send + 'static>(sink: Sink<T>) -> impl BatchSink<T> + 'static {
    move |batch: Batch<T>| {
        let work = sink.flush(&batch);
        async move {
            work.await;
            drop(batch);
            Ok(())
        }
    }
}

/// A full buffer that displaces its oldest item.
#[derive(Debug)]
pub(crate) struct Evictor<T> {
    queue: BackpressureController<T>,
    _flusher: Arc<Mutex<Flusher>>,
}

impl<T> Clone for Evictor<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), _flusher: Arc::clone(&self._flusher) }
    }
}

impl<T> Peer for Evictor<T> {
    const NAME: &'static str = OURS;
}

impl<T: Send + 'static> Evicting<T> for Evictor<T> {
    fn bounded(capacity: usize) -> Self {
        let (queue, flusher) = undriven(capacity, Strategy::DropOldest);
        Self { queue, _flusher: Arc::new(Mutex::new(flusher)) }
    }

    fn push(&self, mut item: T) {
        // It is refused if whoever writes the oldest item has lost its processor for ten milliseconds.
        while let Err(refused) = self.queue.try_push(item) {
            let PushError::Full(back) = refused else { panic!("there is always something to displace") };
            item = back;
        }
    }
}

/// A controller whose flusher is not driven, so that only the producers' side is at work.
pub(crate) fn undriven<T: Send + 'static>(
    capacity: usize,
    strategy: Strategy<T>,
) -> (BackpressureController<T>, Flusher) {
    build(BackpressureController::builder(capacity).strategy(strategy), capacity)
}

/// The same with a bound by weight beside that by number, with room for all.
pub(crate) fn undriven_weighed<T: Payload>(capacity: usize) -> (BackpressureController<T>, Flusher) {
    const HEAVIEST: u64 = 15;
    let weighed = BackpressureController::builder(capacity).weigher(|item: &T| item.part() & HEAVIEST);
    build(weighed.capacity_weight(HEAVIEST * capacity as u64), capacity)
}

fn build<T: Send + 'static>(builder: Builder<T>, capacity: usize) -> (BackpressureController<T>, Flusher) {
    let builder = builder.fixed(BATCH.min(capacity), LINGER);
    builder.build(|_: Batch<T>| async { Ok(()) }).expect("valid settings")
}
