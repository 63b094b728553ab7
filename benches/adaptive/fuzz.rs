//! R15: sinks out of a file.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::file::{Listed, read};
use crate::mark::{Mark, Unit};
use crate::row::Row;
use crate::run::run;
use crate::writer::{Books, Who};

/// Of the best fixed setting, and in targets: what a sink has to reach to be counted.
const THROUGHPUT: f64 = 0.85;
const P95: f64 = 1.2;

/// The sixty random sinks of this repository.
static SINKS: LazyLock<Vec<Listed>> = LazyLock::new(|| {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/adaptive/sinks-60.jsonl");
    read(&path).unwrap_or_else(|error| panic!("{error}"))
});

/// What has been measured of one.
pub(crate) struct Measured {
    pub(crate) items_per_s: f64,
    /// In targets.
    pub(crate) p95: f64,
    pub(crate) batch: f64,
    pub(crate) slots: f64,
}

pub(crate) fn measure(who: Who, sink: &Listed, seed: u64) -> Measured {
    let course = &sink.course;
    let run = run(who, course, seed);
    let figures = run.meter.figures(course.measure.0, course.measure.1);
    let Books { batch, slots, .. } = run.books;
    Measured { items_per_s: figures.items_per_s, p95: figures.p95 / course.target, batch, slots }
}

/// Every `stride`-th sink.
pub(crate) fn row(stride: usize) -> Row {
    let row = Row::new("R15", "fuzz", move |who, seed| {
        let (mut good, mut count, mut least, mut most) = (0.0, 0.0, f64::INFINITY, 0.0_f64);
        for sink in SINKS.iter().step_by(stride) {
            let measured = measure(who, sink, seed);
            let share = measured.items_per_s / sink.best_fixed.expect("the file says what is best");
            count += 1.0;
            good += f64::from(u8::from(share >= THROUGHPUT && measured.p95 <= P95));
            least = least.min(share);
            most = most.max(measured.p95);
        }
        Some(vec![
            Mark::at_least("good sinks", good / count, 0.95, Unit::Percent),
            Mark::shown("least thr", least, Unit::Percent),
            Mark::shown("most p95", most, Unit::Targets),
        ])
    });
    row.worth(60 / stride)
}
