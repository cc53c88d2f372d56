#!/bin/sh
# Checks our dependencies: licences, sources, wildcards and advisories (cargo-deny, deny.toml), and whether each is used
# (cargo-machete). A check that cannot run here is said in SKIPPED. Both programs are on PATH where `make tools` could install them.
#
#     tests/ledger/dependencies.sh SKIPPED
set -eu
skipped=$1

if command -v cargo-deny > /dev/null; then
    cargo deny --log-level error --locked check --hide-inclusion-graph licenses bans sources
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    if cargo deny --log-level error --locked check --hide-inclusion-graph advisories > "$said" 2>&1; then
        cat "$said"
    elif grep -q "failed to fetch advisory database" "$said"; then
        echo "cargo deny: advisories were not checked: their database cannot be reached" | tee -a "$skipped"
    else
        cat "$said" >&2
        exit 1
    fi
fi
if command -v cargo-machete > /dev/null; then
    cargo machete
fi
