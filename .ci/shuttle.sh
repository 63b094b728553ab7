#!/usr/bin/env bash
# Runs the whole crate under shuttle's schedules, by the models in shuttle/tests: shuttle.sh [--short | SCHEDULES]
#
# SCHEDULES of each kind, random and PCT's, for each model; 10000 unless told, 500 in the short form. The short form takes
# the same schedules each time, the long one others, by a seed that it prints. BACKPRESSURE_SHUTTLE_SEED sets it, and
# BACKPRESSURE_SHUTTLE_REPLAY replays a schedule that has failed: the model says how.
. "$(dirname "$0")/lib.sh"

case ${1:-10000} in
    --short) schedules=500 ;;
    *[!0-9]* | 0) fail "usage: shuttle.sh [--short | SCHEDULES]" ;;
    *)
        schedules=${1:-10000}
        export BACKPRESSURE_SHUTTLE_SEED=${BACKPRESSURE_SHUTTLE_SEED:-$RANDOM$RANDOM}
        ;;
esac
export BACKPRESSURE_SHUTTLE_SCHEDULES=$schedules
log="$(scratch)/log"

echo "seed: ${BACKPRESSURE_SHUTTLE_SEED:-the usual one}"
cargo test --locked --manifest-path shuttle/Cargo.toml --target-dir target/shuttle 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "no model ran"

did="$count models and twins came out right under $schedules random schedules and as many of PCT's each"
