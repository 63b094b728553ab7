#!/usr/bin/env bash
# Every combination of the crate's features builds without a warning and passes the unit tests: features.sh [--short]
#
# In the short form they are run with none; those with all are run by test.sh.
. "$(dirname "$0")/lib.sh"

case ${1:-} in
    --short) selection=(--no-default-features) ;;
    "") selection=(--feature-powerset) ;;
    *) fail "usage: features.sh [--short]" ;;
esac
need cargo-hack
log="$(scratch)/log"

cargo-hack hack clippy -p backpressure --lib --feature-powerset -- -D warnings
cargo-hack hack test -p backpressure --lib "${selection[@]}" 2>&1 | tee "$log"
selections=$(grep -c '^test result: ok\. ' "$log")
[ "$selections" -gt 0 ] && [ "$(passed "$log")" -gt 0 ] || fail "no test ran"

did="no warning in any combination, and $(passed "$log") unit tests passed in $selections selections"
