//! The options of the command line.

use std::{
    fmt,
    num::{NonZeroU32, NonZeroU64, NonZeroUsize},
    str::FromStr,
    time::Duration,
};

use backpressure::Strategy;
use clap::Parser;

use crate::{event::Event, store::Database};

/// The largest batch, in rows. Beyond it a transaction costs little next to the rows in it.
const LARGEST_BATCH: usize = 1_000;

/// Writes events from several producers through a bounded buffer into SQLite or PostgreSQL, and proves
/// that none went missing.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
#[command(after_help = "\
Ctrl-C stops the producers, drains for at most 25 s and still balances; a second one leaves at once \
(exit code 130).

The exit code is 0 if the ledger, the producers and the table agree, also after a Ctrl-C, 1 if they do \
not or --at-least was missed, and 2 if the run could not be made. The tables batch_writer, \
batch_writer_channel and batch_writer_singly of the database are dropped at the start.")]
pub(crate) struct Args {
    /// What becomes of an event that finds no room: block, block-for:50ms, drop-oldest or drop-newest
    #[arg(long, default_value_t = Policy::Block)]
    pub(crate) strategy: Policy,

    /// Events that may be outstanding at once, buffered or in the hands of the sink
    #[arg(long, default_value_t = 10_000)]
    pub(crate) capacity: usize,

    /// Tasks that make events
    #[arg(long, default_value = "4")]
    pub(crate) producers: NonZeroU64,

    /// Events to make, all producers together
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) events: u64,

    /// Calls of the sink at once, each with a connection of its own to PostgreSQL; order holds with 1 only
    #[arg(long, default_value = "1")]
    pub(crate) slots: NonZeroUsize,

    /// How long each flush sleeps before it writes, such as 5ms
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) sink_delay: Duration,

    /// How long the sink fails from the start on, such as 2s
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) fail_for: Duration,

    /// Where the rows go: sqlite:FILE or postgres://USER@HOST:PORT/DATABASE
    #[arg(long, value_name = "DATABASE", default_value_t)]
    pub(crate) db: Database,

    /// Leave out the ways of doing without a controller
    #[arg(long)]
    pub(crate) no_peers: bool,

    /// Compare fixed settings with the builder's default instead, without an end to the events
    #[arg(long)]
    pub(crate) compare: bool,

    /// How long a call of the sink should take at most, at p95
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    pub(crate) target_latency: Duration,

    /// How long each contender of the comparison runs before it is measured
    #[arg(long, default_value = "1500ms", value_parser = humantime::parse_duration)]
    pub(crate) warm_up: Duration,

    /// How long each contender of the comparison is measured
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) window: Duration,

    /// How often the best fixed setting and the builder's default take turns
    #[arg(long, default_value = "15")]
    pub(crate) rounds: NonZeroU32,

    /// The part of the best fixed setting's rate that the default must reach, such as 0.95
    #[arg(long, value_name = "RATIO")]
    pub(crate) at_least: Option<f64>,
}

impl Args {
    /// The largest batch: half of a small capacity, so that producers fill one half while the sink
    /// writes the other.
    pub(crate) fn batch(&self) -> usize {
        (self.capacity / 2).clamp(1, LARGEST_BATCH)
    }

    /// How many of the events each producer makes; they differ by one at most.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (events, producers) = (self.events, self.producers.get());
        (0..producers).map(move |p| (p, events / producers + u64::from(p < events % producers)))
    }
}

/// The strategies that can be named on a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Block,
    BlockFor(Duration),
    DropOldest,
    DropNewest,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "block" => Ok(Self::Block),
            "drop-oldest" => Ok(Self::DropOldest),
            "drop-newest" => Ok(Self::DropNewest),
            _ => match text.strip_prefix("block-for:").map(humantime::parse_duration) {
                Some(Ok(limit)) => Ok(Self::BlockFor(limit)),
                Some(Err(error)) => Err(error.to_string()),
                None => Err("try block, block-for:50ms, drop-oldest or drop-newest".to_owned()),
            },
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("block"),
            Self::BlockFor(limit) => write!(f, "block-for:{}", humantime::format_duration(*limit)),
            Self::DropOldest => f.write_str("drop-oldest"),
            Self::DropNewest => f.write_str("drop-newest"),
        }
    }
}

impl From<Policy> for Strategy<Event> {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Block => Self::Block,
            Policy::BlockFor(limit) => Self::BlockFor(limit),
            Policy::DropOldest => Self::DropOldest,
            Policy::DropNewest => Self::DropNewest,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn options_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn policies_read_back_as_written() {
        for text in ["block", "block-for:50ms", "drop-oldest", "drop-newest"] {
            assert_eq!(text.parse::<Policy>().map(|policy| policy.to_string()), Ok(text.to_owned()));
        }
        assert!("block-for:soon".parse::<Policy>().is_err());
        assert!("drop".parse::<Policy>().is_err());
    }

    #[test]
    fn shares_add_up_to_all_events() {
        let args = Args::parse_from(["batch_writer", "--events", "11", "--producers", "4"]);
        assert_eq!(args.shares().map(|(_, share)| share).collect::<Vec<_>>(), [3, 3, 3, 2]);
    }
}
