"""In-memory caches for results that have been read (`result_cache_max`)."""

from collections import OrderedDict
from typing import Any


class NoCache(dict[str, Any]):
    """Caches nothing."""

    def _leave(self, *args: Any, **kwargs: Any) -> None:
        return None

    __setitem__ = update = setdefault = _leave


class LastUsed(OrderedDict[str, Any]):
    """Caches the *limit* keys that were set last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)
