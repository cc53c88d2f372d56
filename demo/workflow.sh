#!/usr/bin/env bash
# A workflow on real files, on four nodes in two racks of this machine: it runs, a node is killed, it goes on by itself; then the
# lineage of its result, a changed input, and a run of the steps that depend on it and no others.
# Usage: demo/workflow.sh SAILFISH DIR
set -euo pipefail
sailfish=$(realpath "$1") demo=$(cd "$(dirname "$0")" && pwd)
rm -rf "$2" && mkdir -p "$2/texts"
dir=$(cd "$2" && pwd)
say() { printf '\n== %s\n' "$*"; }
shown() { printf '$ sailfish %s\n' "$*"; "$sailfish" "$@"; }

cluster= run=
finish() {
    [ -z "$run" ] || kill -TERM "$run" 2> "$dir/finish" || true
    [ -z "$cluster" ] || kill -TERM "$cluster" 2> "$dir/finish" || true
    wait
}
trap finish EXIT

say "A text for each package: the Rust sources of our dependencies"
"$demo/corpus.sh" "$dir/corpus"
for package in "$dir"/corpus/*/; do
    name=$(basename "$package")
    find "$package" -name '*.rs' -type f -print0 | LC_ALL=C sort -z | xargs -0 cat > "$dir/texts/$name.txt"
done
cat > "$dir/words.toml" << 'END'
# Counts the words of each text, adds all counts up, and shows the most frequent words.

[[step]]
name = "count {package}"
each = "texts/{package}.txt"
command = "tr -cs A-Za-z_ '\\n' | LC_ALL=C sort | uniq -c"
stdin = "texts/{package}.txt"
stdout = "counts/{package}"
keep = true

[[step]]
name = "total"
command = "cat counts/* | awk '{ words[$2] += $1 } END { for (word in words) print words[word], word }'"
inputs = ["counts/*"]
stdout = "total"

[[step]]
name = "most frequent"
command = "LC_ALL=C sort -k 1,1rn -k 2 | head -n 12"
stdin = "total"
stdout = "most-frequent"
END
cd "$dir"
shown workflow check words.toml

say "A server and four nodes in two racks"
"$sailfish" local --nodes 4 --racks 2 --listen 127.0.0.1:0 --dir "$dir/cluster" > "$dir/local" 2>&1 &
cluster=$!
until url=$(grep -om 1 'http://[0-9.:]*' "$dir/local"); do kill -0 "$cluster"; sleep 0.1; done
until [ "$("$sailfish" nodes --server "$url" --json | grep -c '"name": "node-')" = 4 ]; do sleep 0.1; done

say "The workflow runs; in the middle a node is killed"
"$sailfish" workflow run words.toml --server "$url" > "$dir/said" 2>&1 &
run=$!
until grep -q . "$dir/said"; do kill -0 "$run"; sleep 0.1; done
job=$(head -n 1 "$dir/said")
finished() { "$sailfish" jobs --server "$url" --steps-of "$job" --limit 1000 --json | grep -c "\"state\": \"succeeded\"" || true; }
until [ "$(finished)" -ge 30 ]; do kill -0 "$run" || break; sleep 0.1; done
node=$(pgrep -P "$cluster" -f -- '--name node-2' | head -n 1)
kill -KILL "$node"
echo "node-2 was killed after $(finished) steps"
wait "$run"
tail -n 1 "$dir/said"
shown nodes --server "$url"
cat most-frequent

say "Where the result comes from"
"$sailfish" lineage most-frequent --server "$url" > "$dir/lineage"
head -n 6 "$dir/lineage" && echo "..."
"$sailfish" lineage most-frequent --server "$url" --svg > lineage.svg
echo "lineage.svg: $(grep -c '<rect' lineage.svg) boxes"

say "Nothing changed: nothing runs"
shown workflow run words.toml --server "$url"

say "One input changes"
changed=$(basename "$(find texts -name '*.txt' | LC_ALL=C sort | head -n 1)" .txt)
echo "a new word: sailfish" >> "texts/$changed.txt"
shown workflow why words.toml --server "$url"
shown rerun --downstream "texts/$changed.txt" --server "$url"
