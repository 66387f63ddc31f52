"""The name under which programs import Celery's `repr` with a limit."""

from typing import Any

from sidekiq_celery.utils.serialization import safe_repr

__all__ = ("saferepr",)


def saferepr(o: Any, maxlen: int | None = None, maxlevels: int = 3, seen: Any = None) -> str:
    """Return `repr(o)`, truncated to *maxlen* characters; None for no limit. A broken `__repr__` raises nothing."""
    text = safe_repr(o)
    return text if maxlen is None or len(text) <= maxlen else f"{text[: max(maxlen - 3, 0)]}..."
