#!/bin/sh
# Copies real text to DIR: the Rust sources of our dependencies that cargo has unpacked, or ours where it has unpacked none.
# Prints the number of files and their size. Refuses a directory that it did not make.
#
#     demo/corpus.sh DIR
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:?name a directory}
# Begins with `_`, so it is never taken for data.
marker=_demo-corpus

if [ -e "$dir" ] && [ ! -e "$dir/$marker" ]; then
    echo "$dir exists and was not made by demo/corpus.sh: remove it or name another directory" >&2
    exit 1
fi
rm -rf "$dir"
mkdir -p "$dir"
echo "made by demo/corpus.sh" > "$dir/$marker"
dir=$(cd "$dir" && pwd)

# Copies the .rs files of PACKAGE..., directories below the current one; links are left alone.
copy() {
    find "$@" -name '*.rs' -type f | LC_ALL=C sort | tar -cf - --files-from - | tar -xf - -C "$dir"
}

# The directories NAME-VERSION of the packages that the lock file takes from a registry.
packages=$(awk -F '"' '/^name = / { name = $2 } /^version = / { version = $2 } /^source = "registry/ { print name "-" version }' \
    "$root/Cargo.lock")
for registry in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
    [ -d "$registry" ] || continue
    cd "$registry"
    unpacked=$(for package in $packages; do [ ! -d "$package" ] || echo "$package"; done)
    # Names of packages have no blanks.
    # shellcheck disable=SC2086
    [ -z "$unpacked" ] || copy $unpacked
done
cd "$root"
[ -n "$(find "$dir" -name '*.rs' | head -n 1)" ] || copy crates xtask/src tests/src tests/tests
find "$dir" -name '*.rs' -type f -printf '%s\n' |
    awk '{ bytes += $1 } END { printf "%d files, %.1f MB: Rust sources\n", NR, bytes / 1e6 }'
