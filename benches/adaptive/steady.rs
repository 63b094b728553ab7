//! R1 to R6 and R9 to R12: sinks that stay as they are, or change once.

use crate::course::{Course, Load};
use crate::mark::{Mark, Unit};
use crate::meter::{Figures, Trace};
use crate::row::{Row, latency, none, throughput};
use crate::run::Run;
use crate::sink::{Noise, Spec};

/// One server, 8 ms a call and 50 µs an item: at 100 ms it takes 18 200 items a second.
pub(crate) const SERIAL: Spec = Spec::new(0.008, 50e-6);
/// Eight servers, 20 ms a call and 200 µs an item.
pub(crate) const KNEE: Spec = Spec { servers: Some(8), ..Spec::new(0.02, 200e-6) };
/// Behind a limit on calls or on items.
const LIMITED: Spec = Spec { servers: Some(8), ..Spec::new(0.03, 20e-6) };

/// What the best fixed setting of batch and slots reaches within the target, in items a second.
pub(crate) const SERIAL_BEST: f64 = 18_200.0;
pub(crate) const SERIAL_SLOW_BEST: f64 = 4_550.0;
pub(crate) const KNEE_BEST: f64 = 39_562.0;
pub(crate) const KNEE_SLOW_BEST: f64 = 9_875.0;

pub(crate) fn serial(rate: f64, measure: (f64, f64)) -> Course {
    Course { slots: 1, ..Course::new(SERIAL, rate, measure) }
}

pub(crate) fn knee(rate: f64, measure: (f64, f64)) -> Course {
    Course::new(KNEE, rate, measure)
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::course("R1", "serial", serial(30_000.0, (5.0, 20.0)), |course, run| {
            let figures = measured(course, run);
            let mut marks = vec![
                throughput(figures.items_per_s, SERIAL_BEST, 0.95),
                latency("p99", course, figures.p99, 1.1),
                variation("CV(B)", course, run, |trace| trace.batch, 0.1),
            ];
            marks.extend(convergence(course, run, 1.5, Some(25.0)));
            marks
        }),
        step(),
        Row::course("R3", "knee", knee(60_000.0, (10.0, 60.0)), |course, run| {
            let figures = measured(course, run);
            let mut marks = vec![
                throughput(figures.items_per_s, KNEE_BEST, 0.95),
                latency("p99", course, figures.p99, 1.15),
                variation("CV(B)", course, run, |trace| trace.batch, 0.15),
                variation("CV(C)", course, run, |trace| trace.slots, 0.15),
                flushes(&figures, 250.0),
            ];
            marks.extend(convergence(course, run, 2.5, Some(120.0)));
            marks
        }),
        retrograde(),
        bursts(),
        limited_calls(),
        limited_items(),
        heavy_tail(),
    ]
}

fn step() -> Row {
    let spec = Spec { steps: &[(20.0, 4.0), (40.0, 1.0)], ..SERIAL };
    let course = Course { slots: 1, ..Course::new(spec, 30_000.0, (45.0, 60.0)) };
    Row::course("R2", "step x4", course, |course, run| {
        let slow = run.meter.figures(22.0, 40.0);
        let (flushes, seconds) = run.meter.settling(20.0, 1.2 * course.target);
        vec![
            throughput(slow.items_per_s, SERIAL_SLOW_BEST, 0.95),
            latency("peak", course, run.meter.figures(20.0, 40.0).peak, 4.2),
            Mark::at_most("settled", flushes, 10.0, Unit::Count),
            Mark::at_most("within", seconds, 2.5, Unit::Seconds),
            again(course, run, 40.0, 3.0),
        ]
    })
}

fn retrograde() -> Row {
    let spec = Spec { servers: None, scaling: Some((0.03, 0.002)), ..KNEE };
    Row::course("R4", "retrograde", Course::new(spec, 60_000.0, (10.0, 60.0)), |course, run| {
        let figures = measured(course, run);
        let mut marks =
            vec![throughput(figures.items_per_s, 41_775.0, 0.93), latency("p99", course, figures.p99, 1.15)];
        marks.extend(convergence(course, run, 4.0, None));
        marks
    })
}

fn bursts() -> Row {
    let load = Load::Bursts { period: 2.0, high_for: 0.6, high: 60_000.0, low: 5_000.0 };
    Row::course("R6", "bursts", Course { load, ..knee(0.0, (10.0, 40.0)) }, |course, run| {
        let figures = measured(course, run);
        vec![
            none("dropped", run.meter.dropped),
            Mark::at_most("p99 age", figures.p99_age, 0.45, Unit::Millis),
            latency("p99", course, figures.p99, 1.2),
            flushes(&figures, 200.0),
        ]
    })
}

fn limited_calls() -> Row {
    let spec = Spec { calls_limit: Some((20.0, 5.0)), ..LIMITED };
    let course = Course { target: 0.25, slots: 8, max_batch: 2000, ..Course::new(spec, 20_000.0, (15.0, 60.0)) };
    Row::course("R9", "request limit", course, |course, run| {
        let figures = measured(course, run);
        vec![
            throughput(figures.items_per_s, 20_000.0, 0.98),
            Mark::at_most("throttled", figures.throttled, 0.01, Unit::Percent),
            Mark::at_most("p99 age", figures.p99_age, 0.15, Unit::Millis),
        ]
    })
}

fn limited_items() -> Row {
    let spec = Spec { items_limit: Some((4000.0, 4000.0)), ..LIMITED };
    let course = Course { target: 0.25, slots: 8, max_batch: 2000, ..Course::new(spec, 20_000.0, (30.0, 90.0)) };
    Row::course("R10", "item limit", course, |course, run| {
        let figures = measured(course, run);
        vec![
            throughput(figures.items_per_s, 4000.0, 0.95),
            Mark::at_most("throttled", figures.throttled, 0.12, Unit::Percent),
        ]
    })
}

fn heavy_tail() -> Row {
    let spec = Spec { noise: Noise::LogNormal(0.5), ..KNEE };
    Row::course("R11", "heavy tail", Course::new(spec, 60_000.0, (30.0, 90.0)), |course, run| {
        let figures = measured(course, run);
        vec![
            throughput(figures.items_per_s, 40_144.0, 0.88),
            latency("p95", course, figures.p95, 1.2),
            latency("p99", course, figures.p99, 1.7),
        ]
    })
}

pub(crate) fn measured(course: &Course, run: &Run) -> Figures {
    run.meter.figures(course.measure.0, course.measure.1)
}

fn flushes(figures: &Figures, most: f64) -> Mark {
    Mark::at_most("flushes", figures.flushes_per_s, most, Unit::PerSecond)
}

fn variation(name: &'static str, course: &Course, run: &Run, knob: fn(&Trace) -> f64, most: f64) -> Mark {
    Mark::at_most(name, run.meter.variation(course.measure, knob), most, Unit::Ratio)
}

/// How soon 90 % of the throughput is reached that is measured later, from the start.
fn convergence(course: &Course, run: &Run, seconds: f64, flushes: Option<f64>) -> Vec<Mark> {
    let reference = measured(course, run).items_per_s;
    let (after, count) = run.meter.convergence((0.0, course.end), reference, 0.5, 0.1);
    let mut marks = vec![Mark::at_most("converged", after, seconds, Unit::Seconds)];
    marks.extend(flushes.map(|most| Mark::at_most("after", count, most, Unit::Count)));
    marks
}

/// How soon that throughput is reached again after `from`.
pub(crate) fn again(course: &Course, run: &Run, from: f64, seconds: f64) -> Mark {
    let reference = measured(course, run).items_per_s;
    let (after, _) = run.meter.convergence((from, course.end), reference, 1.0, 0.25);
    Mark::at_most("again", after, seconds, Unit::Seconds)
}
