#!/bin/sh
# Installs a package where its program is missing and that can be done here; else says that its tests will not run.
#
#     tests/ledger/package.sh PACKAGE PROGRAM...      any of these programs, or of these paths, is enough
set -eu
package=$1
shift
for program; do
    # A path may be a pattern, which the shell has filled in where there is such a file.
    if [ -e "$program" ] || command -v "$program" > /dev/null; then exit 0; fi
done
if command -v apt-get > /dev/null && [ "$(id -u)" = 0 ]; then
    echo "apt-get install $package"
    export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install -y -q --no-install-recommends "$package" > /dev/null; }
    install || { apt-get update -q > /dev/null && install; } || echo "cannot install the package $package; its tests will not run"
else
    echo "there is no $1 (install the package $package); its tests will not run"
fi
