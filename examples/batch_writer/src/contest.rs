//! The comparison of fixed settings with the pace that the builder has without them.
//!
//! Each contender gets the same work into a fresh table: producers that never pause, for a warm-up that does not count and
//! a window that does. A first run over all fixed settings chooses the fastest one that meets the target latency; a
//! second one lets it and the builder's default take turns. So the chosen one's luck in the first run does not count.

use std::{
    fmt::{self, Display},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backpressure::BackpressureController;
use tokio::task::JoinSet;

use crate::{
    args::Args,
    event::{Event, Events},
    report::grouped,
    run::{DRAIN_DEADLINE, FLUSH_TIMEOUT},
    sink::Sink,
    store::Table,
    timed::{Pulse, Timed},
};

const BATCHES: [usize; 6] = [50, 200, 500, 1_000, 2_000, 5_000];
const LINGERS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// By how much a p95 may be above the target and still count as near it.
const NEAR: f64 = 1.2;

/// A contender.
#[derive(Debug, Clone, Copy)]
enum Pace {
    Fixed { batch: usize, linger: Duration },
    Default,
}

impl Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Fixed { batch, linger } => format!("batch {batch}, linger {}", humantime::format_duration(*linger)),
            Self::Default => "the builder's default".to_owned(),
        };
        f.pad(&text)
    }
}

/// Runs all contenders; tells whether the default was as good as was asked for.
pub(crate) async fn run(args: &Args) -> anyhow::Result<bool> {
    let best = choose(args).await?;
    println!("\nthe fastest fixed setting that meets the target is {best}; {} rounds against it", args.rounds);
    let mut rounds = Vec::new();
    for round in 0..args.rounds.get() {
        // Neither is always first.
        let (fixed, own) = if round % 2 == 0 {
            let fixed = measure(args, best).await?;
            (fixed, measure(args, Pace::Default).await?)
        } else {
            let own = measure(args, Pace::Default).await?;
            (measure(args, best).await?, own)
        };
        line(args, best, fixed);
        line(args, Pace::Default, own);
        rounds.push(Round { fixed, own });
    }
    Ok(judge(args, &rounds))
}

/// The first run: the fastest of all fixed settings that meets the target.
async fn choose(args: &Args) -> anyhow::Result<Pace> {
    println!(
        "\nfixed settings, the p95 of a call beside a target of {}",
        humantime::format_duration(args.target_latency)
    );
    let mut best: Option<(Pace, f64)> = None;
    for batch in BATCHES.into_iter().filter(|batch| *batch <= args.capacity) {
        for linger in LINGERS {
            let pace = Pace::Fixed { batch, linger };
            let pulse = measure(args, pace).await?;
            line(args, pace, pulse);
            if pulse.p95 <= args.target_latency && best.is_none_or(|(_, rate)| pulse.rate > rate) {
                best = Some((pace, pulse.rate));
            }
        }
    }
    let (pace, _) = best.context("no fixed setting meets the target latency, so there is nothing to compare with")?;
    Ok(pace)
}

/// One contender's work, from a fresh table to the check that all of it is there.
async fn measure(args: &Args, pace: Pace) -> anyhow::Result<Pulse> {
    args.db.clear().await?;
    let timed = Timed::new(Sink::new(args.db.create(Table::Controller).await?, args.sink_delay, Duration::ZERO));
    let calls = timed.calls();
    let builder = BackpressureController::<Event>::builder(args.capacity)
        .strategy(args.strategy.into())
        .flush_timeout(FLUSH_TIMEOUT.saturating_add(args.sink_delay));
    let builder = match pace {
        Pace::Fixed { batch, linger } => builder.fixed(batch, linger),
        Pace::Default => builder.target_latency(args.target_latency),
    };
    let controller = builder.spawn_concurrent(args.slots.get(), timed).context("the options do not fit together")?;

    let from = Instant::now() + args.warm_up;
    let to = from + args.window;
    let producers: JoinSet<()> =
        (0..args.producers.get()).map(|producer| produce(controller.clone(), producer, to)).collect();
    producers.join_all().await;
    let report = controller.drain(DRAIN_DEADLINE).await;
    report.totals.audit()?;
    let count = args.db.count(Table::Controller).await?;
    ensure!(
        count.rows == report.delivered() && count.events == count.rows,
        "{pace}: {} rows of {} events are in the table, but {report}",
        count.rows,
        count.events,
    );
    calls.between(from, to).with_context(|| format!("{pace}: fewer than two calls ended within the window"))
}

/// Offers events until it is time.
async fn produce(controller: BackpressureController<Event>, producer: u64, to: Instant) {
    for event in Events::of(producer, u64::from(u32::MAX)).take_while(|_| Instant::now() < to) {
        let _ = controller.push(event).await; // a refusal is a lower rate
    }
}

fn line(args: &Args, pace: Pace, pulse: Pulse) {
    println!(
        "  {pace:28} {:>9} rows/s {:>7.1} rows a call, p95 {:>7.2} ms, {:>5.2} of the target",
        grouped(pulse.rate as u64),
        pulse.batch,
        pulse.p95.as_secs_f64() * 1_000.0,
        pulse.p95.as_secs_f64() / args.target_latency.as_secs_f64(),
    );
}

/// The chosen setting and the default, right after each other.
#[derive(Debug, Clone, Copy)]
struct Round {
    fixed: Pulse,
    own: Pulse,
}

/// Prints what the rounds come to, and tells whether it is enough.
fn judge(args: &Args, rounds: &[Round]) -> bool {
    let target = args.target_latency.as_secs_f64();
    let [low, ratio, high] = spread(rounds.iter().map(|round| round.own.rate / round.fixed.rate));
    let [_, fixed, _] = spread(rounds.iter().map(|round| round.fixed.p95.as_secs_f64() / target));
    let [_, own, _] = spread(rounds.iter().map(|round| round.own.p95.as_secs_f64() / target));
    println!("\nthe builder's default wrote {ratio:.3} of what the chosen setting wrote ({low:.3} to {high:.3})");
    println!("its p95 was {own:.2} of the target, the chosen setting's {fixed:.2}");
    let Some(least) = args.at_least else { return true };
    let enough = ratio >= least && own <= NEAR;
    let verdict = if enough { "ok" } else { "MISSED" };
    println!("{verdict}: wanted were {least} of the rate and a p95 of at most {NEAR} of the target");
    enough
}

/// The least, the median and the greatest.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) };
    [at(0), median, at(values.len().wrapping_sub(1))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
        assert_eq!(spread([4.0, 1.0, 3.0, 2.0].into_iter()), [1.0, 2.5, 4.0]);
    }
}
