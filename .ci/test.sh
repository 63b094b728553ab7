#!/usr/bin/env bash
# Runs the test command that README.md gives, word for word, then the tests of the crate under nextest, where one that hangs
# fails; not once more those that take long and only compute.
. "$(dirname "$0")/lib.sh"

need cargo-nextest
log="$(scratch)/log"
command=$(readme_command "cargo test")

printf '[%s] README.md says: %s\n' "$check" "$command"
bash -c "$command" 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "'$command' ran no test"

cargo-nextest nextest run --workspace --all-features --profile ci \
    -E 'package(backpressure) and not (binary(conservation) | binary(corpus) | binary(outage) | binary(sampling))'

did="$count tests and doctests passed by '$command', and none of the crate's hangs under nextest"
