//! R5, R7, R8, R12 and R13: nothing to do, a sink that is down, too slow for its callers, or never fast enough.

use crate::course::{Course, Load};
use crate::mark::{Mark, Unit};
use crate::row::{Row, latency, none, throughput};
use crate::sink::Spec;
use crate::steady::{KNEE, KNEE_BEST, KNEE_SLOW_BEST, SERIAL, again, knee, measured, serial};

pub(crate) fn rows() -> Vec<Row> {
    vec![light(), outage(), brown_out(), unreachable(), capacity()]
}

/// The last item comes at 20 s.
fn light() -> Row {
    let load = Load::Until(200.0, 20.0);
    let course = Course {
        sink: Spec { servers: Some(8), ..SERIAL },
        load,
        slots: 8,
        end: 30.0,
        rest: DAY,
        ..serial(0.0, (5.0, 20.0))
    };
    Row::course("R5", "light and idle", course, |course, run| {
        let figures = measured(course, run);
        vec![
            Mark::at_most("p99 age", figures.p99_age, 0.025, Unit::Millis),
            Mark::at_most("flushes", figures.flushes_per_s, 130.0, Unit::PerSecond),
            Mark::at_most("idle polls", run.meter.polls(20.1, 30.0) as f64, 1.0, Unit::Count),
            // A timer that is set would be over, and its task polled.
            none("polls in a day", run.rest_polls),
        ]
    })
}

const DAY: f64 = 86_400.0;

fn outage() -> Row {
    let sink = Spec { outage: Some((20.0, 30.0)), ..SERIAL };
    let course = Course { sink, end: 50.0, retry_cap: Some(1.0), ..serial(8_000.0, (10.0, 20.0)) };
    Row::course("R7", "outage", course, |_, run| {
        vec![
            Mark::at_most("attempts", run.meter.attempts(20.0, 30.0), 25.0, Unit::Count),
            Mark::at_most("first ok after", run.meter.first_ok(30.0), 1.05, Unit::Seconds),
            Mark::at_most("drained after", run.meter.drained(30.0), 6.5, Unit::Seconds),
            Mark::at_most("in flight", run.meter.most_calls(23.0, 30.0), 1.0, Unit::Count),
            none("lost", run.books.lost),
            none("out of order", run.meter.disordered),
        ]
    })
}

fn brown_out() -> Row {
    let sink = Spec { steps: &[(20.0, 20.0), (30.0, 1.0)], ..KNEE };
    let course = Course { sink, end: 60.0, timeout: Some(1.0), retry_cap: Some(1.0), ..knee(20_000.0, (10.0, 20.0)) };
    Row::course("R8", "brown-out", course, |_, run| {
        let goodput = run.meter.figures(25.0, 30.0).items_per_s;
        vec![
            Mark::at_least("goodput", goodput / 2000.0, 0.85, Unit::Percent),
            Mark::at_most("drained after", run.meter.drained(30.0), 5.0, Unit::Seconds),
            none("lost", run.books.lost),
        ]
    })
}

fn unreachable() -> Row {
    let sink = Spec::new(0.2, 100e-6);
    let course = Course { slots: 1, ..Course::new(sink, 12_000.0, (20.0, 60.0)) };
    Row::course("R12", "unreachable", course, |course, run| {
        let figures = measured(course, run);
        vec![
            throughput(figures.items_per_s, 5000.0, 0.8),
            latency("p95", course, figures.p95, 6.0),
            Mark::at_most("said after", run.meter.unreachable(), 5.0, Unit::Seconds),
        ]
    })
}

fn capacity() -> Row {
    let sink = Spec { steps: &[(30.0, 4.0), (60.0, 1.0)], ..KNEE };
    Row::course("R13", "capacity", Course { sink, ..knee(60_000.0, (70.0, 90.0)) }, |course, run| {
        let slow = run.meter.figures(32.0, 60.0);
        vec![
            throughput(measured(course, run).items_per_s, KNEE_BEST, 0.95),
            Mark::at_least("slow thr", slow.items_per_s / KNEE_SLOW_BEST, 0.95, Unit::Percent),
            latency("slow p95", course, slow.p95, 1.15),
            latency("peak", course, run.meter.figures(30.0, 60.0).peak, 5.5),
            again(course, run, 60.0, 1.0),
        ]
    })
}
