"""An app and a worker in this process; workers of `tests.compat.revokes.project` by the command line."""

from tests.compat.revokes.conftest import project, start
from tests.compat.tasks.conftest import app, worker

__all__ = ("app", "project", "start", "worker")
