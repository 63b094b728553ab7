//! The crate beside the queues that people use otherwise: `cargo run --release`.
//!
//! All of them in one process, in rounds in which each does the same work once. The table shows medians over the
//! rounds, and the median of the ratios within a round, which hold on a noisy machine where absolute times do not. A
//! *mark* is a ratio or a figure that must be met, else the program ends with status 1; an *ambition* is shown.
//!
//! `peers` has the contestants, each in a file that shows how it is used; `rows` what they do; `harness` the rounds.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock, and its producers keep a rate by sleeping")]

mod allocations;
#[cfg(test)]
mod conservation;
mod harness;
mod living;
mod machine;
mod options;
mod payload;
mod peer;
mod peers;
mod report;
mod rows;
mod sink;
mod stats;
mod usage;

use std::fs;
use std::process::ExitCode;

use crate::allocations::Counting;
use crate::harness::timers;
use crate::options::{HELP, Options};
use crate::peers::Crossfire;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let options = match Options::parse(lexopt::Parser::from_env()) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("{error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let mut contests = rows::all(options.form);
    contests.retain(|contest| options.wants(&contest.name));
    if options.is_list {
        contests.iter().for_each(|contest| println!("{}", contest.name));
        return ExitCode::SUCCESS;
    }
    if contests.is_empty() {
        eprintln!("no row is called like that: see --list");
        return ExitCode::from(2);
    }
    Crossfire::prepare();
    let _inside = timers().enter();
    run(contests, &options)
}

fn run(contests: Vec<harness::Contest>, options: &Options) -> ExitCode {
    let head = format!(
        "# The crate beside its peers\n\n{}\n\nMedians of {} rounds; less is better everywhere.\n",
        machine::describe(),
        options.rounds
    );
    print!("{head}");
    let mut verdicts = Vec::new();
    let mut blocks = String::new();
    for contest in contests {
        let outcome = contest.run(options.rounds);
        let block = report::block(&outcome);
        print!("{block}");
        blocks.push_str(&block);
        verdicts.extend(report::judge(&outcome));
    }
    let summary = report::summary(&verdicts) + &report::faults(&harness::losses());
    println!("{summary}");
    if let Err(error) = write(options, &format!("{head}{summary}\n## All figures\n{blocks}")) {
        eprintln!("{}: {error}", options.markdown.display());
        return ExitCode::from(2);
    }
    let missed = verdicts.iter().filter(|verdict| verdict.is_missed_mark()).count();
    println!("{missed} marks missed; the table is in {}", options.markdown.display());
    if missed > 0 && options.is_judged { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn write(options: &Options, text: &str) -> std::io::Result<()> {
    if let Some(folder) = options.markdown.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&options.markdown, text)
}
