#!/usr/bin/env bash
# The cluster's speed table: rates of jobs on SQLite and PostgreSQL, the time from submit to start, real processes, a server
# that comes back, and what moves data. bench/README.md says how to read it. Figures count on an idle machine only.
set -euo pipefail

usage() {
    cat >&2 <<TEXT
usage: bench/cluster.sh [--jobs N]
  --jobs N    no-op jobs of the rows about rates (default 1000000; fewer make a trial, whose rows are kept apart)
Environment: SAILFISH (binary), BENCH_DIR (state; 5 GB for a million jobs), PGPORT (a free port, default 54391)
TEXT
    exit 2
}
jobs=1000000
while [ $# -gt 0 ]; do
    case $1 in
        --jobs) [ $# -ge 2 ] || usage; jobs=$2; shift ;;
        *) usage ;;
    esac
    shift
done
case $jobs in '' | *[!0-9]*) usage ;; esac

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=$(realpath "${SAILFISH:-$target/release/sailfish}")
mkdir -p "${BENCH_DIR:-$target/bench}"
work=$(mktemp -d "$(cd "${BENCH_DIR:-$target/bench}" && pwd)/cluster-XXXXXX")
results_dir=$root/bench/results
[ "$jobs" = 1000000 ] || results_dir=$target/bench/scaled-cluster
mkdir -p "$results_dir"
results=$results_dir/$(date -u +%Y-%m-%d)-cluster.tsv
commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
build=$(sha256sum "$sailfish" | cut -c 1-12)
[ -s "$results" ] || printf 'time\tcommit\tbuild\trow\tvalue\tunit\tmust\tverdict\tserver_cpu_s\tserver_rss_mib\n' > "$results"
echo "# $(date -u +%H:%M:%S) cluster.sh --jobs $jobs; $(nproc) cores, Linux $(uname -r), $(stat -f -c %T "$work")," \
    "load $(cut -d ' ' -f 1 /proc/loadavg)" >> "$results"

# Data of trials is as much smaller as their jobs are fewer, but no less than a hundredth.
scale_percent=$((jobs / 10000 < 1 ? 1 : jobs / 10000 > 100 ? 100 : jobs / 10000))

. "$root/demo/postgres.sh"
. "$root/bench/cluster/data.sh"
server='' nodes=''
stop_server() {
    for pid in $nodes $server; do kill "$pid" 2> /dev/null || true; done
    for pid in $nodes $server; do wait "$pid" 2> /dev/null || true; done
    server='' nodes=''
}
cleanup() {
    stop_server
    postgres_stop
    rm -rf "$work"
}
trap 'exit 130' INT TERM
trap cleanup EXIT

serve() { # serve OPTION...: sets url
    : > "$work/url"
    "$sailfish" server --listen 127.0.0.1:0 "$@" > "$work/url" 2> "$work/server.log" &
    server=$!
    until [ -s "$work/url" ]; do
        kill -0 "$server" 2> /dev/null || { cat "$work/server.log" >&2; exit 1; }
        sleep 0.02
    done
    url=$(cat "$work/url")
}

row() { # row NAME VALUE UNIT MUST: a rate must be at least, a time at most
    local verdict cpu_s=- rss_mib=-
    if [ -n "$server" ]; then
        cpu_s=$(awk '{ print ($14 + $15) / 100 }' "/proc/$server/stat")
        rss_mib=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$server/status")
    fi
    verdict=$(awk -v value="$2" -v unit="$3" -v must="$4" \
        'BEGIN { print (unit == "jobs/s" ? value >= must : value <= must) ? "met" : "MISSED" }')
    printf '%-44s %10s %-7s must %-7s %s\n' "$1" "$2" "$3" "$4" "$verdict"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%H:%M:%S)" "$commit" "$build" "$1" "$2" "$3" "$4" \
        "$verdict" "$cpu_s" "$rss_mib" >> "$results"
}

# The rate in the line of `sailfish bench jobs` that begins with `finished`.
rate_of() { awk '/^finished/ { print $(NF - 1) }' "$work/out"; }

rates() { # rates NAME MUST SERVER-OPTION...
    local name=$1 must=$2
    shift 2
    serve "$@"
    "$sailfish" bench jobs --server "$url" --jobs "$jobs" > "$work/out"
    row "no-op jobs, 8 clients, $name" "$(rate_of)" jobs/s "$must"
    # As many jobs again wait; the server is killed and comes back.
    "$sailfish" bench jobs --server "$url" --jobs $((jobs / 10)) --only-submit > "$work/out"
    kill -9 "$server"; wait "$server" 2> /dev/null || true
    local began
    began=$(date +%s.%N)
    serve "$@"
    row "back, $jobs jobs over, $((jobs / 10)) waiting, $name" "$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')" s 5
    stop_server
}

rates SQLite 5000 --state "$work/sqlite"
rm -rf "$work/sqlite"

serve --state "$work/idle"
"$sailfish" bench jobs --server "$url" --jobs 500 --latency --clients 1 --slots 1 > "$work/out"
row "idle, submit to start, p50" "$(awk '{ print $5 }' "$work/out")" ms 5
row "idle, submit to start, p99" "$(awk '{ print $8 }' "$work/out")" ms 25
stop_server

processes() { # processes NAME MUST NODE_OPTION...: programs of a node with four slots
    local name=$1 must=$2
    shift 2
    serve --state "$work/processes"
    "$sailfish" node --server "$url" --slots 4 --memory 64M --disk "$work/disk" "$@" 2> "$work/node.log" &
    nodes=$!
    until grep -q joined "$work/node.log"; do sleep 0.02; done
    "$sailfish" bench jobs --server "$url" --jobs 5000 --clients 0 -- /bin/true > "$work/out"
    row "$name" "$(rate_of)" jobs/s "$must"
    stop_server
    rm -rf "$work/processes" "$work/disk"
}
processes "/bin/true, one node of 4 slots" 800
processes "/bin/true in a sandbox" 300 --sandbox

data_rows

if postgres_start "$work" shared_buffers=1GB max_wal_size=8GB; then
    rates PostgreSQL 2500 --state "$work/postgres" --database "$postgres_url"
else
    echo "PostgreSQL: not run"
fi
echo "Raw rows: ${results#"$root"/}"
