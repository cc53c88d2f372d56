# The front door. `make` alone lists what there is.

TARGET := $(or $(CARGO_TARGET_DIR),target)
SAILFISH := $(TARGET)/release/sailfish
XTASK := $(TARGET)/release/xtask
DEMO := $(TARGET)/demo
# What could not run and why; printed at the end, so that a skip is never silent.
SKIPPED := $(TARGET)/skipped.txt

# The minutes of the stages of `make test`.
LEDGER := $(TARGET)/ledger
STAGE := tests/ledger/stage.sh $(LEDGER)/stages.tsv
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sailfish/tools

# Bench: rounds, groups of rows (all), and by what all sizes are divided.
RUNS ?= 5
ROWS ?=
SCALE ?= 1
# Runs of each kind and rows (all) of bench-failures.
FAILURE_RUNS ?= 3
ROW ?=
# Runs of each contender of bench-python; ROW chooses there as well.
PYTHON_RUNS ?= 3
# Jobs of the rates of bench-cluster.
JOBS ?= 1000000
# Chaos: jobs, kills and stops, damaged files; SEED=N chooses the same ones again.
CHAOS_JOBS ?= 120
CHAOS_FAULTS ?= 600
CHAOS_CORRUPTIONS ?= 150
# Kills over stored files.
CHAOS_FILE_KILLS ?= 200
# Kills during workflows.
CHAOS_WORKFLOW_KILLS ?= 100
SEED ?=

# Nightly: cases of each property test, and seconds for each fuzz target; in `make test` it has these few seconds.
CASES ?= 4096
# Requests that are made of the OpenAPI document.
OPENAPI_CASES ?= 10000
FUZZ_SECONDS ?= 600
FUZZ_SECONDS_IN_TEST ?= 5
FUZZ_WHOLE ?=

.PHONY: help demo cluster-demo workflow-demo package test test-stages tools build-tests bench bench-cluster bench-failures bench-files bench-workflows bench-python nightly chaos fmt release lint postgres packages tests python fuzz

help:
	@echo "make demo      build, count the words of our dependencies' sources, sort 1 GB of TeraSort data, print reports"
	@echo "make cluster-demo  PostgreSQL, a server and four nodes in two racks as processes: jobs of two users, a node that is drained, a question in SQL"
	@echo "make workflow-demo  a workflow on four nodes of which one is killed, the lineage of its result, and a run after one input changed"
	@echo "make test      what CI runs: format, lints, tidy, all tests, each fuzz target for a few seconds"
	@echo "make bench     the speed table against references and peers (RUNS=$(RUNS), ROWS=tera,words,... for some of it)"
	@echo "make bench-cluster  jobs per second, submit to start, restart of a server (JOBS=$(JOBS))"
	@echo "make bench-failures  what failures cost, and to be ready for them: nodes in two racks are killed, cut off, slow (ROW=killed for one row, FAILURE_RUNS=$(FAILURE_RUNS))"
	@echo "make bench-files  stored files beside cp (RUNS=$(RUNS), SCALE=$(SCALE), ROW=machine, mount, cluster, hdfs, repair, million or world for some)"
	@echo "make bench-workflows  steps beside a shell, and beside jobs of one task (RUNS=$(RUNS), SCALE=$(SCALE), ROW=streams, memory, steps, waves, cached, snakemake, dag, sim or crossnode for some)"
	@echo "make bench-python  jobs with functions of Python beside PySpark, Dask, multiprocessing, Hadoop Streaming (PYTHON_RUNS=$(PYTHON_RUNS), ROW=word_count,log_read for some)"
	@echo "make chaos     half an hour of jobs on a cluster whose processes are killed and stopped and whose files are damaged (CHAOS_JOBS=$(CHAOS_JOBS), CHAOS_FAULTS=$(CHAOS_FAULTS), CHAOS_CORRUPTIONS=$(CHAOS_CORRUPTIONS), SEED=N); then stored files and workflows under kills (CHAOS_FILE_KILLS=$(CHAOS_FILE_KILLS), CHAOS_WORKFLOW_KILLS=$(CHAOS_WORKFLOW_KILLS))"
	@echo "make nightly   the long versions: CASES=$(CASES) a property test, OPENAPI_CASES=$(OPENAPI_CASES) requests, FUZZ_SECONDS=$(FUZZ_SECONDS) a fuzz target"
	@echo "make package   packages for others: the stripped program, and its debug information apart"
	@echo "make fmt       format the sources"

release:
	cargo build --release --locked --package cli --package xtask

demo:
	@demo/laptop.sh $(TARGET)

cluster-demo: postgres
	cargo build --release --locked --package cli
	@mkdir -p $(DEMO)
	demo/cluster.sh $(abspath $(SAILFISH)) $(abspath $(DEMO)/cluster)

workflow-demo:
	cargo build --release --locked --package cli
	@mkdir -p $(DEMO)
	demo/workflow.sh $(abspath $(SAILFISH)) $(abspath $(DEMO)/workflow)

test:
	@cold=$$([ -e $(TARGET)/debug ] || echo yes); rm -rf $(LEDGER); mkdir -p $(LEDGER); [ -z "$$cold" ] || : > $(LEDGER)/cold
	@: > $(SKIPPED)
	@$(MAKE) --no-print-directory test-stages; code=$$?; \
	    if [ -s $(SKIPPED) ]; then echo "Not run:"; sort -u $(SKIPPED) | sed 's/^/  /'; else echo "Nothing was left out."; fi; \
	    cargo xtask ledger $(abspath $(LEDGER)) || code=1; exit $$code

test-stages:
	@$(STAGE) "install tools" $(MAKE) --no-print-directory tools packages
	@$(STAGE) "lint" $(MAKE) --no-print-directory lint
	@$(STAGE) "build of tests" $(MAKE) --no-print-directory build-tests
	@$(STAGE) "Rust tests" $(MAKE) --no-print-directory tests
	@$(MAKE) --no-print-directory python
	@$(STAGE) "fuzz targets" $(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(FUZZ_SECONDS_IN_TEST)

# Into the user's cache folder, so that they are there for the next clone as well.
tools:
	@mkdir -p $(TARGET)
	@tests/ledger/tools.sh $(TOOLS) $(abspath $(SKIPPED))

lint: tools
	cargo fmt --all --check
	cargo clippy --all-targets --locked -- -D warnings
	cargo xtask tidy
	@PATH="$(TOOLS)/bin:$$PATH" tests/ledger/dependencies.sh $(abspath $(SKIPPED))

# The tests of the store start a PostgreSQL of their own, as another user where they run as root. Where a package is missing it is
# installed if that can be done; else its tests say that they did not run.
postgres:
	@tests/ledger/package.sh postgresql /usr/lib/postgresql/*/bin/initdb initdb

# Some tests let system calls of the binary fail, some look at pages in a browser, or go through a tunnel of ssh; those of Snakemake's
# tutorial map reads.
packages: postgres
	@tests/ledger/package.sh strace strace
	@tests/ledger/package.sh chromium chromium chromium-browser google-chrome
	@tests/ledger/package.sh openssh-server /usr/sbin/sshd sshd
	@tests/ledger/package.sh openssh-client ssh
	@tests/ledger/package.sh bwa bwa
	@tests/ledger/package.sh samtools samtools
	@tests/ledger/package.sh bcftools bcftools

# The program is built with them, because the black-box tests start it.
build-tests:
	cargo build --bins --tests --locked

# cargo-nextest runs two cases a core, because most cases wait for processes most of the time. It leaves out the examples in
# documentation, which follow.
# Without cargo-nextest (`make tools` installs it) the tests run all the same, one binary after the other.
tests: build-tests tools
	@mkdir -p $(LEDGER)
	@if [ -x $(TOOLS)/bin/cargo-nextest ]; then \
	    export SAILFISH_SKIPPED=$(abspath $(SKIPPED)) SAILFISH_BINARY=$(abspath $(TARGET))/debug/sailfish && \
	    PATH="$(TOOLS)/bin:$$PATH" cargo nextest run --tests --locked --no-tests fail --test-threads $$((2 * $$(nproc))); code=$$?; \
	    cp target/nextest/default/junit.xml $(LEDGER)/junit.xml; [ $$code = 0 ] || exit $$code; \
	    cargo test --quiet --doc --locked; \
	else \
	    SAILFISH_SKIPPED=$(abspath $(SKIPPED)) cargo test --locked; \
	fi

# The Python package, installed as its users do; needs a Python from 3.10 on, and packages from the index of packages.
python:
	@mkdir -p $(TARGET) $(LEDGER)
	@CARGO_TARGET_DIR=$(abspath $(TARGET)) python/check.sh dev $(abspath $(SKIPPED)) $(abspath $(LEDGER))/stages.tsv

# The fuzz targets are built with coverage; where the whole of it is asked for, crates from outside as well.
fuzz:
	@mkdir -p $(TARGET)
	@if ! command -v c++ > /dev/null; then \
	    echo "fuzz targets: libfuzzer needs a C++ compiler (package g++ or clang)" | tee -a $(SKIPPED); \
	else \
	    CARGO_TARGET_DIR=$(abspath $(TARGET)) fuzz/run.sh $(FUZZ_WHOLE) $(FUZZ_SECONDS); \
	fi

bench-cluster: release postgres
	SAILFISH=$(SAILFISH) bench/cluster.sh --jobs $(JOBS)

# Jobs of three minutes; each row can be made by itself, and what is there already is not measured again.
bench-failures: release
	cargo build --release --locked --example bench_rows
	SAILFISH=$(SAILFISH) bench/failures.sh --runs $(FAILURE_RUNS) $(if $(ROW),--rows $(ROW))

bench-files: release
	SAILFISH=$(SAILFISH) bench/files.sh --runs $(RUNS) --scale $(SCALE) $(if $(ROW),--only $(ROW))

bench-workflows: release
	SAILFISH=$(SAILFISH) bench/workflows.sh --runs $(RUNS) --scale $(SCALE) $(if $(ROW),--only $(ROW))

# Jobs with functions of Python, beside PySpark, Dask, multiprocessing and Hadoop Streaming.
bench-python: release
	CARGO_TARGET_DIR=$(abspath $(TARGET)) bench/python.sh --runs $(PYTHON_RUNS) $(if $(ROW),--rows $(ROW))

bench-failures-%:
	@$(MAKE) --no-print-directory bench-failures ROW=$*

bench: release
	SAILFISH=$(SAILFISH) XTASK=$(XTASK) bench/speed.sh --runs $(RUNS) --scale $(SCALE) $(if $(ROWS),--rows $(ROWS))
ifeq ($(ROWS)$(SCALE),1)
	SAILFISH=$(SAILFISH) XTASK=$(XTASK) bench/volume.sh
endif

nightly: release
	PROPTEST_CASES=$(CASES) SAILFISH_RANDOM_JOBS=$(CASES) SAILFISH_LOSSLESS_CASES=$(CASES) SAILFISH_SEEDS=$(CASES) \
	    cargo test --release --locked
	tests/openapi/run.sh $(abspath $(SAILFISH)) $(TARGET)/openapi $(OPENAPI_CASES)
	@$(MAKE) --no-print-directory fuzz FUZZ_WHOLE=--whole

# The short version is a test like any other; here its table is shown.
chaos:
	cargo build --bins --locked
	$(if $(SEED),SAILFISH_CHAOS_SEED=$(SEED)) SAILFISH_CHAOS_JOBS=$(CHAOS_JOBS) SAILFISH_CHAOS_FAULTS=$(CHAOS_FAULTS) \
	    SAILFISH_CHAOS_CORRUPTIONS=$(CHAOS_CORRUPTIONS) cargo test --locked --test failures -- --exact chaos::jobs_survive_chaos --nocapture
	$(if $(SEED),SAILFISH_CHAOS_SEED=$(SEED)) SAILFISH_FILES_CHAOS_KILLS=$(CHAOS_FILE_KILLS) \
	    cargo test --locked --test failures -- --exact files_chaos::stored_files_survive_chaos --nocapture
	$(if $(SEED),SAILFISH_CHAOS_SEED=$(SEED)) SAILFISH_CHAOS_WORKFLOW_KILLS=$(CHAOS_WORKFLOW_KILLS) \
	    cargo test --locked --test failures -- --exact workflow_chaos::workflows_survive_chaos --nocapture

# A stripped program, and its debug information in a package of its own.
package:
	packaging/package.sh release $(TARGET)/packages

fmt:
	cargo fmt --all
