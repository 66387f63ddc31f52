"""
Celery's own public tests, run against sidekiq_celery under the import alias.

    python -m interop_tests.celery_upstream                 all chosen files
    python -m interop_tests.celery_upstream unit --quick    what continuous integration runs

No Celery code is stored here: `source` fetches its release from PyPI into a cache. `chosen.toml` lists the files that
are run and why others are not; `expected_*.toml` list the tests that are expected to fail and why. The run fails if an
unlisted test fails, or if a listed one passes.
"""
