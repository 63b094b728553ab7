//! Models with a twin: the real code is broken at one step (`sync::Fault`), and some schedule must fail.
//!
//! A fault is for a whole process, so a twin is a test of this very program that is run once more.

use std::env;
use std::process::Command;

/// The first one that fails is the last one: so many only cost time where the twin is wrong.
const SCHEDULES: &str = "5000";

/// Runs the model `test` with the protocol broken at `fault`.
fn must_fail(fault: &str, test: &str) {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", test])
        .env("BACKPRESSURE_SHUTTLE_FAULT", fault)
        .env_remove("BACKPRESSURE_SHUTTLE_REPLAY")
        .env("BACKPRESSURE_SHUTTLE_SCHEDULES", SCHEDULES)
        .env_remove("BACKPRESSURE_SHUTTLE_SEED")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "there is no {test}: {said}");
    assert!(!output.status.success(), "{test} cannot see {fault}");
}

#[test]
fn the_models_see_that_room_ends_at_the_take() {
    must_fail("RoomBeforeTake", "ends::a_drain_that_races_pushes_delivers_all_that_came_in");
    must_fail("RoomBeforeTake", "pulls::what_is_pulled_is_settled_or_comes_again");
    must_fail("RoomBeforeTake", "strategies::a_tracked_item_is_told_of_once_whatever_becomes_of_it");
}

#[test]
fn the_models_see_that_waiters_are_overtaken() {
    must_fail("LimitBeforeTail", "wakeups::nobody_overtakes_a_producer_that_waits");
    must_fail("ReleaseToAll", "wakeups::nobody_overtakes_a_producer_that_waits");
}

#[test]
fn the_models_see_that_permits_are_no_places() {
    must_fail("StoreWithPermits", "permits::many_places_are_had_all_or_none_and_nobody_is_overtaken_for_good");
    must_fail("SendInTwoSteps", "permits::a_permit_stands_for_a_place_until_it_is_spent_or_given_back");
}

#[test]
fn the_models_see_that_something_comes_in_after_the_close() {
    must_fail("ClosedSeenOnce", "ends::a_drain_that_races_pushes_delivers_all_that_came_in");
    must_fail("EvictIgnoresClosed", "ends::a_close_lets_who_waits_go_and_keeps_what_is_in");
}

#[test]
fn the_models_see_that_nobody_is_woken() {
    must_fail("AlarmTakenBlind", "wakeups::a_full_batch_leaves_at_once");
    must_fail("FirstTicket", "wakeups::a_bulk_that_goes_beyond_the_batch_wakes_too");
    must_fail("ServeNobody", "barriers::a_flush_covers_all_that_came_before_it_and_retries_too");
    must_fail("ServeNobody", "pulls::what_is_pulled_is_settled_or_comes_again");
    must_fail("LastPermitSilent", "wakeups::the_last_permit_ends_a_drain");
}

#[test]
fn the_models_see_that_a_cancelled_reservation_keeps_its_place() {
    must_fail("CancelKeepsGrant", "pushes::a_wait_that_is_cancelled_loses_nothing");
}

#[test]
fn the_models_see_a_figure_that_is_wrapped() {
    must_fail("LenUnclamped", "barriers::a_flush_covers_all_that_came_before_it_and_retries_too");
}

#[test]
fn the_models_see_credit_that_is_not_called_in() {
    must_fail("CreditKept", "losses::what_nobody_minds_is_evicted_and_counted");
    must_fail("CreditByLoad", "losses::what_nobody_minds_is_evicted_and_counted");
}
