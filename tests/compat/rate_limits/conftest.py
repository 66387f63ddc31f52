"""An app and a worker in this process; workers of `tests.compat.revokes.project` by the command line."""

from tests.compat.revokes.conftest import app, plain_app, project, start, worker

__all__ = ("app", "plain_app", "project", "start", "worker")
