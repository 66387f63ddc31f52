"""
How messages are moved from one end to the other.

`carry_within` moves them with one script. `AcrossServers` claims them first: a script moves a message from its queue
into a hash next to it, so that no worker there can run it; then the message is written at the destination; then the
claim is removed from the hash. Each claim has an id, and the write sets a mark with that id. So any bridge that finds
a claim, the one that made it or a later one, may finish it, at any time and even concurrently: it is written only once.

The mark outlives the claim. A bridge that was frozen in the meantime cannot write what it read before: its script
carries a deadline, which is shorter than the lifetime of any mark.
"""

import itertools
import json
from collections.abc import Callable, Sequence
from types import NoneType
from typing import NamedTuple

from sidekiq_celery.bridge import moves
from sidekiq_celery.bridge.envelope import QueueFullError
from sidekiq_celery.bridge.fates import Found, Moved
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import Side
from sidekiq_celery.bridge.moves import Entry
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.extension import Command
from sidekiq_py.payloads import keys

CLAIMED = "sidekiq_py:bridge:claimed:"
ALIVE = "sidekiq_py:bridge:alive:"
TOTALS = "sidekiq_py:bridge:totals"
"""A hash at the destination: the count for each `<direction>:<queue>:<kind>`, for all bridges together."""

MARK_SECONDS = 30 * 24 * 3600
"""How long the mark of a written message lasts while its source may still deliver the message again."""
AFTERGLOW_SECONDS = 3600
"""How long the mark lasts once the source has removed the message."""
WRITING_SECONDS = 600
"""A message that was read longer ago than this is not written, but read again."""
ALIVE_SECONDS = 10

Item = tuple[Found, Moved]
# Moves messages out of a Redis; those that another process has taken in the meantime are skipped. If it raises
# `TooLateError`, some were claimed and not written; `AcrossServers.finish` moves them later.
Carry = Callable[[Sequence[Item], Ledger], None]


class TooLateError(Exception):
    """The bridge was stalled for so long that others may have finished what it has read, so it reads again."""


class Claim(NamedTuple):
    """A message between two servers, and its id."""

    claim_id: str
    found: Found
    moved: Moved


def prefixed(side: Side, command: Command) -> Command:
    """A command with the full key on the server."""
    if not command:
        return command
    verb, key, *rest = command
    return (verb, side.key(key), *rest)


def mark_key(side: Side, message_id: str) -> str:
    """The key of the mark for a message that was written."""
    return side.key(f"sidekiq_py:bridge:written:{message_id}")


def entered(side: Side, moved: Sequence[Moved]) -> list[Entry]:
    """The entry that adds Sidekiq queues to the set of queue names."""
    names = sorted({one.queue for one in moved if one.command[:2] == ("LPUSH", keys.queue(one.queue))})
    return [Entry((), ("SADD", side.key(keys.QUEUES), *names))] if names else []


def outcomes(
    direction: str, target: Side, items: Sequence[tuple[Command, Moved]], until_seconds: int = 0
) -> list[bool]:
    """
    Write messages if their conditions hold. Returns for each whether it did.

    Raises:
        TooLateError: It was too late, and nothing was written.
    """
    entries = [
        Entry(condition, prefixed(target, moved.command), f"{direction}:{moved.queue}:{moved.kind}")
        for condition, moved in items
    ]
    # Last: if Redis is full, commands that remove data must come before those that add some; then none is refused.
    queues = entered(target, [moved for _, moved in items])
    done = moves.move(target.pool, [*entries, *queues], totals=target.key(TOTALS), until_seconds=until_seconds)
    if done is None:
        raise TooLateError
    return done[: len(entries)]


def carry_within(direction: str, target: Side, items: Sequence[Item], ledger: Ledger) -> None:
    """Move messages, each in one step, if both ends are one database. *direction* is for the totals."""
    done = outcomes(direction, target, [(found.take, moved) for found, moved in items])
    for is_done, (found, moved) in zip(done, items, strict=True):
        if is_done:
            ledger.count(found.queue, moved.kind, moved.note)


class Claims:
    """
    Messages that have left their queue and are not yet known to have arrived.

    Args:
        direction: Claims of the other direction are stored separately.
    """

    def __init__(self, direction: str, source: Side) -> None:
        self._source = source
        self._key = source.key(CLAIMED + direction)
        self._bridge = uuid()[-12:]
        self._count = itertools.count(1)

    def make(self, items: Sequence[Item]) -> list[Claim]:
        """Claim messages from their queues; those that another process has taken in the meantime are omitted."""
        wanted = [Claim(self._new_id(moved), found, moved) for found, moved in items]
        return self._written(
            wanted, [Entry(one.found.take, ("HSET", self._key, one.claim_id, _record(one.found))) for one in wanted]
        )

    def adopt(self, claims: Sequence[Claim]) -> list[Claim]:
        """
        Take over claims, each under a new id. Those that another bridge has taken over already are omitted.

        A bridge that stood still does so with its own, because another one may have found them in the meantime.
        """
        adopted = [claim._replace(claim_id=self._new_id(claim.moved)) for claim in claims]
        return self._written(adopted, [self._replacement(old, new) for old, new in zip(claims, adopted, strict=True)])

    def forget(self, claims: Sequence[Claim]) -> None:
        """Remove the claims of messages that have arrived."""
        self._source.pool.command("HDEL", self._key, *(claim.claim_id for claim in claims))

    def ids(self) -> list[str]:
        """The ids of all claims, of this bridge and of others."""
        return sorted(
            claim_id.decode(errors="surrogateescape") for claim_id in self._source.pool.command("HKEYS", self._key)
        )

    def stay_alive(self, *, again: bool) -> bool:
        """
        Keep other bridges away from this bridge's claims for `ALIVE_SECONDS`.

        Args:
            again: True to do so only if the last such signal has not expired.

        Returns:
            False if it has expired, and others may have taken over the claims.
        """
        words = ("XX",) if again else ()
        key = self._source.key(ALIVE + self._bridge)
        return self._source.pool.command("SET", key, 1, "EX", ALIVE_SECONDS, *words) is not None

    def orphans(self, claim_ids: Sequence[str]) -> list[str]:
        """The claims that were made by this bridge, or by one that is no longer alive."""
        bridges = sorted({claim_id.partition(":")[0] for claim_id in claim_ids} - {self._bridge})
        asked = [("EXISTS", self._source.key(ALIVE + bridge)) for bridge in bridges]
        alive = {bridge for bridge, is_there in zip(bridges, self._source.pool.batch(asked), strict=True) if is_there}
        return [claim_id for claim_id in claim_ids if claim_id.partition(":")[0] not in alive]

    def read(self, claim_ids: Sequence[str]) -> list[tuple[str, Found]]:
        """The claims that still exist."""
        records = self._source.pool.command("HMGET", self._key, *claim_ids)
        read = ((claim_id, _read(record or b"")) for claim_id, record in zip(claim_ids, records, strict=True))
        return [(claim_id, found) for claim_id, found in read if found is not None]

    def _new_id(self, moved: Moved) -> str:
        return f"{self._bridge}:{next(self._count)}:{moved.task_id}"

    def _written(self, claims: Sequence[Claim], entries: Sequence[Entry]) -> list[Claim]:
        """Write claims. Those whose condition did not hold are omitted."""
        done = moves.move(self._source.pool, entries) or []
        # If a reply was lost, what was done counts as not done.
        there = () if all(done) else set(self.ids())
        return [claim for claim, is_done in zip(claims, done, strict=True) if is_done or claim.claim_id in there]

    def _replacement(self, old: Claim, new: Claim) -> Entry:
        record = _record(old.found)
        return Entry(("HDEL", self._key, old.claim_id, record), ("HSET", self._key, new.claim_id, record))


class AcrossServers:
    """
    Moves messages between two servers, or two databases.

    Args:
        claims: The claims at the source.
    """

    def __init__(self, direction: str, claims: Claims, target: Side) -> None:
        self._direction = direction
        self.claims = claims
        self.refused: dict[str, QueueFullError] = {}
        self._target = target

    def carry(self, items: Sequence[Item], ledger: Ledger) -> None:
        """Claim messages, write them, and remove the claims."""
        self.finish(lambda: self.claims.make(items), ledger)

    def try_again(self) -> None:
        """Do nothing: a Redis refuses no single queue."""

    def may_finish(self, claim_ids: Sequence[str]) -> Sequence[str]:
        """All claims: marks prevent two bridges from writing the same message."""
        return claim_ids

    def finish(self, claims: Callable[[], Sequence[Claim]], ledger: Ledger) -> None:
        """Write claimed messages that have not been written yet, and remove the claims."""
        read_at = moves.server_seconds(self._target.pool)
        self.write(claims(), ledger, read_at)

    def close(self) -> None:
        """Do nothing: the pools keep their connections."""

    def write(self, claims: Sequence[Claim], ledger: Ledger, read_at: int) -> None:
        """
        Do so.

        Args:
            read_at: The destination's time, in seconds, before the claims were made or read.

        Raises:
            TooLateError: That was too long ago, and nothing was written.
        """
        if not claims:
            return
        marks = [mark_key(self._target, claim.claim_id) for claim in claims]
        wanted = [(("NEW", mark, MARK_SECONDS), claim.moved) for mark, claim in zip(marks, claims, strict=True)]
        done = outcomes(self._direction, self._target, wanted, read_at + WRITING_SECONDS)
        for claim, is_done in zip(claims, done, strict=True):
            ledger.count(claim.found.queue, claim.moved.kind if is_done else "duplicates", claim.moved.note)
        self.claims.forget(claims)
        self._target.pool.batch([("EXPIRE", mark, AFTERGLOW_SECONDS) for mark in marks])


def _record(found: Found) -> bytes:
    return json.dumps([found.queue, found.due]).encode() + b"\n" + found.text


def _read(record: bytes) -> Found | None:
    """The message of a claim. Returns None if the record is missing, or was written by another program."""
    head, _, text = record.partition(b"\n")
    try:
        queue, due = json.loads(head)
    except (ValueError, TypeError, RecursionError):
        return None
    if type(queue) is not str or type(due) not in (int, float, NoneType):
        return None
    return Found(queue, text, (), due)
