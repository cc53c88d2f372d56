#!/usr/bin/env bash
# The speed table: medians of interleaved rounds, compared with references and peers. Every output is checked.
# bench/README.md explains the table. Needs bash, coreutils, awk and python3; `make bench` builds the rest. bench/peers/setup-*.sh installs
# missing peers, which needs Java, Maven and a package registry.
set -euo pipefail

groups_all="tera memory ascii spark-sort external growth words shuffle streaming small"
usage() {
    cat >&2 <<TEXT
usage: bench/speed.sh [--runs N] [--rows GROUP,...] [--scale N] [--fresh] [--no-install] [--table]
  --runs N        rounds of each group (default 5; see bench/notes/engine.md for groups with fewer)
  --rows LIST     only these groups: $groups_all
  --scale N       divide all sizes by N, for a trial; its rows are kept separate from the results
  --fresh         ignore today's earlier rounds of this binary
  --no-install    do not install missing peers
  --table         measure nothing, print the table of today's rounds of this binary
Environment: SAILFISH and XTASK (binaries), BENCH_DIR (inputs and outputs), PEERS_DIR (directory of the peers)
TEXT
    exit 2
}
runs=5 scale=1 fresh= install=yes table_only= groups=$groups_all
while [ $# -gt 0 ]; do
    case $1 in
        --runs | --rows | --scale) [ $# -ge 2 ] || usage ;;
    esac
    case $1 in
        --runs) runs=$2; shift ;;
        --rows) groups=${2//,/ }; shift ;;
        --scale) scale=$2; shift ;;
        --fresh) fresh=yes ;;
        --no-install) install= ;;
        --table) table_only=yes ;;
        *) usage ;;
    esac
    shift
done
case $runs$scale in *[!0-9]*) usage ;; esac
[ "$runs" -gt 0 ] && [ "$scale" -gt 0 ] || usage
for group in $groups; do
    case " $groups_all " in *" $group "*) ;; *) echo "speed.sh: there is no group $group" >&2; usage ;; esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
sailfish=$(realpath "${SAILFISH:-$target/release/sailfish}")
xtask=$(realpath "${XTASK:-$target/release/xtask}")
work=${BENCH_DIR:-$target/bench}
cores=$(nproc)
mkdir -p "$work/disk" "$work/temporary"
work=$(cd "$work" && pwd)
inputs=$work/inputs-$scale
mkdir -p "$inputs"
for binary in "$sailfish" "$xtask"; do
    [ -x "$binary" ] || { echo "speed.sh: $binary does not exist: run make release" >&2; exit 1; }
done

. "$root/bench/speed/rounds.sh"
. "$root/bench/speed/rows.sh"
. "$root/bench/speed/words.sh"
. "$root/bench/speed/streaming.sh"

open_results
trap 'exit 130' INT TERM
trap cleanup EXIT
if [ -z "$table_only" ]; then
    for group in $groups_all; do
        case " $groups " in
            *" $group "*) "group_${group//-/_}" ;;
        esac
    done
    rm -rf "$inputs"
fi
table=$results_dir/$date-speed.txt
print_table | tee "$table"
echo
echo "This table: ${table#"$root"/}; raw rows: ${results#"$root"/}"
[ ! -s "$work/failed.txt" ] || { echo "FAILED:"; cat "$work/failed.txt"; exit 1; }
