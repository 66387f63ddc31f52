"""
Sidekiq's queues as a transport of kombu: a program of the real Celery, or of kombu alone, sends and receives jobs.

Importing this module registers the schemes `sidekiq://`, `sidekiqs://` (TLS) and `sidekiq+sentinel://`. Without an
import, `broker_transport = "sidekiq_celery.transport:Transport"` names it beside a `redis://` URL.

A task becomes the payload that `sidekiq_celery` writes for it, and any payload becomes a task: its class is the name,
its jid the id. Jobs that are delivered are in flight under an owner with a lease, as in a worker of ours, so that they
come back when the process dies, and never while it lives. Remote control, events and replies go as in kombu's own
transport for Redis.
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

    What `transport_options` may hold: `global_keyprefix`, `queue_order_strategy`, `priority_steps`, `master_name` and
    `sentinel_kwargs`, `socket_timeout`, `socket_connect_timeout`, `health_check_interval`, `client_name`,
    `fanout_prefix`, `fanout_patterns` as in kombu's for Redis; of its own, `sidekiq_version` (the release to write for;
    else it is detected) and `lease_seconds` (30). `visibility_timeout` has no effect: nothing comes back because it
    runs long.
    """

    Channel = Channel

    # The whole URL is handed on: kombu's copies of a connection would forget that a server is a sentinel.
    can_parse_url = True

    implements = kombu_redis.Transport.implements.extend(batch_publish=False)
    supports_batch_publish = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle: Any = Cycle()


for _scheme in ("sidekiq", "sidekiqs", "sidekiq+sentinel"):
    TRANSPORT_ALIASES[_scheme] = "sidekiq_celery.transport:Transport"
