# Sourced by bench/speed.sh: interleaved rounds of contenders. Each run is prepared, timed, checked and recorded.
#
# A group has contenders; contender X of group G is the function `G_X`, called without arguments. It calls `measure` once, and a check
# afterwards. Its costs are recorded only if the check succeeds.

# If a contender takes longer than this, all contenders of its group get at most slow_rounds rounds.
slow_seconds=60
slow_rounds=3

open_results() {
    date=$(date -u +%Y-%m-%d)
    results_dir=$root/bench/results
    # Rows of a trial with small inputs are kept separate from the results.
    [ "$scale" = 1 ] || results_dir=$work/scaled-$scale
    mkdir -p "$results_dir"
    results=$results_dir/$date-speed.tsv
    commit=$(git -C "$root" rev-parse --short=12 HEAD 2> /dev/null || echo unknown)
    [ -z "$(git -C "$root" status --porcelain --untracked-files=no -- crates Cargo.toml Cargo.lock 2> /dev/null)" ] ||
        commit="$commit+"
    # Rows belong together if the same binary measured them, independent of commits in between.
    build=$(sha256sum "$sailfish" | cut -c 1-12)
    : > "$work/failed.txt"
    if [ -n "$table_only" ]; then
        touch "$results" "$work/notes.tsv"
        return
    fi
    : > "$work/notes.tsv"
    local memory_mib
    memory_mib=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
    {
        [ -s "$results" ] || printf '%s\t' time commit build group contender round bytes shuffled_bytes wall_s user_s \
            sys_s rss_mib anonymous_mib exit load | sed 's/\t$/\n/'
        echo "# $(date -u +%H:%M:%S) speed.sh --runs $runs --rows $(echo "$groups" | tr ' ' ',') --scale $scale; commit" \
            "$commit; build $build; $cores cores, $(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)," \
            "$memory_mib MiB memory, Linux $(uname -r), $(stat -f -c %T "$work"), load $(cut -d ' ' -f 1 /proc/loadavg)"
        # Raw rows are never removed. This line tells readers to ignore the rows above it.
        [ -z "$fresh" ] || printf '# fresh\t-\t%s\n' "$build"
    } >> "$results"
    if [ "$(cut -d . -f 1 /proc/loadavg)" -ge 1 ]; then
        echo "speed.sh: the load average is $(cut -d ' ' -f 1 /proc/loadavg): other processes use this machine, so the figures mean little" >&2
    fi
}

cleanup() { rm -rf "$work/out" "$work/out.rows" "$work/out.txt" "$work/out.txt.temporary" "$work/disk" "$work/temporary" "$work/cost.tsv"; }

note() { # note GROUP CONTENDER TEXT: sets the text that the table shows in place of a figure
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$work/notes.tsv"
    echo "  $1/$2: not run: $3" >&2
}

failed() { # failed TEXT: records a failure, which is reported at the end with exit code 1
    echo "  $1" | tee -a "$work/failed.txt" >&2
}

# Prints the most informative line of log.txt.
reason() {
    { grep -m 1 -iE 'error|exception|xtask:|are .*, not ' "$work/log.txt" || tail -n 1 "$work/log.txt"; } | tr '\t' ' '
}

# Checks that there is free space for the inputs, outputs and intermediate files of a group.
enough_disk() { # enough_disk GROUP BYTES
    local free_bytes needed_bytes=$(($2 / scale + 500000000))
    free_bytes=$(df -PB1 "$work" | awk 'NR == 2 { print $4 }')
    [ "$free_bytes" -ge "$needed_bytes" ] && return 0
    note "$1" '*' "needs $((needed_bytes / 1000000000)) GB of disk, $((free_bytes / 1000000000)) are free (BENCH_DIR names another place)"
    return 1
}

# Installs a missing peer, and runs it once on a tiny input, so that its files are in the page cache.
peer() { # peer GROUP CONTENDER SETUP FILE WARM-UP...
    local group=$1 contender=$2 setup=$3 file=$4 log=$work/setup.log
    shift 4
    if [ ! -e "$file" ]; then
        [ -n "$install" ] || { note "$group" "$contender" "not installed (bench/peers/$setup)"; return 1; }
        echo "  installing by bench/peers/$setup"
        if ! "$root/bench/peers/$setup" > "$log" 2>&1; then
            note "$group" "$contender" "bench/peers/$setup failed: $(tail -n 1 "$log")"
            return 1
        fi
    fi
    if ! "$@" > "$log" 2>&1; then
        note "$group" "$contender" "does not run: $(tail -n 1 "$log")"
        return 1
    fi
    cleanup_outputs
}
peers_dir=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}

cleanup_outputs() {
    rm -rf "$work/out" "$work/out.rows" "$work/out.txt" "$work/out.txt.temporary"
    mkdir -p "$work/disk" "$work/temporary"
}

measured_rounds() { # measured_rounds GROUP CONTENDER ROUND: prints the number of its rows
    awk -F'\t' -v build="$build" -v group="$1" -v contender="$2" -v round="$3" \
        '$1 == "# fresh" && $3 == build { n = 0 } $3 == build && $4 == group && $5 == contender && $6 == round { n++ } END { print n + 0 }' "$results"
}

slow_group() { # slow_group GROUP: succeeds if one of its contenders took longer than slow_seconds
    awk -F'\t' -v build="$build" -v group="$1" -v limit="$slow_seconds" \
        '$1 == "# fresh" && $3 == build { slow = 0 } $3 == build && $4 == group && $9 > limit { slow = 1 } END { exit !slow }' "$results"
}

# A completely measured group needs no inputs.
complete() { # complete GROUP ROUNDS CONTENDER...
    local rounds=$2 group=$1 contender round
    shift 2
    if [ "$rounds" -gt "$slow_rounds" ] && slow_group "$group"; then rounds=$slow_rounds; fi
    for contender in "$@"; do
        for round in $(seq "$rounds"); do
            [ "$(measured_rounds "$group" "$contender" "$round")" != 0 ] || return 1
        done
    done
    echo "  measured already"
}

# Every round runs each contender once, so that temporary noise affects all contenders.
run_rounds() { # run_rounds GROUP ROUNDS CONTENDER...
    local contender status
    group=$1
    local rounds=$2 dropped=' '
    shift 2
    for round in $(seq "$rounds"); do
        if [ "$round" -gt "$slow_rounds" ] && slow_group "$group"; then
            echo "  $group: a contender takes more than $slow_seconds s, so $slow_rounds rounds are enough"
            break
        fi
        for contender in "$@"; do
            case $dropped in *" $contender "*) continue ;; esac
            [ "$(measured_rounds "$group" "$contender" "$round")" = 0 ] || continue
            rm -f "$work/cost.tsv"
            # The subshell must not be on the left of `||`, because a failing step would not end it there.
            set +e
            (set -e; "${group//-/_}_${contender//-/_}")
            status=$?
            set -e
            if [ "$status" = 0 ] && [ -s "$work/cost.tsv" ]; then
                write_down "$contender"
            else
                failed "$group/$contender, round $round: $(reason)"
                note "$group" "$contender" "failed in round $round: $(reason)"
                dropped="$dropped$contender "
            fi
            cleanup_outputs
        done
    done
}

write_down() { # write_down CONTENDER
    local shuffled=- report=$work/out/_report.json
    [ ! -f "$report" ] || shuffled=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["shuffle"]["bytes"])' "$report") ||
        shuffled=-
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%H:%M:%S)" "$commit" "$build" "$group" "$1" "$round" \
        "$(cat "$work/bytes.txt")" "$shuffled" "$(cat "$work/cost.tsv")" "$(cat "$work/load.txt")" >> "$results"
    awk -F'\t' -v name="$group/$1" -v round="$round" \
        '{ printf "  round %s  %-22s %8.2f s  user+sys %8.2f s  anonymous %6.0f MiB\n", round, name, $1, $2 + $3, $5 }' "$work/cost.tsv"
}

# Prepares the same state before each timed run: no old output, no dirty pages, memory that the host backs, the input in the page cache.
# Runs the command; its messages go to log.txt.
measure() { # measure INPUT MEMORY-TO-TOUCH COMMAND...
    local input=$1 touch_bytes=$(($2 / scale)) available_bytes
    shift 2
    cleanup_outputs
    sync
    available_bytes=$(awk '/^MemAvailable:/ { printf "%.0f", $2 * 1024 * 0.75 }' /proc/meminfo)
    "$xtask" touch-memory --bytes $((touch_bytes < available_bytes ? touch_bytes : available_bytes))
    cat "$input" > /dev/null
    stat -c %s "$input" > "$work/bytes.txt"
    cut -d ' ' -f 1 /proc/loadavg > "$work/load.txt"
    local status=0
    "$xtask" time --out "$work/cost.tsv" -- "$@" > "$work/log.txt" 2>&1 || status=$?
    [ "$status" = 0 ] || echo "(exit code $status)" >> "$work/log.txt"
    return "$status"
}

# Prints the options of all our jobs. State and intermediate files are on the file system of the inputs and outputs.
ours() { # ours MEMORY
    echo "--state $work/state --disk $work/disk --slots $cores --memory $1"
}

print_table() {
    echo "Speed, $date, $cores cores, build $build$([ "$scale" = 1 ] || echo ", all sizes divided by $scale: figures mean nothing")"
    echo
    awk -v build="$build" -v cores="$cores" -v notes="$work/notes.tsv" -f "$root/bench/speed/table.awk" "$results"
}
