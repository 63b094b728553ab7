#!/usr/bin/env bash
# Runs the main job that README.md gives, word for word. Its other command, the tests, is run by test.sh.
. "$(dirname "$0")/lib.sh"

log="$(scratch)/log"
command=$(readme_command "cargo run")
readme_command "cargo test" >/dev/null

printf '[%s] README.md says: %s\n' "$check" "$command"
bash -c "$command" 2>&1 | tee "$log"
# Cargo's own lines are indented; the job has to have said something of its own.
grep -qE '^[^[:space:]]' "$log" || fail "'$command' printed nothing"

did="'$command' did its job"
