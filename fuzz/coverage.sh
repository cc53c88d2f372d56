#!/bin/sh
# A wrapper of rustc (RUSTC_WORKSPACE_WRAPPER): compiles the crates of this workspace with LLVM's coverage, as libFuzzer needs it.
# Cargo keeps what it makes apart from other builds, and calls it for no crate from outside, so those are not built again.
# The flags have no blanks in them but those between them.
# shellcheck disable=SC2046
exec "$@" $(cat "$(dirname "$0")/coverage.flags")
