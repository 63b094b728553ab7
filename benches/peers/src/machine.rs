//! Where the figures come from.

use std::fs;
use std::process::Command;
use std::thread;

/// One line on the machine, the compiler and the command: no date, so that two tables can be compared line by line.
pub(crate) fn describe() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments = if arguments.is_empty() { String::new() } else { format!(" -- {}", arguments.join(" ")) };
    format!(
        "{}, {cores} cores, {}; `cd benches/peers && cargo run --release{arguments}`",
        cpu().unwrap_or_else(|| "unknown processor".to_owned()),
        rustc().unwrap_or_else(|| "unknown rustc".to_owned()),
    )
}

fn cpu() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The one that cargo would use here.
fn rustc() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
