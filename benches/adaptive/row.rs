//! A row of the table: something to run, and how it is judged.

use crate::course::Course;
use crate::mark::{Mark, Unit};
use crate::run::{Run, run};
use crate::writer::Who;

pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// About how many runs of a single course it is worth.
    pub(crate) runs: usize,
    work: Work,
}

type Marks = Box<dyn Fn(Who, u64) -> Option<Vec<Mark>> + Send + Sync>;

enum Work {
    /// May run beside others, since its clock is its own.
    Virtual(Marks),
    /// Reads the machine's clock, so it runs alone.
    Real(Marks),
}

impl Row {
    /// One writer, one sink.
    pub(crate) fn course(
        id: &'static str,
        name: &'static str,
        course: Course,
        judge: impl Fn(&Course, &Run) -> Vec<Mark> + Send + Sync + 'static,
    ) -> Self {
        Self::new(id, name, move |who, seed| Some(judge(&course, &run(who, &course, seed))))
    }

    /// `marks` of a contestant and a seed; `None` where the contestant has no part in it.
    pub(crate) fn new(
        id: &'static str,
        name: &'static str,
        marks: impl Fn(Who, u64) -> Option<Vec<Mark>> + Send + Sync + 'static,
    ) -> Self {
        Self { id, name, runs: 1, work: Work::Virtual(Box::new(marks)) }
    }

    pub(crate) fn on_the_real_clock(
        id: &'static str,
        name: &'static str,
        marks: impl Fn(Who, u64) -> Option<Vec<Mark>> + Send + Sync + 'static,
    ) -> Self {
        Self { id, name, runs: 1, work: Work::Real(Box::new(marks)) }
    }

    pub(crate) fn worth(mut self, runs: usize) -> Self {
        self.runs = runs;
        self
    }

    pub(crate) const fn runs_alone(&self) -> bool {
        matches!(self.work, Work::Real(_))
    }

    pub(crate) fn marks(&self, who: Who, seed: u64) -> Option<Vec<Mark>> {
        match &self.work {
            Work::Virtual(marks) | Work::Real(marks) => marks(who, seed),
        }
    }
}

/// Throughput, as a share of what the best fixed setting reaches.
pub(crate) fn throughput(items_per_s: f64, ideal: f64, least: f64) -> Mark {
    Mark::at_least("thr", items_per_s / ideal, least, Unit::Percent)
}

/// A latency in targets.
pub(crate) fn latency(name: &'static str, course: &Course, seconds: f64, most: f64) -> Mark {
    Mark::at_most(name, seconds / course.target, most, Unit::Targets)
}

/// Something that must not happen at all.
pub(crate) fn none(name: &'static str, count: u64) -> Mark {
    Mark::at_most(name, count as f64, 0.0, Unit::Count)
}
