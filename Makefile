# Two commands matter: `make demo` and `make test`. Each does all of its own set-up in .venv.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help java browser prometheus shots docs demo test test-slow test-kafka check lint format lock clean

help:             ## what can be made here
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+: +##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ —/'

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Meander needs Python 3.11 or newer: install it, or say PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# Only pinned, hashed packages are installed, the build backend included.
$(VENV)/run.stamp: locks/run.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: locks/dev.txt $(VENV)/run.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/dev.txt
	@touch $@

# Spark needs Java 17 or newer. Installed without asking where that is allowed, else explained.
java: $(VENV)/run.stamp   ## make sure that there is a Java for Spark
	@sh scripts/java.sh $(BIN)/python

# The browser tests need Chromium and its driver. Installed where that needs no question, else skipped.
browser:                  ## make sure that there is a browser for the tests of the dashboard
	@sh scripts/browser.sh

# The tests of the metrics have a real Prometheus judge them, where Debian's package can be fetched.
prometheus: | $(BIN)/python  ## make sure that there is a Prometheus for the tests of the metrics
	@sh scripts/prometheus.sh $(VENV)/prometheus

demo: java                ## a stream on Spark, rescaled while it flows: live picture, check, report
	$(BIN)/meander demo

check: $(VENV)/dev.stamp  ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check java browser prometheus  ## checks and the default test tier
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-slow: $(VENV)/dev.stamp java   ## the long tier: 10,000 instances against brute force and more
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

test-kafka: $(VENV)/dev.stamp java  ## end to end with a real Kafka broker, where Maven can fetch one
	$(BIN)/python -m pytest -m kafka tests/kafka

shots: $(VENV)/dev.stamp browser  ## the dashboard's pictures in the docs, made anew by its tests
	MEANDER_SHOTS=docs/img $(BIN)/python -m pytest -q tests/dashboard/test_page.py -k "pictures or phone"

docs: $(VENV)/dev.stamp   ## the docs as a site, in site/: warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html; its search needs a server: $(BIN)/python -m http.server -b 127.0.0.1 -d site"

format: $(VENV)/dev.stamp ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: | $(BIN)/python     ## pin the dependencies again (after a change in pyproject.toml)
	$(BIN)/python -m pip install --quiet uv
	mkdir -p locks
	printf 'editables\nhatchling\npsutil>=7\n' > locks/.build.in  # the build backend; psutil for the laboratory
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml locks/.build.in -o locks/run.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml --group dev -o locks/dev.txt
	rm locks/.build.in

clean:                    ## remove what was made here
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
