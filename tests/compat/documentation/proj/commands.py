"""Remote control commands of the program."""

from typing import Any

from sidekiq_celery.worker.control import control_command, inspect_command

_count = 0


@control_command(args=[("n", int)], signature="[N=1]")
def increase_count(state: Any, n: int = 1) -> dict[str, str]:
    """Count on."""
    global _count
    _count += n
    return {"ok": f"count is {_count}"}


@inspect_command()
def current_count(state: Any) -> dict[str, int]:
    """Tell the count."""
    return {"count": _count}


@control_command(args=[("n", int)], signature="[N=1]")
def increase_prefetch_count(state: Any, n: int = 1) -> dict[str, str]:
    """Increase the prefetch count."""
    state.consumer.qos.increment_eventually(n)
    return {"ok": "prefetch count incremented"}


@inspect_command()
def current_prefetch_count(state: Any) -> dict[str, int]:
    """The prefetch count."""
    return {"prefetch_count": state.consumer.qos.value}
