# The rows of the table of bench/failures.sh: the runs that each row needs, and the figures that it shows. The column `paper` has the
# figures of the paper about the Intermediate Storage System (ISS).

rows_all="healthy modes interference killed silent transient disk rack chain window slow store zipf speculation"

kinds_of() { # kinds_of ROW: prints the kinds of runs that a row needs
    case $1 in
        healthy) echo none rack auto sync selective ;;
        modes) echo none rack auto sync selective ;;
        killed) echo none auto killed_shuffle_auto killed_maps_auto killed_maps_none selective killed_shuffle_selective killed_maps_selective ;;
        silent) echo auto silent_auto ;;
        transient) echo auto reboot_auto pause_auto ;;
        disk) echo small_none disk_none first_disk_none ;;
        rack) echo auto rack_lost_auto none rack_lost_none ;;
        chain) echo chain_rack chain_none chain_killed_rack chain_killed_none ;;
        window) echo rack small_rack ;;
        slow) echo auto slow_user ;;
        store) command -v python3 > /dev/null && echo store_healthy store_slow ;;
        zipf) echo zipf_pages zipf_by_host zipf_cut ;;
        speculation) echo none rack auto ;;
    esac
}

measured() { # measured KIND REPEAT: prints the number of its runs with this binary and duration
    awk -F'\t' -v build="$build" -v seconds="$seconds" -v kind="$1" -v repeat="$2" \
        '$1 == "# fresh" && $3 == build { n = 0 } $3 == build && $5 == seconds && $6 == kind && (repeat == "" || $7 == repeat) { n++ }
        END { print n + 0 }' "$results"
}

column() { # column KIND NAME: prints the values of a column in all runs of a kind
    awk -F'\t' -v build="$build" -v seconds="$seconds" -v kind="$1" -v name="$2" '
        FNR == 1 { for (place = 1; place <= NF; place++) if ($place == name) wanted = place; next }
        $1 == "# fresh" && $3 == build { n = 0 }
        $3 == build && $5 == seconds && $6 == kind { values[++n] = $wanted }
        END { for (i = 1; i <= n; i++) print values[i] }' "$results"
}

median() { # median KIND NAME: prints the median of a column; `-` if there are no runs
    column "$1" "$2" | grep -v '^-$' | sort -g | awk '{ all[NR] = $1 } END { print NR ? all[int((NR + 1) / 2)] : "-" }'
}

divided() { # divided A B
    echo "$1 $2" | awk '{ if ($1 == "-" || $2 == "-" || $2 == 0) print "-"; else printf "%.3f\n", $1 / $2 }'
}

say() { # say NAME VALUE UNIT MUST AIM PAPER: MUST is the largest value, or with a `>` before it the least; `-`: no limit
    local verdict
    verdict=$(awk -v value="$2" -v must="$4" 'BEGIN {
        if (value == "-") { print "not measured"; exit }
        if (must == "-") { print "report"; exit }
        least = sub(/^>/, "", must)
        print (least ? value + 0 >= must + 0 : value + 0 <= must + 0) ? "met" : "MISSED"
    }')
    printf '%-78s %14s %-8s must %-6s aim %-5s paper %-14s %s\n' "$1" "$2" "$3" "$4" "$5" "$6" "$verdict"
}

cannot() { # cannot NAME WHY
    printf '%-78s cannot be measured: %s\n' "$1" "$2"
}

simulated() { # simulated ROW NAME: prints the figures of the simulator
    local program name value unit must aim paper
    program=$(dirname "$sailfish")/examples/bench_rows
    if ! [ -x "$program" ]; then cannot "$2" "there is no $program: cargo build --release --locked --example bench_rows"; return; fi
    "$program" "$1" | while IFS=$'\t' read -r name value unit must aim paper; do
        say "$name" "$value" "$unit" "$must" "$aim" "$paper"
    done
}

ratio_row() { # ratio_row NAME KIND BASE MUST AIM PAPER: prints the ratio of the durations of jobs
    say "$1" "$(divided "$(median "$2" job_s)" "$(median "$3" job_s)")" ratio "$4" "$5" "$6"
}

same_outputs() { # same_outputs KIND...: prints whether all runs have the same output; `-` if the last kind has no runs
    local outputs kind
    outputs=$(for kind in "$@"; do column "$kind" output; done | sort -u | wc -l)
    if [ "$(measured "${!#}" '')" = 0 ]; then echo -; elif [ "$outputs" = 1 ]; then echo right; else echo WRONG; fi
}

outputs_agree() { # outputs_agree KIND: prints whether its outputs equal the outputs of the job without failures
    same_outputs none auto "$1"
}

row_healthy() {
    say "no failure, none: job" "$(median none job_s)" s - - -
    local mode
    for mode in selective rack auto; do
        ratio_row "no failure: $mode / none" "$mode" none "$([ $mode = rack ] && echo 1.15 || echo 1.10)" 1.05 "ISS ~1"
    done
    ratio_row "no failure: sync / none" sync none - - "HDFS 2-3"
}

row_modes() {
    local mode
    for mode in none rack auto sync selective; do
        say "$mode: written to disks by nodes" "$(median "$mode" written_bytes)" bytes - - -
        say "$mode: sent by nodes; between racks $(median "$mode" between_racks_bytes)" "$(median "$mode" sent_bytes)" bytes - - -
        say "$mode: sent as replicas" "$(median "$mode" replica_bytes)" bytes - - -
        say "$mode: CPU of server and nodes" "$(median "$mode" cpu_s)" s - - -
        say "$mode: how busy the machine was, with whatever else ran on it" "$(median "$mode" machine_percent)" percent - - -
    done
}

row_interference() {
    simulated interference "interference: read only, read + send, full (ISS Figure 11)"
}

again() { # again KIND WHAT: prints how many maps and reducers ran again, and whether the output is right
    say "  $2: maps that ran again, of $MAPS" "$(median "$1" maps_again)" tasks - - -
    say "  $2: attempts of reducers beyond one each" "$(median "$1" reduces_again)" tasks - - -
    printf '%-78s %14s\n' "  $2: output" "$(outputs_agree "$1")"
}

row_killed() {
    ratio_row "killed for good after the shuffle, auto / no failure" killed_shuffle_auto auto 1.18 1.08 "ISS 1.18"
    again killed_shuffle_auto "after the shuffle, auto"
    ratio_row "killed for good after the last map, auto / no failure" killed_maps_auto auto 1.18 1.08 "ISS 1.18"
    again killed_maps_auto "after the last map, auto"
    ratio_row "killed for good after the last map, none / no failure, none" killed_maps_none none 1.4 1.25 "Hadoop 1.59"
    again killed_maps_none "after the last map, none"
    # Maps that run again read their spools instead of running their programs.
    ratio_row "killed for good after the shuffle, selective / no failure" killed_shuffle_selective selective - - -
    again killed_shuffle_selective "after the shuffle, selective (from spools)"
    ratio_row "killed for good after the last map, selective / no failure" killed_maps_selective selective - - -
    again killed_maps_selective "after the last map, selective (from spools)"
}

row_silent() {
    ratio_row "falls silent after the shuffle, auto / no failure" silent_auto auto 1.25 1.12 -
    again silent_auto "silent, auto"
}

row_transient() {
    ratio_row "killed, and started again after 10 s, auto / no failure" reboot_auto auto 1.09 1.05 "1.09; Hadoop 1.32"
    again reboot_auto "started again, auto"
    ratio_row "silent for 10 s, auto / no failure" pause_auto auto 1.09 1.05 -
    again pause_auto "silent for 10 s, auto"
}

equal() { # equal KIND: prints the difference between the maps that ran again and the maps that had to
    echo "$(median "$1" maps_again) $(median "$1" maps_predicted)" |
        awk '{ if ($1 == "-" || $2 == "-") print "-"; else print ($1 > $2) ? $1 - $2 : $2 - $1 }'
}

row_disk() {
    local kind
    for kind in disk_none first_disk_none; do
        ratio_row "$([ $kind = disk_none ] && echo second || echo first) of two disks of a node lost, none / no failure, alike" \
            $kind small_none 1.2 1.1 "1.1-1.2; 1.6"
        again $kind "disk"
        say "  maps that had data on that disk" "$(median $kind maps_predicted)" tasks - - -
        say "  by how much these differ" "$(equal $kind)" tasks 0 - -
    done
}

row_rack() {
    local mode
    for mode in auto none; do
        ratio_row "whole rack lost in the middle of the reducers, $mode / no failure, $mode" "rack_lost_$mode" "$mode" - - -
        again "rack_lost_$mode" "rack lost, $mode"
        say "  rack lost, $mode: maps with data on it and nowhere else" "$(median "rack_lost_$mode" maps_predicted)" tasks - - -
        say "  rack lost, $mode: by how much these differ" "$(equal "rack_lost_$mode")" tasks 0 - -
    done
}

row_chain() {
    local mode
    for mode in rack none; do
        ratio_row "4-stage chain, node lost in stage 4, $mode / no failure, $mode" chain_killed_$mode chain_$mode - - -
        say "  $mode: tasks of stages 1-3 that ran again" "$(median chain_killed_$mode maps_again)" tasks "$([ $mode = rack ] && echo 0 || echo -)" - cascade
        say "  $mode: parts of stage 3 that lay there and nowhere else" "$(median chain_killed_$mode maps_predicted)" tasks - - -
        printf '%-78s %14s\n' "  $mode: output" "$(same_outputs chain_rack chain_none chain_killed_$mode)"
    done
}

row_window() {
    local kind
    for kind in rack small_rack; do
        say "window, mode rack, $([ $kind = rack ] && echo 'chunks of 128' || echo 'chunks of 16') MiB: runs on two nodes before the job ends" \
            "$(divided "$(median $kind replicated)" "$(median $kind runs)")" ratio '>1' - "all"
        say "  on one node only, median" "$(median $kind single_median_s)" s - - -
    done
    simulated window "window at 80 nodes, racks of 100 Mbit/s and 1 Gbit/s"
}

row_slow() {
    ratio_row "one node ten times slower in user code, auto / no failure" slow_user auto 1.5 1.3 -
    again slow_user "slow node"
}

row_store() {
    if ! command -v python3 > /dev/null; then cannot "slow store (must 1.6)" "there is no python3, which runs the store"; return; fi
    ratio_row "store that is slow for one node, as slow as ten maps, auto / no failure, same store" store_slow store_healthy 1.6 1.3 -
    again store_slow "slow store"
    say "  slow store: task-seconds of copies / of all" "$(divided "$(median store_slow wasted_task_s)" "$(median store_slow task_s)")" ratio - - -
}

row_zipf() {
    local kind perfect
    perfect=$((seconds / 2))
    for kind in zipf_pages zipf_by_host zipf_cut; do
        say "$kind: reduce phase (perfectly balanced: $perfect s)" "$(median $kind reduce_s)" s - - -
    done
    say "Zipf, pages by their hash: -numReduceTasks 8 / elastic" "$(divided "$(median zipf_pages reduce_s)" "$(median zipf_cut reduce_s)")" ratio '>2' 3 -
    say "Zipf, pages by their host: -numReduceTasks 8 / elastic" "$(divided "$(median zipf_by_host reduce_s)" "$(median zipf_cut reduce_s)")" ratio '>2' 3 -
    say "Zipf: elastic / perfectly balanced" "$(divided "$(median zipf_cut reduce_s)" "$perfect")" ratio 1.25 1.15 -
}

row_speculation() {
    local kind
    for kind in none rack auto; do
        say "no straggler, $kind: task-seconds of copies / of all" "$(divided "$(median "$kind" wasted_task_s)" "$(median "$kind" task_s)")" ratio 0.03 0.01 -
    done
    simulated speculation "no straggler (sim)"
}
