"""What is wrong between one capsule and Redis: told once, and followed by a comparison of what is in flight."""

from collections.abc import Callable
from typing import Any

from sidekiq_py.engine.downtime import Downtime
from sidekiq_py.engine.fetch.flusher import Alarm
from sidekiq_py.errors import RedisError, RedisReplyError


class Trouble:
    """
    Noted by whoever meets it. Safe from any thread.

    Args:
        name: The capsule's.
        alarm: Rung when something is to be compared.
        downtime: Of the process.
        report: Told of errors that nobody else would hear of.
    """

    def __init__(
        self, name: str, alarm: Alarm, downtime: Downtime, report: Callable[[BaseException, dict[str, Any]], None]
    ) -> None:
        self._name = name
        self._alarm = alarm
        self._downtime = downtime
        self.report = report
        self.is_noted = False

    def __repr__(self) -> str:
        return f"<Trouble {self._name}{' is noted' if self.is_noted else ''}>"

    def note(self) -> None:
        """A connection broke: what it carried may have been done."""
        self.is_noted = True
        self._alarm.arm()

    def clear(self) -> bool:
        """Whether any was noted since; the caller sees to it."""
        was_noted, self.is_noted = self.is_noted, False
        return was_noted

    def offline(self, error: RedisError, work: str = "keeping") -> None:
        """
        A call failed.

        Args:
            work: What it was part of. Redis may refuse the one and do the other; while it is away it does nothing.
        """
        self.note()
        if self._downtime.failed(error, f"{self._name}: {work}"):
            what = "refuses what a worker needs" if isinstance(error, RedisReplyError) else "is out of reach"
            self.report(error, {"context": f"Redis {what}; trying again until it is back"})

    def online(self, work: str) -> None:
        """A call that was part of *work* went through."""
        if self._downtime.is_on:
            self._downtime.works(f"{self._name}: {work}")

    def attempt(self, call: Callable[[], object], context: str, work: str = "keeping") -> None:
        """Make a *call* that is made again later if it fails: nobody is to suffer from that who has a job at hand."""
        try:
            call()
        except RedisError as error:
            self.offline(error, work)
        except Exception as error:  # noqa: BLE001 — as above
            self.report(error, {"context": context})
