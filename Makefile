# sickbay: `make demo` and `make test` work on a fresh machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup services demo test test-fast check bench clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(STAMP)  ## the environment only: .venv with everything for development

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sickbay needs Python >= 3.11; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || { echo "could not create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "setting up $(VENV) (first time: a minute or two)"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	@touch $@

services: setup  ## the real servers the tests start (Debian packages; needs root or an earlier install)
	@sh tests/services/install.sh

demo: setup  ## the main job on a simulated fleet
	@$(BIN)/sickbay demo

test: setup services  ## the whole suite, real servers included
	@$(BIN)/python -m pytest

test-fast: setup  ## the quick part: no services, no kill loops (about a minute)
	@$(BIN)/python -m pytest -m 'not services and not slow'

check: setup  ## lint, formatting, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup services  ## measure; prints what was measured, on what
	@$(BIN)/python -m benchmarks.event_to_action
	@$(BIN)/python -m benchmarks.direct_scrape
	@$(BIN)/python -m benchmarks.metric_rules

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
