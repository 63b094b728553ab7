#!/usr/bin/env bash
# Breaks the code at one place after the other and says what no test notices: mutants.sh [FILE...]
#
# Not a check of .ci/run: it takes 10 s to a minute a mutant, and the files below have 1 600; name the ones that were
# changed. Those below keep the accounts, the places and the queue; any others can be named. A mutant that survives gets a
# test, or a line in ARCHITECTURE.md. In the build of each mutant, too, only the tests that are close to the file are
# compiled.
. "$(dirname "$0")/lib.sh"

files=("$@")
[ "${#files[@]}" -gt 0 ] ||
    files=(
        src/batch.rs src/strategy.rs src/strategy/sample.rs src/core/admit.rs
        src/gate.rs src/gate/{waiters,claims,displace,figures,release,resize,notes,survey,tags,stamps,sized,volume,stowage}.rs
        src/ring.rs src/ring/{place,claim,head,credit,sizes}.rs
        src/state.rs src/ledger.rs src/ledger/weights.rs
    )
need cargo-mutants

# The tests of tests/ that see this file best, beside the unit tests: tests_of FILE
tests_of() {
    case $1 in
        src/batch.rs) echo conservation batch partial verdicts accounts concurrent ;;
        src/strategy.rs | src/strategy/*) echo conservation custom bad_input reconfigure reentrant sampling ;;
        src/gate/sized.rs | src/gate/volume.rs | src/gate/stowage.rs | src/ring/sizes.rs | src/ledger/weights.rs)
            echo conservation weight reentrant ;;
        src/gate/notes.rs | src/gate/stamps.rs) echo conservation age health ;;
        src/ring.rs | src/ring/*) echo inner conservation weight destructors ;;
        src/state.rs) echo inner conservation states counting retry_after age ;;
        src/ledger.rs) echo conservation batch counting weight ;;
        *) echo conservation reentrant weight retry_after ;;
    esac
}

# The model's histories are many; a few hundred are enough to notice. A mutant that ends by the clock counts as caught, so
# the clock is generous.
caught=0 timeout=0 missed=0
for file in "${files[@]}"; do
    [ -f "$file" ] || fail "there is no $file"
    arguments=(--copy-vcs=false --jobs 1 --timeout 300 --no-shuffle --colors never --file "$file")
    for test in $(tests_of "$file"); do
        arguments+=("--cargo-arg=--test=$test")
    done
    into=target/mutants/${file//\//.}
    mkdir -p "$into"
    code=0
    PROPTEST_CASES=${PROPTEST_CASES:-500} CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 \
        cargo mutants "${arguments[@]}" --output "$into" --cargo-arg=--lib || code=$?
    # 2 means that some have survived, 3 that a test has hung: whether they may is said in ARCHITECTURE.md.
    case $code in 0 | 2 | 3) ;; *) fail "cargo mutants has failed on $file ($code)" ;; esac
    out=$into/mutants.out
    caught=$((caught + $(wc -l <"$out/caught.txt"))) timeout=$((timeout + $(wc -l <"$out/timeout.txt")))
    missed=$((missed + $(wc -l <"$out/missed.txt")))
    cat "$out/missed.txt"
done
[ "$((caught + timeout))" -gt 0 ] || fail "no mutant was caught"

did="$caught mutants were caught by a test and $timeout by the clock, $missed survived: see target/mutants"
