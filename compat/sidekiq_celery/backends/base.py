"""The base classes of backends, and `DisabledBackend`, used when results are off."""

from typing import Any, NoReturn

from sidekiq_celery._state import get_current_task
from sidekiq_celery.backends.encoding import COMPRESSED_PAYLOAD_MAGIC, compress_payload, decompress_payload
from sidekiq_celery.backends.failures import EXCEPTION_ABLE_CODECS
from sidekiq_celery.backends.interface import Backend, unpickle_backend
from sidekiq_celery.backends.key_value import BaseKeyValueStoreBackend, KeyValueStoreBackend
from sidekiq_celery.backends.polling import SyncBackendMixin

__all__ = (
    "COMPRESSED_PAYLOAD_MAGIC",
    "EXCEPTION_ABLE_CODECS",
    "Backend",
    "BaseBackend",
    "BaseDictBackend",
    "BaseKeyValueStoreBackend",
    "DisabledBackend",
    "KeyValueStoreBackend",
    "SyncBackendMixin",
    "compress_payload",
    "decompress_payload",
    "get_current_task",
    "unpickle_backend",
)

_NO_BACKEND = (
    "No result backend is configured. Set result_backend to a place for results, as in "
    "Celery(…, backend='redis://localhost:6379/0')"
)


class BaseBackend(SyncBackendMixin, Backend):
    """A backend that waits for results by polling."""


BaseDictBackend = BaseBackend


class NoResultBackend(NotImplementedError, AttributeError):
    """
    A result was asked for although results are off.

    Celery raises NotImplementedError in `get()`, and AttributeError where a state is read, so `getattr(result, "state",
    None)` is None. This is both.
    """


class DisabledBackend(BaseBackend):
    """Results are off: storing does nothing, reading raises `NoResultBackend`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.thread_safe = True

    def store_result(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def as_uri(self, *args: Any, **kwargs: Any) -> str:
        """`disabled://`"""
        return "disabled://"

    def _is_disabled(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NoResultBackend(_NO_BACKEND)

    get_state = get_status = get_result = get_traceback = _is_disabled
    get_task_meta_for = get_task_meta = wait_for = get_many = _is_disabled
