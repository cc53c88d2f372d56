#!/bin/sh
# Sends requests that the OpenAPI document allows, and ones that it does not, to a server, and fails where one is answered with a status
# of 500 or more. There is no node, so that no program of a made-up job runs.
#
#     tests/openapi/run.sh SAILFISH DIRECTORY CASES
set -eu
sailfish=$1 directory=$2 cases=$3
schemathesis=4.32.5
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
rm -rf "$directory/state" "$directory/user-state"
tools=$directory/python
if [ "$("$tools/bin/schemathesis" --version 2> /dev/null | awk '{ print $NF }')" != $schemathesis ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$tools/bin/pip" --quiet install "schemathesis==$schemathesis"
fi
export XDG_STATE_HOME="$directory/user-state"
"$sailfish" server --listen 127.0.0.1:0 --state "$directory/state" > "$directory/url" 2> "$directory/server.log" &
server=$!
trap 'kill $server 2> /dev/null || :' EXIT
tail -n +1 -f "$directory/url" --pid=$server | head -n 1 > "$directory/first"
url=$(cat "$directory/first")
[ -n "$url" ] || { cat "$directory/server.log" >&2; exit 1; }
routes=$(curl --silent --noproxy '*' "$url/openapi.json" | grep -c '"operationId"')
token=$(cat "$directory"/user-state/sailfish/servers/*.token)
"$tools/bin/schemathesis" run "$url/openapi.json" --checks not_a_server_error --phases examples,coverage,fuzzing \
    --max-examples "$(((cases + routes - 1) / routes))" --request-timeout 60 --warnings off --seed "${SEED:-$(date +%j)}" \
    -H "authorization: Bearer $token" -H "sailfish-request: 1" > "$directory/report.txt" 2>&1 || {
    grep -v 'Bearer' "$directory/report.txt" | tail -n 100 >&2
    exit 1
}
kill -0 $server || { echo "the server ended" >&2; cat "$directory/server.log" >&2; exit 1; }
made=$(sed -n 's/^ *\([0-9][0-9]*\) generated.*/\1/p' "$directory/report.txt" | head -n 1)
[ "${made:-0}" -ge "$cases" ] || { tail -n 30 "$directory/report.txt" >&2; echo "only ${made:-0} of $cases cases were made" >&2; exit 1; }
echo "OpenAPI: $made cases, no status of 500 or more"
