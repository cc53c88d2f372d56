# A PostgreSQL of one's own, to be sourced: `postgres_start DIR SETTING...` makes one below DIR and sets `postgres_url`,
# `postgres_stop` ends it. Where there is no PostgreSQL to start, postgres_start fails and says so.
# It refuses to run as root: then it runs as the user postgres, which its package makes.

postgres_dir='' postgres_url=''

postgres_as_user() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi
}

postgres_start() {
    local dir=$1 setting settings=''
    shift
    # The newest version that a distribution keeps, or one of PATH.
    postgres_programs=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)
    [ -n "$postgres_programs" ] || postgres_programs=$(dirname "$(command -v initdb || echo /none)")
    if [ ! -x "$postgres_programs/initdb" ]; then
        echo "there is no PostgreSQL (initdb, pg_ctl): install the package postgresql" >&2
        return 1
    fi
    # The path of a socket has hardly more than a hundred bytes, so that it does not lie below DIR.
    postgres_dir=$(mktemp -d "${TMPDIR:-/tmp}/sailfish-postgres-XXXXXX")
    [ "$(id -u)" != 0 ] || chown postgres "$postgres_dir"
    mkdir -p "$dir"
    for setting in "$@"; do settings="$settings -c $setting"; done
    postgres_as_user "$postgres_programs/initdb" -D "$postgres_dir/data" -U sailfish -A trust -E UTF8 --locale=C \
        > "$dir/initdb.log"
    # A port that is free now may be taken a moment later: then another one is tried.
    local port
    for port in ${PGPORT:-54391 54411 54431 54451 54471}; do
        if postgres_as_user "$postgres_programs/pg_ctl" -D "$postgres_dir/data" -l "$postgres_dir/log" -w -o "-p $port \
            -k $postgres_dir -c listen_addresses=127.0.0.1 $settings" start > "$dir/pg_ctl.log"; then
            postgres_url="postgres://sailfish@127.0.0.1:$port/postgres"
            return 0
        fi
    done
    cat "$postgres_dir/log" >&2
    return 1
}

postgres_stop() {
    [ -n "$postgres_dir" ] || return 0
    postgres_as_user "$postgres_programs/pg_ctl" -D "$postgres_dir/data" -m fast -w stop > /dev/null 2>&1 || true
    rm -rf "$postgres_dir"
    postgres_dir=''
}
