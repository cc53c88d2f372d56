# Sourced by bench/speed.sh: the groups that count words. `xtask gen-text` makes the text, `xtask check-counts` compares
# the sums of every output with those of the text.

# Collects the sources of all packages in the lock file.
make_corpus() {
    local lock
    lock=$(sha256sum < "$root/Cargo.lock")
    [ "$(cat "$work/corpus.lock" 2> /dev/null)" != "$lock" ] || return 0
    cargo fetch --quiet --locked --manifest-path "$root/Cargo.toml" > "$work/log.txt" 2>&1 || return 1
    "$root/demo/corpus.sh" "$work/corpus" >> "$work/log.txt" 2>&1 || return 1
    echo "$lock" > "$work/corpus.lock"
}

make_text() { # make_text NAME BYTES
    local file=$inputs/$1.txt
    [ ! -f "$file.sums" ] || return 0
    make_corpus || return 1
    "$xtask" gen-text --bytes $(($2 / scale)) --corpus "$work/corpus" --out "$file" 2> "$work/log.txt" || return 1
    "$xtask" count-words "$file" > "$file.sums.new" && mv "$file.sums.new" "$file.sums"
}

text_of() { echo "$inputs/$1.txt"; }

check_counts() { # check_counts NAME FILE...
    compare_sums "$inputs/$1.txt.sums" 1-3 "${@:2}"
}

# The pairs are not counted, so there are more lines than distinct words.
check_pairs() { # check_pairs NAME FILE...
    compare_sums "$inputs/$1.txt.sums" 1,3 "${@:2}"
}

compare_sums() { # compare_sums SUMS COLUMNS FILE...
    local expected found
    expected=$(cut -f "$2" "$1")
    found=$("$xtask" check-counts "${@:3}" 2>> "$work/log.txt") || return 1
    found=$(cut -f "$2" <<< "$found")
    [ "$found" = "$expected" ] || { echo "words and checksum are $found, not $expected" >> "$work/log.txt"; return 1; }
}

# The built-in functions, with combining.
words_ours() {
    # shellcheck disable=SC2046
    measure "$(text_of text-1g)" 6000000000 "$sailfish" run --input "$(text_of text-1g)" --mapper builtin:words \
        --reducer builtin:sum --output "$work/out" --no-sync $(ours "$memory_large")
    check_counts text-1g "$work"/out/part-*
}
words_spark() {
    # shellcheck disable=SC2046
    measure "$(text_of text-1g)" 8000000000 $(spark wc "$(text_of text-1g)" "$work/out")
    check_counts text-1g "$work"/out/part-*
}
words_duckdb() {
    measure "$(text_of text-1g)" 8000000000 "$duckdb_python" "$root/bench/peers/duckdb_jobs.py" words \
        "$(text_of text-1g)" "$work/out.txt" "$cores"
    check_counts text-1g "$work/out.txt"
}
group_words() {
    echo "words: counts of 1 GB of text beside Spark and DuckDB, to the page cache"
    ! complete words "$runs" ours spark duckdb || return 0
    enough_disk words 5000000000 || return 0
    make_text text-1g 1000000000 || { failed "words: the text cannot be made"; return 0; }
    local peers=
    head -n 10 "$(text_of text-1g)" > "$inputs/ten.txt"
    # shellcheck disable=SC2046
    ! peer words spark setup-spark.sh "$peers_dir/spark/spark-home" \
        $(spark wc "$inputs/ten.txt" "$work/out") || peers=spark
    ! peer words duckdb setup-duckdb.sh "$duckdb_python" duckdb_jobs words "$inputs/ten.txt" "$work/out.txt" 1 ||
        peers="$peers duckdb"
    # shellcheck disable=SC2086
    run_rounds words "$runs" ours $peers
}

# Without a reducer nothing is combined: every word is shuffled and written as a sorted pair.
shuffle_ours() {
    # shellcheck disable=SC2046
    measure "$(text_of text-1g)" 9000000000 "$sailfish" run --input "$(text_of text-1g)" --mapper builtin:words \
        --output "$work/out" --no-sync $(ours "$memory_large")
    check_pairs text-1g "$work"/out/part-*
}
group_shuffle() {
    echo "shuffle: the words of 1 GB of text without combining, to the page cache"
    ! complete shuffle "$runs" ours || return 0
    enough_disk shuffle 7000000000 || return 0
    make_text text-1g 1000000000 || { failed "shuffle: the text cannot be made"; return 0; }
    run_rounds shuffle "$runs" ours
}

# A job on a tiny input, durable by default: the costs of starting and ending a job.
small_ours() {
    # shellcheck disable=SC2046
    measure "$(text_of text-1k)" 200000000 "$sailfish" run --input "$(text_of text-1k)" --mapper builtin:words \
        --reducer builtin:sum --output "$work/out" $(ours "$memory_large")
    check_counts text-1k "$work"/out/part-*
}
group_small() {
    echo "small: a job on 1 KB, 21 rounds"
    ! complete small 21 ours || return 0
    # make_text divides sizes by the scale, but this text always has the same size.
    make_text text-1k $((1000 * scale)) || { failed "small: the text cannot be made"; return 0; }
    run_rounds small 21 ours
}
