//! The kept inputs of the fuzzer, replayed.

mod model;

use std::fs;
use std::path::Path;

use model::{Case, run, verdict};

#[test]
fn every_kept_input_of_the_fuzz_corpus_still_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/ops");
    let mut files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for file in files {
        let case = Case::decode(&fs::read(&file).unwrap());
        if let Err(message) = verdict(|| run(&case)) {
            panic!("{}: {message}\n{case:#?}", file.display());
        }
    }
}
