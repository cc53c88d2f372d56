# Sourced by bench/cluster.sh: the rows about large numbers of small jobs.

OFFERED="10 100 1000 2000 4000 8000"
OFFERED_SECONDS=5
PROGRAMS=5000

# Prints the rate in the line of `sailfish bench jobs` that begins with `finished`.
rate_of() { awk '/^finished/ { print $(NF - 1) }' "$work/out"; }

rates() { # rates NAME MUST SERVER-OPTION...
    local name=$1 must=$2
    shift 2
    serve "$@"
    "$sailfish" bench jobs --server "$url" --jobs "$jobs" > "$work/out"
    row "no-op jobs, 8 clients, $name" "$(rate_of)" jobs/s "$must"
    # More jobs wait in the queue. The server is killed and restarted.
    "$sailfish" bench jobs --server "$url" --jobs $((jobs / 10)) --only-submit > "$work/out"
    kill -9 "$server"; wait "$server" 2> /dev/null || true
    local began
    began=$(date +%s.%N)
    serve "$@"
    row "back, $jobs jobs over, $((jobs / 10)) waiting, $name" "$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')" s 5
    stop_server
}

group_sqlite() {
    rates SQLite 5000 --state "$work/sqlite"
    rm -rf "$work/sqlite"
}

group_postgresql() {
    if postgres_start "$work" shared_buffers=1GB max_wal_size=8GB; then
        rates PostgreSQL 2500 --state "$work/postgres" --database "$postgres_url"
        postgres_stop
    else
        echo "PostgreSQL: not run"
    fi
}

# Clustera, Figures 19 and 20: the throughput for a given submission rate, and the server's CPU time per job.
group_offered() {
    local offered before count
    for offered in $OFFERED; do
        serve --state "$work/offered"
        before=$(cpu_seconds)
        count=$((offered * OFFERED_SECONDS))
        "$sailfish" bench jobs --server "$url" --rate "$offered" --jobs "$count" > "$work/out"
        local each must=-
        each=$(echo "$(cpu_seconds) $before $count" | awk '{ printf "%.3f", ($1 - $2) * 1000 / $3 }')
        [ "$offered" -lt 1000 ] || must=0.25
        row "$offered jobs/s offered: achieved" "$(rate_of)" jobs/s -
        row "$offered jobs/s offered: CPU of the server per job" "$each" ms "$must"
        stop_server
        rm -rf "$work/offered"
    done
}

group_idle() {
    serve --state "$work/idle"
    "$sailfish" bench jobs --server "$url" --jobs 500 --latency --clients 1 --slots 1 > "$work/out"
    row "idle, submit to start, p50" "$(awk '{ print $5 }' "$work/out")" ms 5
    row "idle, submit to start, p99" "$(awk '{ print $8 }' "$work/out")" ms 25
    stop_server
    rm -rf "$work/idle"
}

QUEUED=100000
LARGE_JOBS=27 # of eight each
# The long queue of one user: its costs for the server and for other users.
long_queue() { # long_queue NAME: `hand_in_small` and `hand_in_large` fill it
    local name="long queue of one user$1" began word words
    serve --state "$work/queue"
    hand_in_small
    word=$(head -c 120000 /dev/zero | tr '\0' x)
    words=$(for count in $(seq 1 16); do printf '%s ' "$word"; done)
    hand_in_large
    row "$name: memory of the server" "$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$server/status")" MiB 300
    kill -9 "$server"; wait "$server" 2> /dev/null || true
    began=$(date +%s.%N)
    serve --state "$work/queue"
    row "$name: restart of the server" "$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')" s 5
    "$sailfish" node --server "$url" --slots 2 --memory 64M --disk "$work/disk" 2> "$work/node.log" &
    nodes=$!
    until grep -q joined "$work/node.log"; do sleep 0.02; done
    began=$(date +%s.%N)
    USER=bob "$sailfish" submit --server "$url" --wait -- true > "$work/out"
    row "$name: another user's job, to its end" "$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')" s 1
    stop_server
    rm -rf "$work/queue" "$work/disk"
}

group_queue() {
    local count queued=$((QUEUED * scale_percent / 100))
    hand_in_small() {
        for count in $(seq 1 $((queued / 5000))); do
            USER=ann "$sailfish" submit --server "$url" --count 5000 -- true > "$work/out"
        done
    }
    hand_in_large() {
        for count in $(seq 1 "$LARGE_JOBS"); do
            # shellcheck disable=SC2086 # these are words
            USER=ann "$sailfish" submit --server "$url" --count 8 -- true $words > "$work/out"
        done
    }
    long_queue ''
    # The user gives each job a different memory or priority, so that each job is the first of its queue.
    hand_in_small() { USER=ann "$sailfish" bench jobs --server "$url" --only-submit --unlike --jobs "$queued" > "$work/out"; }
    hand_in_large() {
        for count in $(seq 1 $((LARGE_JOBS * 8))); do
            # shellcheck disable=SC2086 # these are words
            USER=ann "$sailfish" submit --server "$url" --priority="-$count" -- true $words > "$work/out"
        done
    }
    long_queue ', no two jobs alike'
}

run_programs() { # run_programs NODE_OPTION...: runs /bin/true on a node with four slots; call end_programs after reading the rate
    serve --state "$work/processes"
    "$sailfish" node --server "$url" --slots 4 --memory 64M --disk "$work/disk" "$@" 2> "$work/node.log" &
    nodes=$!
    until grep -q joined "$work/node.log"; do sleep 0.02; done
    "$sailfish" bench jobs --server "$url" --jobs "$PROGRAMS" --clients 0 -- /bin/true > "$work/out"
}
end_programs() {
    stop_server
    rm -rf "$work/processes" "$work/disk"
}
group_processes() {
    run_programs
    row "/bin/true, one node of 4 slots" "$(rate_of)" jobs/s 800
    end_programs
    run_programs --sandbox
    row "/bin/true in a sandbox" "$(rate_of)" jobs/s 300
    end_programs
}

# The scheduler alone: decisions per second with 1,000 nodes and 100,000 waiting tasks.
group_match() {
    cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p sim --example match_decisions
    "$target/release/examples/match_decisions" > "$work/out"
    row "match decision, 1,000 nodes x 100,000 tasks, p99" \
        "$(awk '{ for (i = 1; i < NF; i++) if ($i == "p99") printf "%.4f", $(i + 1) / 1000 }' "$work/out")" ms 1
}
