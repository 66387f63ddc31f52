"""Retries reading and writing results if `result_backend_always_retry` is set."""

import logging
import time
from collections.abc import Callable
from random import uniform
from typing import Any

from sidekiq_celery.utils.serialization import raise_with_context

logger = logging.getLogger("celery.backends.base")


class Retrying:
    """The retry logic of a backend."""

    always_retry: bool
    max_retries: float
    max_sleep_between_retries_ms: float
    base_sleep_between_retries_ms: float

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """True if an operation that failed with *exc* may be retried; by default never."""
        return False

    def on_backend_retryable_error(self, exc: BaseException) -> None:
        """Called before a retry."""

    def _sleep(self, amount: float) -> None:
        time.sleep(amount)

    def _ensure_retryable(
        self,
        func: Callable[..., Any],
        *args: Any,
        fallback_exc: Callable[[Any], BaseException] | None = None,
        fallback_msg: str | None = None,
        max_retries: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call *func*, and retry it if `result_backend_always_retry` is set and the error allows it."""
        limit = self.max_retries if max_retries is None else max_retries
        retries = 0
        while True:
            try:
                return func(*args, **kwargs)
            except Exception as exc:
                if not (self.always_retry and self.exception_safe_to_retry(exc)):
                    raise
                if retries >= limit:
                    if fallback_exc is not None:
                        raise_with_context(fallback_exc(fallback_msg))
                    raise
                retries += 1
                name = getattr(func, "__name__", repr(func))
                logger.warning("Failed operation %s. Retrying %s more times.", name, limit - retries, exc_info=True)
                self._call_retry_hook(exc)
                self._sleep(self._pause_seconds(retries))

    def _call_retry_hook(self, exc: BaseException) -> None:
        try:
            self.on_backend_retryable_error(exc)
        except Exception:
            logger.exception("on_backend_retryable_error hook failed; continuing retry loop")

    def _pause_seconds(self, retries: int) -> float:
        longest = min(self.max_sleep_between_retries_ms, self.base_sleep_between_retries_ms * 2 ** min(retries, 30))
        return uniform(0, longest) / 1000
