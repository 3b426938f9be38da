# Everything a newcomer types. `make help` lists the targets; each keeps what it makes in .venv, .build, target and traces.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/sh

PYTHON ?=
ONCE ?=
QUICK ?=
PYTEST_ARGS ?=
# Two more than the two cores of CI: live tests, which run one after the other in two queues, and many of the store's
# mostly wait.
PYTEST_WORKERS ?= 4
# A file is run by one worker, so that its servers, browsers and captures are made once.
PYTEST = $(VENV)/python -m pytest -q -n $(PYTEST_WORKERS) --dist loadfile
export PYTHON

VENV := .venv/bin
STAMP := .build/setup.stamp
CRATES := tracer/core collector/core
CARGO := cargo

# Python keeps what it compiles also where the caller's environment forbids it: without, each of the hundreds of processes
# that tests start compiles all of its imports anew, and pytest rewrites every test module in each worker.
unexport PYTHONDONTWRITEBYTECODE

# rustup's cargo before a distribution's older one, also in a shell that has not read ~/.cargo/env.
CARGO_BIN := $(shell bin="$${CARGO_HOME:-$$HOME/.cargo}/bin"; [ -x "$$bin/cargo" ] && echo "$$bin")
ifneq ($(CARGO_BIN),)
export PATH := $(CARGO_BIN):$(PATH)
endif

# pip and cargo keep caches in HOME. Where it cannot be written they live in .build, and rustup is still found.
ifneq ($(shell home="$${CARGO_HOME:-$$HOME/.cargo}"; [ -d "$$home" ] || home="$$HOME"; [ -w "$$home" ] && [ -w "$$HOME" ] && echo writable),writable)
export RUSTUP_HOME := $(or $(RUSTUP_HOME),$(HOME)/.rustup)
export CARGO_HOME := $(CURDIR)/.build/cargo
export HOME := $(CURDIR)/.build/home
endif

# What the installation is made from. A checkout that moved, or lost an extension, is set up again.
SETUP_INPUTS := setup.py setup.cfg pyproject.toml constraints.txt requirements.txt scripts/setup scripts/build_backend.py \
	Cargo.toml Cargo.lock \
	$(shell find $(CRATES) -name '*.rs' -o -name Cargo.toml)
ifneq ($(shell sed -n 1p $(STAMP) 2>/dev/null),$(CURDIR))
SETUP_INPUTS += again
endif
ifneq ($(words $(wildcard tracer/_capture*.so collector/_core*.so)),2)
SETUP_INPUTS += again
endif

.PHONY: help setup demo test lint lint-python lint-rust lint-page test-rust test-python miri bench captures dist check-dist constraints clean again

help: ## List the targets
	@echo 'Usage: make TARGET'
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make .venv with everything pinned and build both extensions (quick when nothing changed)
	@[ "$(MAKECMDGOALS)" != setup ] || echo 'setup: .venv is up to date'

$(STAMP): $(SETUP_INPUTS)
	@scripts/setup

demo: setup ## Upload one byte to the bundled cluster, show where the time went (ONCE=1: check the page and exit)
	@$(VENV)/python scripts/demo $(if $(ONCE),--once)

ifneq ($(QUICK),)
test: lint-python ## Run every check and every test, Rust's beside Python's (QUICK=1: Python's quick ones)
	@echo 'test: the quick tests of Python; `make test` runs them all'
	@$(PYTEST) --quick $(PYTEST_ARGS)
else
test: setup
	@scripts/preconditions tests
	@scripts/beside .build/test-rust.log '$(MAKE) --no-print-directory lint-rust test-rust' \
		'$(MAKE) --no-print-directory lint-python test-python'
endif

lint: lint-python lint-rust lint-page ## Check style and types only: ruff, mypy, cargo fmt, clippy, tsc

lint-python: setup ## Check the style and types of Python only
	@echo 'lint: ruff'
	@$(VENV)/ruff check -q .
	@$(VENV)/ruff format -q --check .
	@echo 'lint: mypy'
	@$(VENV)/mypy --no-error-summary

lint-rust: setup ## Check the style of Rust only
	@echo 'lint: cargo fmt, clippy'
	@$(CARGO) fmt --all --check
	@PYO3_PYTHON="$(CURDIR)/$(VENV)/python" $(CARGO) clippy -q --workspace --all-targets -- -D warnings
	@$(CARGO) clippy -q -p twintap-links --all-targets --features tunable -- -D warnings

lint-page: ## Check the types of the page's scripts only (needs npm; else says that it does not)
	@echo 'lint: tsc'
	@scripts/lint-page

test-rust: setup ## Run the Rust tests only
	@echo 'test: Rust'
	@$(CARGO) test -q --workspace --exclude twintap-capture-python --exclude twintap-core-python

# In a fresh checkout one process compiles what is imported: all workers at once would each compile all of it, 10 s of
# CPU time.
test-python: setup ## Run the Python tests only
	@echo 'test: Python'
	@[ -d tests/__pycache__ ] || $(VENV)/python -m pytest -q --collect-only >/dev/null 2>&1 || true
	@$(PYTEST) $(PYTEST_ARGS)

miri: ## Run the tests of the crates without `unsafe` under Miri (needs: rustup component add miri rust-src --toolchain nightly)
	@MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -q --lib --test connections --test scripts --test round_trip \
		-p twintap-columns -p twintap-wire -p twintap-partitions -p twintap-matching -p twintap-exchanges -p twintap-hops -p twintap-links \
		-p twintap-spans -p twintap-tables -- --skip every_byte --skip anything_goes

bench: setup ## Measure decode, match, end to end and the agent against tshark, dpkt, tcpdump (QUICK=1: one minute)
	@$(VENV)/python -m benchmarks.run $(if $(QUICK),--quick)

captures: setup ## Make the bundled captures again from the bundled cluster, and check them with tshark
	@$(VENV)/python captures/generate
	@$(VENV)/python captures/verify

dist: setup ## Make dist/: wheels, the agent in one file, Debian packages, their digests; for hosts without the checkout
	@$(VENV)/python scripts/dist

check-dist: ## Check what `make dist` made: digests, manifests, packages in a clean Debian root (needs root, mmdebstrap)
	@scripts/check-dist

constraints: ## Pin every version anew, to the newest that fit together, with the hashes of their files
	@scripts/constraints

clean: ## Remove what the targets above made, traces included
	@rm -rf .venv .build build dist traces target twintap.egg-info tracer/_*.so tracer/_agent collector/_core*.so benchmarks/results \
		collector/core/python/build collector/core/python/*.egg-info \
		.mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
