"""Moves messages from queues in a Redis to the other end."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from sidekiq_celery.bridge.envelope import QueueFullError
from sidekiq_celery.bridge.fates import Found, Judge, Left, Moved
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import WINDOW_MESSAGES, MessageList, MessageStore
from sidekiq_celery.bridge.transfer import Carry, Claim, Claims, Item, TooLateError
from sidekiq_celery.utils.functional import chunks
from sidekiq_py.extension import monotonic

_RECLAIM_SECONDS = 10.0
_TRY_AGAIN_SECONDS = 2.0
# If nothing in a window stays and nothing could be taken, another process has taken it. After this many in a row, the
# rest waits for the next scan.
_MOST_LOST_WINDOWS = 20

FULL = "the broker takes no more of them, because their queue may be full; not all were looked at"
CLAIMED_ELSEWHERE = "claimed by a bridge that moves this queue; run that one again if it has died"


class Finisher(Protocol):
    """
    Finishes claimed messages.

    Attributes:
        claims: The claims; including those of bridges that have ended, which this one finishes.
        refused: The queues at the source of which the destination takes no more, since `try_again`.
    """

    claims: Claims
    refused: dict[str, QueueFullError]

    def try_again(self) -> None:
        """Forget which queues were refused."""

    def may_finish(self, claim_ids: Sequence[str]) -> Sequence[str]:
        """The claims that no other bridge is working on."""

    def finish(self, claims: Callable[[], Sequence[Claim]], ledger: Ledger) -> None:
        """
        Write claimed messages that have not been written yet, and remove the claims.

        Args:
            claims: Makes or reads the claims. It is called once this bridge is prepared to notice that it was stalled.
        """

    def close(self) -> None:
        """Close its connections; it opens them again when it needs them."""


class RedisRoute:
    """
    Scans stores repeatedly.

    Args:
        stores: The stores, in the order in which they are scanned.
        queues: The queues' names at the source. Claims of other queues belong to bridges with another destination.
        finisher: Finishes what other bridges have claimed; None within one Redis.
        is_once: True to check for claims in each scan, because there may not be a later one.
        is_dry: True to only count.
    """

    def __init__(
        self,
        stores: Sequence[MessageStore],
        queues: Sequence[str],
        judge: Judge,
        carry: Carry,
        finisher: Finisher | None = None,
        *,
        is_once: bool = False,
        is_dry: bool = False,
    ) -> None:
        self._stores = stores
        self._queues = frozenset(queues)
        self._judge = judge
        self._carry = carry
        self._finisher = finisher
        self._is_once = is_once
        self._is_dry = is_dry
        self._reclaimed_at: float | None = None

    def look_through(self, ledger: Ledger, is_stopping: Callable[[], bool]) -> bool:
        """
        Scan all stores once. Returns True if anything was moved, or if claims have to wait.

        Raises:
            QueueFullError: In a run that ends by itself, only refused messages are left to move.
        """
        before = ledger.count_moved
        ledger.left.clear()
        try:
            is_more = self._reclaim(ledger)
            for store in self._stores:
                self._empty(store, ledger, is_stopping)
        except TooLateError:
            self._reclaimed_at = None
            return True
        is_more = is_more or (ledger.count_moved > before and not self._is_dry)
        if self._is_once and not is_more:
            for error in self._refused.values():
                raise error
        return is_more

    def close(self) -> None:
        """Close what the finisher has opened; the pools keep their connections."""
        if self._finisher is not None:
            self._finisher.close()

    def _empty(self, store: MessageStore, ledger: Ledger, is_stopping: Callable[[], bool]) -> None:
        behind, lost = 0, 0
        while not is_stopping() and lost < _MOST_LOST_WINDOWS:
            window = store.read(behind)
            if not window:
                return
            if isinstance(store, MessageList) and store.queue in self._refused:
                ledger.left[store.queue][FULL] += len(window)
                return
            before = ledger.count_moved
            stays = self._handle(window, ledger)
            behind += stays
            lost = 0 if stays or ledger.count_moved > before else lost + 1

    def _handle(self, window: Sequence[Found | None], ledger: Ledger) -> int:
        """Move what can be moved. Returns how many messages stay, those of other queues included."""
        items: list[Item] = []
        stays = 0
        for found in window:
            if found is None:
                stays += 1
                continue
            fate = found.left or (Left(FULL) if found.queue in self._refused else self._judge(found))
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
            self._carry(items, ledger)
        return stays

    @property
    def _refused(self) -> dict[str, QueueFullError]:
        return self._finisher.refused if self._finisher is not None else {}

    def _reclaim(self, ledger: Ledger) -> bool:
        """Finish what other bridges have claimed. Returns True if there are more claims, which have to wait."""
        finisher = self._finisher
        if finisher is None or self._is_dry:
            return False
        now = monotonic()
        seconds = _TRY_AGAIN_SECONDS if finisher.refused else _RECLAIM_SECONDS
        if not self._is_once and self._reclaimed_at is not None and now - self._reclaimed_at < seconds:
            return False
        self._reclaimed_at = now
        finisher.try_again()
        there = finisher.claims.ids()
        wanted = finisher.may_finish(there)
        for some in chunks(iter(wanted), WINDOW_MESSAGES):
            finisher.finish(partial(self._judged, finisher.claims, some, ledger), ledger)
        return len(wanted) < len(there)

    def _judged(self, claims: Claims, claim_ids: Sequence[str], ledger: Ledger) -> list[Claim]:
        """Those of the claims whose messages are moved."""
        ready = []
        for claim_id, found in claims.read(claim_ids):
            if found.queue not in self._queues:
                ledger.leave(found.queue, CLAIMED_ELSEWHERE)
                continue
            fate = self._judge(found)
            if isinstance(fate, Moved):
                ready.append(Claim(claim_id, found, fate))
            else:
                ledger.leave(found.queue, f"claimed before, and now: {fate.reason}")
        return ready
