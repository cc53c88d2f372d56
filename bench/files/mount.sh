# Rows of bench/files.sh about `sailfish mount`; sourced. The large file lies in the store of this machine.

mounted() { # mounted COMMAND...: runs a command while the files are mounted at $work/mounted
    local process status=0
    mkdir -p "$work/mounted"
    "$sailfish" mount --state "$work/state" "$work/mounted" 2> "$work/mount.log" &
    process=$!
    until grep -q "mounted at" "$work/mount.log"; do kill -0 "$process"; sleep 0.05; done
    "$@" || status=$?
    kill -INT "$process"
    wait "$process"
    return "$status"
}
forget_pages() { # nothing of the disk is cached, as when a program first meets a file
    sync
    echo 3 > /proc/sys/vm/drop_caches
}
reads_of_mount() { # reads_of_mount ROUND
    forget_pages
    timed "mount, first read" "$1" ours cat "$work/mounted/large"
    timed "mount, second read" "$1" ours cat "$work/mounted/large"
    cat "$work/in/large" > /dev/null
    timed "mount, second read" "$1" cp cat "$work/in/large"
}
each_of_mount() { # each_of_mount ROUND
    mounted reads_of_mount "$1"
    forget_pages
    timed "mount, first read" "$1" cp store cat large
    # What the store has on its disk is in the page cache: the mount alone is measured.
    store cat large > /dev/null
    timed "mount, first read, cached" "$1" cp store cat large
    mounted timed "mount, first read, cached" "$1" ours cat "$work/mounted/large"
}
mount_rows() {
    if ! [ -w /dev/fuse ] || ! [ -w /proc/sys/vm/drop_caches ]; then
        echo "the rows of the mount need root and /dev/fuse: they did not run"
        return
    fi
    store put "$work/in/large" large
    for round in $(seq "$runs"); do each_of_mount "$round"; done
    store rm large
}
print_mount_rows() {
    grep -q "^mount" "$work/rows" || return 0
    print_row "mount, second read" "mount: second read / file in the page cache" 0.6 0.85
    print_row "mount, first read" "mount: first read / files cat, from the disk" 0.8 0.95
    print_row "mount, first read, cached" "mount: first read / files cat, disk in memory" 0 0.95
}
