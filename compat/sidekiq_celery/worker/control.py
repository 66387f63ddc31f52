"""
Remote control commands of a worker.

A program adds its own with `@control_command` and `@inspect_command` in a module that its workers import. Their first
argument is `state`, which `sidekiq_celery.worker.remote_control` describes.
"""

from sidekiq_celery.worker import (
    inspect_commands,
    monitoring,
    queue_commands,
    rate_limit_command,
    revoke_commands,
    scaling,
    time_limit_command,
)
from sidekiq_celery.worker.commands import Panel, control_command, controller_info_t, inspect_command, nok, ok

__all__ = (
    "Panel",
    "control_command",
    "controller_info_t",
    "inspect_command",
    "inspect_commands",
    "monitoring",
    "nok",
    "ok",
    "queue_commands",
    "rate_limit_command",
    "revoke_commands",
    "scaling",
    "time_limit_command",
)
