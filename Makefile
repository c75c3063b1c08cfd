# What can be done with this tree. `make` alone lists it.
#
# A fresh machine needs Rust (which one: rust-version in Cargo.toml), a C and C++ compiler, make, perl, Java and Python 3.
# Everything else that a target needs, it gets by itself, or says what it goes without.

CARGO ?= cargo

# Tests of whole programs wait more than they compute: on two cores, four at a time take half as long as two.
export RUST_TEST_THREADS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores > 4 ? cores : 4)))

# The tests of these programs start no server, and take less than half a minute.
QUICK_TESTS = allocations builds format model request

# Clippy is a compiler, too: where it is there, it compiles what is tested, so that lint and tests share a build.
CLIPPY := $(shell clippy-driver --version >/dev/null 2>&1 && echo clippy-driver)
lint check test test-rust test-clients test-python test-feast test-console test-package test-spark: export RUSTC_WORKSPACE_WRAPPER = $(CLIPPY)

# All of the workspace, always: of a part of it, dependencies could have other features, and be compiled again.
BUILD = $(CARGO) build --workspace --all-targets

.DEFAULT_GOAL := help
.PHONY: help demo check test test-rust test-clients test-python test-feast test-console test-package test-spark package bench lint fuzz

help: ## List the targets
	@echo "targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-14s %s\n' "$$name" "$$what"; done

demo: ## Build fondaco, then push, read, push again and roll back a real data set (a minute after compiling)
	$(CARGO) build --release -p fondaco
	demo/run

check: lint ## Before every commit: lint, and the tests that need no server (a minute or two once all is built)
	$(CARGO) test --lib --bins $(QUICK_TESTS:%=--test %)

test: test-rust ## Run all tests
	@# The others fetch and wait more than they compute: two at a time, and the longest first.
	$(MAKE) --jobs 2 --output-sync=target test-spark test-clients test-feast test-console test-python test-package

test-rust: ## Run the tests in Rust: units, properties, simulations, whole programs and clusters, crashes
	tests/set-up
	$(CARGO) test --no-fail-fast

test-clients: ## Run other people's clients against a node and a cluster, unmodified: redis-py, Jedis, Lettuce, go-redis, ioredis, …
	$(BUILD)
	tests/clients/run

test-python: ## Check the types of the Python package, and run its tests and examples with each Python from 3.10 to 3.13 that is here (two minutes)
	$(BUILD)
	tests/python/run

test-feast: ## Run Feast, Airflow, and the readers of Iceberg, Delta Lake and ORC against it (two and a half minutes, and as long again for their packages)
	$(BUILD)
	tests/feast/run

test-console: ## Run the web console in a real browser, against a cluster: every page, by mouse and by keyboard (three minutes)
	tests/set-up
	$(BUILD)
	tests/console/run

test-package: ## Install, upgrade, remove and purge the Debian package under a systemd in a container (two minutes)
	tests/set-up
	$(BUILD)
	deploy/debian/test

test-spark: ## Write and read from Spark 4 and 3.5, with executors and drivers that are killed, over HDFS, S3 and Kafka (some eleven minutes)
	tests/set-up
	$(BUILD)
	tests/spark/run

package: ## Build the Debian package into target/debian, with cargo-deb, which it installs into .cache
	$(CARGO) build --release -p fondaco
	mkdir -p target/debian
	deploy/debian/build target/release/fondaco target/debian

bench: ## Measure against peers, into bench/results (three hours, on a quiet machine)
	bench/run

lint: ## Check formatting, and compile everything with clippy, whose warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@test -n "$(CLIPPY)" || { echo "lint needs clippy: rustup component add clippy" >&2; exit 1; }
	@# Cargo shows the warnings of earlier builds, too.
	mkdir -p target && bash -o pipefail -c '$(BUILD) 2>&1 | tee target/lint.log' && ! grep '^warning: `fondaco' target/lint.log
	bench/figures --check

fuzz: ## Fuzz all parsers for a minute each, or replay random inputs where there is no cargo-fuzz
	fuzz/run
