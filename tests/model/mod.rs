//! One conservation model: a real controller and a plain oracle take the same operations and must agree after every step.
//!
//! Everything runs on one thread, on tokio's paused clock, and each future is polled by hand; so the oracle predicts every
//! answer, every figure and every order, not only the sums. [`Case::decode`] makes a case of any bytes, so that property
//! tests, the fuzzer and the kept corpus share one notation.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each driver uses its part")]

mod case;
mod endings;
mod fates;
mod harness;
mod oracle;
mod oracle_ends;
mod oracle_offers;
mod oracle_waits;
mod oracle_weights;
mod settings;
mod sink;
mod slots;
mod world;

pub use self::case::{Case, LATER, LATER_KINDS, SET_CAPACITY, SLOTS, WEIGHED};
pub use self::harness::run;
pub use self::world::{silence_expected_panics, verdict};
