#!/usr/bin/env bash
# Runs the tests under AddressSanitizer and its leak check: asan.sh [--short | ROUNDS]
#
# Unit and integration tests, those about what becomes of items once in the short form, else all of them ROUNDS times; 3 unless
# told.
. "$(dirname "$0")/lib.sh"

case ${1:-3} in
    --short) rounds=1 ;;
    *[!0-9]* | 0) fail "usage: asan.sh [--short | ROUNDS]" ;;
    *) rounds=${1:-3} ;;
esac
need_sanitizer asan
out=$(scratch)
flags="-Zsanitizer=address"

# Only a run that can see a fault says anything by seeing none: a planted leak and a planted use after free.
cat >"$out/planted.rs" <<'RUST'
fn main() {
    let fault = std::env::args().nth(1);
    let item = Box::into_raw(Box::new(std::hint::black_box(7_u64)));
    if fault.as_deref() == Some("leak") {
        println!("{}", std::hint::black_box(item).is_null());
        return;
    }
    drop(unsafe { Box::from_raw(item) });
    if fault.as_deref() == Some("use-after-free") {
        println!("{}", unsafe { std::hint::black_box(item).read_volatile() });
    }
}
RUST
rustc +nightly $flags --target "$(host)" -o "$out/planted" "$out/planted.rs"
"$out/planted" || fail "the program without a fault failed"
for fault in leak:'LeakSanitizer: detected memory leaks' use-after-free:'AddressSanitizer: heap-use-after-free'; do
    if "$out/planted" "${fault%%:*}" >"$out/planted.log" 2>&1; then
        fail "the planted ${fault%%:*} was not found"
    fi
    grep -q "${fault#*:}" "$out/planted.log" || { cat "$out/planted.log"; fail "the planted ${fault%%:*} was not named"; }
done

# What becomes of items is in the short form; policy, its statistics, figures and what is told are in the long one only.
long=" accounts adapters adaptive age alloc batching blocking blocking_sink busy cancellation capacity counting custom fairness faults
    flush_error fork forward health max_delay metrics order outage reconfigure recovery regressions retry_after runtime scrape smoke
    states test_util tracing types wakeup "
for name in $long; do
    [ -f "tests/$name.rs" ] || fail "there is no tests/$name.rs"
done
targets=(--lib)
for file in tests/*.rs; do
    name=$(basename "$file" .rs)
    case $name in
        # Own sanitizer, own check, and nothing of the crate in it.
        tsan | soak | layers) continue ;;
    esac
    [[ ${1:-} == --short && $long == *[[:space:]]"$name"[[:space:]]* ]] || targets+=(--test "$name")
done
suite() {
    RUSTFLAGS="$flags" cargo +nightly test -p backpressure --all-features "${targets[@]}" \
        --target "$(host)" --target-dir target/asan "$@" 2>&1
}

# For a value of a terabyte on a stack, as in a test of memory that cannot be had, the compiler's instrumentation asks
# for all the memory of the machine: 12 GiB are plenty. The limit is for the build, since the sanitizer maps far more.
(ulimit -v $((12 * 1024 * 1024)) && suite --no-run)

# An allocation that cannot be had is an answer to the crate, so it has to be one to the sanitizer's allocator.
export ASAN_OPTIONS=allocator_may_return_null=1
export LSAN_OPTIONS="suppressions=$PWD/.ci/lsan.supp:print_suppressions=0"
harness=()
if [ "${1:-}" = --short ]; then
    # Random operations take six times as long under it; they run in full without it, and so does what is statistics alone.
    export PROPTEST_CASES=${PROPTEST_CASES:-500}
    harness=(--skip the_weights_estimate_what_was_offered_without_bias)
fi
for ((round = 1; round <= rounds; round++)); do
    suite --no-fail-fast -- "${harness[@]}" | tee -a "$out/log"
done
count=$(passed "$out/log")
[ "$count" -gt 0 ] || fail "no test ran"

did="$count tests without a fault or a leak in $rounds round(s), and the planted ones were found"
