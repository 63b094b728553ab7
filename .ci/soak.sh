#!/usr/bin/env bash
# Storms a controller in real time and audits it all along: soak.sh [--short | SECONDS]
#
# SECONDS reaches the test as BACKPRESSURE_SOAK_SECONDS; 600 unless told, 20 in the short form.
. "$(dirname "$0")/lib.sh"

case ${1:-600} in
    --short) seconds=20 ;;
    *[!0-9]* | 0) fail "usage: soak.sh [--short | SECONDS]" ;;
    *) seconds=${1:-600} ;;
esac
export BACKPRESSURE_SOAK_SECONDS=$seconds
log="$(scratch)/log"

cargo test --release -p backpressure --test soak --no-run
began=$SECONDS
cargo test --release -p backpressure --test soak -- --nocapture 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "no test ran"
[ "$((SECONDS - began))" -ge "$seconds" ] || fail "the soak ended after $((SECONDS - began)) s and not after $seconds"

did="$count tests held for $((SECONDS - began)) s"
