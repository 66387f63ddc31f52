"""
Celery's own public tests, run against sidekiq_celery under the import alias.

    python -m interop_tests.celery_upstream                 all chosen files
    python -m interop_tests.celery_upstream unit --quick    what continuous integration runs

Nothing of Celery is kept here: `source` fetches its release from PyPI into a cache. `chosen.toml` says which files are
run and why others are not, `expected_*.toml` which tests do not hold and why. A test that fails and is not listed, and
one that is listed and passes, both fail the run.
"""
