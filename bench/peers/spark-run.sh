#!/usr/bin/env bash
# spark-run.sh java|py MASTER JOB IN OUT [PARTITIONS] [--conf k=v ...]
#   MASTER: local[2], 'local-cluster[2,1,2048]', or standalone: this script starts and stops a Master and one 2-core Worker.
# env: SPARK_DIR (from setup-spark.sh), WORK_DIR, EXTRA_JARS (comma list for driver and executors), DRIVER_MEM (2g), EXEC_MEM (2g),
#   KEEP=1 keeps OUT, RSS_TREE=no omits sum_rss_kb
# Prints the JOB line of the job, and a RUN line: wall_s, max_rss_kb of the largest process, sum_rss_kb as the peak over all processes.
set -euo pipefail
PEERS_DIR=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}
SPARK_DIR=${SPARK_DIR:-$PEERS_DIR/spark}; WORK_DIR=${WORK_DIR:-$PEERS_DIR/run}; mkdir -p "$WORK_DIR"
HERE=$(cd "$(dirname "$0")" && pwd)
export SPARK_HOME=$(cat "$SPARK_DIR/spark-home") PYSPARK_PYTHON=$SPARK_DIR/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=127.0.0.1
export PYSPARK_DRIVER_PYTHON=$PYSPARK_PYTHON SPARK_CONF_DIR=$WORK_DIR/spark-conf SPARK_LOG_DIR=$WORK_DIR/spark-log SPARK_WORKER_DIR=$WORK_DIR/spark-work
mkdir -p "$SPARK_CONF_DIR" "$SPARK_LOG_DIR" "$WORK_DIR/spark-local"
[ -f "$SPARK_CONF_DIR/log4j2.properties" ] || printf 'rootLogger.level=warn\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\nappender.c.name=c\nappender.c.target=SYSTEM_ERR\nappender.c.layout.type=PatternLayout\nappender.c.layout.pattern=%%d{HH:mm:ss} %%p %%c{1}: %%m%%n%%ex\n' > "$SPARK_CONF_DIR/log4j2.properties"
LANG_=$1 MASTER=$2 JOB=$3 IN=$4 OUT=$5; shift 5
PARTS=8; case "${1:-}" in [0-9]*) PARTS=$1; shift;; esac
CONF=(--conf spark.driver.memory=${DRIVER_MEM:-2g} --conf spark.executor.memory=${EXEC_MEM:-2g} --conf spark.local.dir="$WORK_DIR/spark-local"
  --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 --conf spark.jars.ivy="$WORK_DIR/ivy")
[ -n "${EXTRA_JARS:-}" ] && CONF+=(--conf "spark.driver.extraClassPath=${EXTRA_JARS//,/:}" --conf "spark.executor.extraClassPath=${EXTRA_JARS//,/:}")
# All servers bind to 127.0.0.1. With the necessary rights, the standalone servers also run in a network namespace that has only a loopback
# (NS= in the environment turns the namespace off).
if [ -z "${NS+x}" ]; then
  NS=
  if [ "$MASTER" = standalone ]; then
    NETNS=${NETNS:-peers}
    ip netns list 2>/dev/null | grep -qw "$NETNS" || { ip netns add "$NETNS"; ip netns exec "$NETNS" ip link set lo up; }
    NS="ip netns exec $NETNS"
  fi
fi
PIDS=()
# Also waits for the processes: a remaining executor would slow down the next measurement.
stop_all() {
  local p
  for p in "${PIDS[@]:-}"; do [ -z "$p" ] || kill "$p" 2>/dev/null || true; done
  for p in "${PIDS[@]:-}"; do [ -z "$p" ] || wait "$p" 2>/dev/null || true; done
  PIDS=()
}
trap stop_all EXIT
if [ "$MASTER" = standalone ]; then
  $NS "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 17077 --webui-port 18081 > "$SPARK_LOG_DIR/master.log" 2>&1 & PIDS+=($!)
  for _ in $(seq 60); do $NS bash -c "exec 3<>/dev/tcp/127.0.0.1/17077" 2>/dev/null && break; sleep 0.5; done
  $NS "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 18082 --cores 2 --memory 4g spark://127.0.0.1:17077 > "$SPARK_LOG_DIR/worker.log" 2>&1 & PIDS+=($!)
  # Both log only warnings, so the web page of the master shows whether the worker is registered.
  for _ in $(seq 60); do
    $NS python3 -c 'import json, urllib.request as u; assert json.load(u.urlopen("http://127.0.0.1:18081/json/"))["aliveworkers"]' \
      2>/dev/null && break
    sleep 0.5
  done
  MASTER=spark://127.0.0.1:17077
fi
rm -rf "$OUT"
if [ "$LANG_" = java ]; then
  J=$WORK_DIR/SparkSort.jar
  if [ ! -f "$J" ] || [ "$HERE/SparkSort.java" -nt "$J" ] || [ "$(cat "$J.for" 2>/dev/null)" != "$SPARK_HOME" ]; then
    rm -rf "$WORK_DIR/classes"; mkdir -p "$WORK_DIR/classes"
    javac -nowarn -d "$WORK_DIR/classes" -cp "$SPARK_HOME/jars/*" "$HERE/SparkSort.java"
    jar cf "$J" -C "$WORK_DIR/classes" .; echo "$SPARK_HOME" > "$J.for"
  fi
  CMD=("$SPARK_HOME/bin/spark-submit" --master "$MASTER" "${CONF[@]}" "$@" --class SparkSort "$J" "$JOB" "$IN" "$OUT" "$PARTS")
else
  CMD=("$SPARK_HOME/bin/spark-submit" --master "$MASTER" "${CONF[@]}" "$@" "$HERE/spark_sort.py" "$JOB" "$IN" "$OUT" "$PARTS")
fi
L=$WORK_DIR/spark-$LANG_-$JOB.log
/usr/bin/time -f 'TIME wall_s=%e max_rss_kb=%M user_s=%U sys_s=%S' $NS "${CMD[@]}" > "$L" 2>&1 & T=$!
# RSS_TREE=no skips the sampling of memory, which takes some CPU time from Spark.
S=
if [ "${RSS_TREE:-}" = no ]; then echo - > "$WORK_DIR/rss-spark"; else
  python3 "$HERE/rss_tree.py" "$WORK_DIR/rss-spark" "$T" ${PIDS[@]:-} ${RSS_ALSO:-} & S=$!; PIDS+=($S)
fi
rc=0; wait "$T" || rc=$?
[ -z "$S" ] || kill "$S" 2>/dev/null || true
grep -a '^JOB' "$L" || { echo "JOB $JOB FAILED rc=$rc"; grep -aE 'Exception|Error' "$L" | head -8; }
echo "RUN $(grep -a '^TIME' "$L" | cut -c6-) sum_rss_kb=$(cat "$WORK_DIR/rss-spark")"
[ -n "${KEEP:-}" ] || rm -rf "$OUT"
exit $rc
