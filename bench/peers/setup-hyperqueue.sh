#!/usr/bin/env bash
# setup-hyperqueue.sh [DIR]  - HyperQueue from its Python package into a venv DIR/venv (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/hyperqueue).
# HYPERQUEUE_VERSION overrides the version. Afterwards DIR/venv/bin/hq is server, worker and client.
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/hyperqueue}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q "hyperqueue${HYPERQUEUE_VERSION:+==$HYPERQUEUE_VERSION}"
"$DIR/venv/bin/hq" --version
