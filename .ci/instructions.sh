#!/usr/bin/env bash
# Counts the instructions of the hot paths and holds them to benches/instructions.txt: instructions.sh [--write]
#
# A count needs no quiet machine. It depends on the compiler: a figure that has changed by more than 3 % either way is a
# failure, and --write records the present ones.
. "$(dirname "$0")/lib.sh"

recorded=benches/instructions.txt
turns=16384
out=$(scratch)
case ${1:-} in --write | --short | '') ;; *) fail "usage: instructions.sh [--write]" ;; esac
need_valgrind

cargo bench --bench instructions --no-run --message-format=json >"$out/build"
program=$(sed -n 's/.*"executable":"\([^"]*instructions-[^"]*\)".*/\1/p' "$out/build" | tail -n 1)
[ -x "$program" ] || fail "cargo built no program to count"

# The C library copies memory as the processor likes it best: here in the one way that all have.
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX,-ERMS,-FSRM,-Prefer_No_VZEROUPPER,-AVX_Fast_Unaligned_Load

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/^==[0-9]*== Collected : \([0-9]*\)$/\1/p'
}

for row in $("$program"); do
    once=$(count "$row" "$turns") twice=$(count "$row" "$((2 * turns))")
    [ -n "$once" ] && [ -n "$twice" ] || fail "callgrind counted nothing for $row"
    awk -v row="$row" -v n="$((twice - once))" -v turns="$turns" 'BEGIN { printf "%-16s %8.1f\n", row, n / turns }'
done | tee "$out/counts"

if [ "${1:-}" = --write ]; then
    { echo "# Instructions a turn, by .ci/instructions.sh --write, $(rustc --version | cut -d' ' -f1-2)"; cat "$out/counts"; } >"$recorded"
    did="$recorded has the present counts"
    exit
fi
awk '
    FNR == NR { if (!/^#/) was[$1] = $2; next }
    !($1 in was) { print $1 " is not recorded"; bad = 1; next }
    { seen[$1] = 1; ratio = $2 / was[$1]
      if (ratio > 1.03 || ratio < 0.97) { printf "%s: %s, recorded %s (%+.1f %%)\n", $1, $2, was[$1], 100 * (ratio - 1); bad = 1 } }
    END { for (row in was) if (!(row in seen)) { print row " is gone"; bad = 1 }; exit bad }
' "$recorded" "$out/counts" || fail "the counts are not those of $recorded: see above, and --write if they are meant"

did="$(wc -l <"$out/counts") hot paths take the instructions that $recorded says"
