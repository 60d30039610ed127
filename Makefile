# Every target prepares what it needs in $(VENV) and can be run again: stamp files in the virtual
# environment record what is installed, and expire when pyproject.toml or constraints.txt changes.

# The first Python on the path that is new enough; `make PYTHON=/path/to/python3.12 ...` overrides it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV ?= .venv
# Extra arguments of the pip call that installs torch, for example another package index.
TORCH_ARGS ?=
# Extra arguments of the command that a target runs: `make test ARGS="-k graph"`.
ARGS ?=
# Test processes at a time; each computes with one thread, and a file's tests stay together in one of them.
WORKERS ?= 2

PY := $(VENV)/bin/python
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt
SPEC := pyproject.toml constraints.txt
CODE := $(wildcard src tests benchmarks examples docs)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow coverage torture lint format docs bench clean
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | \
		while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

setup: $(VENV)/.stamp-all ## install the package with all extras

demo: $(VENV)/.stamp-core ## the whole story on the built-in world, in a few minutes
	$(VENV)/bin/cbm demo $(ARGS)

test: $(VENV)/.stamp-dev ## the fast tests
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-slow: $(VENV)/.stamp-dev ## the tests marked slow
	$(PY) -m pytest -m slow --timeout 3600 $(ARGS) || test $$? -eq 5  # 5: no test is marked slow

coverage: $(VENV)/.stamp-dev ## the fast tests with the lines of src that they reach; htmlcov/index.html shows them
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report term:skip-covered --cov-report html $(ARGS)

torture: $(VENV)/.stamp-dev ## kill -9 at random moments and malformed inputs; ARGS="--kills 20 --inputs 2000" for less
	OMP_NUM_THREADS=1 $(PY) -m tests.torture $(ARGS)

lint: $(VENV)/.stamp-dev ## ruff (rules and format) and mypy
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) -m mypy

format: $(VENV)/.stamp-dev ## let ruff sort imports and format the code
	$(PY) -m ruff check --fix $(CODE)
	$(PY) -m ruff format $(CODE)

docs: $(VENV)/.stamp-docs ## the documentation as a site, in site/index.html
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)

bench: $(VENV)/.stamp-bench ## time and accuracy of discovery
	$(VENV)/bin/cbm bench $(ARGS)

clean: ## remove the virtual environment, caches and build output (runs/ stays)
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +
	rm -rf src/*.egg-info

# An environment that already works is used as it is.
$(VENV)/.stamp-venv:
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
		test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }; \
		echo "Creating $(VENV) with $(PYTHON)"; \
		"$(PYTHON)" -m venv $(VENV); \
	fi
	@touch $@

# torch first and alone, at the version in constraints.txt, so that nothing else decides which build comes in.
$(VENV)/.stamp-torch: constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing torch"
	@$(PIP_INSTALL) $(TORCH_ARGS) torch
	@touch $@

$(VENV)/.stamp-core: $(SPEC) $(VENV)/.stamp-torch
	@echo "Installing cbm"
	@$(PIP_INSTALL) -e .
	@touch $@

# robosuite without its dependencies: one of them insists on numpy < 2, which robosuite itself does not need.
$(VENV)/.stamp-robosuite: $(SPEC) $(VENV)/.stamp-torch
	@echo "Installing robosuite"
	@$(PIP_INSTALL) mujoco numba opencv-python-headless pillow scipy termcolor
	@$(PIP_INSTALL) --no-deps robosuite
	@touch $@

$(VENV)/.stamp-dev: $(SPEC) $(VENV)/.stamp-torch $(VENV)/.stamp-robosuite
	@echo "Installing cbm with what the tests need"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-docs: $(SPEC) $(VENV)/.stamp-torch
	@echo "Installing cbm with what the documentation needs"
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-bench: $(SPEC) $(VENV)/.stamp-torch $(VENV)/.stamp-robosuite
	@echo "Installing cbm with what the benchmarks need"
	@$(PIP_INSTALL) -e '.[bench,mujoco]' 'tianshou>=2.0.1,<3'
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-all: $(SPEC) $(VENV)/.stamp-torch $(VENV)/.stamp-robosuite
	@echo "Installing cbm with all extras"
	@$(PIP_INSTALL) -e '.[tables,hdf5,ros,minari,mujoco,track,docs,bench,ray,dev]'
	@touch $@ $(VENV)/.stamp-core $(VENV)/.stamp-dev $(VENV)/.stamp-bench $(VENV)/.stamp-docs
