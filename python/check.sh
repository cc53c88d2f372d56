#!/bin/sh
# Checks the Python package with the engine that was built: installs it as a user would (`pip install .`) with the oldest and the newest
# Python that is here, and runs its tests with both; style and types once.
#
#     python/check.sh PROFILE SKIPPED
#
# PROFILE: of cargo, for the engine in the wheel. SKIPPED: file for a line that says what was not run, and why.
# Environment: CARGO_TARGET_DIR, below which the environments are made.
set -eu
cd "$(dirname "$0")/.."
profile=$1 skipped=$2
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

oldest='' newest=''
for minor in 10 11 12 13 14; do
    found=$(python_of $minor)
    [ -n "$found" ] || continue
    newest=$found
    : "${oldest:=$found}"
done
if [ -z "$oldest" ]; then
    echo "the Python package: there is no Python from 3.10 on that can make environments (package python3-venv)" | tee -a "$skipped"
    exit 0
fi
[ "$oldest" != "$newest" ] || newest=''

for python in $oldest $newest; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    environment=$target/python-$version
    # A new one each time: what a former version of the package needed must not be there.
    rm -rf "$environment"
    "$python" -m venv "$environment"
    pip="$environment/bin/pip --quiet"
    if ! $pip install --upgrade 'pip>=25.1'; then
        echo "the Python package: packages of Python cannot be installed here" | tee -a "$skipped"
        exit 0
    fi
    $pip install . --config-settings build-args="--profile $profile"
    $pip install --group dev
    if [ "$python" = "$oldest" ]; then
        "$environment/bin/ruff" format --check --quiet python examples bench/python
        "$environment/bin/ruff" check --quiet python examples bench/python
        "$environment/bin/mypy"
        # Programs, not a package: they find each other beside themselves.
        MYPYPATH=examples:bench/python "$environment/bin/mypy" --explicit-package-bases examples/*.py bench/python/*.py
    fi
    echo "The tests of the package with Python $version:"
    # What was installed is tested, not what lies here.
    "$environment/bin/pytest" --quiet --override-ini pythonpath= python/tests
    "$environment/bin/pytest" --quiet --override-ini pythonpath= examples/tests
done
