#!/usr/bin/env bash
# hadoop-tera.sh gen ROWS DIR | sort INPUT OUTPUT | validate DIR  - Hadoop's TeraGen, TeraSort, TeraValidate under the local runner on file://.
# validate prints the report: "checksum HEX". If rows are out of order, it also prints lines "error ..." and exits with 1.
# env: HADOOP_DIR, REDUCES (4), PAR (tasks at a time, default every core), SORT_MB (io.sort.mb, 200), LOG_LEVEL (ERROR), HJ_HEAP (-Xmx2g),
#      TIME=1 (GNU time's line at the end)
set -euo pipefail
. "$(dirname "$0")/hadoop-env.sh"
usage() { sed -n 2p "$0" >&2; exit 2; }
[ -d "$HADOOP_DIR/lib" ] || { echo "hadoop-tera.sh: no Hadoop in $HADOOP_DIR: run setup-hadoop.sh" >&2; exit 1; }
conf=$(mktemp -d "$WORK_DIR/tera.XXXXXX")
trap 'rm -rf "$conf"' EXIT
SPLIT_BYTES=${SPLIT_BYTES:-134217728} SORT_MB=${SORT_MB:-200} local_conf "$conf"
measure=(); [ -z "${TIME:-}" ] || measure=(/usr/bin/time -f 'TIME wall_s=%e max_rss_kb=%M user_s=%U sys_s=%S')
tera() { # tera CLASS ARGS...
  local class=$1; shift
  "${measure[@]}" java ${HJ_HEAP:--Xmx2g} $JAVA_OPENS -cp "$conf:$HADOOP_DIR/lib/*" "org.apache.hadoop.examples.terasort.$class" "$@"
}
path() { echo "file://$(realpath -m "$1")"; }
case ${1:-} in
  gen) [ $# = 3 ] || usage; tera TeraGen "$2" "$(path "$3")" ;;
  sort) [ $# = 3 ] || usage; tera TeraSort -D mapreduce.job.reduces="${REDUCES:-4}" "$(path "$2")" "$(path "$3")" ;;
  validate)
    [ $# = 2 ] || usage
    rc=0; tera TeraValidate "$(path "$2")" "$(path "$conf/report")" || rc=$?
    # The report has an error line for each pair of rows out of order. The first ten are enough.
    cat "$conf"/report/part-* > "$conf/all" || rc=1
    awk '!/^error/ || ++errors <= 10; END { if (errors > 10) print "... " errors " errors in all" }' "$conf/all"
    grep -q '^checksum' "$conf/all" || rc=1
    ! grep -q '^error' "$conf/all" || rc=1
    exit $rc ;;
  *) usage ;;
esac
