#!/usr/bin/env bash
# setup-hadoop.sh [DIR]  - stock Hadoop from Maven artifacts into DIR (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/hadoop).
#   DIR/lib/*.jar  all jars (client, daemons, examples, streaming); DIR/lib/.version
# Needs: java 17, mvn (as configured).  HADOOP_VERSION overrides the version (3.4.2: the newest 3.4.x for which we
# found the examples and streaming jars published beside the core and daemon jars).
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/hadoop}
V=${HADOOP_VERSION:-3.4.2}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
if [ "$(cat "$DIR/lib/.version" 2>/dev/null)" = "$V" ]; then echo "hadoop $V already in $DIR/lib"; exit 0; fi
rm -rf "$DIR/lib"; mkdir -p "$DIR/lib" "$DIR/pom"
dep() { echo "<dependency><groupId>org.apache.hadoop</groupId><artifactId>$1</artifactId><version>$V</version>${2:-}</dependency>"; }
{
  echo '<project><modelVersion>4.0.0</modelVersion>'
  echo '<groupId>peers</groupId><artifactId>hadoop</artifactId><version>1</version><dependencies>'
  dep hadoop-client                       # hdfs client, mapreduce client, LocalJobRunner
  dep hadoop-hdfs                         # NameNode, DataNode
  dep hadoop-yarn-server-resourcemanager
  dep hadoop-yarn-server-nodemanager
  dep hadoop-yarn-server-timelineservice  # the ResourceManager loads its collector classes
  dep hadoop-mapreduce-client-shuffle     # ShuffleHandler (NodeManager aux service)
  dep hadoop-mapreduce-client-hs          # JobHistoryServer
  dep hadoop-mapreduce-examples
  dep hadoop-streaming
  echo '</dependencies></project>'
} > "$DIR/pom/pom.xml"
mvn -B -q -f "$DIR/pom/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$DIR/lib"
echo "$V" > "$DIR/lib/.version"
echo "hadoop $V: $(ls "$DIR"/lib/*.jar | wc -l) jars, $(du -sh "$DIR/lib" | cut -f1) in $DIR/lib"
