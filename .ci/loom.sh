#!/usr/bin/env bash
# Explores the loom models, each with its weakened twin: loom.sh [--short | PREEMPTIONS]
#
# PREEMPTIONS bounds the switches that a model may take against a thread's will; 3 unless told. The short form bounds
# them to 2 and tells the models to leave out what takes minutes.
. "$(dirname "$0")/lib.sh"

case ${1:-3} in
    --short) export BACKPRESSURE_LOOM_SHORT=1 LOOM_MAX_PREEMPTIONS=2 ;;
    [1-9]) export LOOM_MAX_PREEMPTIONS=$1 ;;
    *) fail "usage: loom.sh [--short | PREEMPTIONS]" ;;
esac
log="$(scratch)/log"

RUSTFLAGS="--cfg backpressure_loom" \
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=3 \
    cargo test --release --lib --target-dir target/loom loom 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "no model ran"

did="$count models and twins came out right at preemption bound $LOOM_MAX_PREEMPTIONS"
