#!/usr/bin/env bash
# The crate can be published, depends on what it may depend on, and keeps the house rules that a line count can tell.
. "$(dirname "$0")/lib.sh"

out=$(scratch)

# Refuses a work tree with changes in packaged files, so by hand: commit first.
cargo package -p backpressure --locked
cargo package -p backpressure --locked --list >"$out/files"
for file in Cargo.toml README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE src/lib.rs; do
    grep -qx "$file" "$out/files" || fail "$file is not in the package"
done
if grep -E '^(\.|fuzz/|shuttle/|target/|tests/)' "$out/files" | grep -v '^\.cargo_vcs_info\.json$'; then
    fail "the package holds what no user needs"
fi

# Docs hosts have the package and nothing else, and the guides are read only when it is documented.
cp -r "target/package/$(cargo pkgid -p backpressure | sed 's/.*[#@]/backpressure-/')" "$out/package"
printf '\n[workspace]\n' >>"$out/package/Cargo.toml"
RUSTDOCFLAGS="-D warnings" cargo doc --manifest-path "$out/package/Cargo.toml" --lib --no-deps --all-features \
    --target-dir target

cargo tree -p backpressure -e normal --no-default-features --depth 1 --prefix none --format '{lib}' >"$out/tree"
while IFS= read -r name; do
    case $name in
        backpressure | futures_core | metrics | parking_lot | pin_project_lite | tokio) ;;
        *) fail "$name is not among the five core dependencies" ;;
    esac
done <"$out/tree"
if cargo tree -p backpressure -e normal --prefix none --format '{lib}' | grep -qx syn; then
    fail "syn is in the default tree"
fi

if grep -rnw unsafe src --include='*.rs' | grep -vE '^src/ring(\.rs|/)|:[0-9]+:[[:space:]]*//'; then
    fail "unsafe outside src/ring.rs and src/ring/"
fi
find src -name '*.rs' -exec wc -l {} + | awk '$2 != "total" && $1 >= 600 { print; long = 1 } END { exit long }' ||
    fail "a file has 600 lines or more, which likely holds two nouns"

did="$(wc -l <"$out/files") files packaged, built and documented, $(($(wc -l <"$out/tree") - 1)) dependencies, unsafe in the ring only"
