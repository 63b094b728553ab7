#!/usr/bin/env bash
# Runs examples/batch_writer into a PostgreSQL server of its own: its tests, in which the server crashes and answers get
# lost, and the comparison of fixed settings with the builder's default: postgres.sh [--short]
. "$(dirname "$0")/lib.sh"

case ${1:-} in
    "") compare=() ;;
    --short) compare=(--warm-up 1s --rounds 3) ;;
    *) fail "usage: postgres.sh [--short]" ;;
esac
need_postgres

# PostgreSQL refuses to run as root.
owner=()
if [ "$(id -u)" -eq 0 ]; then
    need_program runuser "PostgreSQL, which root must not run,"
    name=postgres
    id "$name" >/dev/null 2>&1 || name=nobody
    owner=(runuser -u "$name" --)
fi

# Not below target, whose path another user may be unable to follow.
home=$(mktemp -d "${TMPDIR:-/tmp}/backpressure-postgres.XXXXXX")
clean_up() {
    [ -n "$did" ] || [ ! -f "$home/log" ] || tail -n 20 "$home/log"
    [ ! -f "$home/data/postmaster.pid" ] || "$home/ctl" stop -m immediate
    rm -rf "$home"
}
case $postgres_bin in
    "$tools"/*)
        cp -a "$tools/postgresql" "$home/postgresql"
        postgres_bin=$home${postgres_bin#"$tools"}
        postgres_libraries=$home${postgres_libraries#"$tools"}
        ;;
esac
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n' "$password" >"$home/password"
chmod 600 "$home/password"
[ "${#owner[@]}" -eq 0 ] || chown -R "$name" "$home"

run=("${owner[@]}" env "LD_LIBRARY_PATH=$postgres_libraries")

# What the tests stop and start the server by.
cat >"$home/ctl" <<EOF
#!/bin/sh
cd "$home" && exec $(printf "%q " "${run[@]}")"$postgres_bin/pg_ctl" -s -D "$home/data" -l "$home/log" "\$@" </dev/null
EOF
chmod 755 "$home/ctl"

(cd "$home" && "${run[@]}" "$postgres_bin/initdb" -D "$home/data" -U postgres -A scram-sha-256 \
    --pwfile="$home/password" -E UTF8 --locale=C --no-instructions >"$home/initdb" 2>&1) ||
    { cat "$home/initdb"; fail "initdb failed"; }
for attempt in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 12000))
    cat >>"$home/data/postgresql.conf" <<EOF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = $port
EOF
    "$home/ctl" start && break
    [ "$attempt" -lt 5 ] || fail "PostgreSQL does not start"
done

export BATCH_WRITER_POSTGRES="postgres://postgres:$password@127.0.0.1:$port/postgres"
export BATCH_WRITER_POSTGRES_CTL=$home/ctl
log="$(scratch)/log"

cargo test --release -p batch_writer --test postgres --no-run
# What is lost is waited for for ever.
timeout --kill-after=10 180 cargo test --release -p batch_writer --test postgres -- --ignored 2>&1 | tee "$log"
count=$(passed "$log")
[ "$count" -gt 0 ] || fail "no test ran"

cargo run --quiet --release -p batch_writer -- --db "$BATCH_WRITER_POSTGRES" --compare "${compare[@]}" 2>&1 | tee "$log"
grep -q '^the builder.s default wrote' "$log" || fail "the comparison came to no figure"

did="$count tests passed on $("${run[@]}" "$postgres_bin/postgres" --version), a crash of it among them, and the comparison ran"
