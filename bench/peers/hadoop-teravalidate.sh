#!/usr/bin/env bash
# hadoop-teravalidate.sh DIR  - Hadoop's TeraValidate over file://DIR (legacy rows); prints its report, "checksum HEX" where all is in order.
exec "$(dirname "$0")/hadoop-tera.sh" validate "$@"
