#!/bin/sh
# The demo: builds the one binary, counts the words of real text, sorts 1 GB, and shows what the engine says of both.
#
#     demo/laptop.sh TARGET_DIR
set -eu
cd "$(dirname "$0")/.."
target=$1
sailfish=$target/release/sailfish dir=$target/demo

if [ -x "$sailfish" ]; then
    build="brings the program up to date (seconds where little changed)"
else
    build="builds the program (about 6 minutes on two cores, once)"
fi
cat << END
This $build,
then counts the words of the Rust sources that cargo has unpacked, and sorts 1 GB (about half a minute together).
Everything goes below $dir.

END
seconds() { date +%s; }
shown() { echo; echo "\$ sailfish $*"; "$sailfish" "$@"; }
job_of() { sed -n 's/.*"job": *\([0-9][0-9]*\).*/\1/p' "$1/_report.json" | head -n 1; }

began=$(seconds)
cargo build --release --locked --package cli
built=$(seconds)

mkdir -p "$dir"
demo/corpus.sh "$dir/corpus"
shown run --state "$dir/state" --input "$dir/corpus" --mapper builtin:words --reducer builtin:sum --output "$dir/counts" --overwrite
shown report --state "$dir/state" "$(job_of "$dir/counts")"
echo
echo "The words most often used, from $dir/counts:"
cat "$dir"/counts/part-* | LC_ALL=C sort -t "$(printf '\t')" -k 2,2nr -k 1,1 | head -n 15

# A GB of TeraSort data: made, sorted, judged; then what the engine says about the sort.
shown tera gen --state "$dir/state" --layout modern --rows 10m --output "$dir/rows" --overwrite
shown tera sort --state "$dir/state" --input "$dir/rows" --output "$dir/sorted" --overwrite
shown tera sum --state "$dir/state" "$dir/rows"
shown tera validate --state "$dir/state" "$dir/sorted"
shown timeline --state "$dir/state" "$(job_of "$dir/sorted")"
shown report --state "$dir/state" --limit 4 "$(job_of "$dir/sorted")"
rm -rf "$dir/rows" "$dir/sorted"

ended=$(seconds)
echo
awk -v build=$((built - began)) -v jobs=$((ended - built)) \
    'BEGIN { printf "Build: %.1f minutes. Jobs: %.1f minutes.\n", build / 60, jobs / 60 }'
