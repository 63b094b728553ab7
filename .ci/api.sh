#!/usr/bin/env bash
# The public API is the one that api.txt lists, so that no change of it goes unseen: api.sh [--write]
#
# With all features, without blanket and auto trait implementations. --write lists it anew: read the difference, commit it.
. "$(dirname "$0")/lib.sh"

case ${1:-} in
    "" | --write) ;;
    *) fail "usage: api.sh [--write]" ;;
esac
need cargo-public-api
cargo +nightly --version >/dev/null 2>&1 || fail "the nightly toolchain is missing, and the listing needs its rustdoc"
listed="$(scratch)/api.txt"

cargo-public-api public-api -p backpressure --all-features -ss --color never >"$listed"
grep -q '^pub fn backpressure::BackpressureController' "$listed" || fail "the listing does not have the controller"
if [ "${1:-}" = --write ]; then
    cp "$listed" api.txt
else
    diff -u api.txt "$listed" || fail "the public API has changed: .ci/api.sh --write, and CHANGELOG.md, if a user would notice"
fi

did="$(wc -l <api.txt) lines of public API"
