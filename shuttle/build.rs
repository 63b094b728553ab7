//! Switches the crate's `sync` to shuttle.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=backpressure_shuttle");
    for name in ["backpressure_shuttle", "backpressure_loom", "backpressure_planted_race", "docsrs", "fuzzing"] {
        println!("cargo::rustc-check-cfg=cfg({name})");
    }
    println!("cargo::rustc-check-cfg=cfg(feature, values(any()))");
}
