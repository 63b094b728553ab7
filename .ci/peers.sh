#!/usr/bin/env bash
# The crate beside its peers, in benches/peers: each contestant conserves what it says, and every row runs: peers.sh
# [--short]
#
# The short form does a tenth of the work and judges no mark, since other checks and other users make the times that it
# takes meaningless. The long one takes some ten minutes on a machine that has nothing else to do, and fails if a mark is
# missed.
. "$(dirname "$0")/lib.sh"

form=()
case ${1:-} in
    --short) form=(--quick --no-verdict) ;;
    "") ;;
    *) fail "usage: peers.sh [--short]" ;;
esac
log="$(scratch)/log"
table=$PWD/target/ci/peers.md
package=(--locked --manifest-path benches/peers/Cargo.toml --target-dir target/peers)

cargo clippy "${package[@]}" --all-targets -- -D warnings
cargo test "${package[@]}" --release 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "no test ran"
rm -f "$table"
cargo run "${package[@]}" --release --quiet -- "${form[@]}" --markdown "$table"
rows=$(grep -c '^### ' "$table")

did="$count tests passed and $rows figures were taken; the table is in ${table#"$PWD/"}"
