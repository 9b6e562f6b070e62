# `make demo` and `make test` do everything on a fresh machine that has Python (3.11 to 3.14), git and gcc.
PYTHON ?= python3
VENV := .venv
STORE ?= runs/demo

# An environment keeps the Python that made it. So `make test PYTHON=python3.13` beside a .venv of another Python gets
# .venv-3.13; VENV=... names any other.
SERIES := -c 'import sys; print("%d.%d" % sys.version_info[:2])'
held = $(if $(wildcard $(VENV)/bin/python),$(shell $(VENV)/bin/python $(SERIES)))
ifeq ($(origin PYTHON),command line)
ASKED := $(shell $(PYTHON) $(SERIES) 2>/dev/null)
ifneq ($(filter-out $(ASKED),$(held)),)
VENV := .venv-$(ASKED)
endif
ifneq ($(filter-out $(ASKED),$(held)),)
$(error $(VENV) holds Python $(held), and $(PYTHON) is $(or $(ASKED),none that runs))
endif
endif

# Checked before anything is installed: of another Python pip says no more than that nothing fits together.
SERIES_OF = $(shell $(1) $(SERIES) 2>/dev/null)
USED = $(or $(held),$(call SERIES_OF,$(PYTHON)))
OTHERS = $(foreach name,python3.12 python3.13 python3.11 python3.14,$(filter $(name),python$(call SERIES_OF,$(name))))
require-python = $(if $(filter 3.11 3.12 3.13 3.14,$(USED)),,$(error Python 3.11 to 3.14 is needed, found \
  $(or $(USED),none) ($(if $(held),$(VENV),$(PYTHON))): make $(MAKECMDGOALS) PYTHON=$(or $(firstword $(OTHERS)),python3.12)))

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-slow docs fuzz audit chaos lint format coverage wheel-demo readme-figures up full down status bench clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(VENV)/.runtime: pyproject.toml constraints.txt gptcore/__init__.py
	@$(require-python)test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing gptmill and its pinned dependencies into $(VENV) (a few minutes, once)"
	@$(PIP) --no-compile --editable .
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true  # all cores, where pip has one; templates are no modules
	@touch $@

$(VENV)/.full: $(VENV)/.runtime
	@echo "Installing PostgreSQL and an S3 server into $(VENV)"
	@$(PIP) --editable '.[stack]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what the tests and the linters need"
	@$(PIP) --editable '.[dev,dask,docs,kubernetes,lm-eval,onnx,stack]'
	@touch $@

demo: $(VENV)/.runtime ## the whole pipeline on a generated (synthetic) world; prints the leaderboard
	@$(BIN)/gptmill pipeline --preset demo --seeds 3 --store $(STORE)

# Two more than the cores, as many tests wait for servers and killed processes.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 2))')

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev ## the test suite but for what is slow, a file at a time in each of some processes (at most 4)
	@$(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev ## the rest of it: whole servers, browsers, killed processes and hosts, models of published sizes
	@$(PYTEST) -m slow

docs: $(VENV)/.dev ## the documentation site, in infra/docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d infra/docs/_build/doctrees infra/docs infra/docs/_build/html
	@echo infra/docs/_build/html/index.html

fuzz: $(VENV)/.dev ## 10,000 damaged inputs for each reader (the suite has a few); prints what was read and refused
	@$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=fuzz --timeout=0 -n logical --maxprocesses 4

audit: $(VENV)/.dev ## known vulnerabilities of what constraints.txt pins
	@$(BIN)/python -m infra.audit

coverage: $(VENV)/.dev ## the suite with line coverage of gptcore and tasks (child processes included)
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest
	@$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report

lint: $(VENV)/.dev ## ruff, mypy, the import contract, the budgets of lines
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m infra.line_budget

wheel-demo: ## a wheel built here, installed into an empty environment elsewhere, runs a short demo there
	@PYTHON=$(PYTHON) bash infra/wheel-demo.sh

format: $(VENV)/.dev ## rewrite the sources in the house style
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

up: $(VENV)/.runtime ## Prefect server, MLflow server and workers on this machine (STORE=runs/demo)
	@$(BIN)/gptmill up --store $(STORE)

full: $(VENV)/.full ## the same on PostgreSQL and an S3 server, with passwords
	@$(BIN)/gptmill up --full

down: ## stop them
	@$(BIN)/gptmill down

status: ## what is running, and where
	@$(BIN)/gptmill status

prefect.yaml: $(VENV)/.runtime flows/deployments/catalog.py $(wildcard flows/papers/*/plugin.toml)
	@$(BIN)/python -m flows.deployments.catalog > $@

bench: $(VENV)/.dev ## what this machine does a second, beside what people would use without gptmill
	@$(BIN)/python -m tests.benchmarks

chaos: $(VENV)/.dev ## kills, full disks, bad networks on purpose: counts of what the pipeline survived (an hour)
	@$(BIN)/python -m tests.trials.chaos

readme-figures: $(VENV)/.dev ## the README's pictures and table of the demo, of one fresh run; needs Chromium
	@$(BIN)/python -m tests.trials.pages.readme

clean: ## remove the environment and the caches (never a store)
	rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
