//! At the end, and whatever panics, each item has one owner, and is told once (I2, I9, I10).

#![allow(clippy::disallowed_methods, reason = "a thread has to be late in real time")]

use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use backpressure::{
    Admission, BackpressureController, Batch, DrainReport, FlushError, Pressure, Retry, State, Strategy,
};

async fn never<T: Send>(batch: Batch<T>) -> Result<(), FlushError> {
    std::future::pending::<()>().await;
    drop(batch);
    Ok(())
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// So large that its write takes longer than anybody waits.
struct Slow([u8; Slow::SIZE]);

impl Slow {
    const SIZE: usize = 4 << 20;

    /// A thread whose stack can hold a few: an unoptimised build copies a value at each step.
    fn builder() -> thread::Builder {
        thread::Builder::new().stack_size(64 * Self::SIZE)
    }

    /// Runs `code` on such a thread.
    fn on_large_stack<R: Send>(code: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| Self::builder().spawn_scoped(scope, code).unwrap().join().unwrap())
    }
}

#[test]
fn a_push_that_was_claimed_when_the_flusher_died_is_told() {
    for _ in 0..8 {
        Slow::on_large_stack(claimed_when_the_flusher_dies);
    }
}

fn claimed_when_the_flusher_dies() {
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    let (c, flusher) = BackpressureController::<Slow>::builder(2)
        .on_loss(move |loss| {
            let is_whole = loss.item.is_some_and(|item| item.0[9] == 1);
            hook.fetch_add(usize::from(is_whole), Ordering::SeqCst);
        })
        .build(never)
        .unwrap();
    thread::scope(|scope| {
        let push = Slow::builder().spawn_scoped(scope, || c.try_push(Slow([1; Slow::SIZE])).is_ok()).unwrap();
        while c.is_empty() {
            std::hint::spin_loop();
        }
        drop(flusher);
        assert!(push.join().unwrap(), "it was accepted");
    });
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert_eq!(snapshot.accepted, 1);
    drop(c);
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

/// Runs once, when it is woken.
struct OnWake<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        let code = self.0.lock().unwrap().take();
        code.into_iter().for_each(|code| code());
    }
}

#[test]
fn two_that_end_a_controller_at_once_lose_nothing() {
    Slow::on_large_stack(two_ends);
}

fn two_ends() {
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    let (c, flusher) = BackpressureController::<Slow>::builder(3)
        .on_loss(move |_| {
            hook.fetch_add(1, Ordering::SeqCst);
        })
        .build(never)
        .unwrap();
    let returned = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    assert!(c.try_push(Slow([0; Slow::SIZE])).is_ok());
    let permit = c.try_reserve().unwrap();
    let ender = c.clone();
    let mut drain = Box::pin(async move { ender.drain(Duration::ZERO).await });
    runtime.block_on(async {
        assert!(poll(&mut drain).is_pending());
        tokio::time::sleep(Duration::from_millis(150)).await;
    });
    // A flush, whose waker lets the drain end things in the middle of the flusher's end.
    let out = Arc::clone(&returned);
    let waker = Waker::from(Arc::new(OnWake(Mutex::new(Some(move || {
        let _inside = handle.enter();
        if let Poll::Ready(report) = poll(&mut drain) {
            out.fetch_add(report.leftovers.len(), Ordering::SeqCst);
        }
    })))));
    let mut flush = Box::pin(c.flush());
    assert!(flush.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let late = Slow::builder().spawn(move || permit.send(Slow([1; Slow::SIZE]))).unwrap();
    while c.len() < 2 {
        std::hint::spin_loop();
    }
    drop(flusher);
    late.join().unwrap();
    assert_eq!((c.snapshot().abandoned, c.snapshot().buffered), (2, 0));
    assert_eq!(returned.load(Ordering::SeqCst) + told.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn leftovers_go_to_who_called_first_whoever_looks_first() {
    let (c, flusher) = BackpressureController::<u32>::builder(3).build(never).unwrap();
    c.try_push(7).unwrap();
    let mut drains = [0; 3].map(|_| Box::pin(c.drain(Duration::from_secs(60))));
    assert!(drains.iter_mut().all(|drain| poll(drain).is_pending()));
    drop(flusher);
    let leftovers = |drain: &mut _| match poll::<_>(drain) {
        Poll::Ready(DrainReport { leftovers, .. }) => leftovers,
        Poll::Pending => panic!("it is over"),
    };
    let [first, second, third] = &mut drains;
    assert_eq!(leftovers(third), []);
    assert_eq!(leftovers(second), []);
    assert_eq!(leftovers(first), [7]);
}

#[tokio::test]
async fn a_watch_that_begins_after_the_close_is_over() {
    let c = BackpressureController::<u32>::builder(3).spawn(never).unwrap();
    c.close();
    let mut watch = c.watch();
    assert_eq!((watch.current(), watch.changed().await), (State::Draining, None));
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker, as asked");
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_that_panics_costs_nobody_a_wake_up_or_an_item() {
    let (c, _flusher) = BackpressureController::<u32>::builder(2).build(never).unwrap();
    assert!((0..2).all(|i| c.try_push(i).is_ok()));
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let wakers = [Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&flag))];
    let mut pushes = [2, 3].map(|i| Box::pin(c.push(i)));
    for (push, waker) in pushes.iter_mut().zip(&wakers) {
        assert!(push.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(c.purge(), [0, 1]);
    assert!(flag.0.load(Ordering::SeqCst));
    assert!(pushes.iter_mut().all(|push| poll(push) == Poll::Ready(Ok(()))));
}

#[test]
fn one_eviction_displaces_one_item_whoever_waits() {
    let admit = |item: &u32, _: &Pressure| if *item >= 1000 { Admission::EvictOldest } else { Admission::Wait };
    let (c, _flusher) =
        BackpressureController::<u32>::builder(4).strategy(Strategy::Custom(Arc::new(admit))).build(never).unwrap();
    assert!((0..4).all(|i| c.try_push(i).is_ok()));
    let mut parked: Vec<_> = (0..10).map(|n| Box::pin(c.push_all((0..50).map(move |i| 100 + 50 * n + i)))).collect();
    assert!(parked.iter_mut().all(|push| poll(push).is_pending()));
    let mut reservation = Box::pin(c.reserve_many(4));
    assert!(poll(&mut reservation).is_pending());
    c.try_push(1000).unwrap();
    let snapshot = c.snapshot();
    snapshot.audit().unwrap();
    assert_eq!((snapshot.evicted, snapshot.waiting, snapshot.accepted), (1, 500, 5));
    // Whoever waits is next when there is room.
    assert_eq!(c.purge(), [1, 2, 3, 1000]);
    assert_eq!(c.purge(), [100, 101, 102, 103]);
}

/// A schedule whose end panics.
struct Waits;

impl Iterator for Waits {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        panic!("a schedule, as asked");
    }
}

/// An error whose end panics.
#[derive(Debug)]
struct Grudge;

impl std::fmt::Display for Grudge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("grudge")
    }
}

impl std::error::Error for Grudge {}

impl Drop for Grudge {
    fn drop(&mut self) {
        panic!("an error, as asked");
    }
}

#[tokio::test]
async fn a_schedule_and_an_error_whose_destructors_panic_leave_the_flusher_alive() {
    let mut calls = 0;
    let c = BackpressureController::<u32>::builder(4)
        .fixed(1, Duration::ZERO)
        .retry(Retry::schedule(|| Waits))
        .spawn(move |batch: Batch<u32>| {
            calls += 1;
            let answer = match calls {
                1 => Err(FlushError::retry(Grudge)),
                2 => Err(FlushError::permanent(Grudge)),
                _ => Ok(()),
            };
            drop(batch);
            std::future::ready(answer)
        })
        .unwrap();
    c.push_all([1, 2]).await.unwrap();
    let report = c.flush().await;
    assert_eq!((report.failed, report.delivered), (1, 1));
    assert!(!c.is_closed(), "the flusher lives");
    assert!(c.drain(Duration::from_secs(5)).await.is_clean());
}

/// What a panic carries, and panics itself.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload, as asked");
    }
}

#[test]
fn a_panic_that_carries_another_costs_no_items() {
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    let (c, flusher) = BackpressureController::<u32>::builder(4)
        .on_loss(move |_| {
            hook.fetch_add(1, Ordering::SeqCst);
            panic_any(Payload);
        })
        .build(never)
        .unwrap();
    assert!((0..4).all(|i| c.try_push(i).is_ok()));
    drop(flusher);
    assert_eq!((told.load(Ordering::SeqCst), c.snapshot().panics), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_comes_after_the_end_harms_nobody() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    let c = BackpressureController::<u32>::builder(4)
        .fixed(2, Duration::ZERO)
        .on_loss(move |_| {
            hook.fetch_add(1, Ordering::SeqCst);
        })
        .spawn(move |batch: Batch<u32>| {
            let sender = sender.clone();
            async move {
                let _ = sender.send(batch).await;
                std::future::pending().await
            }
        })
        .unwrap();
    c.push_all([1, 2]).await.unwrap();
    let mut batch = receiver.recv().await.unwrap();
    assert_eq!(c.drain(Duration::from_secs(1)).await.not_returned, 2);
    batch.fail(0, Grudge);
    drop(batch);
    assert_eq!((told.load(Ordering::SeqCst), c.snapshot().panics), (2, 1));
}
