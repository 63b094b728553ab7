//! Draws what becomes of one load spike under each strategy of a `BackpressureController`, and in a plain channel.
//!
//! ```text
//! cargo run --release -p spike
//! ```
//!
//! It writes `spike-light.svg` and `spike-dark.svg`. The runs are on tokio's paused clock: they take a second, not
//! twenty, and each draws the same picture, to the byte.

mod load;
mod panel;
mod picture;
mod ways;

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Parser;

use crate::{
    load::Run,
    picture::{Palette, draw},
};

/// Draws what becomes of one load spike under each strategy, and in a plain channel.
#[derive(Debug, Parser)]
struct Args {
    /// The folder that the pictures go to
    #[arg(long, value_name = "DIR", default_value = "docs")]
    out: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runs = ways::run_all()?;
    for run in &runs {
        print(run);
    }
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    for palette in [Palette::LIGHT, Palette::DARK] {
        let file = args.out.join(format!("spike-{}.svg", palette.name));
        fs::write(&file, draw(&runs, &palette)?).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}

fn print(run: &Run) {
    let figures = &run.figures;
    println!(
        "{:10} {:24} {:>6} offered, {:>6} delivered for {:>6}, {:>5} {:10} longest wait {:>4} ms, oldest {:>4} ms",
        run.name,
        run.rule,
        figures.offered,
        figures.delivered,
        figures.estimate,
        figures.lost,
        format!("{},", figures.how),
        figures.longest_wait.as_millis(),
        figures.oldest.as_millis(),
    );
}
