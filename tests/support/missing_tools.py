"""What a test does when a program it needs is not installed: skip on a developer's machine, fail in CI."""

import os
from typing import NoReturn

import pytest


def is_required(switch: str) -> bool:
    """Whether a missing program is a failure: in CI always, elsewhere when the environment sets *switch* to 1."""
    return os.environ.get("CI", "").lower() in {"1", "true"} or os.environ.get(switch) == "1"


def skip_or_fail(reason: str, *, switch: str) -> NoReturn:
    """
    Leave the running test: a skip where the program may be missing, a failure where nothing may be skipped.

    Args:
        reason: What is missing and how to get it.
        switch: The environment variable that makes this program required, such as `SIDEKIQ_PY_REQUIRE_RUBY`.
    """
    if is_required(switch):
        pytest.fail(f"{reason} (required: CI or {switch} is set)", pytrace=False)
    pytest.skip(reason)
