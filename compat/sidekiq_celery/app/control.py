"""Remote control of workers, from a client: `app.control` and `app.control.inspect()`."""

import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from kombu.pidbox import Mailbox as _Mailbox

from sidekiq_celery.app.inspection import Callback, Inspect, flatten_reply
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.objects import cached_property

__all__ = ("Control", "Inspect", "flatten_reply")

TERM_SIGNAME = "SIGTERM"


class _PooledMailbox(_Mailbox):
    """Uses the app's own producers, including those that it has after a fork."""

    app: Any = None

    @property
    def producer_pool(self) -> Any:
        return self.app.amqp.producer_pool


class Control:
    """
    Sends commands to workers.

    Args:
        app: The app whose workers are addressed.

    Methods also take the keywords of `broadcast`.

    Raises:
        ImproperlyConfigured: `control_queue_durable` and `control_queue_exclusive` are both true.
    """

    Mailbox: Any = _PooledMailbox

    def __init__(self, app: Any = None) -> None:
        self.app = app
        conf = app.conf
        if conf.control_queue_durable and conf.control_queue_exclusive:
            raise ImproperlyConfigured(
                "control_queue_durable and control_queue_exclusive cannot both be True "
                "(exclusive queues are automatically deleted and cannot be durable)."
            )
        # kombu supports these since 5.6.
        kinds = {"queue_exclusive": conf.control_queue_exclusive, "queue_durable": conf.control_queue_durable}
        known = signature(self.Mailbox).parameters
        self.mailbox = self.Mailbox(
            conf.control_exchange,
            type="fanout",
            accept=conf.accept_content,
            serializer=conf.task_serializer,
            queue_ttl=conf.control_queue_ttl,
            reply_queue_ttl=conf.control_queue_ttl,
            queue_expires=conf.control_queue_expires,
            reply_queue_expires=conf.control_queue_expires,
            **{name: value for name, value in kinds.items() if name in known},
        )
        self.mailbox.app = app

    @cached_property
    def inspect(self) -> type[Inspect]:
        """`Inspect` for this app: `app.control.inspect(timeout=2).active()`."""
        return type("Inspect", (Inspect,), {"app": self.app, "__module__": Inspect.__module__})

    def purge(self, connection: Any = None) -> int:
        """Remove all waiting tasks from the app's queues. Returns how many there were."""
        from sidekiq_celery._send.emptying import purge

        return purge(self.app, list(self.app.amqp.queues.consume_from))

    discard_all = purge

    def election(self, id: str, topic: str, action: Any = None, connection: Any = None) -> None:
        """Do nothing: workers here hold no elections, as none of them leads."""
        warnings.warn("workers of sidekiq_celery hold no elections: control.election() has no effect", stacklevel=2)

    def revoke(
        self, task_id: Any, destination: Any = None, terminate: bool = False, signal: Any = TERM_SIGNAME, **kwargs: Any
    ) -> Any:
        """
        Keep tasks from running.

        Args:
            task_id: An id, or several.
            terminate: Also end those that are running, with *signal*.

        The revoke is written to Redis before workers are notified, so it also takes effect when none is running, and
        for workers that start later. Tasks that have not started when this returns never will, whatever the
        *destination*.

        Raises:
            ValueError: An id contains a quote, a backslash or a control character.
        """
        from sidekiq_celery._admission import revokes

        revokes.revoke(self.app, task_id, waits=not terminate)
        arguments = {"task_id": task_id, "terminate": terminate, "signal": signal}
        return self.broadcast("revoke", destination=destination, arguments=arguments, **kwargs)

    def revoke_by_stamped_headers(
        self,
        headers: Mapping[str, Any],
        destination: Any = None,
        terminate: bool = False,
        signal: Any = TERM_SIGNAME,
        **kwargs: Any,
    ) -> Any:
        """Keep all tasks with these stamps from running. The revoke is written to Redis, as by `revoke`."""
        from sidekiq_celery._admission import revokes

        revokes.revoke_stamped(self.app, headers, waits=not terminate)
        arguments = {"headers": headers, "terminate": terminate, "signal": signal}
        return self.broadcast("revoke_by_stamped_headers", destination=destination, arguments=arguments, **kwargs)

    def terminate(self, task_id: Any, destination: Any = None, signal: Any = TERM_SIGNAME, **kwargs: Any) -> Any:
        """End tasks that are running, and keep waiting ones from running."""
        return self.revoke(task_id, destination=destination, terminate=True, signal=signal, **kwargs)

    def ping(self, destination: Any = None, timeout: float = 1.0, **kwargs: Any) -> Any:
        """Ask which workers are running: `[{node: {"ok": "pong"}}, …]`."""
        return self.broadcast("ping", reply=True, arguments={}, destination=destination, timeout=timeout, **kwargs)

    def rate_limit(self, task_name: str, rate_limit: Any, destination: Any = None, **kwargs: Any) -> Any:
        """Set how often a task may run, as in `100/m`; 0 for no limit."""
        arguments = {"task_name": task_name, "rate_limit": rate_limit}
        return self.broadcast("rate_limit", destination=destination, arguments=arguments, **kwargs)

    def add_consumer(
        self,
        queue: str,
        exchange: str | None = None,
        exchange_type: str = "direct",
        routing_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        destination: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Serve one more queue."""
        arguments = {"queue": queue, "exchange": exchange, "exchange_type": exchange_type, "routing_key": routing_key}
        return self.broadcast(
            "add_consumer", destination=destination, arguments={**arguments, **(options or {})}, **kwargs
        )

    def cancel_consumer(self, queue: str, destination: Any = None, **kwargs: Any) -> Any:
        """Stop serving a queue."""
        return self.broadcast("cancel_consumer", destination=destination, arguments={"queue": queue}, **kwargs)

    def time_limit(
        self,
        task_name: str,
        soft: float | None = None,
        hard: float | None = None,
        destination: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Set a task's time limits, in seconds."""
        arguments = {"task_name": task_name, "hard": hard, "soft": soft}
        return self.broadcast("time_limit", arguments=arguments, destination=destination, **kwargs)

    def enable_events(self, destination: Any = None, **kwargs: Any) -> Any:
        """Turn task events on."""
        return self.broadcast("enable_events", arguments={}, destination=destination, **kwargs)

    def disable_events(self, destination: Any = None, **kwargs: Any) -> Any:
        """Turn task events off."""
        return self.broadcast("disable_events", arguments={}, destination=destination, **kwargs)

    def pool_grow(self, n: int = 1, destination: Any = None, **kwargs: Any) -> Any:
        """Run *n* more tasks at once."""
        return self.broadcast("pool_grow", arguments={"n": n}, destination=destination, **kwargs)

    def pool_shrink(self, n: int = 1, destination: Any = None, **kwargs: Any) -> Any:
        """Run *n* fewer tasks at once."""
        return self.broadcast("pool_shrink", arguments={"n": n}, destination=destination, **kwargs)

    def autoscale(self, max: int, min: int, destination: Any = None, **kwargs: Any) -> Any:
        """Set the range in which the pool grows and shrinks."""
        return self.broadcast("autoscale", arguments={"max": max, "min": min}, destination=destination, **kwargs)

    def shutdown(self, destination: Any = None, **kwargs: Any) -> Any:
        """Stop workers warmly."""
        return self.broadcast("shutdown", arguments={}, destination=destination, **kwargs)

    def pool_restart(
        self,
        modules: Sequence[str] | None = None,
        reload: bool = False,
        reloader: Any = None,
        destination: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Replace the pool's processes."""
        arguments = {"modules": modules, "reload": reload, "reloader": reloader}
        return self.broadcast("pool_restart", arguments=arguments, destination=destination, **kwargs)

    def heartbeat(self, destination: Any = None, **kwargs: Any) -> Any:
        """Let workers send a heartbeat event now."""
        return self.broadcast("heartbeat", arguments={}, destination=destination, **kwargs)

    def broadcast(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        destination: Any = None,
        connection: Any = None,
        reply: bool = False,
        timeout: float | None = 1.0,
        limit: int | None = None,
        callback: Callback | None = None,
        channel: Any = None,
        pattern: str | None = None,
        matcher: str | None = None,
        **extra_kwargs: Any,
    ) -> Any:
        """
        Send a command to workers.

        Args:
            command: The command's name.
            arguments: The command's keyword arguments. Further keywords are added to them.
            destination: A list of node names; None for all.
            connection: A kombu connection to use instead of one of the app's.
            reply: Wait for replies.
            timeout: Seconds to wait; each reply extends the wait.
            limit: The number of replies to wait for; by default the number of names in *destination*.
            callback: Called with each reply as it arrives.
            channel: A kombu channel of *connection*.
            pattern, matcher: Send only to nodes whose names match; both are needed. *matcher* is `glob` or `pcre`.

        Returns:
            The replies, `[{node: …}, …]`; None if *reply* is false.

        Raises:
            ValueError: *destination* is a text; put it in a list.
        """
        given = {**(arguments or {}), **extra_kwargs}
        matching = {"pattern": pattern, "matcher": matcher} if pattern and matcher else {}
        with self.app.connection_or_acquire(connection) as conn:
            return self.mailbox(conn)._broadcast(
                command, given, destination, reply, timeout, limit, callback, channel=channel, **matching
            )
