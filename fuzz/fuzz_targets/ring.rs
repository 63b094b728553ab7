//! Any bytes are operations on the ring; a deque must agree after each.
#![no_main]

#[allow(dead_code, unreachable_pub, unused_imports, reason = "the crate uses more of them")]
#[path = "../../src"]
mod parts {
    pub(crate) mod panics;
    pub(crate) mod ring;
    pub(crate) mod sync;
}
#[path = "../../tests/inner/ring.rs"]
mod ring_model;

use parts::{panics, ring, sync};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Twice round the largest ring by bulk claims; longer inputs find nothing more.
    if bytes.len() <= 1000 {
        ring_model::run(bytes);
    }
});
