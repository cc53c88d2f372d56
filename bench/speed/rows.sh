# Sourced by bench/speed.sh: the groups that sort 100-byte rows. Every output is checked for order, count and checksum
# by `xtask check-rows`, which shares no code with the engine.

# A memory budget that holds the data, and a budget that does not (the smallest budget in a trial with small inputs).
memory_large=8G
memory_small=1G
[ "$scale" = 1 ] || memory_small=64M

# Makes one file, so that all contenders read the same input.
make_rows() { # make_rows NAME LAYOUT BYTES [--skewed]
    local file=$inputs/$1.rows layout=$2 rows=$(($3 / scale / 100))
    shift 3
    [ ! -f "$file.sums" ] || return 0
    rm -rf "$work/generated" "$file"
    # shellcheck disable=SC2046
    "$sailfish" tera gen --layout "$layout" "$@" --rows "$rows" --output "$work/generated" --no-sync $(ours 1G) \
        > "$work/log.txt" 2>&1 || { tail -n 5 "$work/log.txt" >&2; return 1; }
    # Each part is removed after it is copied, because the disk does not hold the largest input twice.
    for part in "$work"/generated/part-*; do
        cat "$part" >> "$file"
        rm "$part"
    done
    rm -rf "$work/generated"
    [ "$(stat -c %s "$file")" = $((rows * 100)) ] || return 1
    "$xtask" check-rows --any-order "$file" > "$file.sums.new" && mv "$file.sums.new" "$file.sums"
}

forget_rows() { # forget_rows NAME...: removes inputs that no later group needs
    local name
    for name in "$@"; do rm -f "$inputs/$name.rows" "$inputs/$name.rows.sums"; done
}

rows_of() { echo "$inputs/$1.rows"; }

check_rows() { # check_rows NAME [FLAG...] FILE...
    local expected found
    expected=$(cat "$inputs/$1.rows.sums")
    shift
    found=$("$xtask" check-rows "$@" 2>> "$work/log.txt") || return 1
    [ "$found" = "$expected" ] || { echo "rows and checksum are $found, not $expected" >> "$work/log.txt"; return 1; }
}

tera_sort() { # tera_sort NAME MEMORY TOUCH [OPTION...]
    local name=$1 memory=$2 touch_bytes=$3
    shift 3
    # shellcheck disable=SC2046
    measure "$(rows_of "$name")" "$touch_bytes" "$sailfish" tera sort --input "$(rows_of "$name")" --output "$work/out" \
        $(ours "$memory") "$@"
    check_rows "$name" "$work"/out/part-*
}

# 2 GB in memory, compared with the plain reference; and skewed rows, compared with uniform rows.
tera_ours() { tera_sort modern-2g "$memory_large" 8000000000 --no-sync; }
tera_skewed() { tera_sort skewed-2g "$memory_large" 8000000000 --no-sync; }
tera_reference() {
    measure "$(rows_of modern-2g)" 8000000000 \
        "$xtask" sort-reference --input "$(rows_of modern-2g)" --output "$work/out.rows"
    check_rows modern-2g "$work/out.rows"
}
group_tera() {
    echo "tera: 2 GB in memory, to the page cache"
    ! complete tera "$runs" reference ours skewed || return 0
    enough_disk tera 7000000000 || return 0
    make_rows modern-2g modern 2000000000 && make_rows skewed-2g modern 2000000000 --skewed ||
        { failed "tera: the inputs cannot be made"; return 0; }
    run_rounds tera "$runs" reference ours skewed
    forget_rows skewed-2g
}

# The memory of a job with the smallest budget.
memory_64m() { tera_sort modern-2g 64M 4000000000 --no-sync; }
group_memory() {
    echo "memory: 2 GB with the smallest budget"
    ! complete memory $((runs < 3 ? runs : 3)) 64m || return 0
    enough_disk memory 8000000000 || return 0
    make_rows modern-2g modern 2000000000 || { failed "memory: the input cannot be made"; return 0; }
    run_rounds memory $((runs < 3 ? runs : 3)) 64m
    forget_rows modern-2g
}

# Lines, for peers that sort lines. GNU sort gets huge pages, which save a fifth of its time.
ascii_ours() { tera_sort ascii-2g "$memory_large" 8000000000 --no-sync; }
ascii_gnu_sort() {
    measure "$(rows_of ascii-2g)" 8000000000 env LC_ALL=C GLIBC_TUNABLES=glibc.malloc.hugetlb=1 \
        sort -S 8G --parallel="$cores" -T "$work/temporary" -o "$work/out.rows" "$(rows_of ascii-2g)"
    check_rows ascii-2g "$work/out.rows"
}
duckdb_python=$peers_dir/duckdb/venv/bin/python
duckdb_jobs() { "$duckdb_python" "$root/bench/peers/duckdb_jobs.py" "$@"; }
ascii_duckdb() {
    measure "$(rows_of ascii-2g)" 8000000000 "$duckdb_python" "$root/bench/peers/duckdb_jobs.py" sort \
        "$(rows_of ascii-2g)" "$work/out.rows" "$cores"
    check_rows ascii-2g --without-cr "$work/out.rows"
}
group_ascii() {
    echo "ascii: 2 GB of lines beside GNU sort and DuckDB, to the page cache"
    ! complete ascii "$runs" gnu-sort ours duckdb || return 0
    enough_disk ascii 9000000000 || return 0
    make_rows ascii-2g ascii 2000000000 || { failed "ascii: the input cannot be made"; return 0; }
    head -n 10 "$(rows_of ascii-2g)" > "$inputs/ten.txt"
    local duckdb=
    ! peer ascii duckdb setup-duckdb.sh "$duckdb_python" duckdb_jobs sort "$inputs/ten.txt" "$work/out.rows" 1 ||
        duckdb=duckdb
    # shellcheck disable=SC2086
    run_rounds ascii "$runs" gnu-sort ours $duckdb
    forget_rows ascii-2g
}

# Spark, in one JVM with the same memory as the other contenders.
spark() { # spark JOB INPUT OUTPUT
    echo "env DRIVER_MEM=8g RSS_TREE=no KEEP=1 WORK_DIR=$work/spark $root/bench/peers/spark-run.sh java local[$cores] $1 $2 $3"
}
spark_sort_ours() { tera_sort modern-1g "$memory_large" 4000000000 --no-sync; }
spark_sort_spark() {
    # shellcheck disable=SC2046
    measure "$(rows_of modern-1g)" 8000000000 $(spark sort "$(rows_of modern-1g)" "$work/out")
    check_rows modern-1g "$work"/out/part-*
}
group_spark_sort() {
    echo "spark-sort: 1 GB beside Spark, to the page cache"
    ! complete spark-sort "$runs" ours spark || return 0
    enough_disk spark-sort 6000000000 || return 0
    make_rows modern-1g modern 1000000000 || { failed "spark-sort: the input cannot be made"; return 0; }
    head -c 10000 "$(rows_of modern-1g)" > "$inputs/hundred.rows"
    local contender=
    # shellcheck disable=SC2046
    ! peer spark-sort spark setup-spark.sh "$peers_dir/spark/spark-home" \
        $(spark sort "$inputs/hundred.rows" "$work/out") || contender=spark
    # shellcheck disable=SC2086
    run_rounds spark-sort "$runs" ours $contender
    forget_rows modern-1g
}

# An input larger than the budget; the time includes making the output durable.
external_ours() { tera_sort modern-8g "$memory_small" 10000000000; }
external_cp() {
    measure "$(rows_of modern-8g)" 10000000000 sh -c 'cp "$1" "$2" && sync "$2"' cp "$(rows_of modern-8g)" "$work/out.rows"
    check_rows modern-8g --any-order "$work/out.rows"
}
group_external() {
    echo "external: 8 GB with $memory_small, durable"
    ! complete external "$runs" cp ours || return 0
    forget_rows modern-2g modern-1g
    enough_disk external 26000000000 || return 0
    make_rows modern-8g modern 8000000000 || { failed "external: the input cannot be made"; return 0; }
    run_rounds external "$runs" cp ours
    forget_rows modern-8g
}

# The growth of the costs with the data.
growth_3g() { tera_sort modern-3g "$memory_small" 10000000000; }
growth_12g() { tera_sort modern-12g "$memory_small" 10000000000; }
group_growth() {
    echo "growth: 3 GB and 12 GB with $memory_small, durable"
    ! complete growth $((runs < 3 ? runs : 3)) 3g 12g || return 0
    forget_rows modern-2g modern-8g
    enough_disk growth 40000000000 || return 0
    make_rows modern-3g modern 3000000000 && make_rows modern-12g modern 12000000000 ||
        { failed "growth: the inputs cannot be made"; return 0; }
    run_rounds growth $((runs < 3 ? runs : 3)) 3g 12g
    forget_rows modern-3g modern-12g
}
