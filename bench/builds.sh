#!/usr/bin/env bash
# Compares the CPU seconds of two builds of the program, run in turn, to see whether a cheaper build (other profile, fewer features) is as
# fast.
#
#     bench/builds.sh BEFORE AFTER [RUNS [NAME [ROW...]]]
#
# BEFORE, AFTER: two binaries with different names. NAME: the name of the results, default `builds`. Default rows: `tera` (sort of 1 GB),
# `words` (word count of four copies of the demo's text), `small` (50 jobs of one line, one after the other), `jobs` (CPU seconds of a
# server for 100,000 no-op jobs; SQLite). Other rows: `million` (the same for a million jobs), `nodes` (sort of 2 GB, a server and two nodes
# with one slot), `inputs` (100,000 inputs of one line, embedded), `rooted` (the same by a server and a node with `--allow-root`),
# `streaming` (word count of two Python scripts by `sailfish streaming`), `python` (word count by the Python package). Environment: PYTHON
# (interpreter, default python3), BEFORE_PYTHON (directory of the package for BEFORE, default this package). Prints a line per run, and the
# medians; appends both to bench/results/DATE-NAME.tsv.
set -euo pipefail
before=$(realpath "$1") after=$(realpath "$2") runs=${3:-5} name=${4:-builds}
chosen=("${@:5}")
[ ${#chosen[@]} -gt 0 ] || chosen=(tera words small jobs)
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/builds-XXXXXX")
server='' nodes='' url=''
# shellcheck disable=SC2086 # these are numbers of processes
trap '[ -z "$server" ] || kill $nodes "$server" || true; rm -rf "$work"' EXIT
results=$root/bench/results/$(date -u +%Y-%m-%d)-$name.tsv
[ -s "$results" ] || printf 'row\trun\tbefore_cpu_s\tafter_cpu_s\n' > "$results"
TIMEFORMAT='%U %S'

cpu_of() { # cpu_of COMMAND...: prints the sum of its user and system seconds
    local times
    times=$({ time "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }; } 2>&1)
    awk '{ print $1 + $2 }' <<< "$times"
}

# Each build has a separate state, because an older build cannot open the state of a newer one.
options=(--overwrite --no-sync)
tera() {
    cpu_of "$1" tera sort --input "$work/rows" --output "$work/out-dir" --memory 4G --state "$work/state-$(basename "$1")" "${options[@]}"
}
words() {
    cpu_of "$1" run --input "$work/text" --mapper builtin:words --reducer builtin:sum --output "$work/out-dir" --memory 4G \
        --state "$work/state-$(basename "$1")" "${options[@]}"
}
small_jobs() {
    for _ in $(seq 50); do
        "$1" run --input "$work/line" --mapper builtin:words --reducer builtin:sum --output "$work/out-dir" --memory 64M \
            --state "$work/state-$(basename "$1")" "${options[@]}"
    done
}
small() { cpu_of small_jobs "$1"; }

scripts=$root/tests/test_data/streaming/03-wordcount-python/scripts
streaming() {
    cpu_of "$1" streaming -files "$scripts/mapper.py,$scripts/reducer.py" -input "$work/text/1" -output "$work/out-dir" -mapper mapper.py \
        -reducer reducer.py -numReduceTasks 2 --memory 4G --state "$work/state-$(basename "$1")" "${options[@]}"
}
python() {
    local package=$root/python
    [ "$1" != "$before" ] || package=${BEFORE_PYTHON:-$package}
    rm -rf "$work/out-dir"
    cpu_of env PYTHONPATH="$package:$root/examples:$root/bench/python" SAILFISH_PROGRAM="$1" XDG_STATE_HOME="$work/python-$(basename "$1")" \
        "${PYTHON:-python3}" "$root/bench/python/ours.py" word_frequencies "$work/text/1" "$work/out-dir"
}

start_server() { # start_server BINARY OPTION...
    rm -rf "$work/server-state" "$work"/disk-*
    : > "$work/url"
    "$1" server --listen 127.0.0.1:0 --state "$work/server-state" "${@:2}" > "$work/url" 2> "$work/server.log" &
    server=$!
    until [ -s "$work/url" ]; do kill -0 "$server"; sleep 0.02; done
    url=$(head -n 1 "$work/url")
}
start_nodes() { # start_nodes BINARY NODES
    local number
    for number in $(seq "$2"); do
        : > "$work/node.log"
        "$1" node --server "$url" --slots 1 --memory 4G --disk "$work/disk-$number" 2> "$work/node.log" &
        nodes="$nodes $!"
        until grep -q joined "$work/node.log"; do kill -0 "$!"; sleep 0.02; done
    done
}
end_processes() { # prints the CPU seconds of the server and the nodes, from /proc, and ends these processes
    local pid
    for pid in $server $nodes; do cut -d ')' -f 2 "/proc/$pid/stat"; done |
        awk -v hz="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { print sum / hz }'
    # shellcheck disable=SC2086 # these are numbers of processes
    kill $nodes "$server"
    wait || true
    server='' nodes=''
}
no_op_jobs() { # no_op_jobs BINARY JOBS: clients and server must have the same version of the protocol, so both are of this build
    start_server "$1"
    "$1" bench jobs --server "$url" --jobs "$2" > "$work/out"
    end_processes
}
jobs() { no_op_jobs "$1" 100000; }
million() { no_op_jobs "$1" 1000000; }
nodes() {
    start_server "$1"
    start_nodes "$1" 2
    "$1" tera sort --server "$url" --memory 4G "${options[@]}" --input "$work/rows" --input "$work/rows2" --output "$work/out-dir" > "$work/out" 2>&1
    end_processes
}
count_inputs() { # count_inputs BINARY OPTION...
    "$1" run --input "$work/many" --mapper builtin:words --reducer builtin:sum --output "$work/out-dir" --memory 1G "${@:2}" "${options[@]}"
}
inputs() { cpu_of count_inputs "$1" --state "$work/state-$(basename "$1")"; }
rooted() {
    start_server "$1" --allow-root "$work"
    start_nodes "$1" 1
    count_inputs "$1" --server "$url" > "$work/out" 2>&1
    end_processes
}

"$after" tera gen --state "$work/state" --layout modern --rows 10m --output "$work/rows" --no-sync > "$work/out" 2>&1
"$root/demo/corpus.sh" "$work/corpus" > "$work/out"
mkdir "$work/text"
for copy in 1 2 3 4; do find "$work/corpus" -name '*.rs' -exec cat {} + > "$work/text/$copy"; done
echo 'one line of words' > "$work/line"
"$after" tera gen --state "$work/state" --layout modern --rows 10m --output "$work/rows2" --no-sync > "$work/out" 2>&1
mkdir "$work/many"
(cd "$work/many" && seq 100000 | split --lines 1 --suffix-length 5)
for row in "${chosen[@]}"; do
    rows=()
    "$row" "$before" > "$work/warm" && "$row" "$after" > "$work/warm"
    for run in $(seq "$runs"); do
        rows+=("$(printf '%s\t%s\t%s\t%s' "$row" "$run" "$("$row" "$before")" "$("$row" "$after")")")
        echo "${rows[-1]}" | tee -a "$results"
    done
    printf '%s\n' "${rows[@]}" | awk -F '\t' -v row="$row" '
        function median(list, n,   i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
        }
        { b[NR] = $3; a[NR] = $4; r[NR] = $4 / $3 }
        END { printf "%s\tmedian\t%.2f\t%.2f\nafter / before, %s: %.3f\n", row, median(b, NR), median(a, NR), row, median(r, NR) }' |
        tee -a "$results"
done
