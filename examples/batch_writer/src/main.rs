//! Writes a million events from several producers through a `BackpressureController` into SQLite or
//! PostgreSQL, then proves that none went missing.
//!
//! ```text
//! cargo run --release -p batch_writer
//! cargo run --release -p batch_writer -- --fail-for 2s --strategy drop-oldest
//! cargo run --release -p batch_writer -- --db postgres://me@localhost/events --compare
//! ```
//!
//! At the end stand the ledger of the controller, the rows that are in the table, whether the two
//! agree, and the rate beside two ways of doing without: one transaction for each row, and a plain
//! channel. The exit code is 1 if any of them disagree, so the example is a test as well.
//! The example's `README.md` says what it does with a database, and how fast it was.

mod args;
mod contest;
mod error;
mod event;
mod peers;
mod progress;
mod report;
mod run;
mod sink;
mod store;
mod timed;

use std::process::{self, ExitCode};

use anyhow::Context as _;
use clap::Parser as _;
use tokio::{runtime::Runtime, signal, sync::watch};

use crate::{
    args::Args,
    report::{Comparison, grouped},
    store::Table,
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

/// Makes the run that was asked for; the first Ctrl-C ends it early.
async fn measure(args: &Args) -> anyhow::Result<ExitCode> {
    let mut interrupt = interrupts();
    args.db.clear().await.with_context(|| format!("cannot prepare {}", args.db))?;
    announce(args);
    if !args.compare {
        return prove(args, &mut interrupt).await;
    }
    tokio::select! {
        biased;
        _ = interrupt.wait_for(|told| *told) => {
            println!("interrupted: no comparison");
            Ok(ExitCode::SUCCESS)
        }
        enough = contest::run(args) => Ok(if enough? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Runs the controller, checks it against the table, then runs the peers.
async fn prove(args: &Args, interrupt: &mut watch::Receiver<bool>) -> anyhow::Result<ExitCode> {
    let outcome = run::run(args, interrupt).await?;
    let count = args.db.count(Table::Controller).await?;
    report::print_ledger(&outcome);
    let balanced = report::print_checks(&outcome, count);
    println!("\nthe rows are in {}", args.db);

    if outcome.interrupted {
        println!("interrupted: no comparison");
    } else if !args.no_peers {
        tokio::select! {
            biased;
            _ = interrupt.wait_for(|told| *told) => println!("interrupted: no comparison"),
            peers = compare(args) => report::print_comparison(args, &outcome, &peers?),
        }
    }
    Ok(if balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The same work without a controller, into tables of the same database.
async fn compare(args: &Args) -> anyhow::Result<Comparison> {
    Ok(Comparison {
        channel: peers::channel(args).await.context("the channel failed")?,
        singly: peers::singly(args).await.context("the row by row writer failed")?,
    })
}

fn announce(args: &Args) {
    let events =
        if args.compare { "events without end".to_owned() } else { format!("{} events", grouped(args.events)) };
    print!(
        "{events} from {} producers, strategy {}, capacity {}",
        args.producers,
        args.strategy,
        grouped(args.capacity as u64)
    );
    if !args.compare {
        print!(", at most {} to a batch", grouped(args.batch() as u64));
    }
    println!(", into {}", args.db);
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
