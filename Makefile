# Every target builds .venv from the pinned versions first; `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
PEERS_ARGS ?=
TORTURE_ARGS ?=
MINUTES ?= 30
SEED ?=
EXPERIMENTS ?= $(addprefix tests/,$(addsuffix .py,\
  fault/test_kills fault/test_two_leaders fault/test_zombies fault/test_group_stress fault/test_groups_kill \
  disk/test_power_loss s3/test_s3_faults http/test_hostile_connections http/test_retention_race \
  spark/test_five_streams spark/test_jobs_race))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: serve
serve: $(STAMP) ## Start the HTTP service on http://127.0.0.1:8080, in ./sluice-data
	@$(BIN)/sluice serve

.PHONY: demo
demo: need-java $(STAMP) ## Everything once, checked as it goes (KEEP=1 leaves the service running)
	@$(BIN)/python examples/demo

.PHONY: test
test: need-java test-tools $(STAMP) ## Run all tests, the fast ones first, with reduced counts
	$(BIN)/python -m $(if $(PYTEST_ARGS),pytest $(PYTEST_ARGS),tests.lanes)

.PHONY: test-full
test-full: export SLUICE_TEST_FULL := 1
test-full: need-java test-tools $(STAMP) ## Run all tests with full counts (long)
	$(BIN)/python -m $(if $(PYTEST_ARGS),pytest $(PYTEST_ARGS),tests.lanes)

.PHONY: experiments
experiments: export SLUICE_TEST_FULL := asked
experiments: need-java $(STAMP) ## Run the experiments of docs/reliability.md as often as their list asks (longer still)
	$(BIN)/python -m pytest -v --durations=0 --durations-min=1 $(EXPERIMENTS)

.PHONY: test-tools
test-tools: ## Install Chromium and libfaketime, for tests that are skipped without them, where that is possible
	@missing=""; \
	command -v "$${CHROMIUM:-chromium}" chromium-browser google-chrome >/dev/null || missing="$$missing chromium"; \
	ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing="$$missing faketime"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing with apt-get, for tests that need them:$$missing."; \
	  apt-get update >/dev/null 2>&1 || true; \
	  for package in $$missing; do \
	    DEBIAN_FRONTEND=noninteractive apt-get install --yes $$package >/dev/null 2>&1 \
	      || echo "$$package could not be installed: the tests that need it will be skipped."; \
	  done; \
	else echo "Not found:$$missing. The tests that need them will be skipped. CHROMIUM may name a browser's path."; fi

.PHONY: check
check: $(STAMP) build/tree/sluice ## Lint, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: torture
torture: need-java $(STAMP) ## Try to break the log for MINUTES=30 (SEED=n does a run again); exit code 1 if it broke
	$(BIN)/python -m tests.lab torture --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(TORTURE_ARGS)

.PHONY: soak
soak: MINUTES = 60
soak: $(STAMP) ## Half of the largest rate for MINUTES, with every job; charts go to build/soak
	$(BIN)/python -m tests.lab soak --minutes $(MINUTES) --report build/soak

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks, growth at its full size, and print their figures (long)
	$(BIN)/python -m bench --full
	$(BIN)/python -m bench.report

.PHONY: bench-peers
bench-peers: need-java $(STAMP) ## The same beside a Kafka broker, in turns (PEERS_ARGS="--quick --only produce")
	$(BIN)/python -m bench.peers $(PEERS_ARGS)
	$(BIN)/python -m bench.report

.PHONY: performance
performance: $(STAMP) ## Write docs/performance.md again from bench/results
	$(BIN)/python -m bench.report

.PHONY: clean
clean: ## Remove everything that make created
	rm -rf $(VENV) build dist sluice.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Reinstalled whenever a version or the package description changes. The constraint is an environment
# variable, not -c, because pip then applies it to the build's own requirements as well.
$(STAMP): pyproject.toml constraints.txt | need-python
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# Gives mypy the folders under their import names.
build/tree/sluice:
	@mkdir -p $(@D)
	@ln -sfn ../.. $@

.PHONY: need-python
need-python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: '$(PYTHON)' was not found. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) -V). Set PYTHON=/path/to/python3." >&2; exit 1; }

.PHONY: need-java
need-java:
	@test -n "$${JAVA_HOME:-}" -a -x "$${JAVA_HOME:-}/bin/java" || command -v java >/dev/null || { echo "The Spark tests need Java 17 or newer: set JAVA_HOME or put java on the PATH." >&2; exit 1; }
