"""Jobs that extensions do not let start: how long each waits for the next try, and when the log is told of it."""

import logging
from typing import Any

_log = logging.getLogger("sidekiq")

_FIRST_PAUSE_SECONDS = 15.0
_LONGEST_PAUSE_SECONDS = 3600.0
# Of so many jobs this process knows how often each was held up; an older one begins anew.
_MOST_KNOWN = 10_000
# A limit that is always full keeps a job away for good, and nothing else would say so.
_TELL_EVERY = 25

Payload = dict[str, Any]


class HeldUp:
    """What one thread has postponed."""

    def __init__(self) -> None:
        self._times: dict[Any, int] = {}

    def __repr__(self) -> str:
        return f"<HeldUp jobs={len(self._times)}>"

    def pause_seconds(self, payload: Payload) -> float:
        """How long a job waits of which nobody knows whether it may start: twice as long each time."""
        times = self._times.get(payload.get("jid"), 0)
        return float(min(_FIRST_PAUSE_SECONDS * 2 ** min(times, 16), _LONGEST_PAUSE_SECONDS))

    def note(self, payload: Payload, reason: str) -> None:
        """A job was postponed; every 25th time the log is told."""
        jid = payload.get("jid")
        times = self._times.pop(jid, 0) + 1
        if len(self._times) >= _MOST_KNOWN:
            self._times.pop(next(iter(self._times)))
        self._times[jid] = times
        if times % _TELL_EVERY == 0:
            _log.warning("%s (jid %s) was postponed %d times here: %s", payload.get("class"), jid, times, reason)

    def forget(self, payload: Payload) -> None:
        """A job starts."""
        if self._times:
            self._times.pop(payload.get("jid"), None)
