#!/usr/bin/env bash
# Stored files beside `cp`, on one disk: a large file and many small ones, in turn; of this machine, and of two nodes on it.
#
#     bench/files.sh [--runs N] [--scale N] [--only machine|mount|cluster|hdfs|repair|million|world]
#
# --runs: rounds (5); --scale: by what sizes are divided (1: a file of 2 GB, 100,000 files of 4 KB, a catalogue with a million files);
# --only: some of the rows. In the cluster each file has two replicas, and the reference of a large file is `cp` twice and `sync`. `world`
# has the figures of made-up clusters, by `sim`; bench/files has the rows of `mount`, `hdfs` and `repair`. A put is durable; so is its
# reference, `cp` and `sync`. A get is not, nor is `cp`. Prints each row with its must, its aim and the median of the ratios;
# appends the seconds to bench/results/DATE-files.tsv; ends non-zero when a must is missed.
#
# So that the machine is the same for each contender, all written pages are synced first, and before a large file pages for as many bytes
# are taken and given back: the host of a virtual machine takes idle memory away. Small files stay until all of them are made: for some
# minutes after a removal, ext4 looks at each removed inode again before it makes a new one. 5 rounds need 30 GB. Environment: SAILFISH (the
# program), BENCH_DIR (default /var/tmp).
set -euo pipefail
runs=5 scale=1 only=
while [ $# -gt 0 ]; do
    case $1 in
        --runs) runs=$2; shift 2 ;;
        --scale) scale=$2; shift 2 ;;
        --only) only=$2; shift 2 ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
done
sailfish=$(realpath "${SAILFISH:?names the program}")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${BENCH_DIR:-/var/tmp}/files-XXXXXX")
cluster=
ended() { # ended STATUS: the last lines of all logs say why a command failed
    [ "$1" = 0 ] || [ -e "$work/measured" ] || find "$work" -maxdepth 2 -name '*.log' -o -maxdepth 2 -name log | xargs -r tail -v -n 4 >&2
    kill $(jobs -p) 2> /dev/null || true
    wait
    rm -rf "$work"
}
trap 'ended $?' EXIT
wants() { [ -z "$only" ] || [ "$only" = "$1" ]; } # wants ROWS
results=$root/bench/results/$(date -u +%Y-%m-%d)-files.tsv
[ -s "$results" ] || printf 'row\tround\tcontender\tseconds\n' > "$results"
touch "$work/rows"
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
settle() { # settle KIND: the same disk and the same memory for each contender
    sync
    [ "$1" != large ] || { cp "$work/in/large" "$work/pages" && rm "$work/pages"; }
}
store() { "$sailfish" files "$@" --state "$work/state"; }
each() { # each KIND ROUND: in one order and the other
    local source=$work/in/$1 order="ours cp" name=$1-$2 kept=$work/kept/$1-$2
    [ $(($2 % 2)) = 1 ] || order="cp ours"
    mkdir -p "$kept"
    for contender in $order; do
        settle "$1"
        case $contender in
            ours) timed "put, $1" "$2" ours store put "$source" "$name" ;;
            cp) timed "put, $1" "$2" cp sh -c "cp -r '$source' '$kept/put' && sync" ;;
        esac
    done
    # Both have what they read in the page cache, or neither, where it does not fit.
    find "$source" "$work/state/files/data" -type f -exec cat {} + > /dev/null
    for contender in $order; do
        settle "$1"
        case $contender in
            ours) timed "get, $1" "$2" ours store get "$name" "$kept/got" ;;
            cp) timed "get, $1" "$2" cp cp -r "$source" "$kept/get" ;;
        esac
    done
    diff -r "$source" "$kept/got" > /dev/null
    if [ "$1" = large ]; then
        store rm "$name"
        rm -r "$kept"
    fi
}
of_cluster() { "$sailfish" files "$@" --server "$url"; }
serve() { # two nodes in one rack; their disks leave nothing free, so that a full machine can be measured too
    "$sailfish" local --nodes 2 --racks 1 --listen 127.0.0.1:0 --dir "$work/cluster" --shuffle-reserve 0 > "$work/url" 2> "$work/local.log" &
    cluster=$!
    until url=$(grep -m 1 ^http "$work/url") && [ "$(grep -c joined "$work/local.log")" = 2 ]; do sleep 0.2; done
    head -c 1000 "$work/in/large" > "$work/first"
    until of_cluster put "$work/first" first --replicas 2 2> "$work/put.log" && ! grep -q fewer "$work/put.log"; do sleep 0.5; done
}
large_round() { of_cluster put "$work/in/large" large --replicas 2 && of_cluster get large "$work/got"; }
each_of_cluster() { # each_of_cluster ROUND
    local order="ours cp" many=$work/in/many kept=$work/kept/cluster-$1
    [ $(($1 % 2)) = 1 ] || order="cp ours"
    for contender in $order; do
        settle large
        case $contender in
            ours) timed "cluster, large" "$1" ours large_round ;;
            cp) timed "cluster, large" "$1" cp sh -c "cp '$work/in/large' '$work/copy1' && cp '$work/in/large' '$work/copy2' && sync" ;;
        esac
    done
    cmp "$work/in/large" "$work/got"
    rm -rf "$work/got" "$work/copy1" "$work/copy2"
    of_cluster rm large
    mkdir -p "$kept"
    for contender in $order; do
        sync
        case $contender in
            ours) timed "cluster put, many" "$1" ours of_cluster put "$many" "many-$1" --replicas 2 ;;
            cp) timed "cluster put, many" "$1" cp sh -c "cp -r '$many' '$kept/put' && sync" ;;
        esac
    done
    for contender in $order; do
        sync
        case $contender in
            ours) timed "cluster get, many" "$1" ours of_cluster get "many-$1" "$kept/got" ;;
            cp) timed "cluster get, many" "$1" cp cp -r "$many" "$kept/get" ;;
        esac
    done
    diff -r "$many" "$kept/got" > /dev/null
}
. "$root/bench/files/mount.sh"
. "$root/bench/files/hdfs.sh"
. "$root/bench/files/repair.sh"
if wants machine; then
    for round in $(seq "$runs"); do
        each large "$round"
        each many "$round"
    done
fi
if wants mount; then mount_rows; fi
if wants cluster; then
    serve
    for round in $(seq "$runs"); do each_of_cluster "$round"; done
    kill "$cluster"
    wait "$cluster" || true
    cluster=
fi
rm -rf "$work/kept" "$work/cluster"
if wants hdfs; then hdfs_rows; fi
if wants repair; then repair_rows; fi
touch "$work/measured"
missed=0
medians() { # medians ROW OVER UNDER: the median of the seconds of OVER by those of UNDER
    # Two rounds after each other count together, by the geometric mean: they have the contenders in opposite orders, and the second
    # contender of a round finds less of the disk's credit and of the memory that the host has given.
    awk -F '\t' -v row="$1" -v over="$2" -v under="$3" '$1 == row { seconds[$2, $3] = $4; if ($2 > last) last = $2 }
        function ratio(round) { return seconds[round, over] / seconds[round, under] }
        END { for (round = 1; round < last || round == 1; round++) print sqrt(ratio(round) * ratio(last > 1 ? round + 1 : round)) }' "$work/rows" |
        sort -n | awk '{ all[NR] = $1 } END { printf "%.2f", (all[int((NR + 1) / 2)] + all[int((NR + 2) / 2)]) / 2 }'
}
print_row() { # print_row ROW TEXT MUST AIM: the ratio is seconds of cp by ours, a rate beside a rate
    local value
    value=$(medians "$1" cp ours)
    printf '%-46s must %-5s aim %-5s value %s\n' "$2" "$3" "$4" "$value"
    awk "BEGIN { exit !($value >= $3) }" || missed=1
}
print_longest() { # print_longest ROW TEXT MUST AIM: the ratio is seconds of ours by those of cp
    local value
    value=$(medians "$1" ours cp)
    printf '%-46s must %-5s aim %-5s value %s\n' "$2" "$3" "$4" "$value"
    awk "BEGIN { exit !($value <= $3) }" || missed=1
}
if wants machine; then
    print_row "put, large" "put of a large file / (cp + sync), as rates" 0.5 0.67
    print_row "get, large" "get of a large file / cp, as rates" 0.5 0.67
    print_row "put, many" "put of $files files / (cp -r + sync), as rates" 0.3 0.6
    print_row "get, many" "get of $files files / cp -r, as rates" 0.3 0.6
fi
if wants cluster; then
    print_longest "cluster, large" "put + get, 2 replicas / (cp twice + sync), time" 2 1.5
    print_row "cluster put, many" "cluster put of $files files / (cp -r + sync)" 0.3 0.6
    print_row "cluster get, many" "cluster get of $files files / cp -r" 0.3 0.6
fi
if wants mount; then print_mount_rows; fi
if wants hdfs; then print_hdfs_rows; fi
if wants repair; then print_repair_rows; fi
if wants million; then
    (cd "$root" && cargo run --quiet --release --locked --package filecatalog --example million_files $((1000000 / scale))) || missed=1
fi
if wants world; then
    (cd "$root" && cargo run --quiet --release --locked --package sim --example world_figures) || missed=1
fi
exit $missed
