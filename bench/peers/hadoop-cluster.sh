#!/usr/bin/env bash
# hadoop-cluster.sh start|stop|status  - single-node HDFS + YARN from the Maven jars, on 127.0.0.1 only. Each daemon has its own JVM:
# NameNode, DataNode, ResourceManager, NodeManager (with the stock ShuffleHandler aux service).
# env: HADOOP_DIR, WORK_DIR; NM_MB (YARN memory, default 8192), NM_CORES (3: the AM takes one, so two tasks run at a time), SORT_MB (io.sort.mb), TASK_MB (container size)
# After start: HADOOP_CONF=$WORK_DIR/hc/conf puts the configuration on a client's class path.
set -euo pipefail
. "$(dirname "$0")/hadoop-env.sh"
loopback_only
C=$WORK_DIR/hc; CONF=$C/conf; P=$C/pids
p() { echo "<property><name>$1</name><value>$2</value></property>"; }
conf() {
  mkdir -p "$CONF" "$C/log"
  local TASK_MB=${TASK_MB:-1536}
  { echo '<configuration>'
    p fs.defaultFS hdfs://127.0.0.1:19000
    p hadoop.tmp.dir "$C/tmp"
    p dfs.replication 1
    p dfs.blocksize 134217728
    p dfs.namenode.name.dir "file://$C/nn"
    p dfs.datanode.data.dir "file://$C/dn"
    p dfs.namenode.rpc-bind-host 127.0.0.1
    p dfs.namenode.http-address 127.0.0.1:19870
    p dfs.datanode.address 127.0.0.1:19866
    p dfs.datanode.http.address 127.0.0.1:19864
    p dfs.datanode.ipc.address 127.0.0.1:19867
    p dfs.datanode.hostname 127.0.0.1
    p dfs.namenode.datanode.registration.ip-hostname-check false
    p dfs.permissions.enabled false
    p yarn.resourcemanager.hostname 127.0.0.1
    p yarn.resourcemanager.address 127.0.0.1:19032
    p yarn.resourcemanager.scheduler.address 127.0.0.1:19030
    p yarn.resourcemanager.resource-tracker.address 127.0.0.1:19031
    p yarn.resourcemanager.admin.address 127.0.0.1:19033
    p yarn.resourcemanager.webapp.address 127.0.0.1:19088
    p yarn.nodemanager.hostname 127.0.0.1
    p yarn.nodemanager.address 127.0.0.1:19041
    p yarn.nodemanager.localizer.address 127.0.0.1:19040
    p yarn.nodemanager.webapp.address 127.0.0.1:19042
    p yarn.nodemanager.collector-service.address 127.0.0.1:19048
    p yarn.nodemanager.aux-services mapreduce_shuffle
    p yarn.nodemanager.aux-services.mapreduce_shuffle.class org.apache.hadoop.mapred.ShuffleHandler
    p mapreduce.shuffle.port 19562
    p yarn.nodemanager.resource.memory-mb ${NM_MB:-8192}
    p yarn.nodemanager.resource.cpu-vcores ${NM_CORES:-3}
    p yarn.nodemanager.vmem-check-enabled false
    p yarn.nodemanager.pmem-check-enabled false
    p yarn.scheduler.minimum-allocation-mb 256
    p yarn.resourcemanager.scheduler.class org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler
    p yarn.scheduler.capacity.root.queues default
    p yarn.scheduler.capacity.root.default.capacity 100
    p yarn.scheduler.capacity.maximum-am-resource-percent 1.0
    p yarn.scheduler.capacity.resource-calculator org.apache.hadoop.yarn.util.resource.DominantResourceCalculator
    p yarn.nodemanager.local-dirs "$C/nm-local"
    p yarn.nodemanager.log-dirs "$C/nm-logs"
    p yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage 99
    p yarn.application.classpath "$CONF,$HADOOP_DIR/lib/*"
    p mapreduce.application.classpath "$CONF,$HADOOP_DIR/lib/*"
    p mapreduce.framework.name yarn
    p yarn.app.mapreduce.am.staging-dir /staging
    p yarn.app.mapreduce.am.resource.mb 1024
    p yarn.app.mapreduce.am.command-opts "-Xmx640m ${JAVA_OPENS}"
    p mapreduce.map.memory.mb $TASK_MB
    p mapreduce.reduce.memory.mb $TASK_MB
    p mapreduce.map.java.opts "-Xmx$((TASK_MB*3/4))m"
    p mapreduce.reduce.java.opts "-Xmx$((TASK_MB*3/4))m"
    p mapreduce.task.io.sort.mb ${SORT_MB:-200}
    # There are only two slots. A speculative attempt, or a reduce task that waits for maps, would block a slot.
    p mapreduce.map.speculative false
    p mapreduce.reduce.speculative false
    p mapreduce.job.reduce.slowstart.completedmaps 1.0
    p mapreduce.cluster.local.dir "$C/mr-local"
    echo '</configuration>'
  } > "$CONF/core-site.xml"
  for f in hdfs-site yarn-site mapred-site capacity-scheduler; do cp "$CONF/core-site.xml" "$CONF/$f.xml"; done
  cp "$WORK_DIR/log4j/log4j.properties" "$CONF/"
  for w in hdfs datanode static; do mkdir -p "$CONF/webapps/$w"; done   # the jars on the registry carry no web pages for HDFS
}
CP() { echo "$CONF:$HADOOP_DIR/lib/*"; }
d() { # d NAME HEAP CLASS
  setsid $NS /usr/bin/time -f 'TIME max_rss_kb=%M user_s=%U sys_s=%S wall_s=%e' \
    java -Xmx$2 -Djava.net.preferIPv4Stack=true $JAVA_OPENS -cp "$(CP)" $3 > "$C/log/$1.log" 2>&1 &
  echo $! > "$P/$1"
}
wait_port() { # wait_port PORT NAME
  for _ in $(seq 1 60); do
    $NS bash -c "exec 3<>/dev/tcp/127.0.0.1/$1" 2>/dev/null && return 0
    kill -0 "$(cat "$P/$2")" 2>/dev/null || break
    sleep 0.5
  done
  echo "$2: port $1 did not open:"; grep -aE 'ERROR|FATAL|Exception' "$C/log/$2.log" | head -5; KEEP=1 "$0" stop; exit 1
}
case ${1:-} in
start)
  rm -rf "$C"; mkdir -p "$P"; conf
  java $JAVA_OPENS -cp "$(CP)" org.apache.hadoop.hdfs.server.namenode.NameNode -format -force -nonInteractive > "$C/log/format.log" 2>&1
  d namenode 512m org.apache.hadoop.hdfs.server.namenode.NameNode
  wait_port 19000 namenode
  d datanode 512m org.apache.hadoop.hdfs.server.datanode.DataNode
  d resourcemanager 512m org.apache.hadoop.yarn.server.resourcemanager.ResourceManager
  wait_port 19031 resourcemanager; wait_port 19867 datanode
  d nodemanager 512m org.apache.hadoop.yarn.server.nodemanager.NodeManager
  wait_port 19562 nodemanager; wait_port 19032 resourcemanager
  echo "up: HADOOP_CONF=$CONF"
  ;;
stop)
  for f in nodemanager resourcemanager datanode namenode; do
    [ -f "$P/$f" ] || continue
    t=$(cat "$P/$f")                                   # /usr/bin/time's pid; its child is the JVM
    for j in $(cat /proc/$t/task/$t/children 2>/dev/null); do kill "$j" 2>/dev/null || true; done
    for _ in $(seq 1 60); do kill -0 "$t" 2>/dev/null || break; sleep 0.25; done
    if kill -0 "$t" 2>/dev/null; then for j in $(cat /proc/$t/task/$t/children); do kill -9 "$j"; done; sleep 0.5; fi
    echo "$f $(grep -a '^TIME' "$C/log/$f.log" | tail -1)"; rm -f "$P/$f"
  done
  [ -n "${KEEP:-}" ] || rm -rf "$C/dn" "$C/nn" "$C/tmp" "$C/nm-local" "$C/mr-local"
  ;;
status) for f in "$P"/*; do echo "$(basename "$f") $(cat "$f") $(kill -0 "$(cat "$f")" 2>/dev/null && echo up || echo down)"; done;;
*) echo "usage: $0 start|stop|status"; exit 2;;
esac
