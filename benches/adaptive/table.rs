//! Runs rows on all cores, and prints a line for each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::args::Args;
use crate::mark::{Mark, worst};
use crate::row::Row;
use crate::writer::Who;

/// One contestant, one seed.
#[derive(Clone, Copy)]
struct Job {
    row: usize,
    who: Who,
    seed: u64,
}

/// Runs all rows and prints them; how many have missed a mark.
pub(crate) fn print(rows: &[Row], args: &Args) -> usize {
    let jobs: Vec<Job> = (0..rows.len())
        .flat_map(|row| Who::ALL.into_iter().map(move |who| (row, who)))
        .flat_map(|(row, who)| args.seeds.clone().map(move |seed| Job { row, who, seed }))
        .collect();
    let results = run_all(rows, &jobs);
    let marks = |row, who| {
        let of_row = jobs.iter().zip(&results).filter(|(job, _)| job.row == row && job.who == who);
        worst(of_row.filter_map(|(_, marks)| marks.clone()))
    };
    rows.iter().enumerate().filter(|(index, row)| !print_row(row, |who| marks(*index, who))).count()
}

/// What is on a clock of its own runs beside others, on all cores; what is timed runs alone, at the end.
fn run_all(rows: &[Row], jobs: &[Job]) -> Vec<Option<Vec<Mark>>> {
    let results: Vec<Mutex<Option<Vec<Mark>>>> = jobs.iter().map(|_| Mutex::default()).collect();
    let run = |index: usize| {
        let job = jobs[index];
        let marks = rows[job.row].marks(job.who, job.seed);
        *results[index].lock().expect("no run panics with a result in its hands") = marks;
    };
    let (alone, mut beside): (Vec<usize>, Vec<usize>) =
        (0..jobs.len()).partition(|&index| rows[jobs[index].row].runs_alone());
    // The long ones first.
    beside.sort_by_key(|&index| std::cmp::Reverse(rows[jobs[index].row].runs));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                // Ordering: Relaxed, each number is given once; the scope's end publishes the results.
                while let Some(&index) = beside.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(index);
                }
            });
        }
    });
    alone.into_iter().for_each(run);
    results.into_iter().map(|marks| marks.into_inner().expect("all runs are over")).collect()
}

/// Whether all marks are met.
fn print_row(row: &Row, marks: impl Fn(Who) -> Vec<Mark>) -> bool {
    let ours = marks(Who::Adaptive);
    let is_met = !ours.is_empty() && ours.iter().all(Mark::is_met);
    let verdict = if is_met { "ok" } else { "MISSED" };
    let mut line = format!("{:<4}{:<14} {verdict:<7}", row.id, row.name);
    if ours.is_empty() {
        line += "ABSENT: the crate has nothing yet to be measured here";
    }
    line += &ours.iter().map(Mark::judged).collect::<Vec<_>>().join(", ");
    for who in [Who::Fixed, Who::IntervalOnly] {
        let peer: Vec<String> = marks(who).iter().map(Mark::to_string).collect();
        if !peer.is_empty() {
            line += &format!(" | {}: {}", who.name(), peer.join(", "));
        }
    }
    println!("{line}");
    is_met
}
