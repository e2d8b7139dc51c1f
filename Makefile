# Every target sets up what it needs in .venv; Python 3.11 or newer with pip, and make, are all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip of the Python that made the environment installs into it: no ensurepip, which some distributions leave out.
INSTALL := "$$(readlink -f $(BIN)/python)" -m pip --disable-pip-version-check --python $(BIN)/python install --quiet -c constraints.txt

# Flower starts a process for each message: without bytecode each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

TESTS := $(BIN)/pytest -n auto --dist loadgroup

.PHONY: help demo flower test test-all test-times check lint bench format hooks clean

help:
	@echo "make demo        compare five policies on Setup 2: table, demo/report.html"
	@echo "make flower      install what fedtempo testbed needs"
	@echo "make test        run the tests, but for the slow ones: five minutes on two cores"
	@echo "make test-all    run make test, then the slow tests"
	@echo "make test-times  run make test, and list the 25 tests that take longest"
	@echo "make check       lint, types, direction of imports, make test"
	@echo "make bench       measure, as ratios, what the documentation claims"
	@echo "make format      format the code"
	@echo "make hooks       install the pre-commit hooks (pre-commit must be on the PATH)"
	@echo "make clean       remove .venv and caches"

demo: $(VENV)/.report
	@mkdir -p demo
	$(BIN)/fedtempo compare configs/setup2.toml --policies uniform,weighted,statistical,proposed,tempo --seeds 3 \
	  --target-loss 1.0 -o demo/runs --report demo/report.html

flower: $(VENV)/.flower

test: $(VENV)/.dev
	$(TESTS) -m "not slow"

test-all: test
	$(TESTS) -m slow

test-times: $(VENV)/.dev
	$(TESTS) -m "not slow" --durations=25

check: lint test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/adapter.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks:
	pre-commit install

clean:
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"fedtempo needs Python 3.11 or newer, got {sys.version}; run: make PYTHON=python3.11")'
	$(PYTHON) -m venv --without-pip $(VENV)
	$(INSTALL) pip

$(VENV)/.report: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[report]'
	@touch $@

$(VENV)/.flower: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[flower,report]'
	@touch $@ $(VENV)/.report

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[cvx,datasets,dev,flower-simulation,ray,report,torch]'
	@touch $@ $(VENV)/.flower $(VENV)/.report
