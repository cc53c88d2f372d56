#!/usr/bin/env bash
# The cost of containment: two builds run the same programs in turn, and processes of the second are measured.
#
#     bench/containment.sh BEFORE AFTER [ROUNDS]
#
# BEFORE, AFTER: two binaries with different names. Rows per round: `/bin/true` jobs/s on a node of four slots, plain and in a sandbox, of
# both builds in turn; then for AFTER the private memory of the spawner and of the inits, the time from the end of an attempt with 1,000
# descendants to the next job on its slot, and the change of job on a slot whose last job left a file. Prints the rows and the medians of the
# ratios; appends the rows to bench/results/DATE-containment.tsv. Environment: PROGRAMS (jobs of a rate, default 5000).
set -euo pipefail
before=$(realpath "$1") after=$(realpath "$2") rounds=${3:-5} programs=${PROGRAMS:-5000}
root=$(cd "$(dirname "$0")/.." && pwd)
# Not below /tmp: a job there would have its directories made visible one by one.
work=$(mktemp -d "${BENCH_DIR:-/var/tmp}/containment-XXXXXX")
server='' node='' url=''
trap 'stop; rm -rf "$work"' EXIT
results=$root/bench/results/$(date -u +%Y-%m-%d)-containment.tsv
[ -s "$results" ] || printf 'row\tround\tbuild\tvalue\tunit\n' > "$results"
row() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" | tee -a "$results"; }

stop() {
    for pid in $node $server; do kill "$pid" 2> /dev/null || true; done
    for pid in $node $server; do wait "$pid" 2> /dev/null || true; done
    server='' node=''
    rm -rf "$work/state" "$work/disk"
}
start() { # start BINARY SLOTS NODE_OPTION...
    : > "$work/url"
    "$1" server --listen 127.0.0.1:0 --no-tokens --state "$work/state" > "$work/url" 2> "$work/server.log" &
    server=$!
    until [ -s "$work/url" ]; do kill -0 "$server"; sleep 0.02; done
    url=$(cat "$work/url")
    (cd "$work" && exec "$1" node --server "$url" --slots "$2" --memory 64M --disk "$work/disk" "${@:3}" 2> "$work/node.log") &
    node=$!
    until grep -q joined "$work/node.log"; do sleep 0.02; done
}
rate() { # rate NAME ROUND BINARY NODE_OPTION...
    start "$3" 4 "${@:4}"
    (cd "$work" && "$3" bench jobs --server "$url" --jobs "$programs" --clients 0 -- /bin/true > "$work/out")
    row "$1" "$2" "$(basename "$3")" "$(awk '/^finished/ { print $(NF - 1) }' "$work/out")" jobs/s
    stop
}
now_ms() { date +%s%3N; }

for round in $(seq "$rounds"); do
    for kind in plain sandboxed; do
        option=()
        [ $kind = plain ] || option=(--sandbox)
        order=("$before" "$after")
        [ $((round % 2)) = 1 ] || order=("$after" "$before")
        for build in "${order[@]}"; do rate "/bin/true, $kind" "$round" "$build" "${option[@]}"; done
    done
    start "$after" 1
    submit() { (cd "$work" && "$after" submit --server "$url" --wait -- sh -c "$1" > /dev/null); }
    submit true
    for name in sailfish-spawn sailfish-init; do
        pid=$(pgrep -n -x "$name")
        kib=$(awk '/^Private_Dirty/ { print $2 }' "/proc/$pid/smaps_rollup")
        row "private memory of $name" "$round" "$(basename "$after")" "$kib" KiB
    done
    submit 'true' && began=$(now_ms) && submit 'true'
    alone=$(($(now_ms) - began))
    submit 'for i in $(seq 1000); do sleep 3600 > /dev/null 2>&1 & done; true' && began=$(now_ms) && submit 'true'
    row "1,000 descendants: next job after the end, without the time of a job" "$round" "$(basename "$after")" $(($(now_ms) - began - alone)) ms
    began=$(now_ms)
    for _ in $(seq 50); do submit 'true'; done
    same=$(($(now_ms) - began))
    began=$(now_ms)
    for _ in $(seq 50); do submit ': > /tmp/left'; done
    row "change of job on a slot, files left" "$round" "$(basename "$after")" "$(awk "BEGIN { print ($(now_ms) - $began - $same) / 50 }")" ms
    stop
done
for kind in plain sandboxed; do
    awk -F '\t' -v row="/bin/true, $kind" -v before="$(basename "$before")" '
        $1 == row { if ($3 == before) old[$2] = $4; else new[$2] = $4 }
        END { for (round in old) if (old[round] > 0) print new[round] / old[round] }' "$results" | sort -n |
        awk -v kind="$kind" '{ all[NR] = $1 } END { print "ratio of jobs/s, " kind ": " all[int((NR + 1) / 2)] }'
done
