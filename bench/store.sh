#!/bin/sh
# Measures the rate at which the store alone records jobs of one task, with full history and fsync, on SQLite and on a private PostgreSQL. A
# transaction has 1, 16, 64 or 256 jobs of each step. Measures again with HISTORY finished jobs in the store.
#
# usage: bench/store.sh [HISTORY]       (bench/cluster.sh, group history, measures the row of the speed table about history)
set -eu
cd "$(dirname "$0")/.."
history=${1:-1000000}
target=${CARGO_TARGET_DIR:-target}
dir=${BENCH_DIR:-$target/bench}/store

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

. demo/postgres.sh
stop() {
    postgres_stop
    rm -rf "$dir"
}
trap stop EXIT INT TERM
postgres_start "$dir" shared_buffers=1GB max_wal_size=8GB
echo "PostgreSQL"
measure "$postgres_url"
