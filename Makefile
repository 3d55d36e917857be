# Two commands matter: `make demo` opens the page, `make test` checks everything.
# Both install into .venv and change nothing else; only `make browser` touches the system.

PYTHON      ?= python3
VENV        ?= .venv
CONSTRAINTS ?= constraints.txt
WORKERS     ?= 2
BENCHMARKS  ?= $(filter-out __init__ measure steps serving load official,$(patsubst benchmarks/%.py,%,$(wildcard benchmarks/*.py)))

venv_python := $(VENV)/bin/python
pip_install := $(venv_python) -m pip install --disable-pip-version-check -c $(CONSTRAINTS)

.DEFAULT_GOAL := help
.PHONY: help demo setup install test stage lint types tests test-fast test-slow test-browser cuda-tests javascript format notebooks ipynb solutions student lesson lab docs slides slides-html published browser node bench mutants clean

help:
	@echo "make demo      install what is needed, open the page on http://127.0.0.1:7860"
	@echo "make test      the same, then lint, types and all tests; the page's JavaScript where Node is there"
	@echo "make test-fast the tests that take less than a second, without browser and several processes"
	@echo "make cuda-tests the GPU path on a fake CUDA device, rare cases too; needs a C compiler, no GPU"
	@echo "make notebooks execute the lessons; LESSONS='3 a' for some"
	@echo "make ipynb     write the lessons as Jupyter notebooks into notebooks/ipynb"
	@echo "make solutions the same with solutions and answers into build/solutions, for teachers"
	@echo "make student   write a release without readable solutions into build/student"
	@echo "make lesson    execute a notebook with requirements-lessons.txt only; LESSON=b"
	@echo "make lab       open the lessons in Jupyter"
	@echo "make docs      execute the lessons and build the documentation in build/docs, which opens from disk"
	@echo "make slides    build the lecture's slides and their PDF in build/docs/slides; the PDF needs Chromium"
	@echo "make published the same and the executed notebooks, as the workflow publishes them"
	@echo "make setup     install what the page and the commands need; make install: what the tests need, too"
	@echo "make bench     every benchmark against its plain reference"
	@echo "make mutants   one-line faults that the tests must notice: half an hour"
	@echo "make format    ruff and, where Node is there, prettier over everything"
	@echo "make browser   install Chromium and nginx with apt-get, for the browser tests"
	@echo "make node      install Node with apt-get, for the checks of the page's JavaScript"
	@echo "make clean     remove .venv, caches and what tests wrote"

demo: $(VENV)/.installed
	@$(venv_python) -m app

setup: $(VENV)/.installed

install: $(VENV)/.installed-dev

# Stages name themselves. The times of the ten slowest tests follow each stage of tests.
test:
	@$(MAKE) --no-print-directory stage NAME="lint and types" RUN="lint types javascript"
	@$(MAKE) --no-print-directory stage NAME="fast tests" RUN="test-fast"
	@$(MAKE) --no-print-directory stage NAME="slow tests" RUN="test-slow"
	@$(MAKE) --no-print-directory stage NAME="browser tests" RUN="test-browser"

stage:
	@echo; echo "=== $(NAME)"
	@$(MAKE) --no-print-directory $(RUN)

# A browser shows about 95 characters of a cell of code without scrolling.
CELLS = notebooks/[0-9a-z]_*.py notebooks/answers notebooks/solutions.py notebooks/set_up.py
format_cells = $(venv_python) -m ruff format --line-length 95 --config 'format.exclude = []'

lint: $(VENV)/.installed-dev
	$(venv_python) -m ruff check .
	$(venv_python) -m ruff format --check .
	$(format_cells) --check $(CELLS)

types: $(VENV)/.installed-dev
	$(venv_python) -m mypy

format: $(VENV)/.installed-dev
	$(venv_python) -m ruff format .
	$(format_cells) $(CELLS)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory node_modules/.installed && npm run --silent format; fi

# Types, format and arithmetic of the page's own JavaScript. The page itself needs no Node.
javascript:
	@if command -v npm >/dev/null; then \
	    $(MAKE) --no-print-directory node_modules/.installed && \
	    npm run --silent lint && npm run --silent types && npm run --silent test; \
	elif [ "$$DINO_REQUIRE_NODE" = 1 ]; then \
	    echo "DINO_REQUIRE_NODE=1, but there is no npm here (make node)." >&2; exit 1; \
	else \
	    echo "Skipped: the checks of the page's JavaScript need Node and npm (make node)."; \
	fi

node_modules/.installed: package.json package-lock.json
	@npm ci --silent --no-audit --no-fund
	@touch $@

# Each worker computes on one thread: two workers with one thread each beat one with two.
run_tests = OMP_NUM_THREADS=1 $(venv_python) -m pytest -n $(WORKERS) --dist loadfile --durations 10

tests: $(VENV)/.installed-dev
	$(run_tests) $(PYTEST)

test-fast: $(VENV)/.installed-dev
	$(run_tests) -m "not slow and not browser" --ignore=tests/browser --ignore=tests/cuda

test-slow: $(VENV)/.installed-dev
	$(run_tests) -m "slow and not cuda_matrix"

cuda-tests: $(VENV)/.installed-dev
	$(run_tests) tests/cuda

test-browser: $(VENV)/.installed-dev
	$(run_tests) -m browser

notebooks: $(VENV)/.installed-notebooks
	$(venv_python) -m notebooks.execute $(LESSONS)

ipynb: $(VENV)/.installed-notebooks
	$(venv_python) -m notebooks.ipynb

solutions: $(VENV)/.installed-notebooks
	$(venv_python) -m notebooks.ipynb --solutions

student: $(VENV)/.installed-notebooks
	$(venv_python) -m notebooks.student

# The kernel has only the packages of the list; `jupyter execute` runs outside of it. Lesson B uses most packages.
LESSON      ?= b
LESSON_VENV ?= build/lesson-venv
lesson: $(VENV)/.installed-notebooks
	@$(venv_python) -m venv --clear $(LESSON_VENV)
	@$(LESSON_VENV)/bin/python -m pip install --disable-pip-version-check -q -r requirements-lessons.txt
	@$(LESSON_VENV)/bin/python -m pip install --disable-pip-version-check -q --no-deps -e .
	@$(LESSON_VENV)/bin/python -m ipykernel install --prefix $(LESSON_VENV) --name lesson
	JUPYTER_PATH=$(CURDIR)/$(LESSON_VENV)/share/jupyter PATH="$(CURDIR)/$(VENV)/bin:$$PATH" \
	    $(VENV)/bin/jupyter execute --kernel_name=lesson --timeout=900 \
	    --output=$(CURDIR)/build/lesson $(wildcard notebooks/ipynb/$(LESSON)_*.ipynb)

# A click on a lesson opens it as a notebook; without the setting, as text. Lessons name no kernel: Jupyter selects the
# one whose file has the path of its own Python.
lab: $(VENV)/.installed-notebooks
	@$(venv_python) -m ipykernel install --sys-prefix --name python3 >/dev/null
	@$(VENV)/bin/jupytext-config --settings-file $(VENV)/etc/jupyter/labconfig/default_setting_overrides.json \
	    set-default-viewer python
	@PYTHONWARNINGS="ignore:IProgress not found" $(venv_python) -m jupyter lab notebooks

# The build executes the lessons and caches their outputs in build/lessons until code or model change.
# REPOSITORY=https://github.com/OWNER/NAME takes the place of the address in pyproject.toml.
SPHINX = $(venv_python) -m sphinx -q -W --keep-going -c docs $(if $(REPOSITORY),-D repository=$(REPOSITORY))
docs: $(VENV)/.installed-docs node_modules/.installed slides-html
	@rm -rf build/extra
	$(venv_python) -m app.static_site build/extra/try
	$(venv_python) docs/lessons.py
	$(SPHINX) -b html -d build/doctrees . build/docs

slides-html: $(VENV)/.installed-docs
	$(SPHINX) -b revealjs -d build/doctrees-slides -t slides . build/docs/slides

slides: slides-html $(VENV)/.installed-dev
	$(venv_python) -m tools.slides

published: slides docs
	$(venv_python) -m notebooks.ipynb --output build/notebooks --executed build/executed \
	    $(if $(REPOSITORY),--repository $(REPOSITORY))

mutants: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(venv_python) -m tools.mutants

bench: $(VENV)/.installed
	@for name in $(BENCHMARKS); do $(venv_python) -m benchmarks.$$name || exit 1; done

# --- installation: a stamp per requirements file, so that the second run starts at once

$(VENV)/.installed: requirements.txt $(CONSTRAINTS) | $(venv_python)
	@echo "Installing into $(VENV): once, several GB where PyTorch comes with CUDA."
	@$(pip_install) -r requirements.txt
	@$(venv_python) -c "$$check_opencv"
	@touch $@

# With what lessons and book need: they have tests, too.
$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed-docs
	@$(pip_install) -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-notebooks: requirements-notebooks.txt $(VENV)/.installed
	@$(pip_install) -r requirements-notebooks.txt
	@$(pip_install) --no-deps -e .
	@touch $@

$(VENV)/.installed-docs: requirements-docs.txt $(VENV)/.installed-notebooks
	@$(pip_install) -r requirements-docs.txt
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

# --- the two targets that change the system

browser:
	@if command -v chromium >/dev/null; then echo "Chromium is there: $$(command -v chromium)"; \
	else $(call apt_install,chromium fonts-dejavu-core,Chromium so that the command 'chromium' exists); fi
	@if [ -x /usr/sbin/nginx ]; then echo "nginx is there"; else $(call apt_install,nginx-light,nginx); fi

node:
	@if command -v npm >/dev/null; then echo "Node is there: $$(node --version)"; \
	else $(call apt_install,nodejs npm,Node and npm); fi

define apt_install
if ! command -v apt-get >/dev/null; then \
    echo "No apt-get here: install $(2)." >&2; exit 1; \
else \
    sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
    $$sudo apt-get -o DPkg::Lock::Timeout=120 update && \
    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y \
        --no-install-recommends $(1); \
fi
endef

clean:
	rm -rf .venv node_modules build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/browser/output
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
