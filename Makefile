# Everything a person needs to work on Holdfast. `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
STAMP  := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of Python processes: without compiled modules most of their time would be spent on compiling.
unexport PYTHONDONTWRITEBYTECODE
# pyright speaks of newer releases otherwise; whatever it keeps, it keeps beside the tools.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PYRIGHT_PYTHON_CACHE_DIR := $(CURDIR)/$(VENV)/pyright
# Material for MkDocs announces its successor at every build otherwise: see docs/decisions/0020.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow exhaustive again check docs pictures bench torture clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make the environment in .venv (done by every other target as needed)

$(STAMP): $(CORE)
	@echo "Installing the tools of Holdfast into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Holdfast needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Install one and name it: make PYTHON=python3.12 $(or $(MAKECMDGOALS),setup)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "Could not make $(VENV). On Debian and Ubuntu the remedy is: apt install python3-venv" >&2; exit 1; }
	@echo "Installing Holdfast into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# On another store: make demo URL=mysql://user@localhost/shop, or STORE=mysql on a throw-away server.
ifneq ($(origin URL),command line)
URL := sqlite:///build/demo.db
endif
THROW_AWAY_redis := $(BIN)/python -m holdfast.testing.redis_server
THROW_AWAY_valkey := $(THROW_AWAY_redis)
THROW_AWAY_mysql := $(BIN)/python -m holdfast.testing.mysql_server mysql
THROW_AWAY_mariadb := $(BIN)/python -m holdfast.testing.mysql_server mariadb

demo: $(if $(STORE)$(filter-out sqlite:%,$(URL)),$(STAMP),$(CORE)) ## 100,000 jobs on SQLite (URL=…, STORE=mysql|mariadb|redis), with workers killed on the way, and a verdict
	@mkdir -p build
	@$(if $(STORE),$(if $(THROW_AWAY_$(STORE)),$(THROW_AWAY_$(STORE)) $(BIN)/holdfast demo, \
	  echo "STORE=$(STORE): a throw-away server can be mysql, mariadb or redis; name others by URL=" >&2; exit 2),$(BIN)/holdfast demo --url '$(URL)')

test: setup ## the suite, with a short torture of each store, without the slow tests and the house rules of `make check`
	@$(BIN)/pytest --ignore=tests/house -m "not slow and not torture" -n 3 --dist worksteal -q  # many of them wait: three fill two cores

test-slow: setup ## the tests that take seconds or start real processes
	@$(BIN)/pytest -m "slow and not torture" -n 3 --dist worksteal -q

exhaustive: setup ## by hand, hours: every pair of interleaved operations, all mutants, long simulations
	@$(BIN)/pytest -m torture -n 3 --dist worksteal -q

again: setup ## the tests that failed last time, one after another
	@$(BIN)/pytest --last-failed --last-failed-no-failures none -q

check: setup ## style, types, layers, house rules, and the documentation site without warnings
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pytest tests/house -q
	@$(MAKE) --no-print-directory docs >/dev/null

docs: setup ## the documentation site, in build/site
	@log=$$($(BIN)/mkdocs build --strict 2>&1) || { echo "$$log" >&2; exit 1; }  # --quiet would let warnings pass
	@echo "Open build/site/index.html; for search: $(PYTHON) -m http.server --directory build/site"

pictures: setup ## take the picture of the demo again, and pictures of every command and page in build/pictures
	@$(BIN)/python docs/pictures/demo.py
	@$(BIN)/python docs/pictures/lists.py
	@$(BIN)/python docs/pictures/dashboard.py

bench: setup ## benchmarks, as ratios to hand-written loops
	@$(BIN)/python -m benchmarks

torture: setup ## kill, freeze and cut off real workers for ten minutes each on SQLite and on throw-away servers: PostgreSQL, MariaDB and MySQL (streams, too), Redis
	@mkdir -p build
	@bad=0; \
	  $(BIN)/holdfast torture --profile standard --url sqlite:///build/torture.db --report build/torture-sqlite.json || bad=1; \
	  for server in postgresql mariadb mysql redis; do \
	    $(BIN)/holdfast torture --profile standard --server $$server --report build/torture-$$server.json || bad=1; \
	  done; \
	  for server in mariadb mysql; do \
	    $(BIN)/holdfast torture --profile standard --streams --server $$server --report build/torture-$$server-streams.json || bad=1; \
	  done; \
	  exit $$bad

clean: ## remove the environment, caches and build results
	@rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	@find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
