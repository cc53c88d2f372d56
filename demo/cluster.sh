#!/usr/bin/env bash
# A cluster on this machine as separate processes: PostgreSQL, one server, four nodes in two racks, jobs of two users at once,
# a node that is drained in the middle, questions in SQL. Without a PostgreSQL to start, the rows lie in SQLite.
# Usage: demo/cluster.sh SAILFISH DIR
set -euo pipefail
. "$(dirname "$0")/postgres.sh"
sailfish=$1 dir=$2 demo=$(cd "$(dirname "$0")" && pwd)
rm -rf "$dir" && mkdir -p "$dir"
say() { printf '\n== %s\n' "$*"; }
shown() { printf '$ sailfish %s\n' "$*"; "$sailfish" "$@"; }

server=() nodes=()
finish() {
    for pid in "${nodes[@]}" "${server[@]}"; do kill -TERM "$pid" 2> "$dir/finish" || true; done
    wait
    postgres_stop
}
trap finish EXIT

say "A server, and four nodes in two racks"
database=()
if postgres_start "$dir"; then database=(--database "$postgres_url"); fi
"$sailfish" server --listen 127.0.0.1:0 --state "$dir/state" "${database[@]}" > "$dir/url" &
server=($!)
until [ -s "$dir/url" ]; do kill -0 "${server[0]}"; sleep 0.1; done
url=$(head -n 1 "$dir/url")
for number in 0 1 2 3; do
    "$sailfish" node --server "$url" --name "node-$number" --rack "rack-$((number % 2))" --slots 1 --memory 256M \
        --disk "$dir/disk-$number" &
    nodes+=($!)
done
until [ "$("$sailfish" nodes --server "$url" --json | grep -c '"name": "node-')" = 4 ]; do
    sleep 0.1
done
shown nodes --server "$url"

say "Words of real text, rows in order, and words again for a second user, all at once"
"$demo/corpus.sh" "$dir/corpus"
"$sailfish" tera gen --server "$url" --layout modern --rows 2m --output "$dir/rows"
jobs=()
start() { local user=$1; shift; USER=$user "$sailfish" "$@" --server "$url" & jobs+=($!); }
start ada run --input "$dir/corpus" --mapper builtin:words --reducer builtin:sum --output "$dir/counts"
start ada tera sort --input "$dir/rows" --output "$dir/sorted"
start grace run --input "$dir/corpus" --mapper builtin:words --reducer builtin:count --output "$dir/occurrences"

say "Node 3 is emptied: what running jobs need of it moves to the others, and it ends"
shown nodes drain node-3 --wait --server "$url"
for pid in "${jobs[@]}"; do wait "$pid"; done
shown nodes --server "$url"
shown tera validate --state "$dir/local" "$dir/sorted"
for output in counts sorted occurrences; do shown verify "$dir/$output"; done

say "What the store knows"
shown jobs --server "$url"
shown state --server "$url" "select user_name, count(*) as jobs from jobs group by user_name order by user_name"
shown state --server "$url" "select node, state, count(*) as attempts from attempts group by node, state order by node, state"
shown timeline --server "$url" 3
shown explain --server "$url" 2 reduce/0

say "The end"
finish
trap - EXIT
left=$(find "$dir"/disk-* -mindepth 1 ! -name '*.lock' | head -n 3)
if [ -n "$left" ]; then echo "left behind: $left"; exit 1; fi
echo "the nodes have left nothing on their disks"
