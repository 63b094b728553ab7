#!/usr/bin/env bash
# Runs tests/tsan.rs under ThreadSanitizer, clean and with a planted race that has to be found: tsan.sh [--short | SECONDS]
#
# SECONDS reaches the test as BACKPRESSURE_TSAN_SECONDS; 60 unless told, 5 in the short form.
. "$(dirname "$0")/lib.sh"

case ${1:-60} in
    --short) seconds=5 ;;
    *[!0-9]* | 0) fail "usage: tsan.sh [--short | SECONDS]" ;;
    *) seconds=${1:-60} ;;
esac
need_sanitizer tsan
export BACKPRESSURE_TSAN_SECONDS=$seconds
export TSAN_OPTIONS="suppressions=$PWD/.ci/tsan.supp"
out=$(scratch)
flags="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"

# Runs the test, built by a wrapper if there is one, and keeps what it says: run NAME [WRAPPER]
run() {
    RUSTFLAGS="$flags" RUSTC_WORKSPACE_WRAPPER=${2:-} cargo +nightly test -p backpressure --test tsan \
        --target "$(host)" --target-dir target/tsan 2>&1 | tee "$out/$1"
}

run tsan || fail "the clean run failed"
! grep -q 'WARNING: ThreadSanitizer' "$out/tsan" || fail "the clean run passed and reported a race all the same"

# Only a run that can see a race says anything by seeing none. By a wrapper, since other flags would build all dependencies anew.
printf '#!/bin/sh\nexec "$@" --cfg backpressure_planted_race\n' >"$out/plant"
chmod +x "$out/plant"
if run tsan-planted "$PWD/$out/plant" >/dev/null; then
    fail "the planted race was not found"
fi
grep -q 'WARNING: ThreadSanitizer: data race' "$out/tsan-planted" ||
    { cat "$out/tsan-planted"; fail "the planted run failed for another reason than a race"; }

did="no data race in tests/tsan.rs, told to storm for $seconds s, and the planted one was found"
