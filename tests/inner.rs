//! Parts that nobody outside can reach, compiled into this test: the ring and the table of states, each against a model.
//!
//! The fuzzer drives the same models (`fuzz/fuzz_targets`); what it has kept is replayed here.

#[allow(dead_code, unreachable_pub, unused_imports, reason = "the crate uses more of them")]
#[path = "../src"]
mod parts {
    pub(crate) mod error;
    pub(crate) mod panics;
    pub(crate) mod ring;
    pub(crate) mod splitmix;
    pub(crate) mod state;
    pub(crate) mod sync;
}

#[path = "inner/ring.rs"]
mod ring_model;
#[path = "inner/state.rs"]
mod state_model;

use std::fs;
use std::path::Path;

use parts::{error, panics, ring, splitmix, state, sync};
use proptest::prelude::*;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(&file).unwrap());
    }
}

#[test]
fn every_kept_input_of_the_ring_corpus_still_passes() {
    replay("ring", ring_model::run);
}

#[test]
fn every_kept_input_of_the_state_corpus_still_passes() {
    replay("state", state_model::run);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_ring_is_a_bounded_deque_whose_room_comes_back_late(bytes in prop::collection::vec(any::<u8>(), 2..400)) {
        ring_model::run(&bytes);
    }

    #[test]
    fn a_state_rises_at_its_mark_and_falls_below_the_hysteresis(bytes in prop::collection::vec(any::<u8>(), 10..200)) {
        state_model::run(&bytes);
    }
}
