#!/usr/bin/env bash
# Replays the kept corpora as normal tests, then lets libFuzzer look for more: fuzz.sh [--short | MINUTES | --merge]
#
# MINUTES, for all targets together, is 10 unless told, half a minute in the short form. What the fuzzer finds on its way
# goes to target/, not into the kept corpora: fuzz.sh --merge keeps the part of it that reaches code which the kept inputs
# don't.
. "$(dirname "$0")/lib.sh"

# The whole controller, the ring, and the table of states.
targets=(ops ring state)
kept=fuzz/corpus
found=target/fuzz-corpus

# Without a sanitizer, on stable: three times as fast, and memory is asan.sh's business.
fuzz() {
    mkdir -p "$found/$1"
    cargo-fuzz fuzz run -s none --target-dir target/fuzz "$@" -timeout=10 2>&1
}

need cargo-fuzz
need_program c++ "libFuzzer"
case ${1:-10} in
    --short) seconds=30 ;;
    --merge)
        for target in "${targets[@]}"; do
            mkdir -p "$kept/$target"
            fuzz "$target" "$kept/$target" "$found/$target" -- -merge=1
        done
        did="$kept has what $found added"
        exit
        ;;
    *[!0-9]* | 0) fail "usage: fuzz.sh [--short | MINUTES | --merge]" ;;
    *) seconds=$((${1:-10} * 60)) ;;
esac
out=$(scratch)
files=$(find "$kept" -type f | wc -l)

cargo test -p backpressure --test corpus --test inner corpus 2>&1 | tee "$out/replay"
[ "$(passed "$out/replay")" -ge "${#targets[@]}" ] || fail "not every corpus has a test that replays it"

sum=0
for target in "${targets[@]}"; do
    fuzz "$target" "$found/$target" "$kept/$target" -- -max_total_time="$((seconds / ${#targets[@]}))" \
        -print_final_stats=1 | tee "$out/$target"
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$target")
    [ "${runs:-0}" -gt "$(find "$kept/$target" -type f | wc -l)" ] || fail "the fuzzer ran no input of its own on $target"
    sum=$((sum + runs))
done

did="$files kept inputs replayed, then $sum inputs in $seconds s without a finding"
