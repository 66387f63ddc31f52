"""
Remote control commands of a worker.

A program adds its own with `@control_command` and `@inspect_command` in a module that its workers import. Their first
argument is `state`, which `sidekiq_celery.worker.remote_control` describes.
"""

# Each adds its commands.
from sidekiq_celery.worker import (  # noqa: F401
    inspect_commands,
    limit_commands,
    monitoring,
    queue_commands,
    revoke_commands,
    scaling,
)
from sidekiq_celery.worker.commands import Panel, control_command, controller_info_t, inspect_command, nok, ok

__all__ = ("Panel", "control_command", "controller_info_t", "inspect_command", "nok", "ok")
