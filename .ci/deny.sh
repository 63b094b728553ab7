#!/usr/bin/env bash
# Licences, banned crates and sources of the whole dependency tree, by deny.toml.
. "$(dirname "$0")/lib.sh"

need cargo-deny
cargo-deny --all-features --locked check licenses bans sources

did="licences, bans and sources of the lock file are in order"
