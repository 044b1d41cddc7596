# Every verb works on a bare machine: the first call makes the virtual environment, later calls install nothing.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SPHINX = $(BIN)/python -m sphinx -b html -c docs -n -W --keep-going -q
EXTRAS := dev,cli,report,export,serve,sweep,faces,docs

.PHONY: help install test quick check format bench demo docs slides clean

help:            ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

install: $(INSTALLED)    ## Make the virtual environment and install the package into it

test: $(INSTALLED)       ## Every test, in parallel
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

quick: $(INSTALLED)      ## The tests that take under ten seconds each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

check: $(INSTALLED)      ## Style, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)     ## Put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)      ## Speed against the plain per-class loop, as ratios in one run
	$(BIN)/python -m benchmarks.surrogates

.PHONY: results
results: $(INSTALLED)    ## Tables, plots and summary.json from the stored results of the studies
	$(BIN)/python -m studies.publish

.PHONY: reproduce
reproduce: $(INSTALLED)  ## Every study behind the results, or STUDY=name, anew: DATA=folder WORKERS=n
	$(BIN)/python -m studies.reproduce $(STUDY) --workers $(or $(WORKERS),1) $(if $(DATA),--data-root $(DATA))

demo: $(INSTALLED)       ## Train a small split model with and without a surrogate and print what changed
	$(BIN)/python -m attention_cem.demo

docs: $(INSTALLED)       ## The handbook in both languages, offline, into docs/_build/html
	$(SPHINX) -d docs/_build/doctrees/en docs/en docs/_build/html/en
	$(SPHINX) -t zh -d docs/_build/doctrees/zh docs/zh docs/_build/html/zh
	cp docs/index.html docs/_build/html/index.html
	@echo "Now open docs/_build/html/index.html in a browser."

slides: $(INSTALLED)     ## The deck for a group meeting
	$(BIN)/python -m slides.build

clean:           ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist docs/_build
