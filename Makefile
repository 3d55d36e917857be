# Two commands matter: `make demo` opens the page, `make test` checks everything.
# Both install into .venv and change nothing else; only `make browser` touches the system.

PYTHON      ?= python3
VENV        ?= .venv
CONSTRAINTS ?= constraints.txt
WORKERS     ?= 2
BENCHMARKS  ?= $(filter-out __init__ measure browsing serving load,$(patsubst benchmarks/%.py,%,$(wildcard benchmarks/*.py)))

venv_python := $(VENV)/bin/python
pip_install := $(venv_python) -m pip install --disable-pip-version-check -c $(CONSTRAINTS)

.DEFAULT_GOAL := help
.PHONY: help demo setup test lint types tests browser bench clean

help:
	@echo "make demo      install what is needed, open the page on http://127.0.0.1:7860"
	@echo "make test      the same, then lint, types and all tests"
	@echo "make setup     install only"
	@echo "make bench     every benchmark against its plain reference"
	@echo "make browser   install Chromium with apt-get, for the browser tests"
	@echo "make clean     remove .venv, caches and what tests wrote"

demo: $(VENV)/.installed
	@$(venv_python) -m app

setup: $(VENV)/.installed

test: lint types tests

lint: $(VENV)/.installed-dev
	$(venv_python) -m ruff check .
	$(venv_python) -m ruff format --check .

types: $(VENV)/.installed-dev
	$(venv_python) -m mypy

# Each worker computes on one thread: two workers with one thread each beat one with two.
tests: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(venv_python) -m pytest -n $(WORKERS) --dist loadfile $(PYTEST)

bench: $(VENV)/.installed
	@for name in $(BENCHMARKS); do $(venv_python) -m benchmarks.$$name || exit 1; done

# --- installation: a stamp per requirements file, so that the second run starts at once

$(VENV)/.installed: requirements.txt $(CONSTRAINTS) | $(venv_python)
	@echo "Installing into $(VENV): once, several GB where PyTorch comes with CUDA."
	@$(pip_install) -r requirements.txt
	@$(venv_python) -c "$$check_opencv"
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	@$(pip_install) -r requirements-dev.txt
	@touch $@

$(venv_python):
	@for python in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    "$$python" -m venv $(VENV) && exit 0; \
	    rm -f $(VENV)/bin/python*; \
	    echo "$$python cannot create $(VENV): install its venv package (Debian, Ubuntu: apt-get install python3-venv)." >&2; \
	    exit 1; \
	done; \
	echo "No Python 3.11 or newer found: install one, or name it: make demo PYTHON=/path/to/python3.12" >&2; \
	exit 1

define check_opencv
try:
    import cv2
except ImportError as error:
    raise SystemExit(
        f"OpenCV cannot start ({error}): install the missing system library and run this again "
        "(Debian, Ubuntu: apt-get install libgl1 libglib2.0-0)."
    )
endef
export check_opencv

# --- the one target that changes the system

browser:
	@if command -v chromium >/dev/null; then echo "Chromium is there: $$(command -v chromium)"; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "No apt-get here: install Chromium so that the command 'chromium' exists." >&2; exit 1; \
	else \
	    sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$sudo apt-get -o DPkg::Lock::Timeout=120 update && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y \
	        --no-install-recommends chromium fonts-dejavu-core; \
	fi

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/browser/output
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
