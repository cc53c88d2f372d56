#!/usr/bin/env bash
# setup-hyperqueue.sh [DIR]  - HyperQueue from its Python package into a venv DIR/venv
# (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/hyperqueue).
# HYPERQUEUE_VERSION overrides the version. The package has no command hq, so hyperqueue_jobs.py starts server and worker by its
# LocalCluster.
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/hyperqueue}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q "hyperqueue${HYPERQUEUE_VERSION:+==$HYPERQUEUE_VERSION}"
"$DIR/venv/bin/python" -c 'import hyperqueue, importlib.metadata as m; print("hyperqueue", m.version("hyperqueue"))'
touch "$DIR/.installed"
