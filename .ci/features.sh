#!/usr/bin/env bash
# Every combination of the crate's features builds without a warning, and each feature by itself passes the unit tests, as does
# the crate without any.
. "$(dirname "$0")/lib.sh"

need cargo-hack
log="$(scratch)/log"

cargo-hack hack clippy -p backpressure --lib --feature-powerset -- -D warnings
cargo-hack hack test -p backpressure --lib --each-feature --exclude-all-features 2>&1 | tee "$log"
selections=$(grep -c '^test result: ok\. ' "$log")
[ "$selections" -gt 0 ] && [ "$(passed "$log")" -gt 0 ] || fail "no test ran"

did="no warning in any combination, and $(passed "$log") unit tests passed in $selections selections"
