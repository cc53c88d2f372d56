# Sourced by bench/cluster.sh: comparison with other systems. All servers and workers run on this machine. A peer that cannot be installed
# or started is reported as not run.

peers_dir=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}
PEER_ROWS=10000000
PEER_ROUNDS=3
PEER_TASKS_SECONDS_MAX=300

# Some servers of peers listen on all addresses, so they run in a network namespace with a loopback only. The scripts of bench/peers make
# the namespace if they have the rights; it is removed at the end.
export NETNS=${NETNS:-peers}
namespace_exists() { ip netns list 2> /dev/null | grep -qw "$NETNS"; }
namespace_was_there=no
! namespace_exists || namespace_was_there=yes
on_loopback() { # on_loopback COMMAND...: runs it in the namespace, or without one if the rights are missing
    if namespace_exists || { ip netns add "$NETNS" && ip netns exec "$NETNS" ip link set lo up; } 2> /dev/null; then
        ip netns exec "$NETNS" "$@"
    else
        "$@"
    fi
}

stop_peers() {
    [ ! -d "$work/hadoop/hc/pids" ] || WORK_DIR=$work/hadoop "$root/bench/peers/hadoop-cluster.sh" stop > "$work/out" 2>&1 || true
    if [ $namespace_was_there = no ] && namespace_exists; then ip netns del "$NETNS" || true; fi
}

have_peer() { # have_peer NAME SETUP FILE
    [ -e "$3" ] || "$root/bench/peers/$2" > "$work/setup.txt" 2>&1 ||
        { echo "$1: not run, $2 failed: $(tail -n 1 "$work/setup.txt")"; return 1; }
}

ratio() { echo "$1 $2" | awk '{ printf "%.1f", $1 / $2 }'; }

# Many runs of the same program: one job with many tasks in HyperQueue, as its users would do it, and many jobs in Sailfish.
group_hyperqueue() {
    have_peer HyperQueue setup-hyperqueue.sh "$peers_dir/hyperqueue/.installed" || return 0
    local round ours theirs
    : > "$work/ours.txt"
    : > "$work/theirs.txt"
    for round in $(seq $PEER_ROUNDS); do
        run_programs
        rate_of >> "$work/ours.txt"
        end_programs
        rm -rf "$work/hyperqueue"
        mkdir "$work/hyperqueue"
        (
            cd "$work/hyperqueue"
            on_loopback timeout --foreground -s KILL $PEER_TASKS_SECONDS_MAX "$peers_dir/hyperqueue/venv/bin/python" \
                "$root/bench/peers/hyperqueue_jobs.py" "$work/hyperqueue" "$PROGRAMS" 4 /bin/true
        ) > "$work/hyperqueue.log" 2>&1 || { echo "HyperQueue: not run: $(tail -n 1 "$work/hyperqueue.log")"; return 0; }
        sed -n 's/^JOB .* rate=\([0-9]*\)$/\1/p' "$work/hyperqueue.log" >> "$work/theirs.txt"
    done
    ours=$(median < "$work/ours.txt") theirs=$(median < "$work/theirs.txt")
    row "/bin/true, ours beside HyperQueue" "$ours" jobs/s -
    row "/bin/true, HyperQueue, one worker of 4 slots" "$theirs" jobs/s -
    row "/bin/true, ours / HyperQueue" "$(ratio "$ours" "$theirs")" times -
    rm -rf "$work/hyperqueue"
}

checksum_of_sorted() { # exits if rows are out of order or missing
    "$sailfish" tera validate --state "$work/embedded" "$work/sorted" > "$work/out" 2>&1 &&
        grep -q "^Records: $((PEER_ROWS * scale_percent / 100))$" "$work/out" || { cat "$work/out" >&2; exit 1; }
    awk '/^Checksum:/ { print $2 }' "$work/out"
}

# Our sort of the same rows, by a server and two nodes with one slot each. Sets `ours` to the median, and `checksum`.
sort_of_a_gigabyte() { # sort_of_a_gigabyte LAYOUT
    local round
    "$sailfish" tera gen --state "$work/embedded" --layout "$1" --rows $((PEER_ROWS * scale_percent / 100)) --output "$work/rows" \
        --overwrite --no-sync > /dev/null 2>&1
    serve_data
    for round in $(seq $PEER_ROUNDS); do sort_in_cluster; done > "$work/ours.txt"
    stop_data
    ours=$(median < "$work/ours.txt")
    checksum=$(checksum_of_sorted)
    rm -rf "$work/sorted"
}

group_yarn() {
    have_peer Hadoop setup-hadoop.sh "$peers_dir/hadoop/lib/.version" || return 0
    local ours checksum theirs
    sort_of_a_gigabyte legacy
    rm -rf "$work/rows"
    export WORK_DIR=$work/hadoop
    if "$root/bench/peers/hadoop-cluster.sh" start > "$work/out" 2>&1; then
        RSS_TREE=no "$root/bench/peers/hadoop-yarn-terasort.sh" $((PEER_ROWS * scale_percent / 100)) 4 $PEER_ROUNDS \
            > "$work/yarn.log" 2>&1 || tail -n 5 "$work/yarn.log" >&2
        "$root/bench/peers/hadoop-cluster.sh" stop > "$work/out" 2>&1 || true
    else
        tail -n 3 "$work/out" >&2
        : > "$work/yarn.log"
    fi
    unset WORK_DIR
    rm -rf "$work/hadoop"
    # TeraGen generates the same rows as our generator in this layout, so the checksums must be equal.
    if [ "$(grep -c "^checksum[[:space:]]$checksum\$" "$work/yarn.log")" != $PEER_ROUNDS ]; then
        echo "YARN: not run, or its checksum is not $checksum"
        return 0
    fi
    theirs=$(sed -n 's/^terasort TIME wall_s=\([0-9.]*\).*/\1/p' "$work/yarn.log" | median)
    row "tera sort 1 GB, two nodes, beside YARN" "$ours" s -
    row "tera sort 1 GB, Hadoop on YARN and HDFS" "$theirs" s -
    row "tera sort 1 GB, Hadoop on YARN and HDFS / ours" "$(ratio "$theirs" "$ours")" times 10
}

group_spark() {
    have_peer Spark setup-spark.sh "$peers_dir/spark/spark-home" || return 0
    local ours checksum theirs round
    sort_of_a_gigabyte modern
    cat "$work"/rows/part-* > "$work/rows.bin"
    rm -rf "$work/rows"
    for round in $(seq $PEER_ROUNDS); do
        rm -rf "$work/sorted"
        sync
        cat "$work/rows.bin" > /dev/null
        KEEP=1 WORK_DIR=$work/spark RSS_TREE=no EXEC_MEM=3g "$root/bench/peers/spark-run.sh" java standalone sort "$work/rows.bin" \
            "$work/sorted" > "$work/spark.log" 2>&1 || { tail -n 5 "$work/spark.log" >&2; break; }
        [ "$(checksum_of_sorted)" = "$checksum" ] || { echo "Spark: the checksum is not $checksum" >&2; break; }
        sed -n 's/^RUN wall_s=\([0-9.]*\).*/\1/p' "$work/spark.log"
    done > "$work/spark.txt"
    rm -rf "$work/rows.bin" "$work/spark" "$work/sorted"
    [ "$(wc -l < "$work/spark.txt")" = $PEER_ROUNDS ] || { echo "Spark standalone: not run"; return 0; }
    theirs=$(median < "$work/spark.txt")
    row "tera sort 1 GB, two nodes, beside Spark" "$ours" s -
    row "tera sort 1 GB, Spark standalone" "$theirs" s -
    row "tera sort 1 GB, Spark standalone / ours" "$(ratio "$theirs" "$ours")" times 4
}
