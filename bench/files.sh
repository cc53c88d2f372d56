#!/usr/bin/env bash
# Stored files beside `cp`, on one disk: a large file and many small ones, in turn.
#
#     bench/files.sh [--runs N] [--scale N]
#
# --runs: rounds (5); --scale: by what sizes are divided (1: a file of 2 GB, 100,000 files of 4 KB). Each round begins with the page cache
# written out. A put is durable; so is its reference, `cp` and `sync`. A get is not, nor is `cp`. Prints each row with its must, its aim and
# the median of the ratios of the rounds; appends the seconds to bench/results/DATE-files.tsv; ends non-zero when a must is missed.
# Environment: SAILFISH (the program), BENCH_DIR (default /var/tmp).
set -euo pipefail
runs=5 scale=1
while [ $# -gt 0 ]; do
    case $1 in
        --runs) runs=$2; shift 2 ;;
        --scale) scale=$2; shift 2 ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
done
sailfish=$(realpath "${SAILFISH:?names the program}")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${BENCH_DIR:-/var/tmp}/files-XXXXXX")
trap 'rm -rf "$work"' EXIT
results=$root/bench/results/$(date -u +%Y-%m-%d)-files.tsv
[ -s "$results" ] || printf 'row\tround\tcontender\tseconds\n' > "$results"
mkdir "$work/in"
head -c $((2000000000 / scale)) /dev/urandom > "$work/in/large"
files=$((100000 / scale))
python3 - "$work/in/many" "$files" << 'END'
import os, sys
for number in range(int(sys.argv[2])):
    place = f"{sys.argv[1]}/{number // 1000}"
    number % 1000 or os.makedirs(place)
    with open(f"{place}/{number}", "wb") as file:
        file.write(os.urandom(4096))
END
timed() { # timed ROW ROUND CONTENDER COMMAND...
    local begun ended
    begun=$(date +%s%N)
    "${@:4}" > /dev/null 2>> "$work/log"
    ended=$(date +%s%N)
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$(awk "BEGIN { print ($ended - $begun) / 1e9 }")" | tee -a "$results" "$work/rows" > /dev/null
}
store() { "$sailfish" files "$@" --state "$work/state"; }
each() { # each KIND ROUND: in one order and the other
    local source=$work/in/$1 order="ours cp"
    [ $(($2 % 2)) = 1 ] || order="cp ours"
    for contender in $order; do
        sync
        case $contender in
            ours) timed "put, $1" "$2" ours store put "$source" "$1" ;;
            cp) timed "put, $1" "$2" cp sh -c "cp -r '$source' '$work/copy' && sync" ;;
        esac
    done
    rm -rf "$work/copy"
    # Both have what they read in the page cache, or neither, where it does not fit.
    find "$source" "$work/state/files/data" -type f -exec cat {} + > /dev/null
    for contender in $order; do
        sync
        case $contender in
            ours) timed "get, $1" "$2" ours store get "$1" "$work/got" ;;
            cp) timed "get, $1" "$2" cp cp -r "$source" "$work/copy" ;;
        esac
    done
    diff -r "$source" "$work/got" > /dev/null
    rm -rf "$work/got" "$work/copy"
    store rm --recursive "$1"
}
for round in $(seq "$runs"); do
    each large "$round"
    each many "$round"
done
missed=0
print_row() { # print_row ROW TEXT MUST AIM: the ratio is seconds of cp by ours, a rate beside a rate
    local value
    value=$(awk -F '\t' -v row="$1" '$1 == row { seconds[$2, $3] = $4; rounds[$2] }
        END { for (round in rounds) print seconds[round, "cp"] / seconds[round, "ours"] }' "$work/rows" | sort -n |
        awk '{ all[NR] = $1 } END { printf "%.2f", all[int((NR + 1) / 2)] }')
    printf '%-46s must %-5s aim %-5s value %s\n' "$2" "$3" "$4" "$value"
    awk "BEGIN { exit !($value >= $3) }" || missed=1
}
print_row "put, large" "put of a large file / (cp + sync), as rates" 0.5 0.67
print_row "get, large" "get of a large file / cp, as rates" 0.5 0.67
print_row "put, many" "put of $files files / (cp -r + sync), as rates" 0.3 0.6
print_row "get, many" "get of $files files / cp -r, as rates" 0.3 0.6
exit $missed
