"""An app, and a worker that runs its tasks."""

from tests.compat.tasks.conftest import app, worker

__all__ = ("app", "worker")
