#!/usr/bin/env bash
# Every combination of the crate's features builds without a warning and passes the unit tests.
. "$(dirname "$0")/lib.sh"

need cargo-hack
log="$(scratch)/log"

cargo-hack hack clippy -p backpressure --lib --feature-powerset -- -D warnings
cargo-hack hack test -p backpressure --lib --feature-powerset 2>&1 | tee "$log"
combinations=$(grep -c '^test result: ok\. ' "$log")
[ "$combinations" -gt 0 ] && [ "$(passed "$log")" -gt 0 ] || fail "no test ran"

did="$combinations combinations without a warning, $(passed "$log") unit tests passed in them"
