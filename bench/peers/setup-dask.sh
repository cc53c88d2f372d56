#!/usr/bin/env bash
# setup-dask.sh [DIR]  - Dask from its Python package into a venv DIR/venv (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/dask).
# DASK_VERSION overrides the version. Afterwards DIR/venv/bin/python has the module `dask.bag`.
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/dask}
V=${DASK_VERSION:-}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q "dask[bag]${V:+==$V}"
"$DIR/venv/bin/python" -c 'import dask, dask.bag; print("dask", dask.__version__, dask.bag.from_sequence(range(10)).sum().compute(scheduler="sync"))'
