#!/bin/sh
# Checks the Python package with the engine that was built. A wheel is made as `pip install .` makes it, once, and installed in an
# environment of the oldest and of the newest Python that is here. The newest runs all tests of the package and of the examples. The
# oldest checks style and types, and runs the tests of the package with one seed each: what can differ is the language, the standard
# library and how functions are pickled, and each test meets those with its first seed.
#
#     python/check.sh PROFILE SKIPPED STAGES
#
# PROFILE: of cargo, for the engine in the wheel. SKIPPED: file for a line that says what was not run, and why. STAGES: ledger of
# the stages (tests/ledger/stage.sh). Environment: CARGO_TARGET_DIR, below which the environments are made; they are kept, and made
# anew when pyproject.toml changes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
export CARGO_TARGET_DIR="$target" PIP_DISABLE_PIP_VERSION_CHECK=1

python_of() { # python_of MINOR: a Python 3.MINOR that can make environments
    for each in "python3.$1" "$HOME/.pyenv/versions/3.$1".*/bin/python; do
        if "$each" -c 'import ensurepip, venv' > /dev/null 2>&1; then
            echo "$each"
            return
        fi
    done
}

environment() { # environment MINOR PYTHON: makes it, with the package's tools, unless it is there
    made=$target/python-3.$1
    wanted=$(cat pyproject.toml; "$2" -VV)
    [ "$(cat "$made/made-for" 2> /dev/null)" != "$wanted" ] || return 0
    rm -rf "$made"
    "$2" -m venv "$made"
    "$made/bin/pip" --quiet install --upgrade 'pip>=25.1' || return 1
    "$made/bin/pip" --quiet install --group dev || return 1
    echo "$wanted" > "$made/made-for"
}

wheel() { # wheel MINOR PROFILE
    rm -rf "$target/wheel"
    "$target/python-3.$1/bin/pip" --quiet wheel --no-deps --wheel-dir "$target/wheel" . --config-settings build-args="--profile $2"
}

# What was installed is tested, not what lies here: hence no path to it.
run_tests() { # run_tests MINOR newest|oldest
    bin=$target/python-3.$1/bin
    # What is there of a former version goes first; what it needed stays, and pyproject.toml says what is needed.
    "$bin/pip" --quiet --quiet uninstall --yes sailfish-engine
    "$bin/pip" --quiet install "$target"/wheel/*.whl
    if [ "$2" = oldest ]; then
        "$bin/ruff" format --check --quiet python examples bench/python
        "$bin/ruff" check --quiet python examples bench/python
        "$bin/mypy"
        # Programs, not a package: they find each other beside themselves.
        MYPYPATH=examples:bench/python "$bin/mypy" --explicit-package-bases examples/*.py bench/python/*.py
        SAILFISH_PYTHON_SEEDS=1 "$bin/pytest" --quiet --override-ini pythonpath= python/tests
    else
        "$bin/pytest" --quiet --override-ini pythonpath= --durations 15 python/tests
        "$bin/pytest" --quiet --override-ini pythonpath= --durations 5 examples/tests
    fi
}

case $1 in
environment | wheel | run_tests)
    "$@"
    exit
    ;;
esac

profile=$1 skipped=$2 stages=$3
stage() { "$root/tests/ledger/stage.sh" "$stages" "$@"; }
oldest='' newest=''
for minor in 10 11 12 13 14; do
    [ -n "$(python_of $minor)" ] || continue
    newest=$minor
    : "${oldest:=$minor}"
done
if [ -z "$oldest" ]; then
    echo "the Python package: there is no Python from 3.10 on that can make environments (package python3-venv)" | tee -a "$skipped"
    exit 0
fi
for minor in $(echo "$oldest $newest" | tr ' ' '\n' | sort -u); do
    if ! stage "Python 3.$minor: environment" "$0" environment "$minor" "$(python_of "$minor")"; then
        echo "the Python package: packages of Python cannot be installed here" | tee -a "$skipped"
        exit 0
    fi
done
stage "Python: wheel" "$0" wheel "$newest" "$profile"
stage "Python 3.$newest: tests" "$0" run_tests "$newest" newest
stage "Python 3.$oldest: style, types, tests" "$0" run_tests "$oldest" oldest
