#!/bin/sh
# Runs every fuzz target for a number of seconds, each with its seeds and with limits of memory that a decoder which
# believes a length would break. Any finding ends the run; so does a canary that finds nothing.
#
#     fuzz/run.sh SECONDS [TARGET...]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:?give the seconds for each target}
shift
targets=${*:-$(cargo +nightly fuzz list | grep -v '^canary$')}

cargo test --quiet --manifest-path fuzz/Cargo.toml
if cargo +nightly fuzz run canary -- -max_total_time=60 > /dev/null 2>&1; then
    echo "The canary lives: a planted mistake was not found, so silence proves nothing." >&2
    exit 1
fi
for target in $targets; do
    echo "fuzz $target for $seconds s"
    corpus=fuzz/corpus/$target
    mkdir -p "$corpus"
    seeds=crates/ifile/test_data/v1
    dictionary=
    if [ "$target" = job_file ]; then
        seeds=fuzz/seeds/job_file
        dictionary=-dict=fuzz/job_file.dict
    fi
    cargo +nightly fuzz run "$target" "$corpus" "$seeds" -- \
        -max_total_time="$seconds" -rss_limit_mb=2048 -malloc_limit_mb=512 -timeout=10 $dictionary
done
