//! Any bytes are operations on a controller; the oracle must agree after each.
#![no_main]

#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Longer inputs find nothing that shorter ones don't.
    if bytes.len() <= 8 + 3 * 200 {
        model::silence_expected_panics();
        model::run(&model::Case::decode(bytes));
    }
});
