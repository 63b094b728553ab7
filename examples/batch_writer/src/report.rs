//! What is printed at the end, and whether it adds up.

use backpressure::Snapshot;

use crate::{
    args::Args,
    peers::Measured,
    run::{Outcome, Tally},
    store::Count,
};

/// The rates of those who do without a controller.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) channel: Measured,
    pub(crate) singly: Measured,
}

/// Prints what became of every event.
pub(crate) fn print_ledger(outcome: &Outcome) {
    let totals = &outcome.totals;
    println!("\nledger");
    line(2, "offered", totals.offered);
    line(4, "accepted", totals.accepted);
    line(4, "refused", totals.refused.total());
    for (reason, count) in refusals(totals) {
        if count > 0 {
            line(6, reason, count);
        }
    }
    line(4, "cancelled", totals.cancelled);
    line(4, "waiting", totals.waiting);
    line(2, "accepted", totals.accepted);
    for (fate, count) in fates(totals) {
        line(4, fate, count);
    }
    println!(
        "  {} of {} flushes succeeded, {} events were sent again; {} of {} places were taken at most",
        grouped(totals.flushes.ok),
        grouped(totals.flushes.total()),
        grouped(totals.retried),
        grouped(totals.peak_depth),
        grouped(totals.capacity),
    );
    if !outcome.report.leftovers.is_empty() {
        println!("  {} events came back from the drain", grouped(outcome.report.leftovers.len() as u64));
    }
}

/// Prints whether the ledger, the producers, the loss hook and the table agree, and tells if all do.
pub(crate) fn print_checks(outcome: &Outcome, count: Count) -> bool {
    println!("\nchecks");
    let checks = checks(outcome, count);
    for (what, verdict) in &checks {
        match verdict {
            Ok(detail) => println!("  ok    {what}: {detail}"),
            Err(detail) => println!("  WRONG {what}: {detail}"),
        }
    }
    checks.iter().all(|(_, verdict)| verdict.is_ok())
}

/// Prints how fast the controller was beside the others.
pub(crate) fn print_comparison(args: &Args, outcome: &Outcome, peers: &Comparison) {
    let own = Measured { rows: outcome.totals.delivered, elapsed: outcome.elapsed };
    println!("\nrate on this machine, into this database (and the controller's as a multiple of it)");
    let contenders = [
        ("the controller", own),
        ("a channel and recv_many", peers.channel),
        ("one row per transaction", peers.singly),
    ];
    for (name, measured) in contenders {
        println!(
            "  {name:24} {:>9} rows/s {:>8.2}x  ({} rows in {:.2} s)",
            grouped(measured.rate() as u64),
            own.rate() / measured.rate().max(1.0),
            grouped(measured.rows),
            measured.elapsed.as_secs_f64(),
        );
    }
    for note in notes(args, &outcome.totals) {
        println!("  {note}");
    }
}

/// What keeps the rates from being like for like.
fn notes(args: &Args, totals: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    if !args.fail_for.is_zero() {
        let outage = humantime::format_duration(args.fail_for);
        notes.push(format!("only the controller's time has the {outage} in it when the sink failed"));
    }
    let missing = totals.offered - totals.delivered;
    if missing > 0 {
        notes.push(format!("only the controller let go of events, {} of them, as it was told to", grouped(missing)));
    }
    notes
}

type Check = (&'static str, Result<String, String>);

fn checks(outcome: &Outcome, count: Count) -> Vec<Check> {
    let totals = &outcome.totals;
    let audits = &outcome.audits;
    let handed_back = outcome.report.leftovers.len() as u64;
    let under_way = totals.waiting + totals.buffered + totals.in_flight;
    vec![
        ("the ledger at the end", said(totals.audit().err(), "balances".to_owned())),
        ("the ledger under way", said(audits.first_error.as_ref(), format!("balances, {} times", audits.done))),
        ("events still under way", equal(("in the ledger", under_way), ("wanted", 0))),
        producers(outcome.tally, totals),
        (
            "losses",
            equal(
                ("in the ledger", totals.losses().total()),
                ("told of or handed back", outcome.heard + handed_back + outcome.report.not_returned),
            ),
        ),
        ("rows", rows(count, totals, outcome.report.not_returned)),
        ("each event once", equal(("different events", count.events), ("rows", count.rows))),
    ]
}

/// The producers kept count of what they offered and what they were told.
fn producers(tally: Tally, totals: &Snapshot) -> Check {
    let own = (tally.offered, tally.accepted, tally.refused);
    let ledger = (totals.offered, totals.accepted, totals.refused.total());
    let verdict = if own == ledger {
        Ok(format!("offered {}, as the ledger says", grouped(tally.offered)))
    } else {
        Err(format!("(offered, accepted, refused) is {own:?}, but {ledger:?} in the ledger"))
    };
    ("the producers' own count", verdict)
}

/// A thread that still had events at the drain's deadline may commit them afterwards, or not.
fn rows(count: Count, totals: &Snapshot, not_returned: u64) -> Result<String, String> {
    let late = count.rows.saturating_sub(totals.delivered);
    if (1..=not_returned).contains(&late) {
        return Ok(format!("{} of the abandoned were written after the deadline", grouped(late)));
    }
    equal(("in the table", count.rows), ("delivered", totals.delivered))
}

fn equal((left_name, left): (&str, u64), (right_name, right): (&str, u64)) -> Result<String, String> {
    let text = format!("{} {left_name}, {} {right_name}", grouped(left), grouped(right));
    if left == right { Ok(text) } else { Err(text) }
}

fn said(error: Option<impl ToString>, fine: String) -> Result<String, String> {
    error.map_or(Ok(fine), |error| Err(error.to_string()))
}

fn refusals(totals: &Snapshot) -> [(&'static str, u64); 7] {
    let refused = &totals.refused;
    [
        ("full", refused.full),
        ("timed out", refused.timed_out),
        ("closed", refused.closed),
        ("sampled", refused.sampled),
        ("too large", refused.too_large),
        ("would deadlock", refused.would_deadlock),
        ("no timer", refused.no_timer),
    ]
}

fn fates(totals: &Snapshot) -> [(&'static str, u64); 8] {
    [
        ("delivered", totals.delivered),
        ("failed", totals.failed),
        ("evicted", totals.evicted),
        ("expired", totals.expired),
        ("purged", totals.purged),
        ("abandoned", totals.abandoned),
        ("buffered", totals.buffered),
        ("in flight", totals.in_flight),
    ]
}

fn line(indent: usize, name: &str, count: u64) {
    println!("{:indent$}{name:width$}{:>12}", "", grouped(count), width = 20 - indent);
}

/// A number with its digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1 000");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
