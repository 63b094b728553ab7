#!/usr/bin/env bash
# Every package of the repository is formatted, those outside the workspace too.
. "$(dirname "$0")/lib.sh"

packages=0
unformatted=()
while IFS= read -r manifest; do
    cargo fmt --manifest-path "$manifest" --check || unformatted+=("$manifest")
    packages=$((packages + 1))
done < <(find . -name target -prune -o -name Cargo.toml -print | sort)
[ "${#unformatted[@]}" -eq 0 ] || fail "run cargo fmt --manifest-path on: ${unformatted[*]}"

did="$packages packages are formatted"
