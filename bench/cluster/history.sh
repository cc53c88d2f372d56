# Sourced by bench/cluster.sh: the rate of jobs with ten million finished jobs in the store, which are bulk copies of a thousand real jobs.

HISTORY_JOBS=10000000
HISTORY_MODEL_JOBS=1000
HISTORY_MEASURED_JOBS=200000
HISTORY_ROUNDS=3
# That of PostgreSQL with its log.
SQLITE_BYTES_PER_JOB=1700
POSTGRES_BYTES_PER_JOB=3500

measured_rate() { # measured_rate SERVER_OPTION...: appends the rate of no-op jobs, per second, to the file rates
    serve "$@"
    "$sailfish" bench jobs --server "$url" --jobs $((HISTORY_MEASURED_JOBS * scale_percent / 100)) > "$work/out"
    stop_server
    rate_of >> "$rates"
}

# Checks that all jobs exist, and that the listed jobs and one job among the copies can be shown.
check_history() { # check_history COUNT
    [ "$("$sailfish" state --server "$url" --json "select count(*) as jobs from jobs" | tr -dc '0-9')" = "$1" ] ||
        { echo "history: the store does not have $1 jobs" >&2; exit 1; }
    "$sailfish" jobs --server "$url" > "$work/out" 2>&1 && [ "$(grep -c succeeded "$work/out")" = 20 ] &&
        "$sailfish" show --server "$url" $(($1 / 2)) > "$work/out" 2>&1 && grep -q succeeded "$work/out" ||
        { cat "$work/out" >&2; exit 1; }
}

# OPTIONS_OF, LOAD and FORGET are functions: OPTIONS_OF prints the server's options for the store `full` or `empty`, LOAD loads a number of
# copies into the full store, and FORGET empties a store.
compare_history() { # compare_history NAME OPTIONS_OF LOAD FORGET
    local name=$1 options_of=$2 load=$3 forget=$4 round began count=$((HISTORY_JOBS * scale_percent / 100)) rates
    serve $($options_of full)
    "$sailfish" bench jobs --server "$url" --jobs $HISTORY_MODEL_JOBS > "$work/out"
    stop_server
    $load $((count / HISTORY_MODEL_JOBS - 1)) > "$work/load.txt" 2>&1 || { tail -n 5 "$work/load.txt" >&2; exit 1; }
    sync
    began=$(date +%s.%N)
    serve $($options_of full)
    row "server up, $count jobs in the history, $name" "$(echo "$(date +%s.%N) $began" | awk '{ printf "%.2f", $1 - $2 }')" s -
    check_history "$count"
    stop_server
    : > "$work/empty.txt"
    : > "$work/full.txt"
    for round in $(seq $HISTORY_ROUNDS); do
        $forget empty
        rates=$work/empty.txt measured_rate $($options_of empty)
        rates=$work/full.txt measured_rate $($options_of full)
    done
    row "no-op jobs, empty history, $name" "$(median < "$work/empty.txt")" jobs/s -
    row "no-op jobs, $count in the history, $name" "$(median < "$work/full.txt")" jobs/s -
    row "no-op jobs, with history / empty, $name" \
        "$(echo "$(median < "$work/full.txt") $(median < "$work/empty.txt")" | awk '{ printf "%.2f", $1 / $2 }')" times 0.9
}

sqlite_options() { echo "--state $work/history-$1"; }
sqlite_load() { # sqlite_load COPIES
    python3 - "$work/history-full/sailfish.db" "$1" "$root/bench/cluster/history-sqlite.sql" <<'PYTHON'
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("CREATE TEMP TABLE asked AS SELECT ? AS copies", (int(sys.argv[2]),))
database.executescript(open(sys.argv[3]).read())
assert database.execute("SELECT count(*) FROM jobs WHERE cleaned_ns IS NULL").fetchone() == (0,)
database.close()
PYTHON
}
sqlite_forget() { rm -rf "$work/history-$1"; }

postgres_options() { echo "--state $work/history-$1 --database ${postgres_url%/*}/history_$1"; }
postgres_sql() { # postgres_sql DATABASE PSQL_OPTION...
    local database=$1
    shift
    "$postgres_programs/psql" -X -q -v ON_ERROR_STOP=1 "${postgres_url%/*}/$database" "$@"
}
postgres_load() { postgres_sql history_full -v copies="$1" -f "$root/bench/cluster/history-postgres.sql"; }
postgres_forget() {
    rm -rf "$work/history-$1"
    postgres_sql postgres -c "DROP DATABASE IF EXISTS history_$1" -c "CREATE DATABASE history_$1" > "$work/log.txt" 2>&1 ||
        { cat "$work/log.txt" >&2; exit 1; }
}

has_room_for_history() {
    local needed=$((HISTORY_JOBS * scale_percent / 100 * $1 / 1000000000)) free
    # If they are on two file systems, the smaller free space counts.
    free=$(df -Pk "$work" "${TMPDIR:-/tmp}" | awk 'NR > 1 { print int($4 * 1024 / 1e9) }' | sort -n | head -n 1)
    [ "$free" -ge "$needed" ] || { echo "history: not run: it needs $needed GB, and $free GB are free"; return 1; }
}

group_history_sqlite() {
    has_room_for_history $SQLITE_BYTES_PER_JOB || return 0
    compare_history SQLite sqlite_options sqlite_load sqlite_forget
    rm -rf "$work/history-full" "$work/history-empty"
}

group_history_postgresql() {
    has_room_for_history $POSTGRES_BYTES_PER_JOB || return 0
    postgres_start "$work" shared_buffers=1GB max_wal_size=8GB || { echo "history, PostgreSQL: not run"; return 0; }
    postgres_forget full
    compare_history PostgreSQL postgres_options postgres_load postgres_forget
    postgres_stop
}
