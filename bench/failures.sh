#!/usr/bin/env bash
# What failures cost, and what it costs to be ready for them: real processes, user programs that mostly wait, so that a few cores are
# enough for all nodes. Each row is a median of jobs beside each other's like, in turn. bench/README.md says what is not here yet.
set -euo pipefail

modes_all="none rack sync"
usage() {
    cat >&2 <<TEXT
usage: bench/failures.sh [--runs N] [--modes MODE,...] [--maps N]
  --runs N      jobs of each kind (default 3)
  --modes LIST  of: $modes_all (none is always run: the others are compared with it)
  --maps N      map tasks of a job, each of 8 s, on six nodes of two slots (default 72, a job of 65 s)
Environment: SAILFISH (binary), BENCH_DIR (state and data; 2 GB)
TEXT
    exit 2
}
runs=3 modes=$modes_all maps=72
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --runs) runs=$2 ;;
        --modes) modes="none ${2//,/ }" ;;
        --maps) maps=$2 ;;
        *) usage ;;
    esac
    shift 2
done
case $runs$maps in *[!0-9]*) usage ;; esac
for mode in $modes; do
    case " $modes_all " in *" $mode "*) ;; *) echo "failures.sh: there is no mode $mode" >&2; usage ;; esac
done
modes=$(printf '%s\n' $modes | awk '!seen[$0]++' | tr '\n' ' ')

readonly NODES=6 MAP_SECONDS=8 REDUCE_SECONDS=5 PARTITIONS=36 LINES_PER_MAP=40000
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=$(realpath "${SAILFISH:-$target/release/sailfish}")
mkdir -p "${BENCH_DIR:-$target/bench}"
work=$(mktemp -d "$(cd "${BENCH_DIR:-$target/bench}" && pwd)/failures-XXXXXX")
results=$root/bench/results/$(date -u +%Y-%m-%d)-failures.tsv
commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
[ -s "$results" ] || printf 'time\tcommit\trow\tvalue\tunit\tmust\tverdict\truns\n' > "$results"
echo "# $(date -u +%H:%M:%S) failures.sh --runs $runs --maps $maps; $(nproc) cores, Linux $(uname -r), load $(cut -d ' ' -f 1 /proc/loadavg)" >> "$results"

server='' nodes=()
stop_all() {
    for pid in "${nodes[@]}" $server; do kill "$pid" 2> /dev/null || true; done
    for pid in "${nodes[@]}" $server; do wait "$pid" 2> /dev/null || true; done
    server='' nodes=()
}
trap 'exit 130' INT TERM
trap 'stop_all; rm -rf "$work"' EXIT

start_all() {
    rm -rf "$work"/state "$work"/disk-* "$work"/out
    : > "$work/url"
    "$sailfish" server --listen 127.0.0.1:0 --state "$work/state" > "$work/url" 2> "$work/server.log" &
    server=$!
    until [ -s "$work/url" ]; do
        kill -0 "$server" 2> /dev/null || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.02
    done
    url=$(cat "$work/url")
    local number
    for number in $(seq "$NODES"); do
        : > "$work/node-$number.log"
        "$sailfish" node --server "$url" --name "node-$number" --slots 2 --memory 1G --disk "$work/disk-$number" 2> "$work/node-$number.log" &
        nodes+=($!)
        until grep -q joined "$work/node-$number.log"; do sleep 0.02; done
    done
}

asks() { "$sailfish" state --server "$url" --json "$1" | tr -dc '0-9'; }

cpu_seconds() { # of the server and the nodes that live
    local pid
    for pid in $server "${nodes[@]}"; do cut -d ')' -f 2 "/proc/$pid/stat" 2> /dev/null || true; done |
        awk -v hertz="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { printf "%.2f\n", sum / hertz }'
}

run() { # run MODE FAULT: seconds, CPU seconds and bytes of replicas, to files of that kind
    start_all
    local began job
    began=$(date +%s.%N)
    "$sailfish" run --server "$url" --memory 512M --replication "$1" --partitions $PARTITIONS --input "$work/in" \
        --mapper "$work/mapper.sh" --reducer "$work/reducer.sh" --output "$work/out" > "$work/log.txt" 2>&1 &
    job=$!
    if [ "$2" = killed ]; then
        # After the last map and the merges, when the first reducers are in the middle.
        until [ "$(asks "select count(*) > 0 as one from attempts where stage = 3 and state = 'running'" || true)" = 1 ]; do sleep 0.1; done
        sleep 3
        kill -9 "${nodes[0]}"
        nodes=("${nodes[@]:1}")
    fi
    wait "$job" || { cat "$work/log.txt" >&2; return 1; }
    echo "$(date +%s.%N) $began" | awk '{ printf "%.3f\n", $1 - $2 }' >> "$work/$1-$2.seconds"
    cpu_seconds >> "$work/$1-$2.cpu"
    asks "select coalesce(sum(bytes), 0) as n from replicas" >> "$work/$1-$2.sent"
    asks "select count(*) as n from attempts where stage = 0 and attempt > 0 and state = 'succeeded'" >> "$work/$1-$2.again"
    cat "$work"/out/part-* | LC_ALL=C sort | sha256sum >> "$work/outputs"
    stop_all
}

median() { sort -g "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

row() { # row NAME VALUE UNIT MUST: at most; `-`: nothing is asked
    local verdict
    verdict=$(awk -v value="$2" -v must="$4" 'BEGIN { print must == "-" ? "report" : (value <= must ? "met" : "MISSED") }')
    printf '%-66s %12s %-7s must %-5s %s\n' "$1" "$2" "$3" "$4" "$verdict"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%H:%M:%S)" "$commit" "$1" "$2" "$3" "$4" "$verdict" "$runs" >> "$results"
}

ratio() { echo "$(median "$1") $(median "$2")" | awk '{ printf "%.3f\n", $1 / $2 }'; }

mkdir "$work/in"
for map in $(seq "$maps"); do
    awk -v map="$map" -v lines="$LINES_PER_MAP" \
        'BEGIN { for (line = 0; line < lines; line++) print (line * 7919 + map) % 100003 "\t" map "-" line }' > "$work/in/$map.txt"
done
printf '#!/bin/sh\ncat\nsleep %s\n' "$MAP_SECONDS" > "$work/mapper.sh"
printf '#!/bin/sh\ncat\nsleep %s\n' "$REDUCE_SECONDS" > "$work/reducer.sh"
chmod +x "$work"/*.sh

faults="healthy killed"
for round in $(seq "$runs"); do
    for mode in $modes; do
        for fault in $faults; do
            # For comparison only while nothing happens.
            if [ "$mode" = sync ] && [ "$fault" = killed ]; then continue; fi
            echo "round $round: $mode, $fault" >&2
            run "$mode" "$fault"
        done
    done
done
[ "$(sort -u "$work/outputs" | wc -l)" = 1 ] || { echo "failures.sh: the outputs differ" >&2; exit 1; }

row "no failure, none: job" "$(median "$work/none-healthy.seconds")" s -
for mode in $modes; do
    row "no failure, $mode: CPU of server and nodes" "$(median "$work/$mode-healthy.cpu")" s -
    [ "$mode" = none ] && continue
    must=1.15
    [ "$mode" = sync ] && must=-
    row "no failure, $mode: bytes sent to replicas" "$(median "$work/$mode-healthy.sent")" bytes -
    row "no failure: $mode / none" "$(ratio "$work/$mode-healthy.seconds" "$work/none-healthy.seconds")" ratio "$must"
done
for mode in $modes; do
    [ "$mode" = sync ] && continue
    must=1.18
    [ "$mode" = none ] && must=1.4
    row "node killed 3 s into the reduce phase, $mode / no failure, $mode" \
        "$(ratio "$work/$mode-killed.seconds" "$work/$mode-healthy.seconds")" ratio "$must"
    row "node killed 3 s into the reduce phase, $mode: maps that ran again" "$(median "$work/$mode-killed.again")" tasks -
done
echo "Raw rows: ${results#"$root"/}"
