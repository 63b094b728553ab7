//! No wake-up is lost (I5), and the state converges (I6).

use super::{Rig, item, join};
use crate::state::{State, Watermarks};
use crate::sync::{Fault, explore, must_fail};

/// The flusher takes the only item and goes to sleep until the first one, while a producer brings it.
fn first_item(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 1);
        let producer = rig.spawn(|rig| rig.push(1));
        let taken = rig.take(1).len() as u64;
        rig.settle(taken);
        let sleeps = rig.sleep(1);
        let is_in = join(producer);
        assert!(!is_in || !sleeps || rig.is_rung(), "the first item wakes the flusher");
    }
}

/// All but the last item of a batch are there; the flusher goes to sleep until it is full, while a producer fills it.
fn full_batch(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let batch = (capacity as u64).min(2);
        let rig = Rig::new(capacity, batch as u32 - 1);
        let producer = rig.spawn(|rig| rig.push(9));
        let sleeps = rig.sleep(batch);
        assert!(join(producer));
        assert!(!sleeps || rig.is_rung(), "a full batch wakes the flusher");
    }
}

/// The alarm of the first item is raised while the flusher sets that of the full batch, which comes with the next item.
fn alarm_against_arm(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 0);
        let producer = rig.spawn(|rig| rig.push(1));
        let other = rig.spawn(|rig| {
            let sleeps = rig.sleep(2);
            assert!(rig.push(2));
            sleeps
        });
        assert!(join(producer));
        let sleeps = join(other);
        assert!(!sleeps || rig.is_rung(), "the alarm that was set anew is not lost");
    }
}

/// The same with the second item from a third thread.
fn alarm_against_arm_and_push() {
    let rig = Rig::new(3, 0);
    let producers = [1, 2].map(|item| rig.spawn(move |rig| rig.push(item)));
    let sleeps = rig.sleep(2);
    assert!(producers.map(join) == [true, true]);
    assert!(!sleeps || rig.is_rung(), "the alarm that was set anew is not lost");
}

/// The batch is larger than what there is room for.
fn batch_beyond_room(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32 - 1);
        let producer = rig.spawn(|rig| rig.push(9));
        let sleeps = rig.sleep(capacity as u64 + 2);
        assert!(join(producer));
        assert!(!sleeps || rig.is_rung(), "a full buffer wakes the flusher");
    }
}

/// A bulk push passes the level with its last ticket.
fn bulk(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 1);
        let producer = rig.spawn(move |rig| rig.push_many(&mut (1..capacity as u32).collect()));
        let sleeps = rig.sleep(capacity as u64);
        join(producer);
        assert!(!sleeps || rig.is_rung(), "a bulk push wakes the flusher");
    }
}

/// A permit is reserved and sent while the flusher goes to sleep.
fn reserve_and_send(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, 0);
        let producer = rig.spawn(|rig| {
            assert!(rig.reserve(1));
            rig.send(1);
        });
        let sleeps = rig.sleep(1);
        join(producer);
        assert!(!sleeps || rig.is_rung(), "an item by permit wakes the flusher");
    }
}

/// A producer starts to wait while the flusher goes to sleep for something else than items.
fn blocked_producer(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::new(capacity, capacity as u32);
        let producer = rig.spawn(|rig| {
            rig.wait(item(9));
        });
        let mut locked = rig.gate.lock();
        let sleeps = locked.waiting().1 == 0;
        if sleeps {
            locked.sleep(None);
        }
        rig.apply(locked.finish());
        join(producer);
        assert!(!sleeps || rig.is_rung(), "a blocked producer wakes the flusher");
    }
}

/// Pushes and a settled batch cross the marks.
fn watermarks(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rig = Rig::with_marks(capacity, 1, Watermarks::new(0.5, 0.7).expect("valid"));
        let producer = rig.spawn(|rig| rig.push(1));
        let taken = rig.take(1).len() as u64;
        rig.push(2);
        rig.settle(taken);
        join(producer);
        let published = rig.gate.state();
        rig.apply(rig.gate.lock().finish());
        assert_eq!(published, rig.gate.state(), "the published state is that of the buffer");
    }
}

/// Two pushes cross a mark each.
fn two_marks() {
    let rig = Rig::with_marks(3, 1, Watermarks::new(0.5, 0.7).expect("valid"));
    let producers = [1, 2].map(|item| rig.spawn(move |rig| rig.push(item)));
    assert!(producers.map(join) == [true, true]);
    assert_eq!(rig.gate.state(), State::Blocked, "the last mark is seen");
}

#[test]
fn the_first_item_wakes_the_flusher() {
    explore(first_item(1));
    explore(first_item(2));
    explore(first_item(3));
}

#[test]
fn a_full_batch_wakes_the_flusher() {
    explore(full_batch(1));
    explore(full_batch(2));
    explore(full_batch(3));
}

#[test]
fn an_alarm_set_anew_is_not_lost() {
    explore(alarm_against_arm(2));
    explore(alarm_against_arm(3));
}

#[test]
fn an_alarm_set_anew_is_not_lost_to_a_third_thread() {
    explore(alarm_against_arm_and_push);
}

#[test]
fn a_full_buffer_wakes_the_flusher_whatever_its_batch() {
    explore(batch_beyond_room(1));
    explore(batch_beyond_room(2));
    explore(batch_beyond_room(3));
}

#[test]
fn a_bulk_push_wakes_the_flusher() {
    explore(bulk(2));
    explore(bulk(3));
}

#[test]
fn an_item_by_permit_wakes_the_flusher() {
    explore(reserve_and_send(1));
    explore(reserve_and_send(2));
    explore(reserve_and_send(3));
}

#[test]
fn a_blocked_producer_wakes_the_flusher() {
    explore(blocked_producer(1));
    explore(blocked_producer(2));
    explore(blocked_producer(3));
}

#[test]
fn the_published_state_is_that_of_the_buffer_1() {
    explore(watermarks(1));
}

#[test]
fn the_published_state_is_that_of_the_buffer_2() {
    explore(watermarks(2));
}

#[test]
fn the_published_state_is_that_of_the_buffer_3() {
    explore(watermarks(3));
}

#[test]
fn two_marks_crossed_at_once_are_both_seen() {
    explore(two_marks);
}

#[test]
fn twin_sleep_by_load() {
    must_fail(Fault::SleepByLoad, full_batch(3));
    must_fail(Fault::SleepByLoad, first_item(3));
}

#[test]
fn twin_sleep_without_look() {
    must_fail(Fault::SleepWithoutLook, full_batch(3));
}

#[test]
fn twin_watermark_without_look() {
    must_fail(Fault::SleepWithoutLook, two_marks);
}

#[test]
fn twin_claim_relaxed() {
    must_fail(Fault::ClaimRelaxed, full_batch(3));
}

#[test]
fn twin_alarm_before_claim() {
    must_fail(Fault::AlarmBeforeClaim, full_batch(3));
}

#[test]
fn twin_alarm_taken_blind() {
    must_fail(Fault::AlarmTakenBlind, alarm_against_arm(3));
}

#[test]
fn twin_target_beyond_limit() {
    must_fail(Fault::TargetBeyondLimit, batch_beyond_room(1));
    must_fail(Fault::TargetBeyondLimit, batch_beyond_room(3));
}

#[test]
fn twin_first_ticket() {
    must_fail(Fault::FirstTicket, bulk(3));
}

#[test]
fn twin_enqueue_silent() {
    must_fail(Fault::EnqueueSilent, blocked_producer(1));
}
