#!/usr/bin/env bash
# Runs one stage of `make test` and adds a line to the ledger: name, wall seconds, CPU seconds, exit code, with tabs between.
# CPU seconds are those of the command and of all descendants that were waited for. `cargo xtask ledger` prints the lines.
#
#     tests/ledger/stage.sh STAGES_FILE NAME COMMAND ARGS...
set -u
stages=$1 name=$2
shift 2
times=$(mktemp)
trap 'rm -f "$times"' EXIT
TIMEFORMAT='%R %U %S'
# The times go to a file of their own, and what the command says where it always goes.
{ time "$@" 2>&3; } 3>&2 2> "$times"
code=$?
awk -v name="$name" -v code="$code" '{ printf "%s\t%.2f\t%.2f\t%d\n", name, $1, $2 + $3, code }' "$times" >> "$stages"
exit "$code"
