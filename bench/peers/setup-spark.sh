#!/usr/bin/env bash
# setup-spark.sh [DIR]  - Spark from its Python package into a venv DIR/venv (default ${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers/spark).
# SPARK_VERSION overrides the version (the newest that is both a Python package and, as spark-core_2.13 + its tests jar, a Java one).
set -euo pipefail
DIR=${1:-${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sailfish/peers}/spark}
V=${SPARK_VERSION:-4.2.0}
mkdir -p "$DIR"; DIR=$(cd "$DIR" && pwd)
[ -x "$DIR/venv/bin/pip" ] || python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q "pyspark==$V" setuptools
H=$("$DIR/venv/bin/python" -c 'import pyspark,os;print(os.path.dirname(pyspark.__file__))')
echo "$H" > "$DIR/spark-home"
mkdir -p "$H/conf"
echo "spark $V: SPARK_HOME=$H ($(ls "$H"/jars/*.jar | wc -l) jars, $(du -sh "$H" | cut -f1))"
ls "$H"/jars | grep -E '^(scala-library|hadoop-client-api|netty-all|kryo|spark-core)' | tr '\n' ' '; echo
