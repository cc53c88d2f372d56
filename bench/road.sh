#!/usr/bin/env bash
# First figures of the road: an identity job with total order over 100-byte records, against cp and GNU sort.
# See bench/README.md for how to read the table. Needs bash, coreutils, cmp and awk; `make bench` builds the rest.
set -euo pipefail

runs=3
bytes=2000000000
small=256M
large=
usage() {
    echo "usage: bench/road.sh [--runs N] [--bytes N] [--large SIZE] [--small SIZE]" >&2
    echo "  --large: budget of the in-memory runs (default: half of the memory, at most 8G)" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
        --runs) runs=$2 ;;
        --bytes) bytes=$2 ;;
        --small) small=$2 ;;
        --large) large=$2 ;;
        *) usage ;;
    esac
    shift 2
done

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=${SAILFISH:-$target/release/sailfish}
xtask=${XTASK:-$target/release/xtask}
work=${BENCH_DIR:-$target/bench}
cores=$(nproc)
memory_mib=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
available_bytes=$(awk '/^MemAvailable:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
if [ -z "$large" ]; then
    half=$((memory_mib / 2))
    large=$((half < 8192 ? half : 8192))M
fi

mkdir -p "$work/disk" "$work/sort-temporary" "$root/bench/results"
needed_kib=$((bytes / 1024 * 6))
free_kib=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
if [ "$free_kib" -lt "$needed_kib" ]; then
    echo "road.sh: $work has $free_kib KiB free and $needed_kib KiB are needed: set BENCH_DIR or --bytes" >&2
    exit 1
fi

input=$work/input.txt
reference=$work/reference.txt
rows=$work/rows.tsv
cost=$work/cost.tsv
: > "$rows"
cleanup() { rm -rf "$work/out" "$work/out.txt" "$work/disk" "$work/sort-temporary" "$cost"; }
trap cleanup EXIT

if [ ! -f "$input" ] || [ "$(stat -c %s "$input")" != $((bytes / 100 * 100)) ]; then
    echo "generating $bytes bytes of input"
    rm -f "$reference"
    "$xtask" gen-records --bytes "$bytes" --out "$input"
fi
if [ ! -f "$reference" ] || [ "$(stat -c %s "$reference")" != "$(stat -c %s "$input")" ]; then
    echo "sorting the reference"
    LC_ALL=C sort -S "$large" --parallel="$cores" -T "$work/sort-temporary" -o "$reference" "$input"
fi

# Everything that a timed run could inherit from the one before it is settled here: no old output, no dirty pages,
# memory that the host backs (half of what is free), the input in the page cache.
prepare() {
    rm -rf "$work/out" "$work/out.txt"
    sync
    "$xtask" touch-memory --bytes $((available_bytes / 2))
    cat "$input" > /dev/null
}

# measure ROUND CONTENDER BUDGET SYNC COMMAND...
measure() {
    local round=$1 contender=$2 budget=$3 sync=$4
    shift 4
    prepare
    if ! "$xtask" time --out "$cost" -- "$@" > "$work/log.txt" 2>&1; then
        echo "road.sh: $contender failed:" >&2
        tail -n 20 "$work/log.txt" >&2
        exit 1
    fi
    printf '%s\t%s\t%s\t%s\t%s\n' "$round" "$contender" "$budget" "$sync" "$(cat "$cost")" >> "$rows"
    printf '  round %s  %-9s %-6s sync %-3s  %s s\n' "$round" "$contender" "$budget" "$sync" "$(cut -f 1 "$cost")"
}

run_cp() { measure "$1" cp - "$2" sh -c 'cp "$1" "$2" && { [ "$3" = no ] || sync "$2"; }' cp "$input" "$work/out.txt" "$2"; }

run_sort() {
    measure "$1" sort "$2" "$3" env LC_ALL=C sh -c \
        'sort -S "$1" --parallel="$2" -T "$3" -o "$5" "$4" && { [ "$6" = no ] || sync "$5"; }' \
        sort "$2" "$cores" "$work/sort-temporary" "$input" "$work/out.txt" "$3"
    cmp "$work/out.txt" "$reference"
}

run_sailfish() {
    local options=()
    [ "$3" = yes ] || options+=(--no-sync)
    measure "$1" sailfish "$2" "$3" "$sailfish" run --state "$work/state" --disk "$work/disk" --input "$input" \
        --output "$work/out" --total-order --memory "$2" --slots "$cores" "${options[@]}"
    cat "$work"/out/part-* | cmp - "$reference"
}

for round in $(seq "$runs"); do
    for sync in no yes; do
        run_cp "$round" "$sync"
        for budget in "$large" "$small"; do
            run_sort "$round" "$budget" "$sync"
            run_sailfish "$round" "$budget" "$sync"
        done
    done
done

results=$root/bench/results/$(date -u +%Y-%m-%d)-road.tsv
commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
git -C "$root" diff --quiet HEAD 2> /dev/null || commit="$commit, changed"
{
    echo "# road.sh: identity, total order, $((bytes / 100)) records of 100 bytes; $runs interleaved rounds; commit $commit"
    echo "# machine: $cores cores, $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo), $memory_mib MiB memory," \
        "Linux $(uname -r), $(stat -f -c %T "$work")"
    echo "# before each run: old output removed, sync, $((available_bytes / 2 / 1048576)) MiB touched, input in the page cache"
    printf 'round\tcontender\tbudget\tsync\twall_s\tuser_s\tsys_s\trss_mib\texit\n'
    cat "$rows"
} >> "$results"

# Medians, and the ratio of wall time to cp and to sort of the same budget and sync.
echo
awk -F'\t' '
    function median(list, count, values, i, j, swap) {
        count = split(list, values, " ")
        for (i = 1; i <= count; i++)
            for (j = i + 1; j <= count; j++)
                if (values[j] + 0 < values[i] + 0) { swap = values[i]; values[i] = values[j]; values[j] = swap }
        low = values[1]
        return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
    }
    {
        key = $2 "\t" $3 "\t" $4
        if (!(key in wall)) order[++rows] = key
        wall[key] = wall[key] " " $5; cpu[key] = cpu[key] " " $6 + $7
        if ($8 + 0 > rss[key] + 0) rss[key] = $8
    }
    END {
        for (i = 1; i <= rows; i++) middle[order[i]] = median(wall[order[i]])
        printf "%-10s %-7s %-5s %9s %9s %12s %9s %7s %7s\n", "contender", "budget", "sync", "median s", "best s",
            "user+sys s", "peak MiB", "/ cp", "/ sort"
        for (i = 1; i <= rows; i++) {
            split(order[i], part, "\t")
            median(wall[order[i]]); best = low
            cp = middle["cp\t-\t" part[3]]; sorted = middle["sort\t" part[2] "\t" part[3]]
            printf "%-10s %-7s %-5s %9.2f %9.2f %12.2f %9.0f %7.2f %7s\n", part[1], part[2], part[3], middle[order[i]],
                best, median(cpu[order[i]]), rss[order[i]], middle[order[i]] / cp,
                sorted ? sprintf("%.2f", middle[order[i]] / sorted) : "-"
        }
    }' "$rows"
echo
echo "Outputs of sort and sailfish were compared with the reference byte for byte. Raw rows: ${results#"$root"/}"
