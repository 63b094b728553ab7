#!/usr/bin/env bash
# What a real scrape returns is what Prometheus wants: names, units, types and help, by its own linter.
. "$(dirname "$0")/lib.sh"

need_promtool
scrape="$PWD/$(scratch)/scrape"

BACKPRESSURE_SCRAPE=$scrape cargo test -p backpressure --test scrape
[ -s "$scrape" ] || fail "the test wrote no scrape"
promtool check metrics <"$scrape" || fail "promtool does not like the scrape"
# A check that cannot fail checks nothing.
if printf '# TYPE orders counter\norders 1\n' | promtool check metrics >/dev/null 2>&1; then
    fail "promtool lets a counter without help and suffix pass"
fi

did="promtool found nothing in $(grep -c '^backpressure_' "$scrape") samples of a scrape"
