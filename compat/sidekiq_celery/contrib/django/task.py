"""Tasks that can be sent once the transaction is committed."""

import functools
from collections.abc import Callable
from typing import Any

from django.db import transaction

from sidekiq_celery._type_variables import P, R
from sidekiq_celery.app.task import Task
from sidekiq_py.pushing import for_later

__all__ = ("DjangoTask",)


class DjangoTask(Task[P, R]):
    """A task of a Django project."""

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `delay` after the commit, or at once if no transaction is open. There is no result handle."""
        _on_commit(functools.partial(self.delay, *args, **kwargs))

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Call `apply_async` after the commit, or at once if no transaction is open."""
        _on_commit(functools.partial(self.apply_async, *args, **kwargs))


def _on_commit(send: Callable[[], Any]) -> None:
    transaction.on_commit(for_later(send))
