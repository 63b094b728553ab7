//! Any bytes are marks and a walk of the depth; the states must be those of the definition.
#![no_main]

#[allow(dead_code, unreachable_pub, unused_imports, reason = "the crate uses more of them")]
#[path = "../../src"]
mod parts {
    pub(crate) mod error;
    pub(crate) mod state;
    pub(crate) mod sync;
}
#[path = "../../tests/inner/state.rs"]
mod state_model;

use parts::{error, state, sync};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.len() <= 400 {
        state_model::run(bytes);
    }
});
