//! Close and drain: what was accepted comes out, nothing comes in after, and the end is seen (I10). The flusher of these
//! models blocks: a wake-up that is lost is a deadlock.

use std::sync::Arc;
use std::task::Waker;

use super::{Bell, Queued, Rig, Wait, item, join};
use crate::gate::Parked;
use crate::sync::{Fault, explore, explore_wide, must_fail};

impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

impl Rig {
    /// Pushes and, if there is no room, waits for it, blocking; `false` if the intake was shut.
    fn push_blocking(&self, number: u32) -> bool {
        if self.push(number) {
            return true;
        }
        let bell = Arc::new(Bell::default());
        let key = match self.enqueue(item(number), Waker::from(Arc::clone(&bell))) {
            Queued::Served => return true,
            Queued::Closed => return false,
            Queued::Waiting(key) => key,
        };
        loop {
            bell.wait();
            let (wait, _) = self.gate.lock().poll_waiter(key, Waker::noop().clone());
            match wait {
                Wait::Queued => {}
                Wait::Served(_) => return true,
                Wait::Shut(_) | Wait::Left(_) | Wait::Unfit { .. } => return false,
            }
        }
    }
}

/// A producer pushes two items and shuts the intake.
fn push_and_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 0);
        let producer = rig.spawn(|rig| {
            let accepted: Vec<u32> = [1, 2].into_iter().filter(|item| rig.push(*item)).collect();
            rig.close();
            accepted
        });
        let sink = rig.flush_until_drained();
        assert_eq!(sink, join(producer), "all that was accepted, in order");
    }
}

/// A producer pushes while another shuts the intake.
fn push_against_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 0);
        let producer = rig.spawn(|rig| rig.push(1));
        let closer = rig.spawn(|rig| {
            rig.close();
            rig.push(2)
        });
        let sink = rig.flush_until_drained();
        assert!(!join(closer), "nothing is accepted after the close");
        assert_eq!(sink.len(), usize::from(join(producer)), "what was accepted is taken before the drain ends");
    }
}

/// A producer that blocks brings two items through a buffer of one.
fn blocking_pushes(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let producer = rig.spawn(|rig| {
            assert!(rig.push_blocking(10));
            rig.close();
        });
        let sink = rig.flush_until_drained();
        join(producer);
        assert_eq!(sink, (0..capacity as u32).chain([10]).collect::<Vec<_>>());
    }
}

/// A producer waits, and is served or shut out.
fn waiter_against_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiter = rig.wait(item(10));
        let closer = rig.spawn(Rig::close);
        rig.settle(1);
        join(closer);
        assert!(waiter.is_woken(), "nobody is left behind");
        match rig.look(&waiter) {
            Wait::Served(_) => assert_eq!(rig.empty(), [10]),
            Wait::Shut(Parked::One(Some((10, _)))) => assert_eq!(rig.empty(), []),
            other => panic!("served or shut: {other:?}"),
        }
        assert!(rig.gate.lock().figures().is_drained());
    }
}

/// A producer finds the ring full and queues while the intake is shut.
fn enqueue_against_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let closer = rig.spawn(Rig::close);
        let bell = Arc::new(Bell::default());
        match rig.enqueue(item(10), Waker::from(Arc::clone(&bell))) {
            Queued::Waiting(key) => {
                bell.wait();
                let (wait, _) = rig.gate.lock().poll_waiter(key, Waker::noop().clone());
                assert!(matches!(wait, Wait::Shut(Parked::One(Some((10, _))))));
            }
            Queued::Closed => {}
            Queued::Served => panic!("there is no room"),
        }
        join(closer);
        assert_eq!(rig.empty(), []);
    }
}

/// The intake is shut while a permit is out, which is sent.
fn permit_sent_after_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        rig.close();
        let holder = rig.spawn(|rig| rig.send(10));
        let sink = rig.flush_until_drained();
        join(holder);
        assert_eq!(sink, (0..capacity as u32 - 1).chain([10]).collect::<Vec<_>>(), "a permit is good after close");
    }
}

/// The intake is shut while a permit is out, which is given back.
fn permit_dropped_after_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        rig.close();
        let holder = rig.spawn(|rig| rig.release(1));
        let sink = rig.flush_until_drained();
        join(holder);
        assert_eq!(sink, (0..capacity as u32 - 1).collect::<Vec<_>>());
    }
}

/// The last permit is given back while the intake is shut.
fn permit_dropped_at_close() {
    let rig = Rig::reserved(1);
    let holder = rig.spawn(|rig| rig.release(1));
    let closer = rig.spawn(Rig::close);
    assert_eq!(rig.flush_until_drained(), []);
    join(holder);
    join(closer);
}

/// One look, while the last permit is sent after close: drained is not seen too early.
fn one_look_at_the_end(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 0);
        assert!(rig.reserve(1));
        rig.close();
        let holder = rig.spawn(|rig| rig.send(10));
        let is_drained = rig.gate.lock().figures().is_drained();
        join(holder);
        assert!(!is_drained, "the permit's item is still to be delivered");
    }
}

#[test]
fn all_that_was_accepted_is_drained_1() {
    explore(push_and_close(1));
}

#[test]
fn all_that_was_accepted_is_drained_2() {
    explore(push_and_close(2));
}

#[test]
fn all_that_was_accepted_is_drained_3() {
    explore(push_and_close(3));
}

#[test]
fn accepted_before_the_close_and_drained_or_never_1() {
    explore_wide(push_against_close(1));
}

#[test]
fn accepted_before_the_close_and_drained_or_never_2() {
    explore_wide(push_against_close(2));
}

#[test]
fn a_blocked_push_wakes_and_is_woken_1() {
    explore(blocking_pushes(1));
}

#[test]
fn a_blocked_push_wakes_and_is_woken_2() {
    explore(blocking_pushes(2));
}

#[test]
fn a_blocked_push_wakes_and_is_woken_3() {
    explore(blocking_pushes(3));
}

#[test]
fn a_waiter_is_served_or_shut_out() {
    explore(waiter_against_close(1));
    explore(waiter_against_close(2));
    explore(waiter_against_close(3));
}

#[test]
fn nobody_queues_behind_the_close() {
    explore(enqueue_against_close(1));
    explore(enqueue_against_close(2));
    explore(enqueue_against_close(3));
}

#[test]
fn a_permit_is_good_after_close() {
    explore(permit_sent_after_close(1));
    explore(permit_sent_after_close(2));
    explore(permit_sent_after_close(3));
}

#[test]
fn the_last_permit_dropped_after_close_ends_the_drain() {
    explore(permit_dropped_after_close(1));
    explore(permit_dropped_after_close(2));
    explore(permit_dropped_after_close(3));
}

#[test]
fn the_last_permit_dropped_at_the_close_ends_the_drain() {
    explore(permit_dropped_at_close);
}

#[test]
fn drained_is_not_seen_with_an_item_inside() {
    explore(one_look_at_the_end(1));
    explore(one_look_at_the_end(2));
    explore(one_look_at_the_end(3));
}

#[test]
fn twin_last_permit_silent() {
    must_fail(Fault::LastPermitSilent, permit_dropped_after_close(1));
    must_fail(Fault::LastPermitSilent, permit_dropped_at_close);
}

#[test]
fn twin_figures_by_two_loads() {
    must_fail(Fault::FiguresByTwoLoads, one_look_at_the_end(1));
}

#[test]
fn twin_closed_seen_once() {
    must_fail(Fault::ClosedSeenOnce, push_against_close(1));
    must_fail(Fault::ClosedSeenOnce, push_against_close(1));
}

#[test]
fn twin_serve_nobody() {
    must_fail(Fault::ServeNobody, blocking_pushes(1));
}

#[test]
fn twin_turn_relaxed() {
    must_fail(Fault::TurnRelaxed, push_and_close(1));
}

#[test]
fn twin_room_before_take() {
    must_fail(Fault::RoomBeforeTake, waiter_against_close(1));
    must_fail(Fault::RoomBeforeTake, enqueue_against_close(1));
}

#[test]
fn twin_send_in_two_steps() {
    must_fail(Fault::SendInTwoSteps, permit_sent_after_close(1));
}
