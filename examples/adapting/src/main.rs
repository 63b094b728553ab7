//! Draws how batch and slots of a `BackpressureController` follow a sink that becomes slow, fails, or hangs.
//!
//! ```text
//! cargo run --release -p adapting [FILE]
//! ```
//!
//! It writes `docs/adapting.svg`, or FILE. The runs are on tokio's paused clock, so three minutes take a second, and each draws
//! the same picture.

mod picture;
mod run;

use std::fs;

use anyhow::Context as _;

use crate::run::Trouble;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "docs/adapting.svg".to_owned());
    let runs: Vec<_> = Trouble::ALL.into_iter().map(run::run).collect::<anyhow::Result<_>>()?;
    fs::write(&file, picture::draw(&runs)?).with_context(|| format!("cannot write {file}"))?;
    for run in &runs {
        println!("{}: {} offered, {} delivered, {} refused", run.name, run.offered, run.delivered, run.refused);
    }
    println!("{file}");
    Ok(())
}
