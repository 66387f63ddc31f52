"""
Remote control commands of a worker.

A program adds its own with `@control_command` and `@inspect_command` in a module that its workers import. Their first
argument is `state`, which `sidekiq_celery.worker.remote_control` describes. The commands that each worker has can be
imported from here, too; programs give them by `app.control`.
"""

from sidekiq_celery.worker.commands import Panel, control_command, controller_info_t, inspect_command, nok, ok
from sidekiq_celery.worker.inspect_commands import (  # noqa: F401
    active,
    active_queues,
    clock,
    conf,
    election,
    hello,
    memdump,
    memsample,
    objgraph,
    ping,
    query_task,
    registered,
    report,
    reserved,
    scheduled,
    shutdown,
    stats,
)
from sidekiq_celery.worker.limit_commands import rate_limit, time_limit  # noqa: F401
from sidekiq_celery.worker.monitoring import disable_events, enable_events, heartbeat  # noqa: F401
from sidekiq_celery.worker.queue_commands import add_consumer, cancel_consumer  # noqa: F401
from sidekiq_celery.worker.revoke_commands import revoke, revoke_by_stamped_headers, revoked, terminate  # noqa: F401
from sidekiq_celery.worker.scaling import autoscale, pool_grow, pool_restart, pool_shrink  # noqa: F401

__all__ = ("Panel", "control_command", "controller_info_t", "inspect_command", "nok", "ok")
