use std::hint::black_box;

use super::*;
use crate::splitmix::mix;

const TARGET: Duration = Duration::from_millis(100);
const AIM: Aim =
    Aim { target_latency: TARGET, min_interval: Duration::from_millis(5), max_interval: Duration::from_secs(1) };

fn at(millis: u64) -> Tick {
    Tick::at(Duration::from_millis(millis))
}

fn view(buffered: u64) -> View {
    View {
        buffered,
        capacity: 10_000,
        oldest: Some(at(100)),
        is_tight: false,
        is_flushing: false,
        is_closed: false,
        is_paused: false,
        max_batch: 5000,
        linger: Duration::ZERO,
        aim: Some(AIM),
        calls: 0,
        slots: 1,
        fits: u64::MAX,
        again: None,
    }
}

fn again(due: Option<Tick>) -> Option<Again> {
    Some(Again { items: 70, due })
}

fn sample(ticket: Ticket, millis: u64, outcome: Outcome) -> Sample {
    Sample { ticket, items: 100, latency: Duration::from_millis(millis), outcome, buffered: 0, calls: 0 }
}

/// With a first batch of 100, told of `AIM`, and its log.
fn pace() -> (Adaptive, Log) {
    let mut pace = Adaptive::new(100, Some(AIM), 1);
    pace.plan(at(0), &view(0));
    (pace, Log::new())
}

/// One call that ends so at that time.
fn call(pace: &mut Adaptive, log: &mut Log, millis: u64, outcome: Outcome) {
    let ticket = pace.started(at(millis), 100);
    pace.ended(at(millis), &sample(ticket, 50, outcome), log);
}

fn reasons(log: &Log) -> Vec<DecisionReason> {
    log.entries().map(|entry| entry.decision.reason).collect()
}

fn take(reason: FlushReason) -> Plan {
    Plan::Take { most: 100, reason }
}

const HELD: Plan = Plan::Sleep { items: None, until: None };

#[test]
fn an_idle_controller_sets_no_timer() {
    let (mut pace, mut log) = pace();
    let asleep = Plan::Sleep { items: Some(1), until: None };
    assert_eq!(pace.plan(at(1), &view(0)), asleep);
    call(&mut pace, &mut log, 1, Outcome::Failed { until: Some(at(1000)) });
    assert_eq!(pace.plan(at(2), &view(0)), asleep);
}

#[test]
fn an_idle_sink_gets_what_is_there_at_once_and_then_spaced() {
    let (mut pace, _) = pace();
    assert_eq!(pace.plan(at(100), &view(1)), take(FlushReason::Idle));
    pace.started(at(100), 1);
    assert_eq!(pace.plan(at(101), &view(1)), Plan::Sleep { items: Some(100), until: Some(at(105)) });
    assert_eq!(pace.plan(at(105), &view(1)), take(FlushReason::Idle));
    // A full one does not wait, nor does one for which somebody waits.
    assert_eq!(pace.plan(at(101), &view(100)), take(FlushReason::Full));
    assert_eq!(pace.plan(at(101), &View { is_tight: true, ..view(1) }), take(FlushReason::Room));
    assert_eq!(pace.plan(at(101), &View { is_flushing: true, ..view(1) }), take(FlushReason::Flush));
    assert_eq!(pace.plan(at(101), &View { is_closed: true, ..view(1) }), take(FlushReason::Drain));
}

/// A pace with so many slots in use, which have brought something.
fn with_slots(count: u64) -> Adaptive {
    let (mut pace, mut log) = pace();
    for i in 0..10_000 {
        let ticket = pace.started(at(i), 100);
        let items = pace.batch.items();
        pace.plan(at(i), &View { slots: count, ..view(0) });
        let sample = Sample { items, buffered: 9_000, ..sample(ticket, 60, Outcome::Ok) };
        pace.ended(at(i), &Sample { ticket: Ticket { is_full: true, ..ticket }, ..sample }, &mut log);
        if pace.slots.count() == count {
            pace.batch.resize(100.0, pace.seq);
            return pace;
        }
    }
    panic!("{} of {count} slots", pace.slots.count());
}

#[test]
fn the_busier_the_slots_the_fuller_the_batch() {
    let mut pace = with_slots(4);
    let busy = |calls, buffered| View { calls, slots: 4, oldest: Some(at(99_900)), ..view(buffered) };
    let now = at(99_910);
    for (calls, enough) in [(1, 25), (2, 50), (3, 75)] {
        let Plan::Sleep { items, until: Some(until) } = pace.plan(now, &busy(calls, enough - 1)) else { panic!() };
        assert_eq!(items, Some(enough));
        assert_eq!(pace.plan(now, &busy(calls, enough)), take(FlushReason::Idle));
        // As long as a call usually takes.
        assert_eq!(until.since(at(99_900)).as_millis(), 60);
        assert_eq!(pace.plan(until, &busy(calls, enough - 1)), take(FlushReason::Linger));
    }
    assert_eq!(pace.plan(now, &busy(4, 5000)), HELD);
    assert_eq!(pace.plan(now, &View { is_flushing: true, is_closed: true, ..busy(4, 5000) }), HELD);
}

#[test]
fn pause_holds_all_but_flush_and_drain() {
    let (mut pace, _) = pace();
    let paused = View { is_paused: true, is_tight: true, ..view(1000) };
    assert_eq!(pace.plan(at(999), &paused), HELD);
    assert_eq!(pace.plan(at(100), &View { is_flushing: true, ..paused }), take(FlushReason::Flush));
    assert_eq!(pace.plan(at(100), &View { is_closed: true, ..paused }), take(FlushReason::Drain));
    assert_eq!(pace.plan(at(100), &View { again: again(Some(at(99))), ..paused }), Plan::Resend { most: u64::MAX });
}

#[test]
fn nothing_passes_a_shut_gate_and_what_failed_goes_first() {
    let (mut pace, mut log) = pace();
    call(&mut pace, &mut log, 100, Outcome::Failed { until: Some(at(150)) });
    let all = View { is_tight: true, is_flushing: true, is_closed: true, ..view(5000) };
    let held = Plan::Sleep { items: None, until: Some(at(150)) };
    assert_eq!(pace.plan(at(149), &all), held);
    assert_eq!(pace.plan(at(149), &View { again: again(Some(at(120))), ..all }), held);
    assert_eq!(pace.plan(at(150), &View { again: again(Some(at(120))), ..all }), Plan::Resend { most: u64::MAX });
    assert_eq!(reasons(&log), [DecisionReason::Failed]);
    call(&mut pace, &mut log, 150, Outcome::Failed { until: None });
    assert_eq!(pace.plan(at(u64::MAX), &all), HELD);
}

#[test]
fn one_slot_keeps_the_order_and_several_do_not_wait() {
    let (mut pace, _) = pace();
    let later = View { again: again(Some(at(500))), ..view(5000) };
    assert_eq!(pace.plan(at(100), &later), Plan::Sleep { items: None, until: Some(at(500)) });
    assert_eq!(pace.plan(at(100), &View { again: again(None), ..later }), HELD);
    assert_eq!(pace.plan(at(100), &View { slots: 2, ..later }), take(FlushReason::Full));
    pace.started(at(100), 100);
    let few = View { slots: 2, buffered: 1, ..later };
    assert_eq!(pace.plan(at(101), &few), Plan::Sleep { items: Some(100), until: Some(at(105)) });
    let none = View { buffered: 0, ..few };
    assert_eq!(pace.plan(at(101), &none), Plan::Sleep { items: Some(1), until: Some(at(500)) });
    assert_eq!(pace.plan(at(101), &View { is_paused: true, ..few }), Plan::Sleep { items: None, until: Some(at(500)) });
}

#[test]
fn a_throttling_sink_is_left_alone_as_long_as_it_asked_and_then_called_less_often() {
    let (mut pace, mut log) = pace();
    (0..20).for_each(|i| call(&mut pace, &mut log, i * 50, Outcome::Ok));
    call(&mut pace, &mut log, 1000, Outcome::Throttled(Duration::from_secs(3)));
    let all = View { is_flushing: true, is_closed: true, ..view(5000) };
    assert_eq!(pace.plan(at(3999), &all), Plan::Sleep { items: None, until: Some(at(4000)) });
    assert!(matches!(pace.plan(at(4000), &all), Plan::Take { .. }));
    pace.started(at(4000), 100);
    let Plan::Sleep { items: None, until: Some(next) } = pace.plan(at(4001), &all) else { panic!() };
    assert_eq!(log.last().map(|last| last.reason), Some(DecisionReason::Throttled));
    let rate = log.last().and_then(|last| last.rate).unwrap();
    assert!((next.since(at(4000)).as_secs_f64() * rate - 1.0).abs() < 1e-6);
}

#[test]
fn a_sink_that_is_down_gets_one_call_until_it_answers() {
    let mut pace = with_slots(16);
    let mut log = Log::new();
    for round in 0..3 {
        call(&mut pace, &mut log, round * 100, Outcome::Failed { until: Some(at(round * 100 + 50)) });
    }
    let busy = View { calls: 1, slots: 16, ..view(5000) };
    assert_eq!(pace.plan(at(999), &busy), HELD);
    assert!(matches!(pace.plan(at(999), &View { calls: 0, ..busy }), Plan::Take { .. }));
    call(&mut pace, &mut log, 1000, Outcome::Ok);
    assert!(matches!(pace.plan(at(1000), &busy), Plan::Take { .. }));
    assert_eq!(reasons(&log)[3..], [DecisionReason::Recovered]);
}

#[test]
fn void_says_nothing() {
    let (mut pace, mut log) = pace();
    (0..100).for_each(|i| call(&mut pace, &mut log, i, Outcome::Void));
    assert_eq!(log.count(), 0);
    assert_eq!(pace.plan(at(999), &view(1)), take(FlushReason::Idle));
}

#[test]
fn retries_are_cut_until_none_is_left() {
    let (mut pace, mut log) = pace();
    let retry = View { again: again(Some(at(100))), ..view(0) };
    call(&mut pace, &mut log, 100, Outcome::TimedOut { until: Some(at(100)) });
    let cut = pace.batch.items();
    assert!(cut <= 50);
    // The first part went well, which is not the end of it.
    for i in 0..10 {
        assert_eq!(pace.plan(at(200 + i), &retry), Plan::Resend { most: pace.batch.items() });
        call(&mut pace, &mut log, 200 + i, Outcome::Ok);
    }
    pace.plan(at(300), &view(0));
    call(&mut pace, &mut log, 300, Outcome::Failed { until: Some(at(300)) });
    assert_eq!(pace.plan(at(300), &retry), Plan::Resend { most: u64::MAX });
}

#[test]
fn failures_count_once_a_round() {
    let (mut pace, mut log) = pace();
    let tickets: Vec<Ticket> = (0..12).map(|_| pace.started(at(100), 100)).collect();
    for ticket in tickets {
        pace.ended(at(1100), &sample(ticket, 1000, Outcome::TimedOut { until: Some(at(1150)) }), &mut log);
    }
    assert_eq!(reasons(&log), [DecisionReason::TimedOut]);
    assert_eq!(pace.batch.items(), 12, "an eighth, once");
    call(&mut pace, &mut log, 1200, Outcome::Ok);
    assert!(!reasons(&log).contains(&DecisionReason::Recovered), "one round is not three");
}

#[test]
fn a_change_of_the_batch_does_not_hide_a_failure() {
    let (mut pace, mut log) = pace();
    let late = pace.started(at(0), 100);
    for i in 1..20 {
        let ticket = pace.started(at(i), pace.batch.items());
        pace.ended(at(i), &sample(ticket, 1, Outcome::Ok), &mut log);
    }
    assert!(reasons(&log).contains(&DecisionReason::Grow));
    pace.ended(at(1000), &sample(late, 1000, Outcome::TimedOut { until: Some(at(1050)) }), &mut log);
    assert_eq!(reasons(&log).last(), Some(&DecisionReason::TimedOut));
}

#[test]
fn bounds_hold_as_soon_as_they_are_seen() {
    let (mut pace, _) = pace();
    let most = |pace: &mut Adaptive, view: View| match pace.plan(at(100), &view) {
        Plan::Take { most, .. } => most,
        plan => panic!("{plan:?}"),
    };
    assert_eq!(most(&mut pace, view(1000)), 100);
    assert_eq!(most(&mut pace, View { max_batch: 30, ..view(1000) }), 30);
    assert_eq!(most(&mut pace, View { capacity: 7, ..view(7) }), 7);
    assert_eq!(most(&mut pace, View { max_batch: 0, ..view(7) }), 1);
}

#[test]
fn without_an_aim_it_is_the_fixed_pace_and_learns_nothing() {
    let (mut pace, mut log) = pace();
    let fixed = View { aim: None, max_batch: 10, linger: Duration::from_millis(5), ..view(9) };
    for (now, view) in [(104, fixed), (105, fixed), (104, View { buffered: 10, ..fixed })] {
        assert_eq!(pace.plan(at(now), &view), Fixed.plan(at(now), &view));
    }
    (0..100).for_each(|i| call(&mut pace, &mut log, i, Outcome::Failed { until: None }));
    assert_eq!(log.count(), 0);
    assert_eq!(pace.plan(at(999), &view(100)), take(FlushReason::Full));
}

/// Whatever comes, in whatever order.
#[test]
fn extremes_leave_it_within_its_bounds() {
    let spans = [Duration::ZERO, Duration::from_nanos(1), TARGET, Duration::from_secs(1 << 40), Duration::MAX];
    let counts = [1, 2, 100, 1 << 40, u64::MAX];
    for seed in 0..300 {
        let mut random = seed;
        let mut draw = move |below: usize| {
            random = mix(random);
            (random % below as u64) as usize
        };
        let (mut pace, mut log) = (Adaptive::new(counts[draw(5)], None, seed), Log::new());
        let aim = Aim { target_latency: spans[draw(5)], min_interval: spans[draw(5)], max_interval: spans[draw(5)] };
        let (mut now, mut calls, mut tickets) = (Tick::default(), 0, Vec::new());
        for _ in 0..500 {
            now = now.after(Duration::from_millis(1 << draw(12))).unwrap();
            let due = [None, Some(now), now.after(TARGET)][draw(3)];
            let view = View {
                buffered: [0, 1, 100, u64::MAX][draw(4)],
                capacity: counts[draw(5)],
                oldest: [None, Some(now), Some(Tick::default())][draw(3)],
                is_tight: draw(2) == 0,
                is_flushing: draw(8) == 0,
                is_closed: draw(16) == 0,
                is_paused: draw(8) == 0,
                max_batch: counts[draw(5)],
                fits: counts[draw(5)].max(1),
                linger: spans[draw(5)],
                aim: if draw(20) == 0 { None } else { Some(aim) },
                calls,
                slots: counts[draw(5)],
                again: if draw(4) == 0 { again(due) } else { None },
            };
            let plan = pace.plan(now, &view);
            let (size, slots, rate) = (pace.batch.size(), pace.slots.count(), pace.throttle.rate());
            assert!(view.aim.is_none() || (1..=view.slots).contains(&slots), "{slots} slots of {}", view.slots);
            assert!(size.is_finite() && size >= 1.0, "{size}");
            assert!(rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "{rate:?}");
            match plan {
                Plan::Take { most, .. } => {
                    assert!(most >= 1 && most <= view.max_batch.min(view.capacity));
                    assert!(view.buffered > 0 && calls < view.slots);
                }
                Plan::Resend { most } => assert!(most >= 1 && view.again.is_some() && calls < view.slots),
                Plan::Sleep { until, .. } => assert!(until.is_none_or(|until| until > now)),
            }
            if !matches!(plan, Plan::Sleep { .. }) {
                tickets.push(pace.started(now, counts[draw(5)]));
                calls += 1;
            }
            if draw(2) == 0 && !tickets.is_empty() {
                let ticket = tickets.swap_remove(draw(tickets.len()));
                calls -= 1;
                let outcome = [
                    Outcome::Ok,
                    Outcome::Throttled(spans[draw(3)]),
                    Outcome::Failed { until: now.after(TARGET) },
                    Outcome::TimedOut { until: Some(now) },
                    Outcome::TooLarge,
                    Outcome::Void,
                ][draw(16).saturating_sub(10)];
                let (items, buffered) = (counts[draw(5)], [0, u64::MAX][draw(2)]);
                let sample = Sample { ticket, items, latency: spans[draw(5)], outcome, buffered, calls };
                pace.ended(now, &sample, &mut log);
            }
        }
    }
}

const _: () = assert!(size_of::<Adaptive>() <= 512);

#[test]
#[allow(clippy::disallowed_methods, reason = "it is about real time")]
fn r19_a_call_costs_the_pace_little() {
    const CALLS: u32 = 20_000;
    let (mut pace, mut log) = pace();
    let busy = View { slots: 8, calls: 3, ..view(1_000) };
    // Less than 300 ns; without the compiler's optimisation, and under a sanitizer, a hundred times as much is granted.
    let most = Duration::from_nanos(if cfg!(debug_assertions) { 30_000 } else { 300 });
    let mut least = Duration::MAX;
    for round in 0..10 {
        let start = std::time::Instant::now();
        for i in 0..CALLS {
            let now = at(u64::from(round * CALLS + i));
            black_box(pace.plan(now, black_box(&busy)));
            let ticket = pace.started(now, 100);
            let latency = u64::from(50 + i % 60);
            pace.ended(now, &Sample { buffered: 1_000, ..sample(ticket, latency, Outcome::Ok) }, &mut log);
        }
        least = least.min(start.elapsed() / CALLS);
    }
    println!("{least:?} a call, {} B", size_of::<Adaptive>());
    assert!(least < most, "{least:?} a call");
}
