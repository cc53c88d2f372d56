# sourced by the hadoop scripts: HADOOP_DIR (from setup-hadoop.sh), WORK_DIR (data, confs, logs)
PEERS_DIR=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}
HADOOP_DIR=${HADOOP_DIR:-$PEERS_DIR/hadoop}
WORK_DIR=${WORK_DIR:-$PEERS_DIR/run}
mkdir -p "$WORK_DIR"
# Hadoop 3.4 on Java 17 (YARN's web apps use cglib through Guice)
JAVA_OPENS="--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.lang.reflect=ALL-UNNAMED --add-opens=java.base/java.io=ALL-UNNAMED --add-opens=java.base/java.net=ALL-UNNAMED"
if [ ! -f "$WORK_DIR/log4j/log4j.properties" ]; then
  mkdir -p "$WORK_DIR/log4j"
  cat > "$WORK_DIR/log4j/log4j.properties" <<'P'
log4j.rootLogger=INFO, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
P
fi
# Some Hadoop servers (ShuffleHandler, the MapReduce AM) listen on all addresses and have no setting for it. So the cluster and its clients
# run in a network namespace that has only a loopback interface. Making it needs rights; `ip netns del peers` removes it. A script that
# starts a server or a client calls loopback_only, which sets $NS to the prefix for commands inside. The local runner opens no port and does
# not need a namespace. NS= (empty) in the environment turns namespaces off.
NETNS=${NETNS:-peers}
loopback_only() {
  [ -z "${NS+x}" ] || return 0
  ip netns list 2>/dev/null | grep -qw "$NETNS" || { ip netns add "$NETNS"; ip netns exec "$NETNS" ip link set lo up; }
  NS="ip netns exec $NETNS"
}
# GNU time: last line "wall_s max_rss_kb user_s sys_s"
tm() { /usr/bin/time -f 'TIME wall_s=%e max_rss_kb=%M user_s=%U sys_s=%S' "$@"; }
hj() { # hj MAINCLASS ARGS...  run a main class on the Hadoop class path ($HADOOP_CONF first when set)
  tm ${NS:-} java ${HJ_HEAP:--Xmx2g} $JAVA_OPENS -cp "${HADOOP_CONF:+$HADOOP_CONF:}$WORK_DIR/log4j:$HADOOP_DIR/lib/*" "$@"
}
# Writes the settings of the local runner (one JVM, file://) into a configuration directory, so that the arguments of a command need not
# change.
# local_conf DIR: DIR/core-site.xml, temporary files below DIR; PAR tasks at a time (default: every core), SORT_MB (io.sort.mb),
# SPLIT_BYTES (input per map task, default 32 MiB)
local_conf() {
  mkdir -p "$1"
  local par=${PAR:-$(nproc)} each
  { echo '<configuration>'
    for each in fs.defaultFS=file:/// mapreduce.framework.name=local "hadoop.tmp.dir=$1/tmp" \
        "mapreduce.local.map.tasks.maximum=$par" "mapreduce.local.reduce.tasks.maximum=$par" \
        "mapreduce.task.io.sort.mb=${SORT_MB:-100}" "mapreduce.jobtracker.staging.root.dir=$1/staging" \
        "fs.local.block.size=${SPLIT_BYTES:-33554432}"; do
      echo "<property><name>${each%%=*}</name><value>${each#*=}</value></property>"
    done
    echo '</configuration>'
  } > "$1/core-site.xml"
  cat > "$1/log4j.properties" <<P
log4j.rootLogger=${LOG_LEVEL:-ERROR}, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%p %c{1}: %m%n
P
}
