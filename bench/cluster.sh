#!/usr/bin/env bash
# The speed table of the cluster: rates of jobs, real processes, restarts of the server, data transfer, and peers.
# bench/README.md explains the table. Figures are valid on an idle machine only.
set -euo pipefail

groups_all="sqlite offered idle queue processes hyperqueue sort tls plan shuffle append match yarn spark postgresql history_sqlite history_postgresql"
usage() {
    cat >&2 <<TEXT
usage: bench/cluster.sh [--jobs N] [--rows GROUP,...]
  --jobs N      no-op jobs of the rows about rates (default 1000000; fewer make a trial with less data, whose rows are kept apart)
  --rows LIST   only these groups: $groups_all
Environment: SAILFISH (binary), BENCH_DIR (state and data; 15 GB), TMPDIR (35 GB there for the group history_postgresql),
PGPORT (a free port, default 54391), PEERS_DIR (where peers lie; what is missing is installed by bench/peers/setup-*.sh)
TEXT
    exit 2
}
jobs=1000000 groups=$groups_all
while [ $# -gt 0 ]; do
    case $1 in
        --jobs) [ $# -ge 2 ] || usage; jobs=$2; shift ;;
        --rows) [ $# -ge 2 ] || usage; groups=${2//,/ }; shift ;;
        *) usage ;;
    esac
    shift
done
case $jobs in '' | *[!0-9]*) usage ;; esac
for group in $groups; do
    case " $groups_all " in *" $group "*) ;; *) echo "cluster.sh: there is no group $group" >&2; usage ;; esac
done

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

# In a trial with fewer jobs, the data is smaller by the same factor, but at least a hundredth.
scale_percent=$((jobs / 10000 < 1 ? 1 : jobs / 10000 > 100 ? 100 : jobs / 10000))

. "$root/demo/postgres.sh"
. "$root/bench/cluster/jobs.sh"
. "$root/bench/cluster/history.sh"
. "$root/bench/cluster/data.sh"
. "$root/bench/cluster/peers.sh"
server='' nodes=''
stop_server() {
    for pid in $nodes $server; do kill "$pid" 2> /dev/null || true; done
    for pid in $nodes $server; do wait "$pid" 2> /dev/null || true; done
    server='' nodes=''
}
cleanup() {
    stop_server
    stop_peers
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

row() { # row NAME VALUE UNIT MUST: the least rate or factor, or the largest time or ratio; MUST `-`: no limit
    local verdict cpu_s=- rss_mib=-
    if [ -n "$server" ]; then
        cpu_s=$(awk '{ print ($14 + $15) / 100 }' "/proc/$server/stat")
        rss_mib=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$server/status")
    fi
    verdict=$(awk -v value="$2" -v unit="$3" -v must="$4" \
        'BEGIN {
            if (must == "-") { print "report"; exit }
            print (unit == "jobs/s" || unit == "times" || unit == "r2" ? value >= must : value <= must) ? "met" : "MISSED"
        }')
    printf '%-56s %10s %-7s must %-7s %s\n' "$1" "$2" "$3" "$4" "$verdict"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%H:%M:%S)" "$commit" "$build" "$1" "$2" "$3" "$4" \
        "$verdict" "$cpu_s" "$rss_mib" >> "$results"
}

for group in $groups_all; do
    case " $groups " in
        *" $group "*) "group_$group" ;;
    esac
done
echo "Raw rows: ${results#"$root"/}"
