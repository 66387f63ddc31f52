"""`sidekiq_py.api.Batches`."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sidekiq_py.api.source import client_for
from sidekiq_py.client.sync_client import Client
from sidekiq_py.extensions.batches import state, steps
from sidekiq_py.extensions.batches.batch import Batch
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.extensions.batches.state import STATES, BatchStatus, State

__all__ = ["Batches"]

_FIRST_PAGE = 100
_MOST_ON_A_PAGE = 1000


class Batches:
    """
    All batches, newest first.

        for status in Batches(): print(status.bid, status.state, status.progress)
        Batches().in_state("open")

    Args:
        pool: The Redis to use: a `Pool`, a redis-py client, or a URL. By default the program's own.
        client: A client to use instead of *pool*.
    """

    def __init__(self, *, pool: Any = None, client: Client | None = None) -> None:
        self._client = client_for(pool, client)

    def __repr__(self) -> str:
        return f"<Batches {self._client!r}>"

    def __len__(self) -> int:
        held = pretending()
        return int(self._client.pool.command("ZCARD", steps.ALL)) if held is None else len(held.bids())

    def __bool__(self) -> bool:
        # Truthy even if there is no batch.
        return True

    def __iter__(self) -> Iterator[BatchStatus]:
        return self._read(state.bids(self._client.pool))

    def _read(self, ids: Iterator[str]) -> Iterator[BatchStatus]:
        count = _FIRST_PAGE
        while page := list(islice(ids, count)):
            yield from (status for status in state.read_many(self._client.pool, page) if status is not None)
            count = min(2 * count, _MOST_ON_A_PAGE)

    def in_state(self, wanted: State) -> Iterator[BatchStatus]:
        """The batches that are open, running, complete or a success, newest first."""
        if wanted not in STATES:
            raise ValueError(f"{wanted!r} is not a state of a batch; use one of {', '.join(STATES)}")
        ids = state.bids(self._client.pool, running=wanted != "success")
        return (status for status in self._read(ids) if status.state == wanted)

    def find(self, bid: str) -> Batch:
        """
        Find a batch to act on.

        Raises:
            BatchGoneError: There is no such batch.
        """
        return Batch.find(bid, client=self._client)
