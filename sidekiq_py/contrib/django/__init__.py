"""
Django: makes pushes wait for the commit of the atomic block in which they are made.

    # in the ready() of an AppConfig
    from sidekiq_py.contrib.django import transactional_push
    transactional_push()
"""

from collections.abc import Callable

from django.db import transaction

from sidekiq_py import transactions


def transactional_push(using: str | None = None) -> None:
    """
    From now on, push jobs only after the commit.

    Args:
        using: The database whose transactions count; by default Django's default.
    """

    def after_commit(push: Callable[[], None]) -> bool:
        if not transaction.get_connection(using).in_atomic_block:
            return False
        # Django drops the callback if its savepoint or transaction is rolled back.
        transaction.on_commit(push, using=using)
        return True

    transactions.transactional_push(after_commit)
