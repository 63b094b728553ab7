# Sourced by each check: goes to the root of the repository, says at the end what was done and how long it took.
#
# A check sets `did` to one line on what it did, as its last step. It ends in `ok` or in `FAILED`; there is no third way:
# a tool, a toolchain or a test that is missing is a failure, never a skip.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=$(basename "$0" .sh)
did=
# Tools that have to be built stand here, one build for all clones on a machine, apart from the ones of cargo's owner.
tools=${BACKPRESSURE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/backpressure-tools}
export PATH="$tools/bin:$PATH"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# A run must not depend on what the caller's shell has set; checks with flags of their own set them where they run.
unset RUSTFLAGS RUSTDOCFLAGS CARGO_BUILD_TARGET CARGO_TARGET_DIR RUSTC_BOOTSTRAP

# What a check has to put away at its end; one that has something defines it anew.
clean_up() { :; }

finish() {
    local code=$?
    clean_up || printf '[%s] could not put everything away\n' "$check" >&2
    if [ "$code" -eq 0 ] && [ -n "$did" ]; then
        rm -rf "target/ci/$check.$$"
        printf '[%s] ok in %d s: %s\n' "$check" "$SECONDS" "$did"
    else
        printf '[%s] FAILED after %d s (exit %d)\n' "$check" "$SECONDS" "$code"
        exit "$((code == 0 ? 1 : code))"
    fi
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

fail() {
    printf '[%s] %s\n' "$check" "$*" >&2
    exit 1
}

# A directory of this run's own for what a check writes down; a failure leaves it there.
scratch() {
    local dir="target/ci/$check.$$"
    mkdir -p "$dir"
    printf '%s\n' "$dir"
}

host() {
    rustc -vV | sed -n 's/^host: //p'
}

# How many tests passed, summed over all that `cargo test` wrote into FILE: passed FILE
passed() {
    awk '/^test result: ok\. / { sum += $4 } END { print sum + 0 }' "$1"
}

# The first command in a fenced block of README.md that begins with the words: readme_command WORDS
readme_command() {
    [ -f README.md ] || fail "there is no README.md to take '$1' from"
    awk -v words="$1" '
        /^[[:space:]]*```/ { fenced = !fenced; next }
        fenced {
            sub(/^[[:space:]]*\$[[:space:]]+/, ""); sub(/[[:space:]]+#.*$/, ""); sub(/[[:space:]]+$/, "")
            if (index($0 " ", words " ") == 1) { print; found = 1; exit }
        }
        END { exit !found }
    ' README.md || fail "README.md has no fenced line that begins with '$1'"
}

# The version that is built when a tool is missing. One that is there already will do if cargo would call it
# compatible (same 0.minor) and it is not older.
pinned() {
    case $1 in
        cargo-deny) echo 0.20.2 ;;
        cargo-fuzz) echo 0.13.2 ;;
        cargo-mutants) echo 27.1.0 ;;
        cargo-hack) echo 0.6.46 ;;
        cargo-nextest) echo 0.9.143 ;;
        # Reads what nightly's rustdoc writes; a nightly with another format asks for another version.
        cargo-public-api) echo 0.52.0 ;;
        cargo-semver-checks) echo 0.51.0 ;;
        *) fail "no version is pinned for $1" ;;
    esac
}

# Whether a good enough version of the tool is there: has TOOL VERSION
has() {
    local found
    command -v "$1" >/dev/null || return 1
    found=$("$1" "${1#cargo-}" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1) || return 1
    [ "${found%.*}" = "${2%.*}" ] && [ "${found##*.}" -ge "${2##*.}" ]
}

# Builds the tool if it is missing: need TOOL
#
# Unoptimised and without debug information: cargo-deny takes 1.5 minutes so on 2 cores, its own release profile (fat
# LTO, one codegen unit) several times as long, and none of the tools has anything heavy to do here.
need() {
    local tool=$1 version began
    version=$(pinned "$tool")
    has "$tool" "$version" && return
    began=$SECONDS
    printf '[%s] building %s %s into %s\n' "$check" "$tool" "$version" "$tools"
    CARGO_PROFILE_DEV_DEBUG=0 \
        cargo install --quiet --locked --force --profile dev --root "$tools" --version "$version" "$tool"
    has "$tool" "$version" || fail "$tool $version was built and cannot be run"
    printf '[%s] built %s in %d s\n' "$check" "$tool" "$((SECONDS - began))"
}

# Prometheus' own linter, out of Debian's package of it: the one file is taken, nothing is installed or started.
need_promtool() {
    local began=$SECONDS package
    command -v promtool >/dev/null && return
    need_program apt-get "getting promtool, which is not there,"
    need_program dpkg-deb "unpacking promtool"
    package=$(mktemp -d)
    (
        cd "$package"
        apt-get -qq download prometheus 2>/dev/null || { apt-get -qq update && apt-get -qq download prometheus; }
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool
    ) || fail "promtool is missing and cannot be had from the package prometheus"
    mkdir -p "$tools/bin"
    mv "$package/usr/bin/promtool" "$tools/bin/promtool"
    rm -rf "$package"
    promtool --version >/dev/null 2>&1 || fail "promtool was unpacked and cannot be run"
    printf '[%s] unpacked promtool in %d s\n' "$check" "$((SECONDS - began))"
}

# Valgrind, out of Debian's package where it is missing.
need_valgrind() {
    command -v valgrind >/dev/null && return
    need_program apt-get "getting valgrind, which is not there,"
    apt-get -qq install -y valgrind >/dev/null 2>&1 || { apt-get -qq update && apt-get -qq install -y valgrind >/dev/null; } ||
        fail "valgrind is missing and cannot be installed"
}

# PostgreSQL's programs, out of Debian's packages if they are not there; nothing is installed or started. Sets
# postgres_bin and postgres_libraries.
need_postgres() {
    local began=$SECONDS root=$tools/postgresql
    find_postgres && return
    need_program apt-get "getting PostgreSQL, which is not there,"
    need_program dpkg-deb "unpacking PostgreSQL"
    rm -rf "$root"
    mkdir -p "$root/archives/partial"
    {
        fetch_postgres "$root/archives" || { apt-get -qq update && fetch_postgres "$root/archives"; }
    } || fail "PostgreSQL is missing and cannot be had from its packages"
    for package in "$root"/archives/*.deb; do
        dpkg-deb --extract "$package" "$root"
    done
    rm -rf "$root/archives"
    find_postgres || fail "PostgreSQL was unpacked and cannot be run"
    printf '[%s] unpacked %s in %d s\n' "$check" "$postgres_bin" "$((SECONDS - began))"
}

# The packages that the machine lacks, into DIRECTORY: fetch_postgres DIRECTORY
fetch_postgres() {
    apt-get -qq -y -o Debug::NoLocking=1 -o Dir::Cache::archives="$1" --no-install-recommends --download-only \
        install postgresql
}

# The newest that can be run, of Debian's and of the ones unpacked here.
find_postgres() {
    local bin libraries
    for bin in $(ls -d /usr/lib/postgresql/*/bin "$tools"/postgresql/usr/lib/postgresql/*/bin 2>/dev/null | sort -rV); do
        libraries=${bin%/postgresql/*}/$(uname -m)-linux-gnu
        LD_LIBRARY_PATH=$libraries "$bin/initdb" --version >/dev/null 2>&1 || continue
        postgres_bin=$bin
        postgres_libraries=$libraries
        return
    done
    return 1
}

# Nightly with the runtime of a sanitizer (asan, tsan): need_sanitizer RUNTIME
need_sanitizer() {
    local root
    root=$(rustc +nightly --print sysroot 2>/dev/null) || fail "the nightly toolchain is missing, and $1 needs it"
    cargo +nightly --version >/dev/null || fail "the nightly toolchain has no cargo"
    ls "$root/lib/rustlib/$(host)/lib/"librustc-*_rt."$1".a >/dev/null 2>&1 ||
        fail "the nightly toolchain has no $1 runtime for $(host)"
}

# A program that the machine has to bring: need_program NAME WHAT_FOR
need_program() {
    command -v "$1" >/dev/null || fail "$1 is missing, and $2 needs it"
}
