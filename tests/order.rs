//! Blocked producers are served in order of arrival and are not overtaken (I7).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use backpressure::BackpressureController;

#[test]
fn a_place_given_back_goes_to_the_oldest_waiter_and_not_to_a_passer_by() {
    let (c, _flusher) = BackpressureController::<u64>::builder(1).build(|_| std::future::ready(Ok(()))).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (passer_by, over) = (c.clone(), Arc::clone(&is_over));
    let thread = thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            let _ = passer_by.try_push(0);
        }
    });
    let mut cx = Context::from_waker(Waker::noop());
    for round in 1..=3_000 {
        while c.is_empty() {
            thread::yield_now();
        }
        let mut reserve = Box::pin(c.reserve());
        if let Poll::Ready(result) = reserve.as_mut().poll(&mut cx) {
            drop(result);
            continue;
        }
        let mut push = Box::pin(c.push(round));
        assert!(push.as_mut().poll(&mut cx).is_pending());
        drop(c.purge());
        let Poll::Ready(Ok(permit)) = reserve.as_mut().poll(&mut cx) else { panic!("the room was the reservation's") };
        permit.release();
        assert!(matches!(push.as_mut().poll(&mut cx), Poll::Ready(Ok(()))), "overtaken in round {round}");
        assert_eq!(c.purge(), [round], "accepted and not there");
    }
    is_over.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}
