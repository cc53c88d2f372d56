#!/usr/bin/env bash
# hadoop-teravalidate.sh DIR  - Hadoop's TeraValidate over file://DIR (legacy rows); prints its report: "checksum HEX" if all rows are in order.
exec "$(dirname "$0")/hadoop-tera.sh" validate "$@"
