#!/usr/bin/env bash
# The costs of failures, and of protection against them: real processes in two racks of five nodes with capped links. The user programs
# mostly wait, so a few cores are enough. bench/README.md explains the table.
set -euo pipefail

. "$(dirname "$0")/failures/rows.sh"
usage() {
    cat >&2 <<TEXT
usage: bench/failures.sh [--runs N] [--rows ROW,...] [--seconds N] [--beside N] [--fresh] [--table]
  --runs N      runs of each kind; the table shows medians (default 3)
  --rows LIST   only these rows: $rows_all
  --seconds N   duration of a job without failures (default 180; a smaller number is a trial, whose runs are kept separate)
  --beside N    clusters that run at the same time (default 3; the table shows the load of the machine)
  --fresh       ignore today's earlier runs
  --table       run nothing, print the table of today's runs
Environment: SAILFISH (binary), BENCH_DIR (state and data; 3 GB), NODE_RATE and UPLINK_RATE (links, as tc writes rates)
TEXT
    exit 2
}
runs=3 rows=$rows_all seconds=180 beside=3 fresh='' table=''
while [ $# -gt 0 ]; do
    case $1 in
        --runs | --rows | --seconds | --beside)
            [ $# -ge 2 ] || usage
            case $1 in
                --runs) runs=$2 ;;
                --rows) rows=${2//,/ } ;;
                --seconds) seconds=$2 ;;
                --beside) beside=$2 ;;
            esac
            shift ;;
        --fresh) fresh=yes ;;
        --table) table=yes ;;
        *) usage ;;
    esac
    shift
done
case $runs$seconds$beside in *[!0-9]*) usage ;; esac
for row in $rows; do
    case " $rows_all " in *" $row "*) ;; *) echo "failures.sh: there is no row $row" >&2; usage ;; esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=$(realpath "${SAILFISH:-$target/release/sailfish}")
mkdir -p "${BENCH_DIR:-$target/bench}/failures"
bench_dir=$(cd "${BENCH_DIR:-$target/bench}/failures" && pwd)
told=$bench_dir/told plain=$bench_dir/plain zipf=$bench_dir/zipf
mkdir -p "$told"
. "$root/bench/failures/racks.sh"
. "$root/bench/failures/world.sh"
. "$root/bench/failures/jobs.sh"

open_results() {
    local dir=$root/bench/results
    [ "$seconds" = 180 ] || dir=$bench_dir/trial-$seconds
    mkdir -p "$dir"
    results=$dir/$(date -u +%Y-%m-%d)-failures-runs.tsv
    table_of=$dir/$(date -u +%Y-%m-%d)-failures.txt
    commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
    build=$(sha256sum "$sailfish" | cut -c 1-12)
    profile=${BENCH_PROFILE:-$(case $sailfish in */debug/*) echo debug ;; *) echo release ;; esac)}
    [ -s "$results" ] || echo $COLUMNS_OF_RUNS | tr ' ' '\t' > "$results"
    [ -n "$table" ] || echo "# $(date -u +%H:%M:%S) failures.sh --runs $runs --seconds $seconds --beside $beside; nodes $NODE_RATE, racks" \
        "$UPLINK_RATE; $(nproc) cores, Linux $(uname -r), load $(cut -d ' ' -f 1 /proc/loadavg)" >> "$results"
    [ -z "$fresh" ] || printf '# fresh\t-\t%s\n' "$build" >> "$results"
}

run_or_tell() {
    run_one "$1" "$2" || echo "failures.sh: $1, run $2: failed, no figure" >&2
}

measure_rows() {
    local why kinds='' kind repeat row running=0
    why=$(missing_for_racks)
    [ -z "$why" ] || { echo "failures.sh: cannot measure on this machine: $why" >&2; exit 1; }
    for row in $rows; do kinds="$kinds $(kinds_of "$row")"; done
    make_input "$plain"
    case $kinds in *zipf*) make_zipf_input "$zipf" ;; esac
    for kind in $(printf '%s\n' $kinds | awk '!seen[$0]++'); do
        for repeat in $(seq "$runs"); do
            [ "$(measured "$kind" "$repeat")" = 0 ] || continue
            if [ "$running" -ge "$beside" ]; then wait -n || true; running=$((running - 1)); fi
            echo "$(date -u +%H:%M:%S) $kind, $repeat of $runs" >&2
            run_or_tell "$kind" "$repeat" &
            running=$((running + 1))
        done
    done
    wait
}

open_results
if [ -z "$table" ]; then
    trap 'kill $(jobs -p) 2> /dev/null; wait; exit 130' INT TERM
    measure_rows
fi
# Only a table of all rows is stored; a table of some rows is only printed.
[ "$rows" = "$rows_all" ] || table_of=/dev/null
for row in $rows; do "row_$row"; done | tee "$table_of"
