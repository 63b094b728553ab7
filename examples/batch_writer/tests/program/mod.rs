//! The program, run as a user does.

use std::{io, process::Command};

pub(crate) fn command(db: &str, options: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_batch_writer"));
    program.arg("--db").arg(db).args(options.split_whitespace());
    program
}

/// Runs to the end and gives what was printed, if ledger, producers and table agreed.
pub(crate) fn balances(db: &str, options: &str) -> io::Result<String> {
    let output = command(db, options).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options}: {text}{errors}");
    assert!(!text.contains("WRONG"), "{options}: {text}");
    Ok(text)
}
