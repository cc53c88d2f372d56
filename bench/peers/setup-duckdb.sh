#!/usr/bin/env bash
# setup-duckdb.sh [DIR]  - DuckDB from its Python package into a venv DIR/venv (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/duckdb).
# DUCKDB_VERSION overrides the version. Afterwards DIR/venv/bin/python has the module `duckdb`.
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/duckdb}
V=${DUCKDB_VERSION:-2.0.0}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q "duckdb==$V"
"$DIR/venv/bin/python" -c 'import duckdb; print("duckdb", duckdb.__version__, duckdb.connect().execute("select sum(range) from range(10)").fetchall()[0][0])'
