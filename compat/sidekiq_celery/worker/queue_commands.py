"""The queues of a running worker: `add_consumer` and `cancel_consumer`, for all its processes, present and future."""

import logging
from typing import TYPE_CHECKING, Any

from sidekiq_celery.worker.commands import control_command, nok, ok
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_celery.worker.engine_config import queue_configs
from sidekiq_py.payloads import escaped

if TYPE_CHECKING:
    from sidekiq_py.worker import Launcher

logger = logging.getLogger("celery.worker.consumer")

# The same limit as AMQP's.
_LONGEST_NAME = 255


@control_command(
    args=[("queue", str), ("exchange", str), ("exchange_type", str), ("routing_key", str)],
    signature="<queue> [exchange [type [routing_key]]]",
)
def add_consumer(
    state: Any,
    queue: str,
    exchange: str | None = None,
    exchange_type: str | None = None,
    routing_key: str | None = None,
    **options: Any,
) -> dict[str, str]:
    """Tell worker(s) to consume from task queue by name."""
    if problem := _problem_with(queue=queue, exchange=exchange, exchange_type=exchange_type, routing_key=routing_key):
        return nok(problem)
    about: dict[str, Any] = {
        "queue": queue,
        "exchange": exchange,
        "exchange_type": exchange_type,
        "routing_key": routing_key,
        "options": options,
    }
    # Applied here first, so that the caller gets the error for a bad queue and no process serves it.
    _select(state.app, **about)
    state.remote_control.tell_all("serve", **about)
    logger.info("Started consuming from %s", escaped(queue))
    return ok(f"add consumer {queue}")


@control_command(args=[("queue", str)], signature="<queue>")
def cancel_consumer(state: Any, queue: str, **kwargs: Any) -> dict[str, str]:
    """Tell worker(s) to stop consuming from task queue by name."""
    if problem := _problem_with(queue=queue):
        return nok(problem)
    state.remote_control.tell_all("leave", queue=queue)
    logger.info("Canceling queue %s", escaped(queue))
    return ok(f"no longer consuming from {queue}")


@on_message("serve")
def serve(recipient: Recipient, queue: str, **about: Any) -> None:
    """
    Serve one more queue.

    Raises:
        ValueError: *queue* is not a valid queue name.
    """
    if problem := _problem_with(queue=queue):
        raise ValueError(problem)
    _select(recipient.worker.app, queue, **about)
    _update_engine(recipient)


@on_message("leave")
def leave(recipient: Recipient, queue: str) -> None:
    """Stop serving a queue."""
    recipient.worker.app.amqp.queues.deselect(queue)
    _update_engine(recipient)


def serve_present_queues(app: Any, launcher: "Launcher") -> None:
    """
    Bring a process that starts after the worker's queues have changed up to date.

    An invalid queue name is logged and skipped: if it raised, no process could start.
    """
    for name in [name for name in app.amqp.queues.consume_from if not _is_text(name)]:
        logger.error("%.100r is not a queue name and is not served", name)
        app.amqp.queues.consume_from.pop(name)
    wanted = queue_configs(app)
    if launcher.reconfiguration.queues != [queue.name for queue in wanted]:
        launcher.reconfiguration.serve(wanted)


def _problem_with(queue: Any, **others: Any) -> str | None:
    """Say what is wrong with the names and what to do about it. Returns None if they are fine."""
    if not _is_text(queue) or not 0 < len(queue) <= _LONGEST_NAME:
        return f"{queue!r:.100} is not a queue name: a name is a text of up to {_LONGEST_NAME} characters"
    for name, value in others.items():
        if value not in (None, "") and not _is_text(value):
            return f"{name}={value!r:.100} is not text: give a text, or nothing"
    return None


def _is_text(name: Any) -> bool:
    try:
        return bool(name.encode())
    except (AttributeError, UnicodeEncodeError):
        return False


def _select(
    app: Any,
    queue: str,
    exchange: str | None = None,
    exchange_type: str | None = None,
    routing_key: str | None = None,
    options: Any = None,
) -> None:
    queues = app.amqp.queues
    if queue in queues:
        queues.select_add(queues[queue])
        return
    queues.select_add(
        queue,
        exchange=queue if exchange is None else exchange,
        exchange_type=exchange_type or "direct",
        routing_key=routing_key,
        **(options or {}),
    )


def _update_engine(recipient: Recipient) -> None:
    if recipient.launcher is not None:
        recipient.launcher.reconfiguration.serve(queue_configs(recipient.worker.app))
