#!/usr/bin/env bash
# Breaks the code at one place after the other and says what no test notices: mutants.sh [FILE...]
#
# Not a check of .ci/run: it takes about 10 s a mutant, an hour and more for the files below. Those are the ones that
# keep the accounts and the places; any others can be named. A mutant that survives gets a test, or a line in
# ARCHITECTURE.md. In the build of each mutant, too, only the tests that are named here are compiled.
. "$(dirname "$0")/lib.sh"

files=("$@")
[ "${#files[@]}" -gt 0 ] ||
    files=(src/ring/place.rs src/gate/stamps.rs src/state.rs src/ledger.rs src/batch.rs src/strategy.rs src/ring/head.rs src/gate/waiters.rs)
need cargo-mutants

arguments=(--copy-vcs=false --jobs 1 --timeout 120 --no-shuffle --colors never --output target)
for file in "${files[@]}"; do
    [ -f "$file" ] || fail "there is no $file"
    arguments+=(--file "$file")
done
for test in inner conservation capacity states batch batching one_owner order counting cancel fairness; do
    arguments+=("--cargo-arg=--test=$test")
done

# The model's histories are many; a few hundred are enough to notice.
code=0
PROPTEST_CASES=${PROPTEST_CASES:-500} CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 \
    cargo mutants "${arguments[@]}" --cargo-arg=--lib || code=$?
out=target/mutants.out
caught=$(wc -l <"$out/caught.txt") timeout=$(wc -l <"$out/timeout.txt") missed=$(wc -l <"$out/missed.txt")
# 2 means that some have survived, 3 that a test has hung: whether they may is said in ARCHITECTURE.md.
case $code in 0 | 2 | 3) ;; *) fail "cargo mutants has failed ($code)" ;; esac
[ "$((caught + timeout))" -gt 0 ] || fail "no mutant was caught"
cat "$out/missed.txt"

did="$caught mutants were caught by a test and $timeout by the clock, $missed survived: see $out"
