#!/bin/sh
# Makes a directory with the workflow files of this directory and their inputs: 7 MB, in a few seconds.
#
#     examples/workflows/generate.sh DIR
#
# Environment: PROTEINS, the lines of the database of blast.toml, 201 bytes each (20,000).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?name a directory}
[ ! -e "$dir" ] || { echo "$dir exists: remove it or name another directory" >&2; exit 1; }
mkdir -p "$dir"
cp "$here"/*.toml "$dir"
cd "$dir"

mkdir texts
cp "$here"/../../docs/*.md texts

mkdir queries
awk -v proteins="${PROTEINS:-20000}" -v seed=1 -f "$here/blast/proteins.awk"
tar -cf tools.tar -C "$here/blast" table.awk pack.sh

cp -R "$here/matrix" .

mkdir -p data/samples scripts
awk -v seed=1 -f "$here/snakemake-tutorial/reads.awk"
cp "$here/snakemake-tutorial/plot-quals.awk" "$here/snakemake-tutorial/scripts/plot-quals.py" scripts
# The same for Snakemake itself.
cp "$here/snakemake-tutorial/Snakefile" "$here/snakemake-tutorial/config.yaml" .
