"""The queues of a running worker: `add_consumer` and `cancel_consumer`, for all its processes and those to come."""

import logging
from typing import TYPE_CHECKING, Any

from sidekiq_celery.worker.engine_config import queue_configs
from sidekiq_celery.worker.panel import control_command, nok, ok
from sidekiq_celery.worker.relay import Place, on_message

if TYPE_CHECKING:
    from sidekiq_py.engine.launcher import Launcher

__all__ = ("serve_present_queues",)

logger = logging.getLogger("celery.worker.consumer")


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
    if not queue:
        return nok("name a queue")
    about: dict[str, Any] = {
        "queue": queue,
        "exchange": exchange,
        "exchange_type": exchange_type,
        "routing_key": routing_key,
        "options": options,
    }
    # Here first: what cannot be a queue is told to the caller, and nobody serves it.
    _select(state.app, **about)
    state.steward.tell_all("serve", **about)
    logger.info("Started consuming from %s", queue)
    return ok(f"add consumer {queue}")


@control_command(args=[("queue", str)], signature="<queue>")
def cancel_consumer(state: Any, queue: str, **kwargs: Any) -> dict[str, str]:
    """Tell worker(s) to stop consuming from task queue by name."""
    state.steward.tell_all("leave", queue=queue)
    logger.info("Canceling queue %s", queue)
    return ok(f"no longer consuming from {queue}")


@on_message("serve")
def serve(place: Place, queue: str, **about: Any) -> None:
    """Serve one more queue."""
    _select(place.worker.app, queue, **about)
    _tell_engine(place)


@on_message("leave")
def leave(place: Place, queue: str) -> None:
    """Serve a queue no more."""
    place.worker.app.amqp.queues.deselect(queue)
    _tell_engine(place)


def serve_present_queues(app: Any, launcher: "Launcher") -> None:
    """For a process that is made after the worker's queues have changed."""
    wanted = queue_configs(app)
    if launcher.shape.queues != [queue.name for queue in wanted]:
        launcher.shape.serve(wanted)


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


def _tell_engine(place: Place) -> None:
    if place.launcher is not None:
        place.launcher.shape.serve(queue_configs(place.worker.app))
