#!/usr/bin/env bash
# What a real scrape returns is what Prometheus wants: names, units, types and help, by its own linter; and so are the guide's alerts.
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

# The alerts of the guide, one in each paragraph of its only block, as rules.
rules() {
    printf 'groups:\n- name: guide\n  rules:\n'
    awk '
        /^```/ { inside = /promql/; next }
        !inside || /^#/ { next }
        /^$/ { open = 0; next }
        !open { printf "  - alert: a%d\n    expr: |\n", ++count; open = 1 }
        { print "      " $0 }
    ' "$1"
}
rules guide/operating.md >"$scrape.rules"
alerts=$(grep -c '^  - alert' "$scrape.rules") || fail "the guide has no alerts"
promtool check rules "$scrape.rules" || fail "promtool does not like the alerts of guide/operating.md"
printf '```promql\nsum by (queue rate(orders[5m])\n```\n' >"$scrape.broken"
rules "$scrape.broken" >"$scrape.rules"
if promtool check rules "$scrape.rules" >/dev/null 2>&1; then
    fail "promtool lets a broken alert pass"
fi

did="promtool found nothing in $(grep -c '^backpressure_' "$scrape") samples of a scrape and in the $alerts alerts of the guide"
