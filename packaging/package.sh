#!/bin/sh
# Makes the packages of this version: DIR/sailfish-VERSION-ARCH-linux.tar.gz with the stripped program, and
# DIR/sailfish-VERSION-ARCH-linux-debug.tar.gz with its debug information, by which gdb, perf and addr2line find lines of source.
#
#     packaging/package.sh PROFILE DIR
#
# PROFILE: of cargo; release for what is given to others. Environment: CARGO_TARGET_DIR.
set -eu
cd "$(dirname "$0")/.."
profile=$1 dir=$2
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
for tool in objcopy strip; do
    command -v $tool > /dev/null || { echo "there is no $tool: install the package binutils" >&2; exit 1; }
done

# Lines of source, and no more: enough for backtraces and profiles. Other release builds have none.
built=$(CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --profile "$profile" --locked --package cli \
    --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/sailfish\)".*/\1/p')
name=sailfish-$("$built" --version | awk '{ print $2; exit }')-$(uname -m)-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/$name" "$work/$name-debug"
objcopy --only-keep-debug "$built" "$work/$name-debug/sailfish.debug"
strip --strip-all -o "$work/$name/sailfish" "$built"
# The stripped program names its debug file and that file's checksum.
(cd "$work/$name-debug" && objcopy --add-gnu-debuglink=sailfish.debug "../$name/sailfish")
cp LICENSE README.md packaging/THIRD-PARTY.md "$work/$name/"
cargo run --quiet --locked --package xtask -- licences --texts "$work/$name/THIRD-PARTY-LICENCES.txt"
for package in "$name" "$name-debug"; do
    tar -czf "$dir/$package.tar.gz" -C "$work" "$package"
    ls -l "$dir/$package.tar.gz" | awk '{ printf "%s, %.1f MB\n", $NF, $5 / 1e6 }'
done
