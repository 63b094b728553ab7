//! R14: four writers in front of one sink, which start one after the other.
//!
//! Together they have a little more than it takes, so each is to get what it needs. What becomes of four of which each alone
//! would fill the sink is shown, and not judged: they know nothing of each other.

use std::time::Duration;

use crate::course::Course;
use crate::mark::{Mark, Unit};
use crate::meter::Figures;
use crate::row::{Row, latency, throughput};
use crate::run::{drive, on_paused_clock};
use crate::sink::Sink;
use crate::steady::{KNEE_BEST, knee};
use crate::writer::Who;

const WRITERS: u64 = 4;
/// Items a second of each writer; the sink takes 39 562 in all.
const LOAD: f64 = 10_000.0;
const OVERLOAD: f64 = 60_000.0;
/// Seconds between two starts.
const APART: f64 = 5.0;
/// Figures are taken between these times of the sink.
const MEASURE: (f64, f64) = (30.0, 90.0);

pub(crate) fn row() -> Row {
    let row = Row::new("R14", "shared", |who, seed| {
        let course = Course { slots: 16, ..knee(LOAD, MEASURE) };
        let figures = figures(who, &course, seed);
        let p99 = |figures: &[Figures]| figures.iter().map(|figures| figures.p99).fold(0.0, f64::max);
        let overload = self::figures(who, &Course { slots: 16, ..knee(OVERLOAD, MEASURE) }, seed);
        Some(vec![
            throughput(sum(&figures), KNEE_BEST, 0.95),
            Mark::at_least("Jain", fairness(&figures), 0.95, Unit::Ratio),
            latency("p99", &course, p99(&figures), 1.2),
            Mark::shown("at 6 times the load: thr", sum(&overload) / KNEE_BEST, Unit::Percent),
            Mark::shown("Jain", fairness(&overload), Unit::Ratio),
            Mark::shown("p99", p99(&overload) / course.target, Unit::Targets),
        ])
    });
    row.worth(8)
}

fn sum(figures: &[Figures]) -> f64 {
    figures.iter().map(|figures| figures.items_per_s).sum()
}

/// The index of Jain, Chiu and Hawe, 1984: 1 if all have the same, 1/n if one has all.
fn fairness(figures: &[Figures]) -> f64 {
    let squares: f64 = figures.iter().map(|figures| figures.items_per_s.powi(2)).sum();
    sum(figures).powi(2) / (figures.len() as f64 * squares)
}

fn figures(who: Who, course: &Course, seed: u64) -> Vec<Figures> {
    on_paused_clock(async {
        let sink = Sink::start(course.sink.clone(), seed);
        let writers = (0..WRITERS).map(async |number| {
            let late = number as f64 * APART;
            tokio::time::sleep(Duration::from_secs_f64(late)).await;
            let course = Course { end: course.end - late, ..course.clone() };
            let run = drive(who, &course, &sink, seed * WRITERS + number).await;
            run.meter.figures(MEASURE.0 - late, MEASURE.1 - late)
        });
        futures::future::join_all(writers).await
    })
}
