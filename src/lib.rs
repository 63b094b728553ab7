// The first definition of a link counts: here the guides are modules, in the repository they are files.
//! [choosing a strategy]: crate::guide::strategies
//! [sizing]: crate::guide::sizing
//! [delivery and loss]: crate::guide::delivery
//! [cancellation]: crate::guide::cancellation
//! [shutting down a service]: crate::guide::shutdown
//! [how it adapts]: crate::guide::adapting
//! [settings and features]: crate::guide::settings
//! [operating]: crate::guide::operating
//! [comparison]: crate::guide::comparison
#![cfg_attr(feature = "test-util", doc = "[testing]: crate::guide::testing")]
//!
#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("backpressure needs 64-bit atomics");

mod adapt;
mod batch;
mod builder;
mod controller;
mod core;
mod dead_letters;
mod drain;
mod drain_rate;
mod error;
mod events;
mod explain;
mod flight;
mod flush;
mod flusher;
mod gate;
#[cfg(any(doc, doctest))]
pub mod guide;
mod health;
mod ledger;
mod pace;
mod panics;
mod permit;
mod pull;
mod push;
mod receipt;
mod report;
mod retry;
mod retry_after;
#[allow(unsafe_code, reason = "the one place for it, each block proved")]
mod ring;
mod sink;
mod sojourn;
mod splitmix;
mod spread;
mod state;
mod strategy;
mod sync;
mod telemetry;
#[cfg(feature = "test-util")]
pub mod test_util;
mod thread;
mod time;
mod watch;

#[cfg(feature = "sink")]
pub use crate::adapt::PushSink;
pub use crate::adapt::{BackpressureStreamExt, BlockingSink, Forward, Forwarded};
pub use crate::batch::{Batch, BatchId};
pub use crate::builder::Builder;
pub use crate::controller::{BackpressureController, WeakController};
pub use crate::core::{Ages, Changes, Loss};
pub use crate::dead_letters::DeadLetter;
pub use crate::drain::Drain;
pub use crate::error::{
    AuditError, BoxError, BuildError, DriveError, FlushError, FlushTimedOut, ItemOutcome, LossReason, PushAllError,
    PushError, RefuseReason, ReserveError, RetriesExhausted, SinkPanicked, WouldDeadlock, WrongOutcomes,
};
pub use crate::explain::{Explanation, PastDecision};
pub use crate::flush::Flush;
pub use crate::flusher::{Flusher, MAX_CONCURRENCY};
pub use crate::gate::MAX_CAPACITY_WEIGHT;
pub use crate::health::{Health, HealthReason, HealthStatus};
pub use crate::ledger::{Flushes, Losses, Refused, Snapshot, Weights};
pub use crate::pace::{Decision, DecisionReason, FlushReason};
pub use crate::permit::{Permit, Permits, Reserve, ReserveMany};
pub use crate::pull::Batches;
pub use crate::push::{Push, PushAll, PushTracked};
pub use crate::receipt::{Delivery, Fate};
pub use crate::report::{DrainReport, FlushReport};
pub use crate::retry::Retry;
pub use crate::retry_after::retry_after_secs;
pub use crate::ring::MAX_CAPACITY;
pub use crate::sink::BatchSink;
pub use crate::state::{State, Transitions, Watermarks};
pub use crate::strategy::{Admission, Admit, Pressure, Sample, Strategy};
pub use crate::watch::StateWatch;
