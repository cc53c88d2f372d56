#!/bin/sh
# Checks the Python package with the current engine. Builds one wheel, as `pip install .` does, and installs it in an environment of the
# oldest and of the newest Python on this machine. The newest Python runs all tests of the package and of the examples. The oldest Python
# checks style and types, and runs the tests of the package with one seed each: versions differ in the language, the standard library and
# the pickling of functions, and one seed covers these.
#
#     python/check.sh PROFILE SKIPPED STAGES
#
# PROFILE: the profile of cargo for the engine in the wheel. SKIPPED: file to which a line with each skipped check and its reason is
# appended. STAGES: ledger of the stages (tests/ledger/stage.sh). Environment: CARGO_TARGET_DIR, which contains the environments. They are
# kept, and made again when pyproject.toml changes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR="$target" PIP_DISABLE_PIP_VERSION_CHECK=1

python_of() { # python_of MINOR: prints the path of a Python 3.MINOR that can make environments
    for each in "python3.$1" "$HOME/.pyenv/versions/3.$1".*/bin/python; do
        if "$each" -c 'import ensurepip, venv' > /dev/null 2>&1; then
            echo "$each"
            return
        fi
    done
}

environment() { # environment MINOR PYTHON: makes the environment with the package's tools, unless it exists
    made=$target/python-3.$1
    wanted=$(cat pyproject.toml; "$2" -VV)
    [ "$(cat "$made/made-for" 2> /dev/null)" != "$wanted" ] || return 0
    rm -rf "$made"
    "$2" -m venv "$made"
    "$made/bin/pip" --quiet install --upgrade 'pip>=25.1' || return 1
    "$made/bin/pip" --quiet install --group dev || return 1
    [ "$1" -lt 11 ] || "$made/bin/pip" --quiet install --group snakemake || return 1
    echo "$wanted" > "$made/made-for"
}

wheel() { # wheel MINOR PROFILE
    rm -rf "$target/wheel"
    "$target/python-3.$1/bin/pip" --quiet wheel --no-deps --wheel-dir "$target/wheel" . --config-settings build-args="--profile $2"
}

# The tests import the installed package, so the path of the sources is removed.
run_tests() { # run_tests MINOR newest|oldest
    bin=$target/python-3.$1/bin
    # Remove an older version of the package, but keep its dependencies.
    "$bin/pip" --quiet --quiet uninstall --yes sailfish-engine
    "$bin/pip" --quiet install "$target"/wheel/*.whl
    if [ "$2" = oldest ]; then
        "$bin/ruff" format --check --quiet python examples bench/python
        "$bin/ruff" check --quiet python examples bench/python
        "$bin/mypy"
        # The programs are no package: each finds the others in its directory.
        MYPYPATH=examples:bench/python "$bin/mypy" --explicit-package-bases examples/*.py bench/python/*.py
        SAILFISH_PYTHON_SEEDS=1 "$bin/pytest" --quiet --override-ini pythonpath= python/tests
    else
        "$bin/pytest" --quiet --override-ini pythonpath= --durations 15 python/tests
        "$bin/pytest" --quiet --override-ini pythonpath= --durations 5 examples/tests
    fi
}

# The plugins have tests with the newest Python only: Snakemake runs in processes of its own, and none of it is pickled.
snakemake_tests() { # snakemake_tests MINOR
    bin=$target/python-3.$1/bin
    if [ ! -e "$bin/snakemake" ]; then
        echo "the plugins for Snakemake: Snakemake needs Python 3.11" >> "$SAILFISH_SKIPPED"
        return
    fi
    # The tools of the environment build the package, so that nothing is downloaded.
    "$bin/pip" --quiet --quiet uninstall --yes snakemake-executor-plugin-sailfish
    "$bin/pip" --quiet install --no-deps --no-build-isolation ./python/snakemake-plugins
    cd python/snakemake-plugins
    "$bin/mypy"
    "$bin/pytest" --quiet --durations 5 tests
}

case $1 in
environment | wheel | run_tests | snakemake_tests)
    "$@"
    exit
    ;;
esac

profile=$1 skipped=$2 stages=$3
# Tests append to it as well.
export SAILFISH_SKIPPED="$skipped"
stage() { "$root/tests/ledger/stage.sh" "$stages" "$@"; }
oldest='' newest=''
for minor in 10 11 12 13 14; do
    [ -n "$(python_of $minor)" ] || continue
    newest=$minor
    : "${oldest:=$minor}"
done
if [ -z "$oldest" ]; then
    echo "the Python package: no Python 3.10 or newer can make environments (install the package python3-venv)" | tee -a "$skipped"
    exit 0
fi
for minor in $(echo "$oldest $newest" | tr ' ' '\n' | sort -u); do
    if ! stage "Python 3.$minor: environment" "$0" environment "$minor" "$(python_of "$minor")"; then
        echo "the Python package: installing its tools from the package registry failed" | tee -a "$skipped"
        exit 0
    fi
done
stage "Python: wheel" "$0" wheel "$newest" "$profile"
stage "Python 3.$newest: tests" "$0" run_tests "$newest" newest
stage "Python 3.$newest: plugins for Snakemake" "$0" snakemake_tests "$newest"
stage "Python 3.$oldest: style, types, tests" "$0" run_tests "$oldest" oldest
