#!/usr/bin/env bash
# Builds the programs of tests/newcomer as a stranger does, a package of its own that has the crate as a dependency, and
# runs each: they check themselves.
. "$(dirname "$0")/lib.sh"

programs=(tests/newcomer/src/bin/*.rs)
export CARGO_TARGET_DIR=target/newcomer
# No warning: what README.md shows must not teach any.
RUSTFLAGS="-D warnings" cargo build --manifest-path tests/newcomer/Cargo.toml --locked --bins
for program in "${programs[@]}"; do
    name=$(basename "$program" .rs)
    printf '\n-- %s\n' "$name"
    timeout 60 "target/newcomer/debug/$name" || fail "$name ended with $?"
done

did="${#programs[@]} programs built without a warning, and ran"
