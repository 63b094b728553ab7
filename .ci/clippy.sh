#!/usr/bin/env bash
# No warning of rustc or clippy, in any target, with no features, which are the default ones, and with all.
. "$(dirname "$0")/lib.sh"

for features in "" --all-features; do
    # shellcheck disable=SC2086 # none, or one word
    cargo clippy --workspace --all-targets $features -- -D warnings
done

did="no warning in all targets with no and all features"
