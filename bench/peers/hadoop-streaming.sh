#!/usr/bin/env bash
# hadoop-streaming.sh ARGS...  - stock Hadoop Streaming under the local runner (one JVM, file://, relative paths below the current directory).
# ARGS are passed unchanged: the arguments after `hadoop jar hadoop-streaming.jar`. Exits with Hadoop's exit code.
# The local runner puts links to the files of -file and -files into the current directory, and removes them at the end.
# env: HADOOP_DIR, PAR (tasks at a time, default every core), SORT_MB (io.sort.mb), LOG_LEVEL (ERROR; INFO shows progress and counters),
#      SPLIT_BYTES (input per map task, 33554432), HJ_HEAP (-Xmx1g), TIME=1 (GNU time's line at the end)
set -euo pipefail
. "$(dirname "$0")/hadoop-env.sh"
[ -d "$HADOOP_DIR/lib" ] || { echo "hadoop-streaming.sh: no Hadoop in $HADOOP_DIR: run setup-hadoop.sh" >&2; exit 1; }
conf=$(mktemp -d "$WORK_DIR/streaming.XXXXXX")
trap 'rm -rf "$conf"' EXIT
local_conf "$conf"
measure=(); [ -z "${TIME:-}" ] || measure=(/usr/bin/time -f 'TIME wall_s=%e max_rss_kb=%M user_s=%U sys_s=%S')
rc=0
"${measure[@]}" java ${HJ_HEAP:--Xmx1g} $JAVA_OPENS -cp "$conf:$HADOOP_DIR/lib/*" org.apache.hadoop.streaming.HadoopStreaming "$@" || rc=$?
exit $rc
