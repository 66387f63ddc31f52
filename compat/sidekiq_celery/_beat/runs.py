"""The runs of an entry, as beats store them."""

import json
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from sidekiq_celery.utils.time import maybe_make_aware


class Runs(NamedTuple):
    """
    The stored record of an entry's runs.

    Args:
        counted_from: The time from which the next run is calculated: the last run or, for an entry that was new,
            resumed or ahead of the clock, the moment when that happened.
        total: The number of runs.
        sent_at: When it was last sent; None if never.
    """

    counted_from: datetime
    total: int = 0
    sent_at: datetime | None = None

    def text(self) -> bytes:
        """
        The text for Redis: a JSON array with times in seconds since the epoch. The third value, when it was last sent,
        is only written if the first two do not imply it, because a beat of an earlier release reads two.
        """
        counted_from = maybe_make_aware(self.counted_from).timestamp()
        sent = None if self.sent_at is None else maybe_make_aware(self.sent_at).timestamp()
        is_implied = sent == (counted_from if self.total else None)
        return json.dumps([counted_from, self.total] if is_implied else [counted_from, self.total, sent]).encode()


def read_runs(text: bytes, zone: tzinfo) -> Runs | None:
    """
    Read the text that `Runs.text` has written; times are in *zone*. Returns None if the text is empty, or if another
    program has written something else.
    """

    def in_zone(moment: float) -> datetime:
        return datetime.fromtimestamp(moment, UTC).astimezone(zone)

    try:
        seconds, count, *more = json.loads(text)
        sent = more[0] if more else seconds if count else None
        return Runs(in_zone(seconds), int(count), None if sent is None else in_zone(sent))
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None
