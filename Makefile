# The front door. `make` alone lists what there is.

TARGET := $(or $(CARGO_TARGET_DIR),target)
SAILFISH := $(TARGET)/release/sailfish
XTASK := $(TARGET)/release/xtask
DEMO := $(TARGET)/demo
# What could not run and why; printed at the end, so that a skip is never silent.
SKIPPED := $(TARGET)/skipped.txt

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
SEED ?=

# Nightly: cases of each property test, and seconds for each fuzz target; in `make test` it has these few seconds.
CASES ?= 4096
FUZZ_SECONDS ?= 600
FUZZ_SECONDS_IN_TEST ?= 5

.PHONY: help demo cluster-demo test bench bench-cluster bench-failures bench-python nightly chaos fmt release lint postgres strace tests python fuzz

help:
	@echo "make demo      build, count the words of our dependencies' sources, sort 1 GB of TeraSort data, print reports"
	@echo "make cluster-demo  PostgreSQL, a server and four nodes in two racks as processes: jobs of two users, a node that is drained, a question in SQL"
	@echo "make test      what CI runs: format, lints, tidy, all tests, each fuzz target for a few seconds"
	@echo "make bench     the speed table against references and peers (RUNS=$(RUNS), ROWS=tera,words,... for some of it)"
	@echo "make bench-cluster  jobs per second, submit to start, restart of a server (JOBS=$(JOBS))"
	@echo "make bench-failures  what failures cost, and to be ready for them: nodes in two racks are killed, cut off, slow (ROW=killed for one row, FAILURE_RUNS=$(FAILURE_RUNS))"
	@echo "make bench-python  jobs with functions of Python beside PySpark, Dask, multiprocessing, Hadoop Streaming (PYTHON_RUNS=$(PYTHON_RUNS), ROW=word_count,log_read for some)"
	@echo "make chaos     half an hour of jobs on a cluster whose processes are killed and stopped and whose files are damaged (CHAOS_JOBS=$(CHAOS_JOBS), CHAOS_FAULTS=$(CHAOS_FAULTS), CHAOS_CORRUPTIONS=$(CHAOS_CORRUPTIONS), SEED=N)"
	@echo "make nightly   the long versions: CASES=$(CASES) a property test, FUZZ_SECONDS=$(FUZZ_SECONDS) a fuzz target"
	@echo "make fmt       format the sources"

release:
	cargo build --release --locked --bin sailfish --bin xtask

demo: release
	@mkdir -p $(DEMO)
	$(XTASK) demo-corpus $(DEMO)/corpus
	$(SAILFISH) run --state $(DEMO)/state --input $(DEMO)/corpus --mapper builtin:words --reducer builtin:sum \
	    --output $(DEMO)/counts --overwrite
	@echo
	@job=$$(sed -n 's/.*"job": *\([0-9][0-9]*\).*/\1/p' $(DEMO)/counts/_report.json | head -n 1); \
	    echo "$(SAILFISH) report --state $(DEMO)/state $$job"; \
	    $(SAILFISH) report --state $(DEMO)/state $$job
	@echo
	@echo "The words most often used, from $(DEMO)/counts:"
	@cat $(DEMO)/counts/part-* | LC_ALL=C sort -t "$$(printf '\t')" -k 2,2nr -k 1,1 | head -n 15

# A GB of TeraSort data: made, sorted, judged; then what the engine says about the sort.
	@echo
	$(SAILFISH) tera gen --state $(DEMO)/state --layout modern --rows 10m --output $(DEMO)/rows --overwrite
	$(SAILFISH) tera sort --state $(DEMO)/state --input $(DEMO)/rows --output $(DEMO)/sorted --overwrite
	$(SAILFISH) tera sum --state $(DEMO)/state $(DEMO)/rows
	$(SAILFISH) tera validate --state $(DEMO)/state $(DEMO)/sorted
	@job=$$(sed -n 's/.*"job": *\([0-9][0-9]*\).*/\1/p' $(DEMO)/sorted/_report.json | head -n 1); \
	    echo; \
	    echo "$(SAILFISH) timeline --state $(DEMO)/state $$job"; \
	    $(SAILFISH) timeline --state $(DEMO)/state $$job; \
	    echo "$(SAILFISH) report --state $(DEMO)/state $$job"; \
	    $(SAILFISH) report --state $(DEMO)/state --limit 4 $$job
	@rm -rf $(DEMO)/rows $(DEMO)/sorted

cluster-demo: release postgres
	@mkdir -p $(DEMO)
	demo/cluster.sh $(abspath $(SAILFISH)) $(abspath $(XTASK)) $(abspath $(DEMO)/cluster)

test:
	@mkdir -p $(TARGET) && : > $(SKIPPED)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory postgres
	@$(MAKE) --no-print-directory strace
	@$(MAKE) --no-print-directory tests
	@$(MAKE) --no-print-directory python
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(FUZZ_SECONDS_IN_TEST)
	@if [ -s $(SKIPPED) ]; then echo "Not run:"; sed 's/^/  /' $(SKIPPED); else echo "Nothing was left out."; fi

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask tidy

# The tests of the store start a PostgreSQL of their own, as another user where they run as root. Where its programs are
# missing they are installed if that can be done; else those tests say that they did not run.
postgres:
	@if ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1 || command -v initdb > /dev/null; then :; \
	elif command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "apt-get install postgresql" && export DEBIAN_FRONTEND=noninteractive && \
	    { apt-get install -y -q postgresql > /dev/null || { apt-get update -q && apt-get install -y -q postgresql; } > /dev/null; } \
	    || echo "cannot install the package postgresql; its tests will not run"; \
	else echo "there is no PostgreSQL (install the package postgresql); its tests will not run"; \
	fi

# Some tests let system calls of the binary fail. Where the program for that is missing it is installed if that can be done;
# else those tests say that they did not run.
strace:
	@if command -v strace > /dev/null; then :; \
	elif command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
	    echo "apt-get install strace" && export DEBIAN_FRONTEND=noninteractive && \
	    { apt-get install -y -q strace > /dev/null || { apt-get update -q && apt-get install -y -q strace; } > /dev/null; } \
	    || echo "cannot install the package strace; its tests will not run"; \
	else echo "there is no strace (install the package strace); its tests will not run"; \
	fi

# The binary is built first because the black-box tests start it.
tests:
	cargo build --workspace --bins --locked
	SAILFISH_SKIPPED=$(abspath $(SKIPPED)) cargo test --workspace --locked

# The Python package, installed as its users do; needs a Python from 3.10 on, and packages from the index of packages.
python:
	@mkdir -p $(TARGET)
	@CARGO_TARGET_DIR=$(abspath $(TARGET)) python/check.sh dev $(abspath $(SKIPPED))

# The fuzz targets are a workspace of their own, and are built with coverage.
fuzz:
	@mkdir -p $(TARGET)
	@if ! command -v c++ > /dev/null; then \
	    echo "fuzz targets: libfuzzer needs a C++ compiler (package g++ or clang)" | tee -a $(SKIPPED); \
	else \
	    CARGO_TARGET_DIR=$(abspath $(TARGET)) fuzz/run.sh $(FUZZ_SECONDS); \
	fi

bench-cluster: release postgres
	SAILFISH=$(SAILFISH) bench/cluster.sh --jobs $(JOBS)

# Jobs of three minutes; each row can be made by itself, and what is there already is not measured again.
bench-failures: release
	cargo build --release --workspace --locked --example bench_rows
	SAILFISH=$(SAILFISH) bench/failures.sh --runs $(FAILURE_RUNS) $(if $(ROW),--rows $(ROW))

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
	PROPTEST_CASES=$(CASES) SAILFISH_RANDOM_JOBS=$(CASES) SAILFISH_SEEDS=$(CASES) \
	    cargo test --workspace --release --locked
	@$(MAKE) --no-print-directory fuzz

# The short version is a test like any other; here its table is shown.
chaos:
	cargo build --workspace --bins --locked
	$(if $(SEED),SAILFISH_CHAOS_SEED=$(SEED)) SAILFISH_CHAOS_JOBS=$(CHAOS_JOBS) SAILFISH_CHAOS_FAULTS=$(CHAOS_FAULTS) \
	    SAILFISH_CHAOS_CORRUPTIONS=$(CHAOS_CORRUPTIONS) cargo test --workspace --locked --test chaos -- --nocapture

fmt:
	cargo fmt --all
