# The jobs of bench/failures.sh: their inputs, programs that mostly wait, one run of each kind, and the results of a run.

readonly WAVES=8 WAVE_TASKS=18 RECORDS_PER_MAP=10000 RECORD_BYTES=100 REDUCES=54 BATCHES_PER_MAP=12
readonly MAPS=$((WAVES * WAVE_TASKS)) WORDS_NODE=9
readonly CHAIN_STAGES=4 CHAIN_TASKS=36 CHAIN_BATCHES=10
readonly ZIPF_KEYS=1000000 ZIPF_RECORDS=1600000 ZIPF_FILES=16 ZIPF_HOSTS=16 ZIPF_SLOTS=8

# In a job of 180 s, the maps take 8 waves of 12 s, and the reducers half of the time. 10 nodes with two slots have two slots more than a
# wave needs, so a wave still fits if one node is lost.
batch_seconds() { awk -v job="$seconds" 'BEGIN { printf "%.4f\n", job / 180 }'; }

make_input() { # writes lines of 100 bytes with a key of ten digits, one file per map task
    local dir=$1
    [ -e "$dir/_whole" ] && return
    rm -rf "$dir" && mkdir -p "$dir/files"
    awk -v maps="$MAPS" -v records="$RECORDS_PER_MAP" -v pad="$((RECORD_BYTES - 25))" -v dir="$dir/files" 'BEGIN {
        for (map = 0; map < maps; map++) {
            file = sprintf("%s/%03d.txt", dir, map)
            for (record = 0; record < records; record++) {
                number = record * maps + map
                text = sprintf("%d%d", number * 48271 % 2147483647, number * 69621 % 2147483647)
                printf "%010d\t%03d-%07d %*s\n", number * 7919 % 1000003, map, record, pad, text text text > file
            }
            close(file)
        }
    }'
    touch "$dir/_whole"
}

# The key of rank r has a share of ln((r+1)/r): Zipf with s = 1. A key is a page of one of 16 hosts. The hosts are equally frequent, but the
# cost of a record is proportional to 1 over the number of its host. The costs add up to a job of $1 s on 8 slots.
make_zipf_input() {
    local dir=$1
    [ -e "$dir/_whole" ] && return
    rm -rf "$dir" && mkdir -p "$dir/files"
    awk -v keys="$ZIPF_KEYS" -v records="$ZIPF_RECORDS" -v files="$ZIPF_FILES" -v hosts="$ZIPF_HOSTS" -v dir="$dir" 'BEGIN {
        srand(5)
        for (record = 0; record < records; record++) {
            rank = int(exp(rand() * log(keys + 1)))
            host = rank * 5 % hosts + 1
            share += 1 / host
            count[rank]++
            most = count[rank] / host > most ? count[rank] / host : most
            file = sprintf("%s/files/%02d.txt", dir, record % files)
            printf "host-%02d\tpage-%07d\t%08d %60s\n", host, rank * 7919 % 1000003, record, rank * 48271 % 2147483647 > file
        }
        printf "%.6f %.6f\n", share, most > (dir "/costs")
    }'
    touch "$dir/_whole"
}

write_program() { # write_program FILE RECORDS-PER-BATCH: copies its input, and sleeps after each batch, ten times as long on slow_node
    cat > "$1" <<TEXT
#!/bin/sh
case \$PWD in */disks/node-${slow_node:-none}/*) rest=$(batch_seconds | awk '{ print 10 * $1 }') ;; *) rest=$(batch_seconds) ;; esac
exec awk -v rest="sleep \$rest" '{ print } NR % $2 == 0 { fflush(); system(rest) }'
TEXT
    chmod +x "$1"
}

write_zipf_reducer() { # sleeps for the cost of each record; all records together take half the seconds of the job on 8 slots
    awk '{ print $1 }' "$zipf/costs" | {
        read -r share
        cat > "$1" <<TEXT
#!/bin/sh
exec awk -F '\\t' -v unit="$(batch_seconds)" -v cost="$(awk -v share="$share" -v seconds="$seconds" -v slots=$ZIPF_SLOTS \
            'BEGIN { printf "%.9f", seconds / 2 * slots / share }')" '
    { print; owed += cost / substr(\$1, 6) }
    owed >= unit { fflush(); system("sleep " owed); owed = 0 }
    END { if (owed > 0) { fflush(); system("sleep " owed) } }'
TEXT
        chmod +x "$1"
    }
}

# Sets the parameters of a kind of run: mode, fault, job_memory, options, and the parameters of its cluster.
describe() {
    mode=auto fault=none job_memory=1280M slow_node='' slow_reader=nobody world=ten options=(--partitions "$REDUCES")
    local objects_of_job=($OBJECTS_ENVIRONMENT)
    objects=()
    case $1 in
        none | rack | auto | sync | selective) mode=$1 ;;
        killed_shuffle_selective) mode=selective fault=kill_after_shuffle ;;
        killed_maps_selective) mode=selective fault=kill_after_maps ;;
        killed_shuffle_auto) fault=kill_after_shuffle ;;
        killed_maps_auto) fault=kill_after_maps ;;
        killed_maps_none) mode=none fault=kill_after_maps ;;
        silent_auto) fault=silence ;;
        reboot_auto) fault=reboot ;;
        pause_auto) fault=pause ;;
        # Runs of 16 MiB on disk, so that each disk has some of the runs.
        small_none) mode=none job_memory=64M options+=(--keep-ifiles) ;;
        disk_none) mode=none fault=break_second_disk job_memory=64M options+=(--keep-ifiles) ;;
        first_disk_none) mode=none fault=break_first_disk job_memory=64M options+=(--keep-ifiles) ;;
        small_rack) mode=rack job_memory=64M ;;
        rack_lost_auto) fault=kill_rack ;;
        rack_lost_none) mode=none fault=kill_rack ;;
        chain_none | chain_rack) mode=${1#chain_} world=chain options=() ;;
        chain_killed_none | chain_killed_rack) mode=${1#chain_killed_} fault=kill_in_last_stage world=chain options=() ;;
        slow_user) slow_node=$WORDS_NODE ;;
        store_healthy) objects=("${objects_of_job[@]}") ;;
        store_slow) objects=("${objects_of_job[@]}") slow_reader=10.77.0.$((10 + WORDS_NODE)) ;;
        zipf_pages) world=zipf options=(--partitions $ZIPF_SLOTS) ;;
        zipf_by_host) world=zipf options=(--partitions $ZIPF_SLOTS --partition-fields -k1,1) ;;
        zipf_cut) world=zipf options=() ;;
        *) echo "failures.sh: there is no kind of run $1" >&2; return 1 ;;
    esac
    case $world in
        ten) world_nodes=10 world_slots=2 ;;
        chain) world_nodes=10 world_slots=2 job_memory=64M ;;
        zipf) world_nodes=4 world_slots=2 job_memory=256M mode=none options+=(--key-fields 2) ;;
    esac
}

start_job() {
    local input=$plain/files
    [ ${#objects[@]} = 0 ] || input=s3://lake/files/
    local functions=(--mapper "$home/mapper.sh" --reducer "$home/reducer.sh")
    if [ "$world" = zipf ]; then
        input=$zipf/files functions=(--reducer "$home/reducer.sh")
        write_zipf_reducer "$home/reducer.sh"
    else
        write_program "$home/mapper.sh" $((RECORDS_PER_MAP / BATCHES_PER_MAP))
        # The batch size gives three waves of reducers of 80 s in a job of 180 s.
        write_program "$home/reducer.sh" $((RECORDS_PER_MAP * MAPS / REDUCES * 9 / 240))
    fi
    if [ "$world" = chain ]; then
        start_chain
        return
    fi
    by_admin run --memory "$job_memory" --replication "$mode" --no-sync --input "$input" "${functions[@]}" --output "$home/out" \
        "${options[@]}" > "$home/job.log" 2>&1 &
    job=$!
}

# Four stages, each of two waves of 18 maps and two of 18 reducers, over a quarter of the input.
start_chain() {
    local stage reads="input = [$(seq -f "'$plain/files/%03g.txt'" 0 $((CHAIN_TASKS - 1)) | paste -sd ,)]"
    write_program "$home/mapper.sh" $((RECORDS_PER_MAP / CHAIN_BATCHES))
    cp "$home/mapper.sh" "$home/reducer.sh"
    for stage in $(seq "$CHAIN_STAGES"); do
        printf '[[stage]]\nname = "stage-%s"\n%s\nmapper = "%s"\nreducer = "%s"\npartitions = %s\n' \
            "$stage" "$reads" "$home/mapper.sh" "$home/reducer.sh" "$CHAIN_TASKS"
        reads="from = \"stage-$stage\""
    done > "$home/chain.toml"
    echo "output = \"$home/out\"" >> "$home/chain.toml"
    by_admin run --job "$home/chain.toml" --memory "$job_memory" --replication "$mode" --no-sync > "$home/job.log" 2>&1 &
    job=$!
}

doomed_runs() { # prints a query that counts the maps whose data is in runs that match CONDITION
    echo "select count(distinct s.map_task) as n from source_sums s join run_chunks c on c.job = s.job and c.chunk = s.chunk
        join runs r on r.job = c.job and r.run = c.run where $1
        and not exists (select 1 from run_replicas p where p.run = r.run and p.state = 'complete' and $2)"
}

# Each fault is a function that waits for its moment. faulted_ns is the time of the fault; maps that start later run again.
inject() {
    local victim=''
    case $fault in
        none) return ;;
        kill_in_last_stage) kill_in_last_stage; faulted_ns=$(date +%s%N); return ;;
        kill_after_maps) until_maps_are_over ;;
        *) until_reducers_run ;;
    esac
    victim=$(node_with_most)
    case $fault in
        kill_after_maps | kill_after_shuffle) kill_node "$victim" ;;
        silence) cut_link "$victim" ;;
        pause) cut_link "$victim"; faulted_ns=$(date +%s%N); sleep 10; mend_link "$victim"; return ;;
        reboot) kill_node "$victim"; faulted_ns=$(date +%s%N); sleep 10; start_node "$victim" --again; return ;;
        break_first_disk) break_disk "$victim" 0 ;;
        break_second_disk) break_disk "$victim" 1 ;;
        kill_rack) kill_half_a_reduce_later ;;
    esac
    faulted_ns=$(date +%s%N)
}

break_disk() { # break_disk NODE DISK: after reducers have read for a while. The first disk also holds the programs of jobs
    predicted=$(ask "$(doomed_runs "r.run / $NODE_SHIFT = (select node from nodes where name = 'node-$1') and r.disk = $2
        and r.in_memory = 0" "1 = 1")")
    sleep "$(awk -v job="$seconds" 'BEGIN { print job / 20 }')"
    lose_disk "$1" "$2"
}

kill_half_a_reduce_later() {
    sleep "$(awk -v job="$seconds" 'BEGIN { print job / 5 }')"
    local in_rack="(select node from nodes where rack = 'rack-1')" node
    predicted=$(ask "$(doomed_runs "r.run / $NODE_SHIFT in $in_rack" "p.node not in $in_rack")")
    for node in $(seq $((nodes / 2)) $((nodes - 1))); do kill_node "$node"; done
}

# After maps of the last stage have run for a while. Tasks must run again if their parts are unread and on no other node.
kill_in_last_stage() {
    wait_until "select count(*) > 0 as n from attempts where job = $CHAIN_STAGES and stage = 0 and state = 'running'"
    sleep "$(awk -v job="$seconds" 'BEGIN { print job / 60 }')"
    local last=$((CHAIN_STAGES - 1)) of_parts victim
    of_parts="from tasks t join attempts a on a.job = t.job and a.stage = t.stage and a.task = t.task and a.attempt = t.winner
        join nodes n on n.node = a.node where t.job = $last and t.stage = 3"
    victim=$(ask "select cast(replace(n.name, 'node-', '') as integer) as n $of_parts group by n.name order by count(*) desc, n.name limit 1")
    predicted=$(ask "select count(*) as n $of_parts and n.name = 'node-$victim'
        and not exists (select 1 from part_replicas p where p.job = t.job and p.task = t.task)")
    kill_node "$victim"
}

machine_ticks() { # prints the busy ticks of the machine, without processes at low priority, and all ticks
    awk '/^cpu / { print $2 + $4 + $7 + $8, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9; exit }' /proc/stat
}

seconds_of() { # seconds_of NAME: prints the duration of a stage
    ask "select coalesce(max(ended_ns) - min(expanded_ns), 0) / 1000000 as n from stages where name = '$1'" |
        awk '{ printf "%.3f\n", $1 / 1000 }'
}

run_one() { # run_one KIND REPEAT: runs in a subshell; appends a line to the results, or prints a message
    local kind=$1 repeat=$2 before after
    home=$bench_dir/run-$kind-$repeat predicted=- faulted_ns=0 pids=() holders=() job='' server='' store=''
    trap stop_world EXIT
    trap 'exit 130' INT TERM
    describe "$kind"
    rm -rf "$home" && mkdir -p "$home"
    start_world "$world_nodes" "$world_slots" 1536M || return 1
    # A slow reader takes ten times the duration of a map to read the input of a map.
    [ ${#objects[@]} = 0 ] || start_store "$plain" "$slow_reader" \
        "$(awk -v bytes=$((RECORDS_PER_MAP * RECORD_BYTES)) -v job="$seconds" 'BEGIN { print bytes / (120 * job / 180) }')" || return 1
    before=$(machine_ticks)
    start_job
    inject || return 1
    wait "$job" 2> /dev/null || { tail -n 5 "$home/job.log" >&2; by_admin explain --limit 2000 1 > "$told/$kind-$repeat.txt" 2>&1 || true; return 1; }
    job=''
    after=$(machine_ticks)
    write_down "$kind" "$repeat" "$before $after"
    stop_world
    rm -rf "$home"
}

ran_again() { # prints the number of tasks that ran again since the fault: maps; in a chain, all tasks of the stages before the last
    local which="stage = 0"
    [ "$world" = chain ] && which="job < $CHAIN_STAGES and stage in (0, 3)"
    ask "select count(*) as n from (select distinct job, stage, task from attempts where $which and state = 'succeeded'
        and $faulted_ns > 0 and assigned_ns > $faulted_ns) as again"
}

write_down() {
    local kind=$1 repeat=$2 output job_s task_s wasted_s
    by_admin explain --limit 2000 1 > "$told/$kind-$repeat.txt" 2>&1 || true
    by_admin report 1 > "$told/$kind-$repeat.report.txt" 2>&1 || true
    by_admin state "select a.job, stage, task, attempt, n.name, a.state, (assigned_ns - j.created_ns) / 1000000 as assigned_ms,
        (a.opened_ns - j.created_ns) / 1000000 as opened_ms, (a.ended_ns - j.created_ns) / 1000000 as ended_ms, failure
        from attempts a join nodes n on n.node = a.node join jobs j on j.job = a.job order by assigned_ns" \
        > "$told/$kind-$repeat.attempts.txt" 2>&1 || true
    by_admin state "select e.job, (time_ns - j.created_ns) / 1000000 as at_ms, e.stage, e.task, e.attempt, kind, detail from events e
        join jobs j on j.job = e.job where kind <> 'placement' order by event" > "$told/$kind-$repeat.events.txt" 2>&1 || true
    output=$(cat "$home"/out/part-* | if [ "$world" = zipf ]; then LC_ALL=C sort; else cat; fi | sha256sum | cut -c 1-12)
    local rows=(
        "$(date -u +%H:%M:%S)" "$commit" "$build" "$profile" "$seconds" "$kind" "$repeat"
        "$(ask "select (max(ended_ns) - min(created_ns)) / 1000000 as n from jobs" | awk '{ print $1 / 1000 }')"
        "$(seconds_of map)" "$(seconds_of reduce)" "$(cpu_seconds)" "$(written_bytes)"
        "$(sent_bytes 'link[0-9]+')" "$(sent_bytes 'down[0-9]+')"
        "$(ask "select coalesce(sum(bytes), 0) as n from $([ "$world" = chain ] && echo part_replicas || echo run_replicas)")"
        "$(ran_again)"
        "$predicted"
        "$(ask "select count(*) - count(distinct job * 100000 + task) as n from attempts where stage = 3")"
        "$(ask "select coalesce(sum(ended_ns - started_ns), 0) / 1000000 as n from attempts where state <> 'succeeded'
            and started_ns is not null and ended_ns is not null" | awk '{ print $1 / 1000 }')"
        "$(ask "select coalesce(sum(ended_ns - started_ns), 0) / 1000000 as n from attempts where started_ns is not null
            and ended_ns is not null" | awk '{ print $1 / 1000 }')"
        "$(ask "select count(*) as n from runs where replaced_by is null")"
        "$(ask "select count(distinct run) as n from run_replicas where state in ('complete', 'standing')")"
        "$(ask "select single_ns / 1000000 as n from run_replicas order by single_ns limit 1 offset (select count(*) / 2 from run_replicas)" |
            awk '{ print $1 / 1000 }')"
        "$(echo "$3" | awk '{ printf "%.0f\n", ($4 > $2 ? 100 * ($3 - $1) / ($4 - $2) : 0) }')"
        "$(cut -d ' ' -f 1 /proc/loadavg)" "$output"
    )
    (IFS=$'\t'; echo "${rows[*]}") >> "$results"
}

readonly COLUMNS_OF_RUNS='time commit build profile seconds kind repeat job_s map_s reduce_s cpu_s written_bytes sent_bytes between_racks_bytes replica_bytes
maps_again maps_predicted reduces_again wasted_task_s task_s runs replicated single_median_s machine_percent load output'
