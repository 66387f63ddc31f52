"""Tasks that can be sent once the transaction is committed."""

import functools
from typing import Any

from django.db import transaction

from sidekiq_celery._type_variables import P, R
from sidekiq_celery.app.task import Task

__all__ = ("DjangoTask",)


class DjangoTask(Task[P, R]):
    """A task of a Django project."""

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `delay` after the commit, or at once if no transaction is open. There is no result handle."""
        transaction.on_commit(functools.partial(self.delay, *args, **kwargs))

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Call `apply_async` after the commit, or at once if no transaction is open."""
        transaction.on_commit(functools.partial(self.apply_async, *args, **kwargs))
