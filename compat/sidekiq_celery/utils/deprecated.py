"""Deprecation warnings."""

import warnings

__all__ = ("warn",)


def warn(
    description: str | None = None,
    deprecation: str | None = None,
    removal: str | None = None,
    alternative: str | None = None,
    stacklevel: int = 2,
) -> None:
    """Warn that *description* will be removed in Celery's release *removal*, and say what to use instead."""
    from sidekiq_celery.exceptions import CDeprecationWarning, CPendingDeprecationWarning

    advice = f" {alternative}" if alternative else ""
    if deprecation is not None:
        text = f"{description} is to be deprecated in Celery {deprecation} and goes in {removal}.{advice}"
        warnings.warn(CPendingDeprecationWarning(text), stacklevel=stacklevel + 1)
    else:
        text = f"{description} is deprecated and goes in Celery {removal}.{advice}"
        warnings.warn(CDeprecationWarning(text), stacklevel=stacklevel + 1)
