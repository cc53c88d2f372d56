# Two racks made of network namespaces, one for the hub and one for each node, with `tbf` on all links. Each run has its own namespaces,
# which disappear with the processes that hold them.
#
#   hub 10.77.0.1, where server and clients run: bridge `core` -- uplink of 200 Mbit/s -- bridge `rack0` -- links of 100 Mbit/s -- nodes
#                                                              \- uplink of 200 Mbit/s -- bridge `rack1` -- ...

readonly HUB=10.77.0.1
NODE_RATE=${NODE_RATE:-100mbit} UPLINK_RATE=${UPLINK_RATE:-200mbit}

missing_for_racks() { # prints why racks cannot be made on this machine; prints nothing if they can
    local tool
    for tool in ip tc nsenter unshare; do
        command -v "$tool" > /dev/null || { echo "there is no $tool (packages iproute2 and util-linux)"; return; }
    done
    unshare --net --mount true 2> /dev/null || echo "making namespaces needs root"
}

hold_network() { # starts a process with its own network namespace, and sets `held` to it
    unshare --net sleep infinity &
    held=$!
    disown "$held"
    holders+=("$held")
    until [ "$(readlink "/proc/$held/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
}

inside() { # inside HOLDER COMMAND...
    nsenter --net="/proc/$1/ns/net" "${@:2}"
}

become_inside() { # the same for background commands: replaces the shell by the command, so that signals reach it
    exec nsenter --net="/proc/$1/ns/net" "${@:2}"
}

cap() { # cap HOLDER DEVICE RATE
    inside "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 64kb latency 100ms
}

make_racks() { # make_racks NODES: the first half of the nodes is in rack 0
    local node rack device
    holders=() machines=()
    hold_network
    hub=$held
    inside "$hub" ip link set lo up
    for device in core rack0 rack1; do inside "$hub" ip link add "$device" type bridge; done
    inside "$hub" ip address add "$HUB/24" dev core
    for rack in 0 1; do
        inside "$hub" ip link add "up$rack" type veth peer name "down$rack"
        inside "$hub" ip link set "up$rack" master core
        inside "$hub" ip link set "down$rack" master "rack$rack"
        for device in "up$rack" "down$rack"; do
            inside "$hub" ip link set "$device" up
            cap "$hub" "$device" "$UPLINK_RATE"
        done
    done
    for device in core rack0 rack1; do inside "$hub" ip link set "$device" up; done
    for node in $(seq 0 $(($1 - 1))); do
        hold_network
        machines+=("$held")
        inside "$hub" ip link add "link$node" type veth peer name port netns "$held"
        inside "$hub" ip link set "link$node" master "rack$((node * 2 / $1))" up
        cap "$hub" "link$node" "$NODE_RATE"
        inside "$held" ip link set lo up
        inside "$held" ip address add "10.77.0.$((10 + node))/24" dev port
        inside "$held" ip link set port up
        cap "$held" port "$NODE_RATE"
    done
}

cut_link() { inside "$hub" ip link set "link$1" down; }
mend_link() { inside "$hub" ip link set "link$1" up; }

sent_bytes() { # sent_bytes DEVICE-PATTERN: prints the bytes that the hub received on these devices, which nodes or racks have sent
    inside "$hub" awk -v pattern="^$1\$" 'sub(/^ */, "") && split($0, word, /[: ]+/) && word[1] ~ pattern { sum += word[2] } END { printf "%.0f\n", sum }' \
        /proc/self/net/dev
}
