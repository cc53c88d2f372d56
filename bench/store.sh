#!/bin/sh
# How many jobs of one task the store takes in, with full history and fsync, on SQLite and on a private PostgreSQL: nothing
# but the store, with 1, 16, 64 and 256 jobs of each step in a transaction; then again after HISTORY jobs that are over.
#
# usage: bench/store.sh [HISTORY]       (10000000 for the row of the speed table: needs 15 GB and an hour)
set -eu
cd "$(dirname "$0")/.."
history=${1:-1000000}
target=${CARGO_TARGET_DIR:-target}
dir=${BENCH_DIR:-$target/bench}/store
port=${PGPORT:-54390}

cargo build --release --locked -p metastore --example apply_rate
rate=$target/release/examples/apply_rate
rm -rf "$dir"
mkdir -p "$dir"

measure() {
    for batch in 1 16 64 256; do
        jobs=50000
        [ "$batch" -gt 1 ] || jobs=5000
        "$rate" "$1" --jobs $jobs --batch $batch
    done
    "$rate" "$1" --jobs 1 --history "$history"
    "$rate" "$1" --jobs 50000 --batch 64 --waiting 1000
}

echo "SQLite"
measure "$dir/state"
rm -rf "$dir/state"

# The newest version that a distribution keeps, or one of PATH. PostgreSQL does not run as root.
programs=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)
[ -n "$programs" ] || programs=$(dirname "$(command -v initdb)")
as_user() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi
}
data=$(mktemp -d "${TMPDIR:-/tmp}/sailfish-store-XXXXXX")
[ "$(id -u)" != 0 ] || chown postgres "$data"
stop() {
    as_user "$programs/pg_ctl" -D "$data/data" -m immediate -w stop > /dev/null 2>&1 || true
    rm -rf "$data" "$dir"
}
trap stop EXIT INT TERM
as_user "$programs/initdb" -D "$data/data" -U sailfish -A trust -E UTF8 --locale=C > /dev/null
as_user "$programs/pg_ctl" -D "$data/data" -l "$data/log" -w \
    -o "-p $port -k $data -c listen_addresses=127.0.0.1 -c shared_buffers=1GB -c max_wal_size=8GB" start > /dev/null
echo "PostgreSQL"
measure "postgres://sailfish@127.0.0.1:$port/postgres"
