"""
Has the jobs of children that died brought back: another one is told of each owner, and confirms that it has heard.

Whoever is told may not hear it, as its own job holds the interpreter lock. So the next one is told, too, after a moment
without an answer: bringing jobs back twice does no harm. Where nobody can be told, the news waits for a child that
starts.
"""

from dataclasses import dataclass, field

from sidekiq_py.clock import monotonic
from sidekiq_py.engine.prefork.child_process import ChildProcess
from sidekiq_py.engine.prefork.fleet import Children

_ANSWER_SECONDS = 0.3
# Who has heard and dies sooner may not have brought all jobs back.
_DOUBTED_SECONDS = 10.0


@dataclass(slots=True)
class _News:
    owner: str
    next_at: float
    told: set[int] = field(default_factory=set)


class DeadOwners:
    """
    Used by the parent's one thread.

    Args:
        fleet: The children.
    """

    def __init__(self, fleet: Children) -> None:
        self._fleet = fleet
        self._news: list[_News] = []
        # Owner to who has confirmed, and when.
        self._heard: dict[str, tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<DeadOwners {[news.owner for news in self._news]}>"

    def add(self, owner: str) -> None:
        """An owner has died."""
        self._news.append(_News(owner, monotonic()))

    def note_heard(self, owner: str, child: ChildProcess) -> None:
        """A child brings its jobs back."""
        self._news = [news for news in self._news if news.owner != owner]
        self._heard = {name: heard for name, heard in self._heard.items() if not _is_over(heard)}
        self._heard[owner] = child.pid, monotonic()

    def note_end(self, child: ChildProcess) -> None:
        """A child has ended: of what it has heard lately, another one is told anew."""
        doubted = [name for name, heard in self._heard.items() if heard[0] == child.pid and not _is_over(heard)]
        for owner in doubted:
            del self._heard[owner]
            self.add(owner)

    def next_at(self) -> float | None:
        """When somebody is to be told, on the monotonic clock; None: there is no news, or nobody to hear it."""
        return min((news.next_at for news in self._news if self._listeners(news)), default=None)

    def step(self) -> None:
        """Tell one more child what nobody has confirmed."""
        now = monotonic()
        for news in self._news:
            if now < news.next_at:
                continue
            for child in self._listeners(news):
                news.told.add(child.pid)
                if child.down.write("DEAD", news.owner):
                    news.next_at = now + _ANSWER_SECONDS
                    break

    def _listeners(self, news: _News) -> list[ChildProcess]:
        """Those not told yet; first those that run no job with a hard limit, which may be frozen."""
        others = [child for child in self._fleet.staying if child.is_ready and child.pid not in news.told]
        return sorted(others, key=lambda child: child.limit is not None)


def _is_over(heard: tuple[int, float]) -> bool:
    return monotonic() - heard[1] > _DOUBTED_SECONDS
