#!/usr/bin/env bash
# Installs the tools that the checks need and are not there, and fails for what cannot be installed.
. "$(dirname "$0")/lib.sh"

for program in cargo rustc git awk timeout; do
    need_program "$program" "every check"
done
need_program cc "the bundled SQLite of examples/batch_writer"
need_program c++ "libFuzzer"
cargo fmt --version >/dev/null || fail "rustfmt is missing from the toolchain"
cargo clippy --version >/dev/null || fail "clippy is missing from the toolchain"
need_sanitizer tsan
need_sanitizer asan

need cargo-nextest
need cargo-deny
need cargo-fuzz
need cargo-hack
need cargo-public-api
need_promtool
need_postgres

did="$(rustc --version), $(rustc +nightly --version), nextest, deny, fuzz, hack, public-api, promtool and PostgreSQL are there"
