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

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: serve
serve: $(STAMP) ## Start the HTTP service on http://127.0.0.1:8080, in ./sluice-data
	@$(BIN)/sluice serve

.PHONY: demo
demo: need-java $(STAMP) ## Everything once, checked as it goes (KEEP=1 leaves the service running)
	@$(BIN)/python examples/demo

.PHONY: test
test: need-java $(STAMP) ## Run all tests, the fast ones first, with reduced counts
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: test-full
test-full: export SLUICE_TEST_FULL := 1
test-full: need-java $(STAMP) ## Run all tests with full counts (long)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: check
check: $(STAMP) build/tree/sluice ## Lint, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks and print their figures
	$(BIN)/python -m bench

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
