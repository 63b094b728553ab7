//! What the pace has to reach, in the simulation of `bench`, for each of the seeds.

use super::super::DecisionReason;
use super::bench::{Noise, Run, Setup};

const SEEDS: [u64; 3] = [1, 2, 3];
const TARGET: f64 = 0.1;

fn serial() -> Setup {
    Setup {
        a: 0.008,
        b: 50e-6,
        servers: 1,
        usl: None,
        noise: Noise::Uniform(0.1),
        slow: Vec::new(),
        outage: None,
        call_limit: None,
        item_limit: None,
        timeout: None,
        arrivals: |_| 30_000.0,
        target: TARGET,
        slots: 1,
        max_batch: 5000,
        seconds: 20.0,
    }
}

fn knee() -> Setup {
    Setup { a: 0.02, b: 200e-6, servers: 8, slots: 64, arrivals: |_| 60_000.0, seconds: 60.0, ..serial() }
}

fn each_seed(name: &str, setup: &Setup, check: impl Fn(&Run)) {
    each_of(&SEEDS, name, setup, check);
}

/// Runs it with each of the seeds; nothing may be lost, whatever the sink does.
fn each_of(seeds: &[u64], name: &str, setup: &Setup, check: impl Fn(&Run)) {
    for &seed in seeds {
        let run = setup.run(seed);
        let (from, to) = (setup.seconds / 4.0, setup.seconds);
        let last = run.trace.last().unwrap();
        println!(
            "{name} seed {seed}: {:.0}/s p95 {:.3} p99 {:.3} p99 age {:.3} calls {:.1}/s batch {:.0} slots {} bad {:.4} cv {:.2}/{:.2} dropped {}",
            run.rate(from, to),
            run.latency(from, to, 0.95),
            run.latency(from, to, 0.99),
            run.age(from, to, 0.99),
            run.calls_a_second(from, to),
            last.batch,
            last.slots,
            run.bad(from, to),
            run.variation(from, to, |trace| trace.batch),
            run.variation(from, to, |trace| trace.slots),
            run.dropped,
        );
        assert_eq!(run.lost, 0, "{name} with seed {seed}");
        check(&run);
    }
}

#[track_caller]
fn at_least(what: &str, figure: f64, least: f64) {
    assert!(figure >= least, "{what}: {figure:.4} is below {least:.4}");
}

#[track_caller]
fn at_most(what: &str, figure: f64, most: f64) {
    assert!(figure <= most, "{what}: {figure:.4} is above {most:.4}");
}

/// The first of five calls in a row that are near the target: how many calls and seconds after `from`.
fn settles(run: &Run, from: f64) -> (usize, f64) {
    let after: Vec<_> = run.ended.iter().filter(|call| call.at >= from).collect();
    let first = after.windows(5).position(|five| five.iter().all(|call| call.latency <= 1.2 * TARGET));
    let first = first.unwrap_or(usize::MAX);
    (first, after.get(first).map_or(f64::INFINITY, |call| call.at - from))
}

fn peak(run: &Run, from: f64, to: f64) -> f64 {
    run.latency(from, to, 1.0)
}

#[test]
fn r1_a_serial_sink_is_used_and_its_target_kept() {
    each_seed("R1", &serial(), |run| {
        at_least("items a second", run.rate(5.0, 20.0), 0.95 * 18_200.0);
        at_most("p99", run.latency(5.0, 20.0, 0.99), 1.10 * TARGET);
        at_most("convergence", run.converges(0.0, 20.0, 18_200.0, 0.5, 0.1), 1.5);
        at_most("variation of the batch", run.variation(5.0, 20.0, |trace| trace.batch), 0.10);
    });
}

#[test]
fn r2_a_step_is_followed_both_ways() {
    let setup = Setup { slow: vec![(20.0, 4.0), (40.0, 1.0)], seconds: 60.0, ..serial() };
    each_seed("R2", &setup, |run| {
        at_least("items a second while slow", run.rate(22.0, 40.0), 0.95 * 4_550.0);
        let (calls, seconds) = settles(run, 20.0);
        at_most("calls until it is near the target", calls as f64, 10.0);
        at_most("seconds until it is near the target", seconds, 2.5);
        at_most("peak", peak(run, 20.0, 40.0), 4.2 * TARGET);
        at_most("seconds until it is fast again", run.converges(40.0, 60.0, 18_200.0, 1.0, 0.25), 3.0);
    });
}

#[test]
fn r3_the_knee_of_eight_servers_is_found() {
    each_seed("R3", &knee(), |run| {
        at_least("items a second", run.rate(10.0, 60.0), 0.95 * 39_562.0);
        at_most("p99", run.latency(10.0, 60.0, 0.99), 1.15 * TARGET);
        at_most("convergence", run.converges(0.0, 60.0, 39_562.0, 0.5, 0.1), 2.5);
        at_most("variation of the batch", run.variation(10.0, 60.0, |trace| trace.batch), 0.15);
        at_most("variation of the slots", run.variation(10.0, 60.0, |trace| trace.slots), 0.15);
        at_most("calls a second", run.calls_a_second(10.0, 60.0), 250.0);
    });
}

#[test]
fn r4_a_sink_that_many_calls_slow_down() {
    let setup = Setup { servers: usize::MAX, usl: Some((0.03, 0.002)), ..knee() };
    each_seed("R4", &setup, |run| {
        at_least("items a second", run.rate(10.0, 60.0), 0.93 * 41_775.0);
        at_most("p99", run.latency(10.0, 60.0, 0.99), 1.15 * TARGET);
        at_most("convergence", run.converges(0.0, 60.0, 41_775.0, 0.5, 0.1), 4.0);
    });
}

#[test]
fn r5_a_light_load_waits_for_nothing() {
    let setup = Setup { servers: 8, slots: 8, arrivals: |_| 200.0, ..serial() };
    each_seed("R5", &setup, |run| {
        at_most("p99 of the age", run.age(5.0, 20.0, 0.99), 0.025);
        at_most("calls a second", run.calls_a_second(5.0, 20.0), 130.0);
    });
}

#[test]
fn r6_bursts() {
    let arrivals = |at: f64| if at % 2.0 < 0.6 { 60_000.0 } else { 5_000.0 };
    each_seed("R6", &Setup { arrivals, seconds: 40.0, ..knee() }, |run| {
        assert_eq!(run.dropped, 0);
        at_most("p99 of the age", run.age(10.0, 40.0, 0.99), 0.45);
        at_most("p99", run.latency(10.0, 40.0, 0.99), 1.2 * TARGET);
        at_most("calls a second", run.calls_a_second(10.0, 40.0), 200.0);
    });
}

#[test]
fn r7_an_outage_costs_few_attempts_and_no_item() {
    let setup = Setup { outage: Some((20.0, 30.0)), arrivals: |_| 8_000.0, seconds: 50.0, ..serial() };
    each_seed("R7", &setup, |run| {
        let attempts = run.begun.iter().filter(|at| (20.0..30.0).contains(*at)).count();
        at_most("attempts", attempts as f64, 25.0);
        assert!(!run.is_out_of_order);
        assert!(run.trace.iter().all(|trace| trace.calls <= 1));
        let first = run.ended.iter().find(|call| call.is_ok && call.at >= 30.0).unwrap();
        at_most("first success", first.at - first.latency - 30.0, 1.05);
        let drained = run.trace.iter().find(|trace| trace.at > 30.1 && trace.backlog < 2_500).unwrap();
        at_most("seconds until the backlog is gone", drained.at - 30.0, 6.5);
    });
}

#[test]
fn r8_a_brown_out_with_time_outs() {
    let setup = Setup { slow: vec![(20.0, 20.0), (30.0, 1.0)], timeout: Some(1.0), arrivals: |_| 20_000.0, ..knee() };
    // The last two are those where time-outs that did not count cost half of it.
    each_of(&[1, 2, 3, 50, 89], "R8", &setup, |run| {
        at_least("items a second while slow", run.rate(25.0, 30.0), 0.85 * 2_000.0);
        let drained = run.trace.iter().find(|trace| trace.at > 30.1 && trace.backlog < 2_500).unwrap();
        at_most("seconds until the backlog is gone", drained.at - 30.0, 5.0);
    });
}

fn limited() -> Setup {
    Setup { a: 0.03, b: 20e-6, servers: 8, slots: 8, max_batch: 2000, target: 0.25, arrivals: |_| 20_000.0, ..knee() }
}

#[test]
fn r9_a_limit_of_calls_is_kept_by_large_batches() {
    each_seed("R9", &Setup { call_limit: Some((20.0, 5.0)), ..limited() }, |run| {
        at_least("items a second", run.rate(15.0, 60.0), 0.98 * 20_000.0);
        at_most("throttled", run.bad(15.0, 60.0), 0.01);
        at_most("p99 of the age", run.age(15.0, 60.0, 0.99), 0.15);
    });
}

#[test]
fn r10_a_limit_of_items_is_used() {
    each_seed("R10", &Setup { item_limit: Some((4_000.0, 4_000.0)), seconds: 90.0, ..limited() }, |run| {
        at_least("items a second", run.rate(30.0, 90.0), 0.95 * 4_000.0);
        at_most("throttled", run.bad(30.0, 90.0), 0.12);
    });
}

#[test]
fn r11_a_heavy_tail() {
    each_seed("R11", &Setup { noise: Noise::Log(0.5), seconds: 90.0, ..knee() }, |run| {
        at_least("items a second", run.rate(30.0, 90.0), 0.88 * 40_144.0);
        at_most("p95", run.latency(30.0, 90.0, 0.95), 1.2 * TARGET);
        at_most("p99", run.latency(30.0, 90.0, 0.99), 1.7 * TARGET);
    });
}

#[test]
fn r12_a_target_out_of_reach_costs_no_throughput() {
    let setup = Setup { a: 0.2, b: 100e-6, arrivals: |_| 12_000.0, seconds: 60.0, ..serial() };
    each_seed("R12", &setup, |run| {
        at_least("items a second", run.rate(20.0, 60.0), 0.80 * 5_000.0);
        at_most("p95", run.latency(20.0, 60.0, 0.95), 6.0 * TARGET);
        let is_known = |reason| matches!(reason, DecisionReason::Amortise | DecisionReason::HoldUnreachable);
        let known = run.decisions.iter().find(|decision| is_known(decision.reason)).unwrap();
        at_most("seconds until it is known", known.at.since(Default::default()).as_secs_f64(), 5.0);
    });
}

#[test]
fn r13_capacity_that_goes_and_comes_back() {
    let setup = Setup { slow: vec![(30.0, 4.0), (60.0, 1.0)], seconds: 90.0, ..knee() };
    each_seed("R13", &setup, |run| {
        at_least("items a second", run.rate(10.0, 30.0), 0.95 * 39_562.0);
        at_least("items a second while slow", run.rate(32.0, 60.0), 0.95 * 9_875.0);
        at_least("items a second again", run.rate(70.0, 90.0), 0.95 * 39_562.0);
        at_most("p95 while slow", run.latency(32.0, 60.0, 0.95), 1.15 * TARGET);
        at_most("peak", peak(run, 30.0, 60.0), 5.5 * TARGET);
        at_most("seconds until it is fast again", run.converges(60.0, 90.0, 39_562.0, 1.0, 0.25), 1.0);
    });
}
