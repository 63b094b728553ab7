//! R14: four writers in front of one sink, which start one after the other.

use crate::course::Course;
use crate::mark::{Mark, Unit};
use crate::meter::Figures;
use crate::row::{Row, latency, throughput};
use crate::run::{Run, drive, on_paused_clock};
use crate::sink::Sink;
use crate::steady::{KNEE_BEST, knee};
use crate::writer::Who;

const WRITERS: u64 = 4;
/// Seconds between two starts.
const APART: f64 = 5.0;
/// Figures are taken between these times of the sink.
const MEASURE: (f64, f64) = (30.0, 90.0);

pub(crate) fn row() -> Row {
    Row::new("R14", "shared", |who, seed| {
        // Each would fill the sink by itself.
        let course = Course { slots: 16, ..knee(60_000.0, MEASURE) };
        let figures = figures(who, &course, seed);
        let rates = || figures.iter().map(|figures| figures.items_per_s);
        let sum: f64 = rates().sum();
        let squares: f64 = rates().map(|rate| rate * rate).sum();
        let p99 = figures.iter().map(|figures| figures.p99).fold(0.0, f64::max);
        Some(vec![
            throughput(sum, KNEE_BEST, 0.95),
            // Jain, Chiu and Hawe, 1984: 1 if all have the same, 1/n if one has all.
            Mark::at_least("Jain", sum * sum / (WRITERS as f64 * squares), 0.95, Unit::Ratio),
            latency("p99", &course, p99, 1.2),
        ])
    })
}

fn figures(who: Who, course: &Course, seed: u64) -> Vec<Figures> {
    on_paused_clock(async {
        let sink = Sink::start(course.sink.clone(), seed);
        let writers = (0..WRITERS).map(async |number| {
            let late = number as f64 * APART;
            tokio::time::sleep(std::time::Duration::from_secs_f64(late)).await;
            let course = Course { end: course.end - late, ..course.clone() };
            let run: Run = drive(who, &course, &sink, seed * WRITERS + number).await;
            run.meter.figures(MEASURE.0 - late, MEASURE.1 - late)
        });
        futures::future::join_all(writers).await
    })
}
