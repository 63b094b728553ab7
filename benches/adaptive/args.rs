//! What is asked for on the command line.

use std::ops::Range;
use std::path::PathBuf;

/// `cargo bench --bench adaptive -- [--seeds FIRST..END] [--only R3,R7] [--short] [--sinks-file FILE]`
#[derive(Clone, Debug)]
pub(crate) struct Args {
    /// The worst of these is judged.
    pub(crate) seeds: Range<u64>,
    /// The rows to run, such as R3; empty for all.
    pub(crate) only: Vec<String>,
    /// Fewer sinks in R15.
    pub(crate) is_short: bool,
    /// Run the sinks of this file, and nothing else.
    pub(crate) sinks: Option<PathBuf>,
}

impl Args {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self { seeds: 1..2, only: Vec::new(), is_short: false, sinks: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--seeds" => args.seeds = seeds(&value()?)?,
                "--only" => args.only = value()?.split(',').map(|id| id.trim().to_uppercase()).collect(),
                "--short" => args.is_short = true,
                "--sinks-file" => args.sinks = Some(value()?.into()),
                // Cargo says so.
                "--bench" => {}
                _ => return Err(format!("what is {word}?")),
            }
        }
        Ok(args)
    }
}

/// `1..11` is 1 to 10, as in Rust.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or_else(|| format!("{text} is no range of seeds such as 1..11"))
}
