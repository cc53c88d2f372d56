#!/usr/bin/env bash
# Compares two builds of the program by CPU seconds, in turn: is a cheaper build (other profile, fewer features) as quick?
#
#     bench/builds.sh BEFORE AFTER [RUNS [NAME [ROW...]]]
#
# BEFORE, AFTER: two binaries. NAME: of the results, `builds` where none is given. Rows (all where none is named): `tera` (sort of 1 GB), `words` (word count of the demo's text, four times over), `small` (50 jobs
# of one line, one after the other), `jobs` (CPU seconds of a server for 100,000 jobs that do nothing; SQLite). Prints a line for each
# run and the medians; appends both to bench/results/DATE-NAME.tsv.
set -euo pipefail
before=$(realpath "$1") after=$(realpath "$2") runs=${3:-5} name=${4:-builds}
chosen=("${@:5}")
[ ${#chosen[@]} -gt 0 ] || chosen=(tera words small jobs)
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/builds-XXXXXX")
server=''
trap '[ -z "$server" ] || kill "$server" || true; rm -rf "$work"' EXIT
results=$root/bench/results/$(date -u +%Y-%m-%d)-$name.tsv
[ -s "$results" ] || printf 'row\trun\tbefore_cpu_s\tafter_cpu_s\n' > "$results"
TIMEFORMAT='%U %S'

cpu_of() { # cpu_of COMMAND...: its user and system seconds, added
    local times
    times=$({ time "$@" > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }; } 2>&1)
    awk '{ print $1 + $2 }' <<< "$times"
}

# Each build has a state of its own: an earlier one does not open that of a later one.
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
jobs() { # the server's own seconds, from /proc
    rm -rf "$work/server-state"
    : > "$work/url"
    "$1" server --listen 127.0.0.1:0 --state "$work/server-state" > "$work/url" 2> "$work/server.log" &
    server=$!
    until [ -s "$work/url" ]; do kill -0 "$server"; sleep 0.02; done
    # The clients are those of one build in all runs: of the later one, which shows a token where one is asked for.
    "$after" bench jobs --server "$(head -n 1 "$work/url")" --jobs 100000 > "$work/out"
    awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$server/stat"
    kill "$server"
    wait "$server" || true
    server=''
}

"$after" tera gen --state "$work/state" --layout modern --rows 10m --output "$work/rows" --no-sync > "$work/out" 2>&1
"$root/demo/corpus.sh" "$work/corpus" > "$work/out"
mkdir "$work/text"
for copy in 1 2 3 4; do find "$work/corpus" -name '*.rs' -exec cat {} + > "$work/text/$copy"; done
echo 'one line of words' > "$work/line"
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
