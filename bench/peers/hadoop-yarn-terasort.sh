#!/usr/bin/env bash
# hadoop-yarn-terasort.sh [RECORDS] [REDUCES] [ROUNDS] - runs TeraGen once, and TeraSort and TeraValidate ROUNDS times (default 1), on the
# cluster of hadoop-cluster.sh start.
# Stock path: YARN containers, MapOutputBuffer -> spill/merge, ShuffleHandler over HTTP, MergeManager, HDFS.
# Before each sort the input is in the page cache, and there are no dirty pages.
# Also samples the summed RSS of all JVMs below this cluster's NodeManager (containers) for peak memory; RSS_TREE=no skips the sampling.
set -euo pipefail
. "$(dirname "$0")/hadoop-env.sh"
loopback_only
N=${1:-10000000}; R=${2:-4}; ROUNDS=${3:-1}
C=$WORK_DIR/hc; export HADOOP_CONF=$C/conf HJ_HEAP=-Xmx512m
T=org.apache.hadoop.examples.terasort
S=
trap '[ -z "$S" ] || kill "$S" 2>/dev/null || true' EXIT
run() {
  local n=$1; shift
  hj "$@" > "$C/log/$n.log" 2>&1 || { echo "$n FAILED"; tail -30 "$C/log/$n.log"; exit 1; }
  echo "$n $(grep -a '^TIME' "$C/log/$n.log")"
}
fs() { hj org.apache.hadoop.fs.FsShell "$@" 2>/dev/null; }
run teragen  $T.TeraGen -D mapreduce.job.maps=2 "$N" /in
for _ in $(seq "$ROUNDS"); do
  fs -rm -r -f -skipTrash /out /val > /dev/null || true
  sync
  find "$C/dn" -name 'blk_*' -exec cat {} + > /dev/null
  if [ "${RSS_TREE:-}" != no ]; then rm -f "$C/rss"; python3 "$(dirname "$0")/rss_tree.py" "$C/rss" $(cat "$C"/pids/*) & S=$!; fi
  run terasort $T.TeraSort -D mapreduce.job.reduces=$R /in /out
  if [ -n "$S" ]; then
    kill $S 2>/dev/null || true; wait $S 2>/dev/null || true; S=
    echo "terasort peak summed RSS, daemons + containers: $(cat "$C/rss" 2>/dev/null) kB"
  fi
  run teravalidate $T.TeraValidate /out /val
  fs -cat '/val/part-*'
  grep -aE 'Spilled Records|Shuffled Maps|Reduce shuffle bytes|Launched (map|reduce)|number of splits|CPU time' \
    "$C/log/terasort.log" || true
done
fs -rm -r -f -skipTrash /in /out /val > /dev/null || true
