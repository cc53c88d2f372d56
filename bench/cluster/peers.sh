# Sourced by bench/cluster.sh: other systems beside us, all servers and workers on this machine. A peer that cannot be had or
# does not run is told as not run.

peers_dir=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}
PEER_ROWS=10000000
PEER_ROUNDS=3

have_peer() { # have_peer NAME SETUP FILE
    [ -e "$3" ] || "$root/bench/peers/$2" > "$work/setup.txt" 2>&1 || { echo "$1: not run, $2 failed: $(tail -n 1 "$work/setup.txt")"; return 1; }
}

# The same program so often: HyperQueue as one job of an array of tasks, which is how its users would, ours as as many jobs.
group_hyperqueue() {
    have_peer HyperQueue setup-hyperqueue.sh "$peers_dir/hyperqueue/venv/bin/hq" || return 0
    local hq=$peers_dir/hyperqueue/venv/bin/hq began
    export HQ_SERVER_DIR=$work/hyperqueue
    "$hq" server start --host 127.0.0.1 > "$work/hq-server.log" 2>&1 &
    nodes=$!
    until "$hq" server info > /dev/null 2>&1; do sleep 0.1; done
    "$hq" worker start --cpus 4 > "$work/hq-worker.log" 2>&1 &
    nodes="$nodes $!"
    until "$hq" worker list 2> /dev/null | grep -q RUNNING; do sleep 0.1; done
    began=$(date +%s.%N)
    "$hq" submit --wait --array "1-$PROGRAMS" --stdout none --stderr none -- /bin/true > "$work/out" 2>&1 ||
        { echo "HyperQueue: not run: $(tail -n 1 "$work/out")"; stop_server; return 0; }
    row "HyperQueue, /bin/true, one worker of 4 slots" \
        "$(echo "$(date +%s.%N) $began $PROGRAMS" | awk '{ printf "%.0f", $3 / ($1 - $2) }')" jobs/s -
    stop_server
    unset HQ_SERVER_DIR
}

# Our sort of the same rows on a server and two nodes of one slot each.
sort_of_a_gigabyte() { # sort_of_a_gigabyte ROUNDS: the median
    local count=$((PEER_ROWS * scale_percent / 100)) round
    "$sailfish" tera gen --state "$work/embedded" --layout "$2" --rows "$count" --output "$work/rows" --overwrite --no-sync \
        > /dev/null 2>&1
    serve_data
    for round in $(seq "$1"); do sort_in_cluster; done | median
    stop_data
}

group_yarn() {
    have_peer Hadoop setup-hadoop.sh "$peers_dir/hadoop/lib/.version" || return 0
    local ours theirs round
    ours=$(sort_of_a_gigabyte $PEER_ROUNDS legacy)
    export WORK_DIR=$work/hadoop
    if ! "$root/bench/peers/hadoop-cluster.sh" start > "$work/out" 2>&1; then
        echo "YARN: not run: $(tail -n 1 "$work/out")"
        unset WORK_DIR
        return 0
    fi
    for round in $(seq $PEER_ROUNDS); do
        "$root/bench/peers/hadoop-yarn-terasort.sh" $((PEER_ROWS * scale_percent / 100)) 4 > "$work/yarn.log" 2>&1 ||
            { tail -n 5 "$work/yarn.log" >&2; break; }
        sed -n 's/^terasort TIME wall_s=\([0-9.]*\).*/\1/p' "$work/yarn.log"
    done > "$work/yarn.txt"
    "$root/bench/peers/hadoop-cluster.sh" stop > "$work/out" 2>&1 || true
    unset WORK_DIR
    [ -s "$work/yarn.txt" ] || { echo "YARN: not run"; return 0; }
    theirs=$(median < "$work/yarn.txt")
    row "tera sort 1 GB, two nodes" "$ours" s -
    row "tera sort 1 GB, Hadoop on YARN and HDFS" "$theirs" s -
    row "tera sort 1 GB, Hadoop on YARN and HDFS / ours" "$(echo "$theirs $ours" | awk '{ printf "%.1f", $1 / $2 }')" times 10
    rm -rf "$work/rows" "$work/hadoop"
}

group_spark() {
    have_peer Spark setup-spark.sh "$peers_dir/spark/spark-home" || return 0
    local ours theirs round
    ours=$(sort_of_a_gigabyte $PEER_ROUNDS modern)
    cat "$work"/rows/part-* > "$work/rows.bin"
    for round in $(seq $PEER_ROUNDS); do
        WORK_DIR=$work/spark RSS_TREE=no EXEC_MEM=3g "$root/bench/peers/spark-run.sh" java standalone sort "$work/rows.bin" "$work/sorted" \
            > "$work/spark.log" 2>&1 || { tail -n 5 "$work/spark.log" >&2; break; }
        sed -n 's/^RUN wall_s=\([0-9.]*\).*/\1/p' "$work/spark.log"
    done > "$work/spark.txt"
    [ -s "$work/spark.txt" ] || { echo "Spark standalone: not run"; return 0; }
    theirs=$(median < "$work/spark.txt")
    row "tera sort 1 GB, Spark standalone" "$theirs" s -
    row "tera sort 1 GB, Spark standalone / ours" "$(echo "$theirs $ours" | awk '{ printf "%.1f", $1 / $2 }')" times 4
    rm -rf "$work/rows" "$work/rows.bin" "$work/spark" "$work/sorted"
}
