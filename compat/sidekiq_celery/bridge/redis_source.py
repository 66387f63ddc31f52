"""From queues in a Redis to the other end."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sidekiq_celery.bridge.fates import Found, Judge, Left, Moved, TooLarge
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import WINDOW_MESSAGES, MessageStore
from sidekiq_celery.bridge.transfer import Claim, Claims, Item, TooLateError, Transfer
from sidekiq_py.extension import monotonic

__all__ = ("Finisher", "RedisRoute", "too_large")

_RECLAIM_SECONDS = 10.0
# A window of which nothing stays and nothing could be taken was taken by somebody else; so many in a row, and the rest
# waits for the next look.
_MOST_LOST_WINDOWS = 20


def too_large(most_bytes: int) -> str:
    """Why a message is left that is larger than that."""
    return f"more than {most_bytes} bytes (--max-bytes)"


class Finisher(Protocol):
    """
    Finishes what was claimed.

    Attributes:
        claims: What bridges that are no more have left behind, and this one brings over.
    """

    claims: Claims

    def may_finish(self, claim_ids: Sequence[str]) -> Sequence[str]:
        """Those of the claims that nobody else is at."""

    def read_time(self) -> int:
        """To be asked before claims are read."""

    def finish(self, claims: Sequence[Claim], ledger: Ledger, read_at: int) -> None:
        """Write what was claimed, unless that is done, and forget it."""


class RedisRoute:
    """
    Looks through stores again and again.

    Args:
        stores: In the order in which they are looked through.
        finisher: Brings over what other bridges have claimed; None within one Redis.
        is_once: Look for claims each time, as there may be no later one.
        is_dry: Only count.
    """

    def __init__(
        self,
        stores: Sequence[MessageStore],
        judge: Judge,
        transfer: Transfer,
        finisher: Finisher | None = None,
        *,
        most_bytes: int,
        is_once: bool = False,
        is_dry: bool = False,
    ) -> None:
        self._stores = stores
        self._judge = judge
        self._transfer = transfer
        self._finisher = finisher
        self._most_bytes = most_bytes
        self._is_once = is_once
        self._is_dry = is_dry
        self._reclaimed_at: float | None = None

    def look_through(self, ledger: Ledger, is_stopping: Callable[[], bool]) -> bool:
        """One look at all stores; whether anything was moved, or waits for a claim's time."""
        before = ledger.count_moved
        ledger.left.clear()
        try:
            is_more = self._reclaim(ledger)
            for store in self._stores:
                self._empty(store, ledger, is_stopping)
        except TooLateError:
            self._reclaimed_at = None
            return True
        return is_more or (ledger.count_moved > before and not self._is_dry)

    def close(self) -> None:
        """Connections are kept by their pools."""

    def _empty(self, store: MessageStore, ledger: Ledger, is_stopping: Callable[[], bool]) -> None:
        behind, lost = 0, 0
        store.begin()
        while not is_stopping() and lost < _MOST_LOST_WINDOWS:
            window = store.read(behind)
            if not window:
                return
            before = ledger.count_moved
            stays = self._handle(window, ledger)
            behind += stays
            lost = 0 if stays or ledger.count_moved > before else lost + 1

    def _handle(self, window: Sequence[Found | TooLarge], ledger: Ledger) -> int:
        """Move what can be moved; how many stay."""
        items: list[Item] = []
        stays = 0
        for found in window:
            if isinstance(found, TooLarge):
                ledger.leave(found.queue, too_large(self._most_bytes))
                stays += 1
                continue
            fate = self._judge(found)
            if isinstance(fate, Left):
                ledger.leave(found.queue, fate.reason)
                stays += 1
            else:
                items.append((found, fate))
        if self._is_dry:
            for found, moved in items:
                ledger.count(found.queue, moved.kind, moved.note)
            return stays + len(items)
        if items:
            self._transfer.carry(items, ledger)
        return stays

    def _reclaim(self, ledger: Ledger) -> bool:
        """Finish what other bridges have claimed; whether there is more of that, which has to wait."""
        finisher = self._finisher
        if finisher is None or self._is_dry:
            return False
        now = monotonic()
        if not self._is_once and self._reclaimed_at is not None and now - self._reclaimed_at < _RECLAIM_SECONDS:
            return False
        self._reclaimed_at = now
        there = finisher.claims.ids()
        wanted = finisher.may_finish(there)
        for start in range(0, len(wanted), WINDOW_MESSAGES):
            self._finish(finisher, wanted[start : start + WINDOW_MESSAGES], ledger)
        return len(wanted) < len(there)

    def _finish(self, finisher: Finisher, claim_ids: Sequence[str], ledger: Ledger) -> None:
        read_at = finisher.read_time()
        ready = []
        for claim_id, found in finisher.claims.read(claim_ids):
            fate = self._judge(found)
            if isinstance(fate, Moved):
                ready.append(Claim(claim_id, found, fate))
            else:
                ledger.leave(found.queue, f"claimed before, and now: {fate.reason}")
        finisher.finish(ready, ledger, read_at)
