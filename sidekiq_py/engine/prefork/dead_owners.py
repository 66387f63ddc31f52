"""
Has the jobs of dead children recovered: the parent reports each dead owner to another child, which confirms it.

That child may not read the message soon, because its own job holds the interpreter lock. If it does not answer within
a moment, the next child gets the message too: recovering jobs twice does no harm. If there is no child to ask, the
message waits until one starts.
"""

from dataclasses import dataclass, field

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.fleet import Fleet

_ANSWER_SECONDS = 0.3
# A child that confirms and then dies within this time may not have recovered all jobs.
_DOUBTED_SECONDS = 10.0


@dataclass(slots=True)
class _News:
    owner: str
    next_at: float
    asked: set[int] = field(default_factory=set)


class DeadOwners:
    """
    The dead owners that no child has confirmed yet. Used only by the parent's single thread.

    Args:
        fleet: The children.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._news: list[_News] = []
        # Owner to the PID of the child that confirmed it, and when.
        self._confirmed: dict[str, tuple[int, float]] = {}

    def add(self, owner: str) -> None:
        """Add an owner that has died."""
        self._news.append(_News(owner, monotonic()))

    def note_confirmed(self, owner: str, child: ChildProcess) -> None:
        """A child confirms that it recovers the jobs of *owner*."""
        self._news = [news for news in self._news if news.owner != owner]
        self._confirmed = {name: confirmed for name, confirmed in self._confirmed.items() if not _is_over(confirmed)}
        self._confirmed[owner] = child.pid, monotonic()

    def note_end(self, child: ChildProcess) -> None:
        """A child has ended: the owners that it confirmed lately are reported to another child."""
        doubted = [
            name for name, confirmed in self._confirmed.items() if confirmed[0] == child.pid and not _is_over(confirmed)
        ]
        for owner in doubted:
            del self._confirmed[owner]
            self.add(owner)

    def next_at(self) -> float | None:
        """When to report the next owner, on the monotonic clock; None if none is pending or no child can be asked."""
        return min((news.next_at for news in self._news if self._listeners(news)), default=None)

    def step(self) -> None:
        """Report each unconfirmed owner that is due to one more child."""
        now = monotonic()
        for news in self._news:
            if now < news.next_at:
                continue
            for child in self._listeners(news):
                news.asked.add(child.pid)
                if child.down.write("DEAD", news.owner):
                    news.next_at = now + _ANSWER_SECONDS
                    break

    def _listeners(self, news: _News) -> list[ChildProcess]:
        """
        The children that have not been asked yet. Those with a hard-limited job come last: they may be frozen. If no
        child stays, as in a stop, those that are ending are asked: they may have seconds left.
        """
        children = self._fleet.staying or self._fleet.ready
        others = [child for child in children if child.is_ready and child.pid not in news.asked]
        return sorted(others, key=lambda child: child.limit is not None)


def _is_over(confirmed: tuple[int, float]) -> bool:
    return monotonic() - confirmed[1] > _DOUBTED_SECONDS
