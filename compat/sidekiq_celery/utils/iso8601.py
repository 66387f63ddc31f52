"""The name under which programs import Celery's parser of times."""

from datetime import datetime

__all__ = ("parse_iso8601",)


def parse_iso8601(datestring: str) -> datetime:
    """
    Parse an ISO 8601 date or time.

    Raises:
        ValueError: *datestring* is not one.
    """
    return datetime.fromisoformat(datestring)
