//! Runs the program as a user does. Its exit code says whether ledger, producers and table agree.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};

use program::{balances, command};

mod program;

/// A file that is gone when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("batch_writer-{name}-{}.sqlite", process::id())))
    }

    fn db(&self) -> String {
        format!("sqlite:{}", self.0.display())
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
            let text = balances(&file.db(), &format!("--events 5000 --strategy {strategy} {rest}"))?;
            assert!(text.contains("one row per transaction"), "{text}");
        }
    }
    Ok(())
}

#[test]
fn nothing_to_do_balances() -> io::Result<()> {
    balances(&Scratch::new("nothing").db(), "--events 0 --producers 1").map(drop)
}

#[test]
fn block_loses_nothing_in_an_outage() -> io::Result<()> {
    let file = Scratch::new("outage");
    let text = balances(&file.db(), "--events 5000 --capacity 200 --fail-for 300ms")?;
    assert!(text.contains("5 000 in the table, 5 000 delivered"), "{text}");
    Ok(())
}

#[test]
fn a_comparison_comes_to_a_figure() -> io::Result<()> {
    let file = Scratch::new("comparison");
    let windows = "--warm-up 0s --window 400ms --rounds 1 --capacity 500 --slots 2";
    let text = balances(&file.db(), &format!("--compare --target-latency 1h {windows} --at-least 0"))?;
    assert!(text.contains("batch 500, linger 50ms") && text.contains("the builder's default wrote"), "{text}");
    let output = command(&file.db(), &format!("--compare --target-latency 1h {windows} --at-least 1000")).output()?;
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupt_drains_and_balances() -> io::Result<()> {
    let file = Scratch::new("interrupt");
    let mut child =
        command(&file.db(), "--events 100000000 --sink-delay 20ms --capacity 500").stdout(Stdio::piped()).spawn()?;
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
