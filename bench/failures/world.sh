# A cluster of real processes in its own racks, one job on the cluster, and the faults of nodes. All variables belong to one run, which is a
# separate shell.

readonly OBJECTS_ENVIRONMENT="AWS_ENDPOINT_URL=http://10.77.0.1:9000 AWS_ALLOW_HTTP=true AWS_REGION=us-east-1 AWS_SKIP_SIGNATURE=true"
readonly NODE_SHIFT=1099511627776 # the number of a run or chunk divided by this is the number of its node

start_world() { # start_world NODES SLOTS MEMORY: starts a cluster with its files below $home
    nodes=$1 slots=$2 memory=$3
    make_racks "$nodes"
    touch "$home/server.log" "$home/store.log"
    become_inside "$hub" env -i PATH="$PATH" "${objects[@]}" "$sailfish" server --listen "$HUB:7070" --require-tokens --no-sandbox --tls --state "$home/state" \
        --allow-root "$bench_dir" s3://lake/ > "$home/url" 2> "$home/server.log" &
    server=$!
    disown "$server"
    until grep -q 'serving at' "$home/server.log"; do
        kill -0 "$server" 2> /dev/null || { cat "$home/server.log" >&2; return 1; }
        sleep 0.02
    done
    by_admin token create --user machines --role node --output "$home/node.token" > /dev/null 2>&1
    local node
    for node in $(seq 0 $((nodes - 1))); do start_node "$node"; done
    for node in $(seq 0 $((nodes - 1))); do
        until grep -q joined "$home/node-$node.log"; do
            kill -0 "${pids[$node]}" 2> /dev/null || { cat "$home/node-$node.log" >&2; return 1; }
            sleep 0.05
        done
    done
}

start_store() { # start_store DIRECTORY SLOW_ADDRESS BYTES_PER_SECOND: starts an object store on the hub
    become_inside "$hub" python3 "$root/bench/failures/slow_store.py" "$HUB" 9000 "$@" > "$home/store.log" 2>&1 &
    store=$!
    disown "$store"
    until grep -q serving "$home/store.log"; do
        kill -0 "$store" 2> /dev/null || { cat "$home/store.log" >&2; return 1; }
        sleep 0.05
    done
}

disk_of() { # disk_of NODE DISK
    echo "$home/disks/node-$1/disk-$2"
}

start_node() { # start_node NODE [OPTION...]: each node has two disks, and its own mount namespace
    local node=$1
    shift
    mkdir -p "$(disk_of "$node" 0)" "$(disk_of "$node" 1)"
    become_inside "${machines[$node]}" unshare --mount --propagation private \
        env -i PATH="$PATH" "${objects[@]}" "$sailfish" node --server "https://$HUB:7070" \
        --token-file "$home/node.token" --listen "10.77.0.$((10 + node)):0" --rack "rack-$((node * 2 / nodes))" --slots "$slots" \
        --memory "$memory" --name "node-$node" --disk "$(disk_of "$node" 0)" --disk "$(disk_of "$node" 1)" "$@" \
        >> "$home/node-$node.log" 2>&1 &
    pids[$node]=$!
    disown "${pids[$node]}"
}

by_admin() { # by_admin SUBCOMMAND...: runs it with --server, on the hub
    inside "$hub" env -i PATH="$PATH" "${objects[@]}" "$sailfish" "$@" --server "https://$HUB:7070" --token-file "$home/state/admin.token"
}

stop_world() {
    local pid
    for pid in ${job:-} "${pids[@]}" ${server:-} ${store:-} "${holders[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}" ${server:-} ${store:-} "${holders[@]}"; do
        while kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
    done
    pids=() holders=() server='' store=''
}

ask() { # ask QUERY: prints the number that the query returns as the column n
    by_admin state --json "$1" | tr -dc '0-9-'
}

wait_until() { # wait_until QUERY: waits until the query returns 1, or fails when the job has ended
    until [ "$(ask "$1" || true)" = 1 ]; do
        kill -0 "$job" 2> /dev/null || { echo "the job ended before this was true: $1" >&2; return 1; }
        sleep 0.2
    done
}

until_maps_are_over() {
    wait_until "select count(*) as n from stages where job = 1 and stage = 0 and state = 'done'"
}

until_reducers_run() {
    wait_until "select count(*) > 0 as n from attempts where job = 1 and stage = 3 and state = 'running'"
}

node_with_most() { # prints the number in the name of the node with the most runs; if there are no runs, with the most sources
    local of_runs="select cast(replace(n.name, 'node-', '') as integer) as n from runs r join nodes n on n.node = r.run / $NODE_SHIFT
        group by n.name order by sum(r.record_bytes) desc, n.name limit 1"
    local of_chunks="select cast(replace(n.name, 'node-', '') as integer) as n from source_sums s join nodes n on n.node = s.chunk / $NODE_SHIFT
        group by n.name order by sum(s.bytes) desc, n.name limit 1"
    local found
    found=$(ask "$of_runs")
    [ -n "$found" ] || found=$(ask "$of_chunks")
    echo "${found:-0}"
}

cpu_seconds() { # prints the CPU seconds of the server and the live nodes, without user programs
    local pid
    for pid in "$server" "${pids[@]}"; do cut -d ')' -f 2 "/proc/$pid/stat" 2> /dev/null || true; done |
        awk -v hertz="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { printf "%.1f\n", sum / hertz }'
}

written_bytes() { # prints the bytes that the live nodes have written to disks
    local pid
    for pid in "${pids[@]}"; do cat "/proc/$pid/io" 2> /dev/null || true; done | awk '/^write_bytes/ { sum += $2 } END { printf "%.0f\n", sum }'
}

kill_node() {
    kill -9 "${pids[$1]}"
}

lose_disk() { # lose_disk NODE DISK: open files of the disk fail, and no file can be opened
    local dir
    dir=$(disk_of "$1" "$2")
    find "$dir" -type f -exec truncate --size 0 {} +
    nsenter --target "${pids[$1]}" --mount mount -t tmpfs -o ro,size=4k tmpfs "$dir"
}
