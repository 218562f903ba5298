.DEFAULT_GOAL := help
.PHONY: help setup tools demo test suite test-fast test-all coverage bench lint types contracts docs image lock clean

# The first of these that is a Python 3.11 to 3.13; `make PYTHON=...` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# Modules are compiled once, not by each of the processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
# Processes that run tests at once. They share one JVM, one broker and one S3 server; each waits a good deal.
WORKERS ?= 4
# The tests that `make coverage` measures.
MARKER ?= not long
PYTEST = -m pytest -q -n $(WORKERS) --dist worksteal
SUITE = $(BIN)/python $(PYTEST)
PART = $(addprefix -,$(subst /,-of-,$(SHARD)))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## check Python and Java, make .venv, fetch the JVM libraries (quick when nothing changed)
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 found. Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; exit 6; }
	@PYTHONPATH=catalog:jobs "$(PYTHON)" -m lakebackup_jobs.runtime.bootstrap

tools: ## install what some tests need: a headless browser, Prometheus (as root, with apt-get)
	@.ci/tools

demo: setup ## set up, then back up topics from a real broker, lose them and restore them
	@$(BIN)/python -m lakebackup_jobs.demo.__main__

test: setup tools lint ## set up, then every check, and every test but the long ones
	@$(MAKE) --no-print-directory -j 3 types contracts docs suite

suite: setup ## the tests of make test, without the checks
	@echo "==> tests"
	@$(SUITE) --times build/times.txt

test-fast: setup ## rules and plans as values: no JVM, no server, no browser (six minutes on two cores)
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not spark and not kafka and not s3 and not browser and not long" \
		tests/unit tests/contract tests/sql

test-all: setup tools lint types contracts docs ## every test, the long ones too; SHARD=1/4 runs a quarter. Interrupted, it resumes
	@$(SUITE) -m "" --timeout 3600 --times build/times-all$(PART).txt --resume build/passed$(PART).txt $(SHARD:%=--shard %)

coverage: setup ## which lines the tests of make test run; MARKER= measures all tests
	@rm -rf build/coverage
	@$(BIN)/python -m coverage run $(PYTEST) -m "$(MARKER)" --timeout 3600
	@$(BIN)/python -m coverage combine -q; $(BIN)/python -m coverage report --sort=cover

bench: setup ## the benchmarks, next to other tools in the same run
	@$(BIN)/python -m tests.benchmarks

lint: setup ## ruff: rules and format
	@echo "==> lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: setup ## mypy --strict
	@echo "==> types"
	@$(BIN)/mypy

contracts: setup ## which package may import which
	@echo "==> import contracts"
	@$(BIN)/lint-imports

docs: setup ## the documentation as a site, in build/site; a broken link is an error
	@echo "==> docs"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f .ci/mkdocs.yml

image: ## a container image, where docker, podman or buildah is; lakebackup:<version>
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	for b in docker podman; do $$b info >/dev/null 2>&1 && exec $$b build -f .ci/Dockerfile -t lakebackup:$$version .; done; \
	command -v buildah >/dev/null && exec buildah build -f .ci/Dockerfile -t lakebackup:$$version .; \
	echo "error: no docker, podman or buildah is running here to build an image" >&2; exit 6

lock: ## renew requirements.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --upgrade --quiet -o requirements.lock

clean: ## remove .venv and what tools left here (the cache of JVM libraries stays)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
