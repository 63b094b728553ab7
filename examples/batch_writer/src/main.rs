//! Writes a million events from several producers through a `BackpressureController` into a SQLite
//! file, then proves that none went missing.
//!
//! ```text
//! cargo run --release -p batch_writer
//! cargo run --release -p batch_writer -- --fail-for 2s --strategy drop-oldest
//! ```
//!
//! At the end stand the ledger of the controller, the rows that are in the file, whether the two
//! agree, and the rate beside two ways of doing without: one transaction for each row, and a plain
//! channel. The exit code is 1 if any of them disagree, so the example is a test as well.

mod args;
mod event;
mod peers;
mod progress;
mod report;
mod run;
mod sink;
mod store;

use std::process::{self, ExitCode};

use anyhow::Context as _;
use clap::Parser as _;
use tokio::{runtime::Runtime, signal, sync::watch};

use crate::{
    args::Args,
    report::{Comparison, grouped},
    store::{Store, Table},
};

fn main() -> ExitCode {
    let args = Args::parse();
    run_all(&args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run_all(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let code = runtime.block_on(measure(args));
    // After a Ctrl-C a thread may still be at work for a peer that nobody waits for any more.
    runtime.shutdown_background();
    code
}

/// Runs the controller, checks it against the file, then runs the peers.
async fn measure(args: &Args) -> anyhow::Result<ExitCode> {
    let mut interrupt = interrupts();
    let file = args.file();
    Store::clear(&file).with_context(|| format!("cannot prepare {}", file.display()))?;
    announce(args);

    let outcome = run::run(args, &mut interrupt).await?;
    let count = store::count(&file, Table::Controller)?;
    report::print_ledger(&outcome);
    let balanced = report::print_checks(&outcome, count);
    println!("\nthe rows are in {}", file.display());

    if outcome.interrupted {
        println!("interrupted: no comparison");
    } else {
        tokio::select! {
            biased;
            _ = interrupt.wait_for(|told| *told) => println!("interrupted: no comparison"),
            peers = compare(args) => report::print_comparison(args, &outcome, &peers?),
        }
    }
    Ok(if balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The same work without a controller, into tables of the same file.
async fn compare(args: &Args) -> anyhow::Result<Comparison> {
    Ok(Comparison {
        channel: peers::channel(args).await.context("the channel failed")?,
        singly: peers::singly(args).await.context("the row by row writer failed")?,
    })
}

fn announce(args: &Args) {
    println!(
        "{} events from {} producers, strategy {}, capacity {}, at most {} to a batch, into {}",
        grouped(args.events),
        args.producers,
        args.strategy,
        grouped(args.capacity as u64),
        grouped(args.batch() as u64),
        args.file().display(),
    );
}

/// Becomes true at the first Ctrl-C; the second one leaves at once.
fn interrupts() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    tokio::spawn(async move {
        while signal::ctrl_c().await.is_ok() {
            if tell.send_replace(true) {
                process::exit(130);
            }
        }
    });
    told
}
