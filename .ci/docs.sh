#!/usr/bin/env bash
# The documentation builds without a warning: as a user reads it, with the private items, and as docs hosts build it: on
# nightly, with --cfg docsrs and what [package.metadata.docs.rs] says.
. "$(dirname "$0")/lib.sh"

export RUSTDOCFLAGS="-D warnings"
cargo doc -p backpressure --no-deps --all-features --document-private-items
cargo doc --workspace --no-deps --all-features

cargo +nightly --version >/dev/null 2>&1 || fail "the nightly toolchain is missing, and --cfg docsrs needs it"
for line in 'all-features = true' 'rustdoc-args = ["--cfg", "docsrs"]'; do
    sed -n '/^\[package\.metadata\.docs\.rs\]/,/^$/p' Cargo.toml | grep -qxF "$line" ||
        fail "[package.metadata.docs.rs] does not say: $line"
done
RUSTDOCFLAGS="-D warnings --cfg docsrs" \
    cargo +nightly doc -p backpressure --lib --no-deps --all-features --target-dir target/docsrs

html=target/docsrs/doc/backpressure
[ -f "$html/guide/index.html" ] || fail "the guides are not in the documentation"
if grep -q '^\[features\]' Cargo.toml; then
    grep -rq 'Available on <strong>crate feature' "$html" || fail "no item says that it needs a feature"
fi

did="no warning in the public, the private and the docsrs build; guides and features are shown"
