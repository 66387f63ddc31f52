"""Records the Redis errors of one capsule: each outage is reported once, then the jobs in flight are compared."""

from collections.abc import Callable

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.flusher import Alarm
from sidekiq_py.errors import RedisError, RedisReplyError
from sidekiq_py.telemetry import Report


class RedisErrors:
    """
    The Redis errors of one capsule, recorded by any part that hits one. Safe to use from any thread.

    Args:
        name: The capsule's name.
        alarm: Armed when the jobs in flight have to be compared.
        downtime: The process's record of outages.
        report: Called with errors that would otherwise go unreported.
    """

    def __init__(self, name: str, alarm: Alarm, downtime: Downtime, report: Report) -> None:
        self._name = name
        self._alarm = alarm
        self._downtime = downtime
        self.report = report
        self.is_noted = False

    def note(self) -> None:
        """Record a broken connection, whose commands may have been carried out."""
        self.is_noted = True
        self._alarm.arm()

    def clear(self) -> bool:
        """Return True if any error was recorded since the last call. The caller has to deal with it."""
        was_noted, self.is_noted = self.is_noted, False
        return was_noted

    def offline(self, error: RedisError, work: str = "keeping") -> None:
        """
        Record that a call failed.

        Args:
            work: The kind of work it belonged to. Redis may refuse one kind and carry out another; while it is down,
                all kinds fail.
        """
        self.note()
        code = error.code if isinstance(error, RedisReplyError) else None
        is_wrong_key = code == "WRONGTYPE"
        if is_wrong_key and work == "waiting":
            # The key is that of one queue. A job that arrives from another one does not end this.
            is_news = self._downtime.refused(f"{self._name}: {error}")
        else:
            is_news = self._downtime.failed(error, f"{self._name}: {work}")
        if is_news:
            what = "is out of reach" if code is None else "refuses commands that a worker needs"
            until = "the key that sidekiq-py doctor names is repaired" if is_wrong_key else "it is back"
            self.report(error, {"context": f"Redis {what}; trying again until {until}"})

    def is_refused(self, work: str) -> bool:
        """True from a failed call of this kind of *work* until one succeeds."""
        return self._downtime.is_on and self._downtime.is_failing(f"{self._name}: {work}")

    def online(self, work: str) -> None:
        """Record that a call of this kind of *work* succeeded."""
        if self._downtime.is_on:
            self._downtime.works(f"{self._name}: {work}")

    def attempt(self, call: Callable[[], object], context: str, work: str = "keeping") -> bool:
        """
        Make a *call* that is repeated later if it fails. It does not raise, because the calling thread may have a job
        to run. Returns False if the call failed.
        """
        try:
            call()
        except RedisError as error:
            self.offline(error, work)
            return False
        except Exception as error:  # noqa: BLE001 — see the docstring
            self.report(error, {"context": context})
            return False
        return True
