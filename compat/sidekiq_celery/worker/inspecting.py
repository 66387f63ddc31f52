"""Commands that tell of a worker and change nothing, and the one that stops it."""

import logging
from typing import Any

from sidekiq_celery.worker.panel import control_command, inspect_command, ok
from sidekiq_celery.worker.relay import Place, on_message

__all__ = ("ping", "shutdown")

logger = logging.getLogger("celery.worker.control")


@inspect_command(default_timeout=0.2)
def ping(state: Any, **kwargs: Any) -> dict[str, str]:
    """Ping worker(s)."""
    return ok("pong")


@control_command()
def shutdown(state: Any, msg: str = "Got shutdown from remote", **kwargs: Any) -> dict[str, str]:
    """Shutdown worker(s)."""
    state.steward.tell_parent("stop", msg=msg)
    return ok("shutting down")


@on_message("stop")
def stop(place: Place, msg: str) -> None:
    """Warmly, as TERM does."""
    logger.warning(msg)
    if place.supervisor is not None:
        place.supervisor.ask_to_stop()
    elif place.launcher is not None:
        place.launcher.signals.put("TERM")
