#!/usr/bin/env bash
# hadoop-yarn-terasort.sh [RECORDS] [REDUCES] - TeraGen/TeraSort/TeraValidate on the cluster of hadoop-cluster.sh start.
# Stock path: YARN containers, MapOutputBuffer -> spill/merge, ShuffleHandler over HTTP, MergeManager, HDFS.
# Also samples, once a second, the summed RSS of every JVM below this cluster's NodeManager (containers) for peak memory.
set -euo pipefail
. "$(dirname "$0")/hadoop-env.sh"
loopback_only
N=${1:-10000000}; R=${2:-4}
C=$WORK_DIR/hc; export HADOOP_CONF=$C/conf HJ_HEAP=-Xmx512m
T=org.apache.hadoop.examples.terasort
nm=$(cat "$C/pids/nodemanager")
python3 "$(dirname "$0")/rss_tree.py" "$C/rss" $(cat "$C"/pids/*) & S=$!
trap 'kill $S 2>/dev/null || true' EXIT
run() { local n=$1; shift; if hj "$@" > "$C/log/$n.log" 2>&1; then echo "$n $(grep -a '^TIME' "$C/log/$n.log")"; else echo "$n FAILED"; tail -30 "$C/log/$n.log"; exit 1; fi; }
run teragen  $T.TeraGen -D mapreduce.job.maps=2 "$N" /in
echo 0 > "$C/rss.reset"
run terasort $T.TeraSort -D mapreduce.job.reduces=$R /in /out
kill $S 2>/dev/null || true; wait $S 2>/dev/null || true
echo "terasort peak summed RSS, daemons + containers: $(cat "$C/rss" 2>/dev/null) kB"
run teravalidate $T.TeraValidate /out /val
hj org.apache.hadoop.fs.FsShell -cat '/val/part-*' 2>/dev/null
grep -aE 'Spilled Records|Shuffled Maps|Reduce shuffle bytes|Launched (map|reduce)|number of splits|CPU time' "$C/log/terasort.log" || true
hj org.apache.hadoop.fs.FsShell -rm -r -f -skipTrash /in /out /val > /dev/null 2>&1 || true
