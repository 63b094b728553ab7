#!/usr/bin/env bash
# Replays the kept corpus as a normal test, then lets libFuzzer look for more: fuzz.sh [--short | MINUTES | --merge]
#
# MINUTES is 10 unless told, half a minute in the short form. What the fuzzer finds on its way goes to target/, not into
# the kept corpus: fuzz.sh --merge keeps the part of it that reaches code which the kept inputs don't.
. "$(dirname "$0")/lib.sh"

kept=fuzz/corpus/ops
found=target/fuzz-corpus/ops

# Without a sanitizer, on stable: three times as fast, and memory is asan.sh's business.
fuzz() {
    mkdir -p "$found"
    cargo-fuzz fuzz run -s none --target-dir target/fuzz ops "$@" -timeout=10 2>&1
}

need cargo-fuzz
need_program c++ "libFuzzer"
case ${1:-10} in
    --short) seconds=30 ;;
    --merge)
        fuzz "$kept" "$found" -- -merge=1
        did="$kept has what $found added"
        exit
        ;;
    *[!0-9]* | 0) fail "usage: fuzz.sh [--short | MINUTES | --merge]" ;;
    *) seconds=$((${1:-10} * 60)) ;;
esac
out=$(scratch)
files=$(find "$kept" -type f | wc -l)
[ "$files" -gt 0 ] || fail "$kept is empty"

cargo test -p backpressure --tests corpus 2>&1 | tee "$out/replay"
[ "$(passed "$out/replay")" -gt 0 ] || fail "no test replays the corpus: none has 'corpus' in its name"

fuzz "$found" "$kept" -- -max_total_time="$seconds" -print_final_stats=1 | tee "$out/fuzz"
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/fuzz")
[ "${runs:-0}" -gt "$files" ] || fail "the fuzzer ran no input of its own"

did="$files kept inputs replayed, then $runs inputs in $seconds s without a finding"
