#!/usr/bin/env bash
# Measures how the volume of the data determines the layout without options: I-files, chunks and their fill, reduce tasks. Inputs are 10 MB,
# 100 MB, 1 GB and 5 GB of 100-byte records, with the default memory and, for many chunks, with 1G and 64M.
# Needs bash, coreutils, python3 and 16 GB of disk; `make release` builds the rest.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=${SAILFISH:-$target/release/sailfish}
xtask=${XTASK:-$target/release/xtask}
work=${BENCH_DIR:-$target/bench}
mkdir -p "$work" "$root/bench/results"
results=$root/bench/results/$(date +%F)-volume.tsv
input=$work/volume.txt
trap 'rm -rf "$work/out" "$work/part.txt" "$input"' EXIT

"$xtask" gen-records --bytes 5000000000 --out "$input"
{
    echo "# volume.sh: identity, hash order, 100-byte records; commit $(git -C "$root" rev-parse --short=12 HEAD)"
    printf 'bytes\tmemory\tifiles\tchunk_bytes\tchunks\tchunks_optimum\tfill_min_percent\truns_on_disk\treduce_tasks\n'
} | tee -a "$results"
for bytes in 10000000 100000000 1000000000 5000000000; do
    head -c "$bytes" "$input" > "$work/part.txt"
    for memory in default 1G 64M; do
        option=()
        [ "$memory" = default ] || option=(--memory "$memory")
        "$sailfish" run --state "$work/state" --input "$work/part.txt" --output "$work/out" --overwrite --no-sync \
            "${option[@]}" 2> "$work/stderr.txt" || { cat "$work/stderr.txt" >&2; exit 1; }
        python3 - "$bytes" "$memory" "$work/out/_report.json" <<'PYTHON' | tee -a "$results"
import json
import sys

report = json.load(open(sys.argv[3]))
shuffle = report["shuffle"]
assert report["proof"]["agrees"]
print(sys.argv[1], sys.argv[2], report["layout"]["ifile_count"], report["layout"]["chunk_bytes"], shuffle["chunks"],
      shuffle["chunks_optimum"], f'{shuffle["fill_percent_min"]:.2f}', shuffle["runs"] - shuffle["runs_in_memory"],
      report["reduce"]["tasks"], sep="\t")
PYTHON
    done
done
