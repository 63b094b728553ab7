//! The ring under loom, by itself: claims, slots and permits, without waiters or alarms. Each model has a twin that runs
//! it with one step of the protocol broken and must fail.

use std::sync::Arc;

use loom::thread;

use super::{HeadGuard, Means, Popped, Ring};
use crate::sync::{Fault, Model, Ordering, explore, must_fail};

impl<T, X> Ring<T, X> {
    /// A close outside the head lock, as only a broken model does it.
    pub(crate) fn close_unlocked(&self) {
        // Ordering: AcqRel, as in `HeadGuard::close`.
        self.tail.fetch_or(super::Word::ZERO.closed().raw(), Ordering::AcqRel);
    }
}

/// A ring with the items `0 .. items` inside.
fn ring(capacity: usize, items: u32) -> Arc<Model<Ring<u32, ()>>> {
    let ring = Ring::new(capacity, ()).expect("memory");
    assert!((0..items).all(|item| ring.push(item).is_ok()));
    Model::new(ring)
}

/// Takes up to `max` items and gives their room free in the same section.
fn take(ring: &Ring<u32, ()>, max: usize) -> Vec<u32> {
    let mut taken = Vec::new();
    let mut head = ring.lock();
    let count = head.take(max, &mut taken);
    head.free(count as u64);
    head.publish();
    taken
}

fn check_depth(head: &HeadGuard<'_, u32, ()>, capacity: usize) {
    assert!(head.depth(head.tail_exact()) <= capacity as u64, "the bound holds");
}

/// Two producers push one item each, while the consumer takes twice.
fn two_pushes_and_takes(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, 0);
        let producers = [1, 2].map(|item| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(item).is_ok())
        });
        let mut taken = take(&ring, 1);
        taken.extend(take(&ring, 2));
        let accepted = producers.map(|producer| producer.join().expect("no panic"));
        taken.extend(take(&ring, 2));
        taken.sort_unstable();
        let expected: Vec<u32> =
            [1, 2].into_iter().zip(accepted).filter_map(|(item, is_in)| is_in.then_some(item)).collect();
        assert_eq!(taken, expected, "each accepted item is taken once");
        assert!(accepted.contains(&true), "there was room for one at least");
    }
}

/// A full ring; a producer pushes twice while the consumer takes twice, so that slots are used again.
fn reuse(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, capacity as u32);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || [10, 11].into_iter().filter(|item| ring.push(*item).is_ok()).collect::<Vec<u32>>())
        };
        let mut taken = take(&ring, 1);
        taken.extend(take(&ring, 2));
        let accepted = producer.join().expect("no panic");
        check_depth(&ring.lock(), capacity);
        taken.extend(take(&ring, capacity));
        assert_eq!(taken, (0..capacity as u32).chain(accepted).collect::<Vec<_>>(), "in order, none lost, none torn");
    }
}

/// What was taken and not settled holds its room.
fn room_ends_at_free(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, capacity as u32);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(10).is_ok())
        };
        let mut taken = Vec::new();
        ring.lock().take(capacity, &mut taken);
        assert!(!producer.join().expect("no panic"), "nothing was settled");
        assert_eq!(ring.push(11), Err(11));
        check_depth(&ring.lock(), capacity);
    }
}

/// A permit is sent while the consumer frees a slot and another producer claims the last one: the permit's slot is the
/// one that was freed, which its holder knows by the chain on `tail` only.
fn permit_through_the_chain() {
    let ring = ring(2, 1);
    assert_eq!(ring.reserve(1), Some(false));
    let producer = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || ring.push(1).is_ok())
    };
    let holder = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            ring.send(2);
        })
    };
    let mut taken = take(&ring, 1);
    holder.join().expect("no panic");
    let accepted = producer.join().expect("no panic");
    check_depth(&ring.lock(), 2);
    taken.extend(take(&ring, 2));
    taken.sort_unstable();
    assert_eq!(taken, if accepted { vec![0, 1, 2] } else { vec![0, 2] });
}

/// A permit holds its place against a push, and against another reservation.
fn permit_against_push(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, capacity as u32 - 1);
        assert_eq!(ring.reserve(1), Some(false));
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(20).is_ok() || ring.reserve(1).is_some())
        };
        ring.send(10);
        assert!(!producer.join().expect("no panic"), "the last place was reserved");
        let expected: Vec<u32> = (0..capacity as u32 - 1).chain([10]).collect();
        assert_eq!(take(&ring, capacity), expected);
    }
}

/// One place: a push and a reservation race for it.
fn push_against_reserve(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, capacity as u32 - 1);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(20).is_ok())
        };
        let has_permit = ring.reserve(1).is_some();
        let is_in = producer.join().expect("no panic");
        assert!(has_permit != is_in, "one of them has the place");
        assert_eq!((ring.depth(), ring.len()), (capacity as u64, capacity as u64 - u64::from(has_permit)));
    }
}

/// A bulk push and a push race for a ring that can hold all but one.
fn bulk_against_push(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, 0);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(20).is_ok())
        };
        let mut items: Vec<u32> = (0..capacity as u32).collect();
        ring.push_many(&mut items);
        let is_in = producer.join().expect("no panic");
        assert_eq!(items.len(), usize::from(is_in), "as many are left as there was no room for");
        let taken = take(&ring, capacity);
        let bulk: Vec<u32> = taken.iter().copied().filter(|item| *item != 20).collect();
        assert_eq!(bulk, (0..capacity as u32 - u32::from(is_in)).collect::<Vec<_>>());
        assert_eq!(taken.len(), capacity);
    }
}

/// The oldest place is claimed by a producer that has perhaps not written it.
fn pop_against_push(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, 0);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(7).is_ok())
        };
        let early = match ring.lock().pop() {
            Popped::Item(item) => vec![item],
            Popped::Empty | Popped::Unwritten => Vec::new(),
        };
        assert!(producer.join().expect("no panic"));
        let late = take(&ring, 1);
        assert_eq!([early, late].concat(), [7]);
    }
}

/// Close races a push: what was accepted is there, and nothing is accepted after.
fn close_against_push(capacity: usize) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ring = ring(capacity, 0);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(1).is_ok())
        };
        let mut head = ring.lock();
        assert!(head.close());
        let at_close = head.buffered(head.tail_exact());
        drop(head);
        assert_eq!((ring.push(2), ring.reserve(1), ring.is_closed()), (Err(2), None, true));
        let accepted = producer.join().expect("no panic");
        assert_eq!(at_close, u64::from(accepted), "nothing comes after the close");
        assert_eq!(take(&ring, 1).len(), usize::from(accepted));
    }
}

/// A producer has claimed a place on credit and writes it late, while another goes on evicting, round the ring.
fn late_on_credit() {
    let ring = Model::new(Ring::with_credit(2, ()).expect("memory"));
    assert!([0, 1].into_iter().all(|item| ring.push(item).is_ok()));
    let evict = |item| ring.push(item).map(drop).or_else(|item| ring.lock().rotate(item).map(drop)).is_ok();
    assert!(evict(2) && evict(3));
    let claim = || ring.claim(Means::Credit).map(|claim| claim.word);
    let late = claim().unwrap_or_else(|| {
        assert!(evict(4), "under the lock, which leaves credit");
        claim().expect("for what is written")
    });
    let writer = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || ring.write(late, 10))
    };
    let stored = (11..16).filter(|item| evict(*item)).last();
    writer.join().expect("no panic");
    let rest = take(&ring, 2);
    assert!(rest.len() == 2 && rest.contains(&stored.unwrap_or(10)), "the youngest are there: {rest:?}");
}

#[test]
fn each_item_of_two_producers_is_taken_once_1() {
    explore(two_pushes_and_takes(1));
}

#[test]
fn each_item_of_two_producers_is_taken_once_2() {
    explore(two_pushes_and_takes(2));
}

#[test]
fn each_item_of_two_producers_is_taken_once_3() {
    explore(two_pushes_and_takes(3));
}

#[test]
fn a_slot_is_used_again_after_it_was_emptied_1() {
    explore(reuse(1));
}

#[test]
fn a_slot_is_used_again_after_it_was_emptied_2() {
    explore(reuse(2));
}

#[test]
fn a_slot_is_used_again_after_it_was_emptied_3() {
    explore(reuse(3));
}

#[test]
fn room_ends_at_settle_not_at_take() {
    explore(room_ends_at_free(1));
    explore(room_ends_at_free(2));
    explore(room_ends_at_free(3));
}

#[test]
fn a_permit_knows_its_slot_by_the_chain_on_tail() {
    explore(permit_through_the_chain);
}

#[test]
fn a_permit_holds_its_place() {
    explore(permit_against_push(1));
    explore(permit_against_push(2));
    explore(permit_against_push(3));
}

#[test]
fn a_place_is_claimed_or_reserved() {
    explore(push_against_reserve(1));
    explore(push_against_reserve(2));
    explore(push_against_reserve(3));
}

#[test]
fn a_bulk_push_claims_what_is_free() {
    explore(bulk_against_push(1));
    explore(bulk_against_push(2));
    explore(bulk_against_push(3));
}

#[test]
fn an_unwritten_place_is_not_read() {
    explore(pop_against_push(1));
    explore(pop_against_push(2));
    explore(pop_against_push(3));
}

#[test]
fn accepted_before_the_close_or_never() {
    explore(close_against_push(1));
    explore(close_against_push(2));
    explore(close_against_push(3));
}

#[test]
fn twin_claim_relaxed() {
    must_fail(Fault::ClaimRelaxed, permit_through_the_chain);
}

#[test]
fn twin_limit_relaxed() {
    must_fail(Fault::LimitRelaxed, reuse(1));
    must_fail(Fault::LimitRelaxed, reuse(2));
}

#[test]
fn twin_turn_relaxed() {
    must_fail(Fault::TurnRelaxed, two_pushes_and_takes(1));
}

#[test]
fn twin_room_before_take() {
    must_fail(Fault::RoomBeforeTake, room_ends_at_free(1));
    must_fail(Fault::RoomBeforeTake, reuse(1));
}

#[test]
fn twin_send_in_two_steps() {
    must_fail(Fault::SendInTwoSteps, permit_against_push(1));
}

#[test]
fn twin_closed_seen_once() {
    must_fail(Fault::ClosedSeenOnce, close_against_push(1));
}

#[test]
fn credit_is_only_for_what_is_written() {
    explore(late_on_credit);
}

#[test]
fn credit_for_what_is_not_written() {
    must_fail(Fault::CreditUnwritten, late_on_credit);
}
