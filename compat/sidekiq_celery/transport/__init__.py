"""
Sidekiq's queues as a kombu transport: a program that uses the real Celery, or kombu alone, sends and receives jobs.

Importing this module registers the schemes `sidekiq://`, `sidekiqs://` (TLS) and `sidekiq+sentinel://`. Without the
import, set `broker_transport = "sidekiq_celery.transport:Transport"` in addition to a `redis://` URL.

A task becomes the same payload that `sidekiq_celery` writes for it, and any payload becomes a task: its class is the
name, its jid the id. Delivered jobs are in flight under an owner with a lease, as in our own workers: they are requeued
when the process dies, and never while it is alive. Remote control, events and replies work as in kombu's own transport
for Redis.
"""

from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis

from sidekiq_celery.transport.channel import Channel
from sidekiq_celery.transport.cycle import Cycle

__all__ = ("Channel", "Transport")


class Transport(kombu_redis.Transport):
    """
    The transport.

    `transport_options` may contain these options of kombu's transport for Redis: `global_keyprefix`,
    `queue_order_strategy`, `priority_steps`, `master_name` and `sentinel_kwargs`, `socket_timeout`,
    `socket_connect_timeout`, `health_check_interval`, `client_name`, `fanout_prefix`, `fanout_patterns`. It adds
    `sidekiq_version` (the Sidekiq release to write for, detected by default) and `lease_seconds` (30).
    `visibility_timeout` has no effect: a job is never requeued for running long.
    """

    Channel = Channel

    # Pass on the whole URL: kombu's copies of a connection would lose the fact that a server is a sentinel.
    can_parse_url = True

    implements = kombu_redis.Transport.implements.extend(batch_publish=False)
    supports_batch_publish = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle: Any = Cycle()


for _scheme in ("sidekiq", "sidekiqs", "sidekiq+sentinel"):
    TRANSPORT_ALIASES[_scheme] = "sidekiq_celery.transport:Transport"
