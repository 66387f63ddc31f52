"""
Remote control commands of a worker.

A program adds its own by `@control_command` and `@inspect_command` in a module that its workers import; the first
argument is `state`, which `sidekiq_celery.worker.steward` describes.
"""

from sidekiq_celery.worker import consuming, inspecting, limits, monitoring, rate_limiting, revoking, scaling
from sidekiq_celery.worker.panel import Panel, control_command, controller_info_t, inspect_command, nok, ok

__all__ = (
    "Panel",
    "consuming",
    "control_command",
    "controller_info_t",
    "inspect_command",
    "inspecting",
    "limits",
    "monitoring",
    "nok",
    "ok",
    "rate_limiting",
    "revoking",
    "scaling",
)
