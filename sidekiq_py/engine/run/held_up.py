"""Jobs that extensions do not let start: how long each waits before the next try, and when that is logged."""

from typing import Any

from sidekiq_py.logs import log

_FIRST_PAUSE_SECONDS = 15.0
_LONGEST_PAUSE_SECONDS = 3600.0
# Each processor remembers this many jobs; the count of an older one starts again.
_MOST_KNOWN = 10_000
# A limit that is always full holds a job up forever, and nothing but this log line would show it.
_LOG_EVERY = 25

Payload = dict[str, Any]


class HeldUp:
    """The jobs that one thread has postponed."""

    def __init__(self) -> None:
        self._times: dict[Any, int] = {}

    def pause_seconds(self, payload: Payload) -> float:
        """The pause before an extension that failed to decide about this job is asked again; it doubles each time."""
        times = self._times.get(payload.get("jid"), 0)
        return float(min(_FIRST_PAUSE_SECONDS * 2 ** min(times, 16), _LONGEST_PAUSE_SECONDS))

    def note(self, payload: Payload, reason: str) -> None:
        """Count that a job was postponed, and log a warning every 25th time."""
        jid = payload.get("jid")
        times = self._times.pop(jid, 0) + 1
        if len(self._times) >= _MOST_KNOWN:
            self._times.pop(next(iter(self._times)))
        self._times[jid] = times
        if times % _LOG_EVERY == 0:
            log.warning("%s (jid %s) was postponed %d times here: %s", payload.get("class"), jid, times, reason)

    def forget(self, payload: Payload) -> None:
        """Drop the count of a job that starts."""
        if self._times:
            self._times.pop(payload.get("jid"), None)
