"""Where the real Celery is, for tests that hold ours against it."""

import os
import sys
from importlib.util import find_spec

from tests.support.missing_tools import skip_or_fail

PYTHON_VARIABLE = "SIDEKIQ_PY_CELERY_PYTHON"


def python_with_celery() -> str:
    """A Python that has Celery: this one, or the one that a variable names; the test is skipped if there is none."""
    named = os.environ.get(PYTHON_VARIABLE)
    if named is None and find_spec("celery") is None:
        skip_or_fail(
            f"no Celery here: pip install -e '.[dev]', or name a Python that has it in {PYTHON_VARIABLE}",
            switch="SIDEKIQ_PY_REQUIRE_CELERY",
        )
    return named or sys.executable
