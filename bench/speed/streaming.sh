# Sourced by bench/speed.sh: the same Python word count by a shell pipe, by Hadoop Streaming's local runner, and by `sailfish streaming`.
# The last two get the same command line.

scripts=$root/tests/test_data/streaming/03-wordcount-python/scripts
streaming_words() { # streaming_words INPUT: prints the command line after the name of the program
    echo "-files scripts/mapper.py,scripts/reducer.py -input $1 -output $work/out -mapper mapper.py -reducer reducer.py -numReduceTasks 2"
}

streaming_ours() {
    # shellcheck disable=SC2046
    measure "$(text_of text-500m)" 6000000000 env -C "$work/streaming" "$sailfish" streaming \
        $(streaming_words "$(text_of text-500m)") --no-sync $(ours "$memory_large")
    check_counts text-500m "$work"/out/part-*
}
streaming_pipe() {
    measure "$(text_of text-500m)" 6000000000 sh -c \
        'cat "$1" | python3 "$2/mapper.py" | LC_ALL=C sort -T "$3" | python3 "$2/reducer.py" > "$4"' pipe \
        "$(text_of text-500m)" "$work/streaming/scripts" "$work/temporary" "$work/out.txt"
    check_counts text-500m "$work/out.txt"
}
hadoop_streaming() { # hadoop_streaming INPUT
    echo "env -C $work/streaming WORK_DIR=$work/hadoop PAR=$cores $root/bench/peers/hadoop-streaming.sh $(streaming_words "$1")"
}
streaming_hadoop() {
    # shellcheck disable=SC2046
    measure "$(text_of text-500m)" 6000000000 $(hadoop_streaming "$(text_of text-500m)")
    check_counts text-500m "$work"/out/part-*
}
group_streaming() {
    echo "streaming: Python word count of 500 MB beside a pipe and Hadoop Streaming"
    ! complete streaming "$runs" pipe ours hadoop || return 0
    enough_disk streaming 7000000000 || return 0
    make_text text-500m 500000000 || { failed "streaming: the text cannot be made"; return 0; }
    rm -rf "$work/streaming"
    mkdir -p "$work/streaming"
    cp -r "$scripts" "$work/streaming/scripts"
    head -n 10 "$(text_of text-500m)" > "$inputs/ten.txt"
    local hadoop=
    # shellcheck disable=SC2046
    ! peer streaming hadoop setup-hadoop.sh "$peers_dir/hadoop/lib/.version" \
        $(hadoop_streaming "$inputs/ten.txt") || hadoop=hadoop
    # shellcheck disable=SC2086
    run_rounds streaming "$runs" pipe ours $hadoop
}
