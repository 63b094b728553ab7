//! Runs the program as a user does. Its exit code says whether ledger, producers and file agree.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};

/// A file that is gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("batch_writer-{name}-{}.sqlite", process::id())))
    }

    fn program(&self, options: &str) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_batch_writer"));
        program.arg("--db").arg(&self.0).args(options.split_whitespace());
        program
    }

    /// Runs to the end and gives what was printed, if all agreed.
    fn balances(&self, options: &str) -> io::Result<String> {
        let output = self.program(options).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options}: {text}{errors}");
        assert!(!text.contains("WRONG"), "{options}: {text}");
        Ok(text)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for tail in ["", "-wal", "-shm"] {
            let mut file = self.0.clone().into_os_string();
            file.push(tail);
            let _ = fs::remove_file(file); // there is nobody to tell
        }
    }
}

#[test]
fn every_strategy_balances() -> io::Result<()> {
    let file = Scratch::new("strategies");
    for strategy in ["block", "block-for:1ms", "drop-oldest", "drop-newest"] {
        for rest in ["", "--fail-for 200ms --capacity 100", "--capacity 1 --events 50"] {
            let text = file.balances(&format!("--events 5000 --strategy {strategy} {rest}"))?;
            assert!(text.contains("one row per transaction"), "{text}");
        }
    }
    Ok(())
}

#[test]
fn nothing_to_do_balances() -> io::Result<()> {
    Scratch::new("nothing").balances("--events 0 --producers 1").map(drop)
}

#[test]
fn block_loses_nothing_in_an_outage() -> io::Result<()> {
    let text = Scratch::new("outage").balances("--events 5000 --capacity 200 --fail-for 300ms")?;
    assert!(text.contains("5 000 in the file, 5 000 delivered"), "{text}");
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupt_drains_and_balances() -> io::Result<()> {
    let file = Scratch::new("interrupt");
    let mut child =
        file.program("--events 100000000 --sink-delay 20ms --capacity 500").stdout(Stdio::piped()).spawn()?;
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut text)?;
        thread::sleep(Duration::from_millis(500));
        Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
        stdout.read_to_string(&mut text)?;
    }
    assert!(child.wait()?.success(), "{text}");
    assert!(text.contains("interrupted") && text.contains("closed"), "{text}");
    Ok(())
}
