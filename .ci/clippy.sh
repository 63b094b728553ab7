#!/usr/bin/env bash
# No warning of rustc or clippy, in any target, with no features, the default ones and all.
. "$(dirname "$0")/lib.sh"

for features in --no-default-features "" --all-features; do
    # shellcheck disable=SC2086 # none, or one word
    cargo clippy --workspace --all-targets $features -- -D warnings
done

did="no warning in all targets with no, default and all features"
