# make demo    the main job on the embedded model and data: table on the screen, report.html in ostta-demo/;
#              `ostta demo photos` is the same on photographs
# make test    lint, types, import contracts and tests
# make test-all   the same with the tests that take long: processes that are killed, a Ray cluster, a real RTSP server
# make docs    the pages as a site, in site/index.html
# make fuzz    100,000 damaged inputs of every kind; COUNT and SEED for others, KINDS for some kinds only
# PIP_ARGS     extra arguments for pip, such as --index-url for a CPU build of torch

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt --only-binary :all: $(PIP_ARGS)
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON := $(shell for p in python3.11 python3 python3.12 python3.13 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c "$(NEW_ENOUGH)" 2>/dev/null && echo $$p && break; done)

.PHONY: demo test test-all lint docs fuzz bench clean

demo: $(VENV)/run.stamp
	$(BIN)/ostta demo
	@echo 'To use the command ostta in this shell: . $(BIN)/activate'

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: lint
	$(PYTEST) -m "not slow"

test-all: lint
	$(PYTEST)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo site/index.html

fuzz: $(VENV)/dev.stamp
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m fuzz $(KINDS) --count $(or $(COUNT),100000) --seed $(or $(SEED),0)

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks

$(VENV)/run.stamp: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "ostta needs Python 3.11 or newer: install it, or put it on the PATH."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes a minute or two) ..."
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e ".[bench,cli,clip,hub,lora,serve,stream,video]"
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@$(PIP) --no-build-isolation -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) ostta-demo ostta-runs site fuzz-failures .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
