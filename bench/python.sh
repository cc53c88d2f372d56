#!/usr/bin/env bash
# python.sh [OPTIONS of bench/python/run.py]  - the Python benchmark: runs jobs with Python functions by Sailfish and by peers, and compares
# the outputs. `bench/python.sh --help` lists the options. bench/peers/setup-*.sh installs missing peers, which needs Java, Maven and a
# package registry; NO_INSTALL=1 skips them. env: PYTHON (interpreter with sailfish; default: an interpreter below BENCH_DIR, into which
# this checkout is installed), PEERS_DIR, BENCH_DIR
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PEERS_DIR=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}
export BENCH_DIR=${BENCH_DIR:-${CARGO_TARGET_DIR:-$root/target}/bench-python}
mkdir -p "$BENCH_DIR"
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$BENCH_DIR/venv/bin/python
    [ -x "$python" ] || python3 -m venv "$BENCH_DIR/venv"
    "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$root" \
        --config-settings build-args="--profile release"
    "$python" -m pip install --quiet --disable-pip-version-check cloudpickle
fi
case " $* " in
    *" --help "* | *" -h "*) ;;
    *)
        "$python" -c 'import sailfish' || { echo "python.sh: $python has no sailfish: pip install ." >&2; exit 1; }
        for peer in spark/venv dask/venv hadoop/lib; do
            [ -z "${NO_INSTALL:-}" ] && [ ! -e "$PEERS_DIR/$peer" ] || continue
            echo "installing by bench/peers/setup-${peer%/*}.sh"
            # The table shows `not run` for a peer that cannot be installed.
            "$root/bench/peers/setup-${peer%/*}.sh" > /dev/null || echo "python.sh: installing ${peer%/*} failed" >&2
        done
        ;;
esac
PYTHONPATH=$root/examples${PYTHONPATH:+:$PYTHONPATH} exec "$python" "$root/bench/python/run.py" "$@"
