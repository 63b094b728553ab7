//! Waiters: served in order (I7), not overtaken, and cancelled at any point (I8); permits given back.

use std::collections::VecDeque;
use std::task::Waker;

use super::{Queued, Rig, Wait, item, join, permits};
use crate::gate::Parked;
use crate::sync::{Fault, explore, must_fail};

/// All is in flight, and 100 and 101 wait. Two places are settled one by one, while somebody pushes 102.
fn hand_over(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiters = [100, 101].map(|i| rig.wait(item(i)));
        let producer = rig.spawn(|rig| rig.push(102));
        rig.settle(1);
        rig.settle(1);
        let is_in = join(producer);
        assert_eq!(rig.empty(), [100, 101, 102][..2 + usize::from(is_in)], "in order of arrival");
        for waiter in waiters {
            assert!(waiter.is_woken());
            assert!(matches!(rig.look(&waiter), Wait::Served(_)));
        }
    }
}

/// A producer finds the ring full and queues, while its room comes and somebody else pushes.
fn enqueue_against_settle(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let settler = rig.spawn(|rig| rig.settle(1));
        let producer = rig.spawn(|rig| rig.push(101));
        let queued = rig.enqueue(item(100), Waker::noop().clone());
        join(settler);
        let is_in = join(producer);
        let waits = rig.gate.lock().waiting() == (1, 1);
        assert!(!waits || is_in, "who waits has found no room");
        let mut all = rig.empty();
        all.sort_unstable();
        assert_eq!(all, [100, 101][..1 + usize::from(is_in)], "{queued:?}: no item is lost on its way into the queue");
    }
}

/// The same for a reservation: it is granted, or it is queued and somebody else has the place.
fn reserve_against_settle(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let settler = rig.spawn(|rig| rig.settle(1));
        let queued = rig.enqueue(permits(1), Waker::noop().clone());
        join(settler);
        match queued {
            Queued::Served => {}
            Queued::Waiting(key) => assert!(matches!(rig.leave(key), Wait::Served(_)), "there is room for it"),
            Queued::Closed => unreachable!("it is open"),
        }
        assert_eq!(rig.gate.lock().figures().depth(), capacity as u64 - u64::from(queued != Queued::Served));
    }
}

/// The last place is reserved, and 100 waits. The permit is given back while somebody pushes.
fn release_to_waiter(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        let waiter = rig.wait(item(100));
        let producer = rig.spawn(|rig| rig.push(101));
        rig.release(1);
        assert!(!join(producer), "the place is the waiter's");
        assert!(waiter.is_woken());
        assert!(matches!(rig.look(&waiter), Wait::Served(_)));
        assert_eq!(rig.empty(), (0..capacity as u32 - 1).chain([100]).collect::<Vec<_>>());
    }
}

/// The same with a reservation that waits, and somebody who wants to reserve.
fn release_to_reservation(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::reserved(capacity);
        let waiter = rig.wait(permits(1));
        let producer = rig.spawn(|rig| rig.reserve(1));
        rig.release(1);
        assert!(!join(producer), "the place is the waiter's");
        assert!(waiter.is_woken());
        assert!(matches!(rig.look(&waiter), Wait::Served(parked) if parked.granted() == (1, 0)));
    }
}

/// A reservation of the whole buffer, granted place by place while somebody pushes.
fn granted_in_part(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32 - 1);
        assert_eq!(rig.take(capacity).len(), capacity - 1);
        let waiter = rig.wait(permits(capacity as u64));
        let producer = rig.spawn(|rig| rig.push(100));
        for _ in 1..capacity {
            assert!(!waiter.is_woken());
            rig.settle(1);
        }
        assert!(!join(producer), "every place that comes free is the waiter's");
        assert!(waiter.is_woken());
        assert!(matches!(rig.look(&waiter), Wait::Served(parked) if parked.granted() == (capacity as u64, 0)));
    }
}

/// 100 and 101 wait; the first gives up while one place is settled.
fn cancel_against_settle(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let [first, second] = [100, 101].map(|i| rig.wait(item(i)));
        let settler = rig.spawn(|rig| rig.settle(1));
        let wait = rig.leave(first.key);
        join(settler);
        let is_back = match wait {
            Wait::Left(Parked::One(Some((100, _)))) => true,
            Wait::Served(_) => false,
            other => panic!("queued or served: {other:?}"),
        };
        assert_eq!(rig.gate.lock().desk().ledger.cancelled, u64::from(is_back), "cancelled if it came back");
        assert_eq!(second.is_woken(), is_back, "the place goes to the next one");
        assert_eq!(rig.empty(), if is_back { vec![101] } else { vec![100, 101] });
    }
}

/// A bulk push of three waits, and gives up while two places are settled one by one.
fn cancel_bulk(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiter = rig.wait(Parked::Many(VecDeque::from([100, 101, 102]), VecDeque::new()));
        let settler = rig.spawn(|rig| {
            rig.settle(1);
            rig.settle(1);
        });
        let Wait::Left(Parked::Many(rest, _)) = rig.leave(waiter.key) else { panic!("there was no room for all") };
        join(settler);
        assert_eq!(rig.gate.lock().desk().ledger.cancelled, rest.len() as u64, "cancelled what came back");
        assert_eq!(
            [rig.empty(), Vec::from(rest)].concat(),
            [100, 101, 102],
            "handed over in order, the rest comes back"
        );
    }
}

/// 100 waits, and gives up while the intake is shut.
fn cancel_against_close(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let waiter = rig.wait(item(100));
        let closer = rig.spawn(Rig::close);
        let wait = rig.leave(waiter.key);
        join(closer);
        let counted = match wait {
            Wait::Shut(Parked::One(Some((100, _)))) => (0, 1),
            Wait::Left(Parked::One(Some((100, _)))) => (1, 0),
            other => panic!("the item comes back: {other:?}"),
        };
        let cancelled = rig.gate.lock().desk().ledger.cancelled;
        assert_eq!((cancelled, rig.gate.refusals().get().closed), counted, "counted once, as it is told");
        assert_eq!(rig.empty(), []);
    }
}

/// A reservation of two places gives up while they are settled one by one; behind it waits 100.
fn cancel_grant(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::in_flight(capacity);
        let reservation = rig.wait(permits(2));
        let second = rig.wait(item(100));
        let settler = rig.spawn(|rig| {
            rig.settle(1);
            rig.settle(1);
        });
        let producer = rig.spawn(|rig| rig.push(101));
        rig.leave(reservation.key);
        join(settler);
        let is_in = join(producer);
        assert_eq!(rig.gate.lock().figures().reserved, 0, "what was granted is given back");
        assert!(second.is_woken());
        assert_eq!(rig.empty(), [100, 101][..1 + usize::from(is_in)]);
    }
}

#[test]
fn blocked_pushes_are_served_in_order_and_not_overtaken_2() {
    explore(hand_over(2));
}

#[test]
fn blocked_pushes_are_served_in_order_and_not_overtaken_3() {
    explore(hand_over(3));
}

#[test]
fn a_blocked_push_that_races_its_room_is_not_lost_1() {
    explore(enqueue_against_settle(1));
}

#[test]
fn a_blocked_push_that_races_its_room_is_not_lost_2() {
    explore(enqueue_against_settle(2));
}

#[test]
fn a_reservation_that_races_its_room_is_granted() {
    explore(reserve_against_settle(1));
    explore(reserve_against_settle(2));
    explore(reserve_against_settle(3));
}

#[test]
fn a_place_given_back_is_the_waiters() {
    explore(release_to_waiter(1));
    explore(release_to_waiter(2));
    explore(release_to_waiter(3));
}

#[test]
fn a_place_given_back_is_the_waiting_reservations() {
    explore(release_to_reservation(1));
    explore(release_to_reservation(2));
    explore(release_to_reservation(3));
}

#[test]
fn a_reservation_is_granted_in_part_and_not_overtaken() {
    explore(granted_in_part(2));
    explore(granted_in_part(3));
}

#[test]
fn a_waiter_that_gives_up_leaves_its_place_to_the_next_1() {
    explore(cancel_against_settle(1));
}

#[test]
fn a_waiter_that_gives_up_leaves_its_place_to_the_next_2() {
    explore(cancel_against_settle(2));
}

#[test]
fn a_waiter_that_gives_up_leaves_its_place_to_the_next_3() {
    explore(cancel_against_settle(3));
}

#[test]
fn a_bulk_push_that_gives_up_gets_back_what_was_not_handed_over() {
    explore(cancel_bulk(2));
    explore(cancel_bulk(3));
}

#[test]
fn a_waiter_that_gives_up_at_the_close_gets_its_item_back() {
    explore(cancel_against_close(1));
    explore(cancel_against_close(2));
    explore(cancel_against_close(3));
}

#[test]
fn a_reservation_that_gives_up_gives_back_what_it_was_granted_2() {
    explore(cancel_grant(2));
}

#[test]
fn a_reservation_that_gives_up_gives_back_what_it_was_granted_3() {
    explore(cancel_grant(3));
}

#[test]
fn twin_limit_before_tail() {
    must_fail(Fault::LimitBeforeTail, hand_over(2));
}

#[test]
fn twin_full_by_equality() {
    must_fail(Fault::FullByEquality, hand_over(2));
    must_fail(Fault::FullByEquality, enqueue_against_settle(1));
}

#[test]
fn twin_serve_nobody() {
    must_fail(Fault::ServeNobody, hand_over(2));
    must_fail(Fault::ServeNobody, enqueue_against_settle(1));
    must_fail(Fault::ServeNobody, reserve_against_settle(1));
    must_fail(Fault::ServeNobody, granted_in_part(2));
    must_fail(Fault::ServeNobody, cancel_against_settle(1));
}

#[test]
fn twin_release_to_all() {
    must_fail(Fault::ReleaseToAll, release_to_waiter(1));
    must_fail(Fault::ReleaseToAll, release_to_reservation(1));
}

#[test]
fn twin_cancel_keeps_grant() {
    must_fail(Fault::CancelKeepsGrant, cancel_grant(2));
}

#[test]
fn twin_room_before_take() {
    must_fail(Fault::RoomBeforeTake, cancel_against_close(1));
}
