# Rows of bench/files.sh about HDFS; sourced. A name node and two data nodes of Hadoop beside two nodes of ours, on one disk, replication 2:
# put and get of the large file, four times in each of the rounds. All rounds of HDFS with one setting have one client process;
# each command of ours is a process. Needs a JDK and the jars that bench/peers/setup-hadoop.sh installs (HADOOP_DIR names another place).

hadoop_dir=${HADOOP_DIR:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/hadoop}
java_options=(-Xmx1g -Djava.net.preferIPv4Stack=true --add-opens=java.base/java.lang=ALL-UNNAMED)
hdfs_pids=()
hdfs_property() { echo "<property><name>$1</name><value>$2</value></property>"; }
hdfs_conf() { # hdfs_conf DIR SYNCONCLOSE PORT [NODE]
    mkdir -p "$1"/webapps/{hdfs,datanode,static}
    {
        echo '<configuration>'
        hdfs_property fs.defaultFS "hdfs://127.0.0.1:$3"
        hdfs_property hadoop.tmp.dir "$work/hdfs/tmp"
        hdfs_property dfs.replication 2
        hdfs_property dfs.datanode.synconclose "$2"
        hdfs_property dfs.namenode.name.dir "file://$work/hdfs/names"
        hdfs_property dfs.namenode.rpc-bind-host 127.0.0.1
        hdfs_property dfs.namenode.http-address 127.0.0.1:0
        hdfs_property dfs.namenode.safemode.extension 0
        hdfs_property dfs.namenode.datanode.registration.ip-hostname-check false
        hdfs_property dfs.datanode.data.dir "file://$work/hdfs/data-${4:-none}"
        hdfs_property dfs.datanode.address 127.0.0.1:0
        hdfs_property dfs.datanode.http.address 127.0.0.1:0
        hdfs_property dfs.datanode.ipc.address 127.0.0.1:0
        hdfs_property dfs.datanode.hostname 127.0.0.1
        echo '</configuration>'
    } > "$1/core-site.xml"
    cp "$1/core-site.xml" "$1/hdfs-site.xml"
    cat > "$1/log4j.properties" << 'END'
log4j.rootLogger=INFO, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%p %c{2}: %m%n
END
}
hdfs_java() { java "${java_options[@]}" -cp "$1:$work/hdfs/classes:$hadoop_dir/lib/*" "${@:2}"; } # hdfs_java CONF CLASS ARGUMENTS...
hdfs_process() { # hdfs_process LOG CONF CLASS: in the background
    java "${java_options[@]}" -cp "$2:$hadoop_dir/lib/*" "$3" > "$work/hdfs/$1.log" 2>&1 &
    hdfs_pids+=($!)
}
hdfs_start() { # hdfs_start SYNCONCLOSE
    local port server=org.apache.hadoop.hdfs.server node
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    rm -rf "$work/hdfs"
    mkdir -p "$work/hdfs/classes"
    javac -cp "$hadoop_dir/lib/*" -d "$work/hdfs/classes" "$root/bench/files/HdfsRounds.java"
    hdfs_conf "$work/hdfs/conf" "$1" "$port"
    hdfs_java "$work/hdfs/conf" $server.namenode.NameNode -format -force -nonInteractive > "$work/hdfs/format.log" 2>&1
    hdfs_process name "$work/hdfs/conf" $server.namenode.NameNode
    for node in 0 1; do
        hdfs_conf "$work/hdfs/conf-$node" "$1" "$port" "$node"
        hdfs_process "data-$node" "$work/hdfs/conf-$node" $server.datanode.DataNode
    done
    # The name node writes a line for each data node that it has registered.
    until [ "$(grep -c 'registerDatanode: from' "$work/hdfs/name.log")" -ge 2 ]; do
        kill -0 "${hdfs_pids[@]}" || { tail -n 5 "$work"/hdfs/*.log >&2; exit 1; }
        sleep 0.2
    done
}
hdfs_stop() {
    kill "${hdfs_pids[@]}" 2> /dev/null || true
    wait "${hdfs_pids[@]}" 2> /dev/null || true
    hdfs_pids=()
    rm -rf "$work/hdfs"
}
hdfs_rounds() { # hdfs_rounds ROW SYNCONCLOSE
    local seconds to from round
    hdfs_start "$2"
    coproc HDFS { hdfs_java "$work/hdfs/conf" HdfsRounds "$work/in/large" "$work/got-hdfs" 2> "$work/hdfs/client.log"; }
    from=${HDFS[0]} to=${HDFS[1]}
    read -r _ <&"$from"
    for round in $(seq $((4 * runs))); do
        for contender in $( ((round % 2)) && echo ours hdfs || echo hdfs ours); do
            settle large
            if [ "$contender" = ours ]; then
                timed "$1" "$round" ours large_round
                of_cluster rm large
            else
                echo >&"$to"
                read -r seconds <&"$from"
                printf '%s\t%s\tcp\t%s\n' "$1" "$round" "$seconds" | tee -a "$results" "$work/rows" > /dev/null
            fi
        done
        cmp "$work/in/large" "$work/got"
        cmp "$work/in/large" "$work/got-hdfs"
        rm -f "$work/got" "$work/got-hdfs"
    done
    exec {to}>&-
    hdfs_stop
}
hdfs_rows() {
    if ! [ -x "$(command -v java)" ] || ! [ -x "$(command -v javac)" ]; then
        echo "HDFS / ours: not run: java and javac of a JDK are needed"
        return
    fi
    if ! [ -e "$hadoop_dir/lib/.version" ]; then
        echo "HDFS / ours: not run: bench/peers/setup-hadoop.sh has not installed Hadoop"
        return
    fi
    serve
    hdfs_rounds "hdfs, synced" true
    hdfs_rounds "hdfs, unsynced" false
    kill "$cluster"
    wait "$cluster" || true
    cluster=
}
print_hdfs_rows() {
    grep -q "^hdfs" "$work/rows" || return 0
    print_row "hdfs, synced" "HDFS with synconclose / ours, put + get, time" 1.0 2
    print_row "hdfs, unsynced" "HDFS without it / ours, put + get, time" 0 0
}
