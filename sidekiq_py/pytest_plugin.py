"""
pytest plug-in: the fixture `sidekiq_jobs`.

    def test_signing_up_sends_a_mail(sidekiq_jobs):
        sign_up("bob")
        sidekiq_jobs.assert_enqueued("Mailer", args=["bob"])

pytest loads it in every project where this library is installed, so nothing is imported before the fixture is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sidekiq_py.testing import EnqueuedJobs


@pytest.fixture
def sidekiq_jobs() -> "Iterator[EnqueuedJobs]":
    """Jobs are kept in memory, for all threads and tasks of the process; the value is what was enqueued."""
    from sidekiq_py.testing import fake

    with fake(everywhere=True) as enqueued:
        yield enqueued
