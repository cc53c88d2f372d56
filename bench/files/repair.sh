# Rows of bench/files.sh about repairs; sourced. Three nodes in one rack, two replicas of the large file, `--repair-after` 4 s.

repair_after=4
declare -A node_process
start_node() { # start_node NUMBER
    "$sailfish" node --server "$url" --name "node-$1" --slots 1 --memory 256M --disk "$work/repair/node-$1" --shuffle-reserve 0 \
        2>> "$work/node-$1.log" &
    node_process[$1]=$!
}
stop_repair() {
    kill "${node_process[@]}" "$cluster" 2> /dev/null || true
    wait "${node_process[@]}" "$cluster" 2> /dev/null || true
    cluster=
}
serve_repair() {
    mkdir -p "$work/repair"
    "$sailfish" server --listen 127.0.0.1:0 --state "$work/repair/state" --repair-after "${repair_after}s" > "$work/url" 2> "$work/server.log" &
    cluster=$!
    until url=$(grep -m 1 ^http "$work/url"); do sleep 0.1; done
    for number in 0 1 2; do start_node "$number"; done
}
within_minutes() { # within_minutes CONDITION...: waits until the command succeeds, at most three minutes
    local last=$((SECONDS + 180))
    until "$@"; do
        [ $SECONDS -lt "$last" ] || { echo "three minutes were not enough: $*" >&2; exit 1; }
        sleep 0.05
    done
}
is_put() { # node 2 is there too: it has some of the replicas
    of_cluster put "$work/in/large" large --replicas 2 2> "$work/put.log" && ! grep -q fewer "$work/put.log" &&
        [ "$(stored_bytes 2)" -gt 0 ]
}
is_alone() { [ "$(stored_bytes 0 1 2)" -lt $((2 * $(stat -c %s "$work/in/large") * 101 / 100)) ]; }
put_settled() { # a version with two replicas; the bytes of earlier ones are gone, which a node that is killed would keep
    within_minutes is_put
    within_minutes is_alone
}
stored_bytes() { # stored_bytes NODE...: bytes of concrete files on their disks
    local node
    for node in "$@"; do find "$work/repair/node-$node/sailfish-files/data" -type f -printf '%s\n'; done 2> /dev/null |
        awk '{ sum += $1 } END { printf "%.0f", sum }'
}
have_bytes() { [ "$(stored_bytes "${@:2}")" -ge "$1" ]; } # have_bytes BYTES NODE...: the disks of the nodes have so many bytes
copy_between() { # copy_between FROM TO: through a connection, as between two nodes; synced
    local port receiver='import socket, subprocess, sys
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
sys.exit(subprocess.run(["tar", "-xf", "-", "-C", sys.argv[1]], stdin=door.accept()[0]).returncode)'
    mkdir "$2"
    exec 5< <(python3 -c "$receiver" "$2")
    read -r port <&5
    tar -C "$1" -cf - . > "/dev/tcp/127.0.0.1/$port"
    cat <&5
    exec 5<&-
    sync
}
repair_round() { # repair_round ROUND: node 2 goes, and its bytes are copied
    local before lost wanted
    put_settled
    lost=$(stored_bytes 2) before=$(stored_bytes 0 1)
    wanted=$((before + lost))
    kill -KILL "${node_process[2]}"
    wait "${node_process[2]}" 2> /dev/null || true
    within_minutes have_bytes $((before + 1)) 0 1
    timed "repair" "$1" ours within_minutes have_bytes "$wanted" 0 1
    sync
    timed "repair" "$1" cp copy_between "$work/repair/node-2/sailfish-files/data" "$work/copy"
    [ "$(du -sb "$work/copy" | cut -f 1)" -ge "$lost" ]
    rm -rf "$work/copy" "$work/repair/node-2"
    start_node 2
    # Replicas lie on all nodes again.
    of_cluster rm large
    put_settled
}
watch_bytes() { # watch_bytes SECONDS BYTES: adds to `most`, the most bytes beyond these that nodes 0 and 1 had at some time
    local until=$((SECONDS + $1)) beyond
    while [ $SECONDS -lt "$until" ]; do
        beyond=$(($(stored_bytes 0 1) - $2))
        [ "$beyond" -le "$most" ] || most=$beyond
        sleep 0.1
    done
}
reboot_round() { # reboot_round ROUND: an announced absence, shorter than --repair-after, moves no byte; a copy that is trimmed later counts
    local before most=0
    before=$(stored_bytes 0 1)
    kill -INT "${node_process[2]}"
    wait "${node_process[2]}" || true
    watch_bytes 2 "$before"
    start_node 2
    watch_bytes $((repair_after + 2)) "$before"
    printf 'reboot, bytes\t%s\tours\t%s\n' "$1" "$most" | tee -a "$results" "$work/rows" > /dev/null
}
repair_rows() {
    serve_repair
    for round in $(seq "$runs"); do
        repair_round "$round"
        reboot_round "$round"
    done
    stop_repair
}
print_repair_rows() {
    local moved
    print_longest "repair" "repair from the decision on / copying between nodes" 1.5 1.2
    moved=$(awk -F '\t' '$1 == "reboot, bytes" && $4 > most { most = $4 } END { print most + 0 }' "$work/rows")
    printf '%-50s must %-5s aim %-5s value %s\n' "bytes moved by an announced reboot" 0 0 "$moved"
    [ "$moved" = 0 ] || missed=1
}
