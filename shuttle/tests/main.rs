//! The whole crate under shuttle's schedules: the real flusher, producers of every kind, and somebody who audits all along.
//!
//! Each test runs its model under random schedules and under PCT's, `BACKPRESSURE_SHUTTLE_SCHEDULES` of each (200 unless
//! told). A schedule that fails is written to a file, and how to replay it is printed.
#![allow(clippy::disallowed_methods, reason = "time is shuttle/tokio's")]

mod barriers;
mod ends;
mod harness;
mod losses;
mod permits;
mod pulls;
mod pushes;
mod sinks;
mod strategies;
mod twins;
mod wakeups;
mod world;
