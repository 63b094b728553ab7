//! What adaptive flushing makes of nineteen sinks and loads: `cargo bench --bench adaptive`.
//!
//! Each row is a simulation on tokio's paused clock, so minutes pass in milliseconds and a seed tells the whole run. It is
//! printed with its marks, beside what two others make of the same: a fixed writer (500 items or 50 ms, one flush at a time)
//! and a controller that adapts nothing but its interval. The accounts are audited after each arrival and each flush. It
//! ends with status 1 when a mark is missed.
//!
//! ```text
//! cargo bench --bench adaptive -- --seeds 1..11                 the worst of ten seeds is judged; seed 1 unless told
//! cargo bench --bench adaptive -- --only R3,R7                  some rows
//! cargo bench --bench adaptive -- --short                       every fifth sink in R15
//! cargo bench --bench adaptive -- --sinks-file FILE             one line for each sink of a file, no marks
//! ```
//!
//! A file of sinks has the form of `benches/adaptive/sinks-60.jsonl`, which is what R15 runs.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::ExitCode;

use args::Args;
use row::Row;
use writer::Who;

#[path = "adaptive/args.rs"]
mod args;
#[path = "adaptive/audit.rs"]
mod audit;
#[path = "adaptive/cost.rs"]
mod cost;
#[path = "adaptive/course.rs"]
mod course;
#[path = "adaptive/crowd.rs"]
mod crowd;
#[path = "adaptive/file.rs"]
mod file;
#[path = "adaptive/flap.rs"]
mod flap;
#[path = "adaptive/fuzz.rs"]
mod fuzz;
#[path = "../tests/support/heap.rs"]
mod heap;
#[path = "adaptive/interval.rs"]
mod interval;
#[path = "adaptive/mark.rs"]
mod mark;
#[path = "adaptive/meter.rs"]
mod meter;
#[path = "adaptive/rig.rs"]
mod rig;
#[path = "adaptive/rng.rs"]
mod rng;
#[path = "adaptive/row.rs"]
mod row;
#[path = "adaptive/run.rs"]
mod run;
#[path = "adaptive/sample.rs"]
mod sample;
#[path = "adaptive/shared.rs"]
mod shared;
#[path = "adaptive/sink.rs"]
mod sink;
#[path = "adaptive/steady.rs"]
mod steady;
#[path = "adaptive/table.rs"]
mod table;
#[path = "adaptive/trouble.rs"]
mod trouble;
#[path = "adaptive/writer.rs"]
mod writer;

fn main() -> ExitCode {
    match Args::read(std::env::args().skip(1)).and_then(|args| bench(&args)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("{missed} rows missed a mark");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// How many rows have missed a mark.
fn bench(args: &Args) -> Result<usize, String> {
    if let Some(path) = &args.sinks {
        for sink in file::read(path)? {
            print_sink(&sink, args.seeds.start);
        }
        return Ok(0);
    }
    let mut rows = rows(args.is_short);
    if let Some(id) = args.only.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        return Err(format!("there is no row {id}"));
    }
    rows.retain(|row| args.only.is_empty() || args.only.iter().any(|id| id == row.id));
    println!("worst of the seeds {:?}\n", args.seeds);
    Ok(table::print(&rows, args))
}

/// From R1 to R19.
fn rows(is_short: bool) -> Vec<Row> {
    let mut rows = steady::rows();
    rows.extend(trouble::rows());
    rows.extend([
        shared::row(),
        flap::row(),
        crowd::row(),
        cost::row(),
        fuzz::row(if is_short { 5 } else { 1 }),
        sample::row(),
    ]);
    rows.sort_by_key(|row| row.id[1..].parse::<u32>().expect("R and a number"));
    rows
}

fn print_sink(sink: &file::Listed, seed: u64) {
    let measured = fuzz::measure(Who::Adaptive, sink, seed);
    println!(
        "SINK {} thr={:.0} p95_over_t={:.3} batch={:.0} slots={:.0}",
        sink.number, measured.items_per_s, measured.p95, measured.batch, measured.slots
    );
}
