# Needs make and Python 3.10 or newer, nothing else. `make help` lists the targets.
PYTHON ?= python3
PYTHON310 ?= python3.10
PYTEST_ARGS ?= -n 2
FUZZ_ARGS ?= --cases 10000

VENV = .venv
OLDEST = .venv-oldest
NPU = .venv-npu
TORCH = $(shell sed -n 's/^torch==//p' constraints.txt)
PIP_INSTALL = -m pip install --disable-pip-version-check

.PHONY: help demo test test-slow test-browser test-npu test-oldest bench fuzz lint docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## builds the Huggy of assets/ into out/Huggy, and proves it equal
	$(VENV)/bin/graph2torch build assets/Huggy.onnx assets/Huggy.pt -o out/Huggy --force

test: $(VENV)/.installed ## the tests, with the versions of constraints.txt (PYTEST_ARGS="-n 2")
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-slow: $(VENV)/.installed ## the tests that compile or trace for seconds: exports by AOTInductor, torch.export and dynamo
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[dev,dynamo]'
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS) -m slow

test-browser: $(VENV)/.installed ## the pages in a real Chromium (Debian: apt-get install chromium)
	GRAPH2TORCH_BROWSER=1 $(VENV)/bin/python -m pytest -m browser tests/report

fuzz: $(VENV)/.installed ## hostile files by the thousand (FUZZ_ARGS="--cases 10000 --seed 1"; Linux)
	$(VENV)/bin/python -m tests.fuzz $(FUZZ_ARGS)

lint: $(VENV)/.installed ## style, format and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.installed ## the site of README.md and docs/, into out/site; no page of it needs the network
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

# The oldest environment that is supported: Python 3.10, torch 2.1.2 and numpy 1, as ML-Agents 1.1 users have them. It
# needs a python3.10 (or PYTHON310=/path/to/it) and is not part of continuous integration: torch 2.1.2 takes about 5 GB.
test-oldest: $(OLDEST)/.installed ## the tests on Python 3.10, torch 2.1.2 and numpy 1 (PYTHON310=python3.10)
	$(OLDEST)/bin/python -m pytest $(PYTEST_ARGS)

# The real torch_npu, without CANN and on a stand-in for it; it needs a C compiler, Linux, and no NPU. Not part of continuous
# integration: it takes an environment of its own, since torch_npu without CANN breaks a plain `import torch`.
test-npu: $(NPU)/.installed ## the tests with the real torch_npu on stand-in libraries, in an environment of its own
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 GRAPH2TORCH_NPU=1 $(NPU)/bin/python -m pytest tests/npu

bench: $(VENV)/.installed ## every figure of the README and of docs/, beside the last time's (BENCH_ARGS="startup --quick")
	$(VENV)/bin/python -m benchmarks $(BENCH_ARGS)

clean: ## removes what was built and cached; the environments .venv, .venv-oldest and .venv-npu stay
	rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is installed again only when what it is made from has changed. The package is installed in place (-e).
$(VENV)/.installed: pyproject.toml constraints.txt hatch_build.py | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	touch $@

$(OLDEST)/.installed: pyproject.toml hatch_build.py | $(OLDEST)/bin/python
	$(OLDEST)/bin/python $(PIP_INSTALL) -e '.[test]' 'torch==2.1.2' 'numpy<2'
	touch $@

$(NPU)/.installed: pyproject.toml constraints.txt hatch_build.py | $(NPU)/bin/python
	$(NPU)/bin/python $(PIP_INSTALL) -c constraints.txt -e '.[test]' 'torch-npu==$(TORCH)'
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(NPU)/bin/python:
	$(PYTHON) -m venv $(NPU)

$(OLDEST)/bin/python:
	$(PYTHON310) -m venv $(OLDEST)
