# Sourced by bench/cluster.sh: the rows about data transfer. Two nodes with one slot each are compared with the embedded engine with two
# slots.

ROWS_OF_2_GB=20000000
FILES_OF_A_PLAN=100000
ROUNDS=3

serve_data() { # serve_data SERVER_OPTION...
    rm -rf "$work/data" "$work"/data-disk-*
    serve --state "$work/data" "$@"
    if [ -s "$work/data/admin.token" ]; then
        export SAILFISH_TOKEN_FILE=$work/data/admin.token
    fi
    local number
    for number in 1 2; do
        : > "$work/node-$number.log"
        "$sailfish" node --server "$url" --slots 1 --memory 8G --disk "$work/data-disk-$number" 2> "$work/node-$number.log" &
        nodes="$nodes $!"
        until grep -q joined "$work/node-$number.log"; do sleep 0.02; done
    done
}
stop_data() {
    stop_server
    unset SAILFISH_TOKEN_FILE
}

seconds_of() { # seconds_of COMMAND...: prints its wall seconds
    local began
    began=$(date +%s.%N)
    "$@" > "$work/out" 2> "$work/log.txt" || { cat "$work/log.txt" >&2; return 1; }
    echo "$(date +%s.%N) $began" | awk '{ printf "%.3f\n", $1 - $2 }'
}

# Prints the user and system seconds of the server and the nodes so far.
cpu_seconds() {
    local pid
    for pid in $server $nodes; do cut -d ')' -f 2 "/proc/$pid/stat"; done |
        awk -v hertz="$(getconf CLK_TCK)" '{ sum += $12 + $13 } END { printf "%.2f\n", sum / hertz }'
}

median() { sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# Before each run: writes all dirty pages, and reads the input into the page cache.
settle() {
    rm -rf "$work/sorted"
    sync
    cat "$work"/rows/part-* > /dev/null
}

sort_embedded() {
    settle
    seconds_of "$sailfish" tera sort --state "$work/embedded" --memory 8G --slots 2 --no-sync \
        --input "$work/rows" --output "$work/sorted"
}
sort_in_cluster() {
    settle
    seconds_of "$sailfish" tera sort --server "$url" --memory 8G --no-sync --input "$work/rows" --output "$work/sorted"
}

rows_of_2_gb() {
    [ -d "$work/rows" ] || "$sailfish" tera gen --state "$work/embedded" --layout modern \
        --rows $((ROWS_OF_2_GB * scale_percent / 100)) --output "$work/rows" --no-sync > /dev/null 2>&1
}

group_sort() {
    rows_of_2_gb
    serve_data
    local round
    : > "$work/embedded.txt"
    : > "$work/cluster.txt"
    for round in $(seq $ROUNDS); do
        sort_embedded >> "$work/embedded.txt"
        sort_in_cluster >> "$work/cluster.txt"
    done
    "$sailfish" tera validate --state "$work/embedded" "$work/sorted" > "$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    stop_data
    row "tera sort 2 GB, two nodes / embedded" \
        "$(echo "$(median < "$work/cluster.txt") $(median < "$work/embedded.txt")" | awk '{ printf "%.2f", $1 / $2 }')" ratio 2.0
}

# The same sort with and without TLS between server and nodes.
group_tls() {
    rows_of_2_gb
    local kind before plain=0 secret=0
    for kind in plain secret; do
        case $kind in
            plain) serve_data --require-tokens --allow-root "$work" ;;
            secret) serve_data --require-tokens --tls --allow-root "$work" ;;
        esac
        local round
        : > "$work/$kind.txt"
        for round in $(seq $ROUNDS); do
            before=$(cpu_seconds)
            sort_in_cluster > /dev/null
            echo "$(cpu_seconds) $before" | awk '{ print $1 - $2 }' >> "$work/$kind.txt"
        done
        stop_data
    done
    plain=$(median < "$work/plain.txt") secret=$(median < "$work/secret.txt")
    row "TLS on / off, CPU seconds of that sort" "$(echo "$secret $plain" | awk '{ printf "%.2f", $1 / $2 }')" ratio 1.25
    rm -rf "$work/sorted"
}

# The time from the start of the command to the first assigned map task.
group_plan() {
    local files=$((FILES_OF_A_PLAN * scale_percent / 100)) began first
    mkdir -p "$work/files"
    seq "$files" | (cd "$work/files" && split -l 1 -a 6 --numeric-suffixes)
    serve_data
    began=$(date +%s%N)
    seconds_of "$sailfish" run --server "$url" --input "$work/files" --mapper builtin:words --reducer builtin:sum \
        --output "$work/sorted" > /dev/null
    first=$("$sailfish" state --server "$url" --json "select min(assigned_ns) as first_ns from attempts" | tr -dc '0-9')
    stop_data
    row "plan of a job over $files files" "$(echo "$first $began" | awk '{ printf "%.2f", ($1 - $2) / 1e9 }')" s 2
    rm -rf "$work/files" "$work/sorted"
}

# Clustera, section 4.2.1: the time to group intermediate data, and whether it depends only on the data per node.
SHUFFLED_MB_PER_NODE="68 314 560 805"
group_shuffle() {
    serve_data
    : > "$work/shuffle.txt"
    local megabytes bytes round
    for round in $(seq $ROUNDS); do
        # The largest run is done once without timing, because it touches memory that the host may have reclaimed.
        bytes=$((${SHUFFLED_MB_PER_NODE##* } * 1000000 * scale_percent / 100))
        "$sailfish" bench shuffle --server "$url" --maps 2 --bytes-per-map "$bytes" --memory 4G > "$work/out" 2>&1
        for megabytes in $SHUFFLED_MB_PER_NODE; do
            bytes=$((megabytes * 1000000 * scale_percent / 100))
            sync
            echo "$megabytes $(seconds_of "$sailfish" bench shuffle --server "$url" --maps 2 --bytes-per-map "$bytes" --memory 4G)" \
                >> "$work/shuffle.txt"
        done
    done
    stop_data
    for megabytes in $SHUFFLED_MB_PER_NODE; do
        echo "$megabytes $(awk -v megabytes="$megabytes" '$1 == megabytes { print $2 }' "$work/shuffle.txt" | median)"
    done > "$work/medians.txt"
    while read -r megabytes seconds; do row "group-by, $megabytes MB per node" "$seconds" s -; done < "$work/medians.txt"
    awk '{ n++; x += $1; y += $2; xx += $1 * $1; yy += $2 * $2; xy += $1 * $2 }
        END {
            covariance = n * xy - x * y
            printf "%.2f %.4f\n", covariance / (n * xx - x * x) * 1000, covariance ^ 2 / ((n * xx - x * x) * (n * yy - y * y))
        }' "$work/medians.txt" > "$work/line.txt"
    row "group-by, seconds for each further GB per node" "$(cut -d ' ' -f 1 "$work/line.txt")" s -
    row "group-by, share of the time that a line explains" "$(cut -d ' ' -f 2 "$work/line.txt")" r2 0.98
}

# A whole job: words of a text, without combining. Each of two nodes appends half of its records to the other node. Cluster and embedded
# engine have the same total memory.
count_words() { # count_words OUTPUT OPTION...
    rm -rf "$work/$1"
    "$sailfish" run --input "$work/text" --mapper builtin:words --slots 2 --no-sync --output "$work/$1" "${@:2}" \
        > "$work/out" 2> "$work/log.txt" || { cat "$work/log.txt" >&2; exit 1; }
}
words_in_cluster() {
    local bytes=$((300000000 * scale_percent / 100)) sources before round
    sources=$(cat "$root"/crates/*/src/*.rs | wc -c)
    for _ in $(seq $((bytes / sources + 1))); do cat "$root"/crates/*/src/*.rs; done > "$work/text"
    serve_data
    : > "$work/embedded.txt"
    : > "$work/cluster.txt"
    for round in $(seq 0 $ROUNDS); do
        # The first round is a warm-up: see group_append.
        [ "$round" != 1 ] || { : > "$work/embedded.txt"; : > "$work/cluster.txt"; }
        { TIMEFORMAT='%U %S'; time count_words words-embedded --state "$work/embedded" --memory 2G; } 2> "$work/time.txt"
        awk '{ print $1 + $2 }' "$work/time.txt" >> "$work/embedded.txt"
        before=$(cpu_seconds)
        count_words words-cluster --server "$url" --memory 1G
        echo "$(cpu_seconds) $before" | awk '{ print $1 - $2 }' >> "$work/cluster.txt"
        # A different memory budget gives different I-files and another order of the parts, so the outputs are compared sorted.
        [ "$(cat "$work"/words-embedded/part-* | wc -c)" = "$(cat "$work"/words-cluster/part-* | wc -c)" ] ||
            { echo "words: the outputs differ" >&2; exit 1; }
    done
    row "words without combining, two nodes / embedded, CPU seconds" \
        "$(echo "$(median < "$work/cluster.txt") $(median < "$work/embedded.txt")" | awk '{ printf "%.2f", $1 / $2 }')" ratio -
    stop_data
    rm -rf "$work"/words-* "$work/text"
}

# The cost of a map task that appends to a remote chunkserver, compared with a chunkserver in its own process.
group_append() {
    cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p dataport --example speed
    local place round
    for place in here there; do : > "$work/$place.txt"; done
    # The host may have reclaimed idle memory, so a warm-up round touches it first.
    for round in $(seq 0 $ROUNDS); do
        for place in here there; do
            [ "$round" != 1 ] || : > "$work/$place.txt"
            (cd "$work" && "$target/release/examples/speed" "$place" $((10000000 * scale_percent))) |
                awk '$1 == "append" || $1 == "seal" { sum += $3 } END { print sum }' >> "$work/$place.txt"
        done
    done
    row "map phase, appending over HTTP / in process, CPU seconds" \
        "$(echo "$(median < "$work/there.txt") $(median < "$work/here.txt")" | awk '{ printf "%.2f", $1 / $2 }')" ratio 1.6
    words_in_cluster
}
