//! Prepaid places: what is inside is exact in each section, the bound holds, nobody overtakes who waits, and no alarm is missed.

use super::weigh::sized;
use super::{Rig, join};
use crate::sync::{Fault, explore, must_fail};

/// With room for 4 the allowance is 2.
const PLACES: usize = 4;

fn in_order(mut items: Vec<u32>) -> Vec<u32> {
    items.sort_unstable();
    items
}

/// A light item and a lighter one come in while somebody looks, and looks again: a claim that is under way meets a second beginning.
fn light_against_looks() {
    let rig = Rig::with_sizes(PLACES, &[], None);
    let producer = rig.spawn(|rig| [(0, 1), (1, 2)].map(|(item, size)| rig.push_sized(item, size)));
    for _ in 0..2 {
        let inside = rig.by_weight().depth;
        assert!(inside <= 4, "what is claimed counts by the allowance, nothing else");
    }
    assert_eq!(join(producer), [true; 2]);
    assert_eq!(rig.by_weight().depth, 3);
    assert_eq!(rig.empty_by_weight(), [0, 1]);
}

/// A heavy item wants all that was paid for, while a light one wants some of it.
fn light_against_heavy() {
    let rig = Rig::with_sizes(PLACES, &[], None);
    let producer = rig.spawn(|rig| rig.push_sized(0, 1));
    let is_in = rig.push_sized(1, 10);
    let is_light_in = join(producer);
    assert!(is_in || is_light_in, "one of them finds room");
    assert!(!(is_in && is_light_in), "the bound holds");
    assert_eq!(rig.empty_by_weight().len(), 1);
}

/// An item that is too heavy for what is prepaid lands among those that are not.
fn light_beside_heavy() {
    let rig = Rig::with_sizes(PLACES, &[1], None);
    let producer = rig.spawn(|rig| rig.push_sized(1, 3));
    assert!(rig.push_sized(2, 1));
    assert!(join(producer));
    assert_eq!(rig.by_weight().depth, 5);
    assert_eq!(in_order(rig.empty_by_weight()), [0, 1, 2]);
}

/// A light item comes in while the flusher takes what is there.
fn light_against_flusher() {
    let rig = Rig::with_sizes(PLACES, &[], None);
    let producer = rig.spawn(|rig| rig.push_sized(0, 1));
    let mut all = rig.take(PLACES);
    assert!(join(producer));
    all.extend(rig.empty_by_weight());
    assert_eq!(all, [0]);
}

/// Light items come in while one is evicted for.
fn light_against_eviction() {
    let rig = Rig::with_sizes(PLACES, &[2, 2], None);
    let producer = rig.spawn(|rig| rig.push_sized(100, 1));
    let mut all = Vec::new();
    rig.evict_sized(101, 7, &mut all);
    join(producer);
    assert!(all.len() <= 2, "as many as it needs");
    all.extend(rig.empty_by_weight());
    assert!(in_order(all).starts_with(&[0, 1]));
}

/// 100 comes to wait, too heavy for what is spare, while light items are pushed.
fn light_against_waiter() {
    let rig = Rig::with_sizes(PLACES, &[6], None);
    assert_eq!(rig.take(1), [0]);
    let waiter = rig.wait(sized(100, 6));
    let producer = rig.spawn(|rig| rig.push_sized(101, 1));
    assert!(!join(producer), "nobody overtakes");
    rig.settle(1);
    assert!(waiter.is_woken());
    assert_eq!(rig.empty_by_weight(), [100]);
}

/// A light item comes in while the intake is shut.
fn light_against_close() {
    let rig = Rig::with_sizes(PLACES, &[], None);
    let producer = rig.spawn(|rig| rig.push_sized(0, 1));
    rig.close();
    let accepted = rig.end();
    let is_in = join(producer);
    assert_eq!((accepted, rig.end()), (u64::from(is_in), u64::from(is_in)));
    assert_eq!(rig.empty_by_weight().len() as u64, accepted);
}

/// The flusher goes to sleep until a batch is full, while light items come that make it so by size.
fn light_batch() {
    let rig = Rig::with_sizes(PLACES, &[2], Some(4));
    let producer = rig.spawn(|rig| rig.push_sized(1, 2));
    let sleeps = rig.sleep_for_batch(PLACES);
    assert!(join(producer));
    assert!(!sleeps || rig.is_rung(), "a batch that is full by size wakes the flusher");
}

/// Places are reserved, and one is sent, while a light item is pushed.
fn light_against_permits() {
    let rig = Rig::with_sizes(PLACES, &[], None);
    let producer = rig.spawn(|rig| rig.push_sized(0, 2));
    let is_reserved = rig.reserve_sized(9);
    if is_reserved {
        rig.send_sized(1, 3, 9);
    }
    let is_in = join(producer);
    let items = [(0, is_in), (1, is_reserved)].into_iter().filter(|(_, is_in)| *is_in).map(|(item, _)| item);
    assert_eq!(in_order(rig.empty_by_weight()), items.collect::<Vec<_>>());
}

#[test]
fn what_is_inside_is_exact_while_light_items_come() {
    explore(light_against_looks);
}

#[test]
fn what_is_prepaid_is_a_heavy_items_too() {
    explore(light_against_heavy);
}

#[test]
fn a_heavy_item_in_a_prepaid_place_counts_once() {
    explore(light_beside_heavy);
}

#[test]
fn light_items_come_out_in_order_and_leave_nothing_behind() {
    explore(light_against_flusher);
}

#[test]
fn an_eviction_beside_light_items_is_exact() {
    explore(light_against_eviction);
}

#[test]
fn light_items_do_not_overtake() {
    explore(light_against_waiter);
}

#[test]
fn nothing_light_is_accepted_after_the_close() {
    explore(light_against_close);
}

#[test]
fn light_items_that_fill_a_batch_wake_the_flusher() {
    explore(light_batch);
}

#[test]
fn permits_and_prepaid_places_leave_each_other_room() {
    explore(light_against_permits);
}

#[test]
fn twin_prepaid_kept() {
    must_fail(Fault::PrepaidKept, light_against_heavy);
}

#[test]
fn twin_prepaid_by_load() {
    must_fail(Fault::PrepaidByLoad, light_against_looks);
}

#[test]
fn twin_prepaid_unmarked() {
    must_fail(Fault::PrepaidUnmarked, light_beside_heavy);
}

#[test]
fn twin_prepaid_above_alarm() {
    must_fail(Fault::PrepaidAboveAlarm, light_batch);
}

#[test]
fn twin_prepaid_unsettled() {
    must_fail(Fault::PrepaidUnsettled, light_against_flusher);
}

#[test]
fn twin_prepaid_for_waiters() {
    must_fail(Fault::PrepaidForWaiters, light_against_waiter);
}
