#!/bin/sh
# Builds every fuzz target with coverage and runs it for a number of seconds, each with its seeds and with limits of memory that a
# decoder which believes a length would break. Any finding ends the run; so does a canary that finds nothing.
#
#     fuzz/run.sh [--whole] SECONDS [TARGET...]
#
# Without --whole only our own crates have coverage, and the others are those of the tests; with it, which takes minutes to build,
# all have, so that the fuzzer also sees its way through the decoders that we call (TOML, LZ4, zstd).
#
# A stable compiler is enough: what libFuzzer needs of it is LLVM's coverage, which is no feature of nightly. What nightly would add
# is the address sanitizer, and these decoders have no unsafe code.
set -eu
cd "$(dirname "$0")"
whole=
if [ "$1" = --whole ]; then
    whole=yes
    shift
fi
seconds=${1:?give the seconds for each target}
shift
targets=${*:-$(ls fuzz_targets | sed 's/[.]rs$//' | grep -v '^canary$')}

CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-../target}
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR ;; esac
export CARGO_TARGET_DIR
fuzz_dir=$CARGO_TARGET_DIR/fuzz
mkdir -p "$fuzz_dir"
# Before the build with coverage, because this builds the targets as well, without it, and in the same place.
cargo test --quiet --locked --workspace --test mending
if [ -n "$whole" ]; then
    # A directory of its own: with other flags everything is built anew. Named by its host, so that build scripts get none of them.
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags="$(tr '\n' ' ' < coverage.flags) -Cdebug-assertions -Coverflow-checks"
    RUSTFLAGS=$flags cargo build --quiet --locked --release --package sailfish-fuzz --bins --target "$host" --target-dir "$fuzz_dir"
    programs=$fuzz_dir/$host/release
else
    # Of the whole workspace, so that crates from outside have the features that they have in the tests, and are not built again.
    # Without what incremental builds keep, which slows the only one.
    bins=$(for target in fuzz_targets/*.rs; do basename "$target" .rs | sed 's/^/--bin /'; done)
    # shellcheck disable=SC2086
    CARGO_INCREMENTAL=0 RUSTC_WORKSPACE_WRAPPER=$PWD/coverage.sh cargo build --quiet --locked --workspace $bins
    programs=$CARGO_TARGET_DIR/debug
fi
fuzz() { # fuzz TARGET SECONDS DIRECTORY...: new inputs go to the first directory
    target=$1 for_seconds=$2
    shift 2
    mkdir -p "artifacts/$target" "$1"
    "$programs/$target" -max_total_time="$for_seconds" -rss_limit_mb=2048 -malloc_limit_mb=512 -timeout=10 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 $dictionary "$@"
}

dictionary=
log=$fuzz_dir/last.log
if fuzz canary 60 "$fuzz_dir/canary" > "$log" 2>&1; then
    echo "The canary lives: a planted mistake was not found, so silence proves nothing." >&2
    exit 1
fi
grep -q "INFO: Loaded .* inline 8-bit counters" "$log" || { echo "The targets were built without coverage." >&2; exit 1; }
grep -q "out of range" "$log" || { echo "The canary did not run:" >&2; tail -n 5 "$log" >&2; exit 1; }
rm -r artifacts/canary
for target in $targets; do
    seeds="../crates/ifile/test_data/v1 ../crates/ifile/test_data/v2"
    dictionary=
    if [ "$target" = job_file ]; then
        seeds=seeds/job_file
        dictionary=-dict=job_file.dict
    elif [ "$target" = stage_file ]; then
        seeds=../crates/stagefile/test_data/v1
    fi
    # shellcheck disable=SC2086 # these are directories
    fuzz "$target" "$seconds" "corpus/$target" $seeds > "$log" 2>&1 || {
        tail -n 30 "$log" >&2
        echo "fuzz $target: a finding; again: $programs/$target fuzz/artifacts/$target/FILE" >&2
        exit 1
    }
    echo "fuzz $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
done
