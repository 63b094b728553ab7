#!/usr/bin/env bash
# The documentation builds without a warning: as a user reads it, with the private items, and with --cfg
# docsrs on nightly, which turns unstable features of rustdoc on.
. "$(dirname "$0")/lib.sh"

export RUSTDOCFLAGS="-D warnings"
cargo doc --workspace --no-deps --all-features
cargo doc -p backpressure --no-deps --all-features --document-private-items --target-dir target/docs-private

cargo +nightly --version >/dev/null 2>&1 || fail "the nightly toolchain is missing, and --cfg docsrs needs it"
RUSTDOCFLAGS="-D warnings --cfg docsrs" \
    cargo +nightly doc -p backpressure --no-deps --all-features --target-dir target/docsrs

did="no warning in the public, the private and the docsrs build"
