"""
Jobs on their way through a worker: fetch, claim, acknowledge, settle, give back.

From the instant a job leaves its queue until it is settled it stands in one of two places:

- in the owner's in-flight hash, `sidekiq_py:inflight:<owner>`, if a script took it there along with others, or because
it must run alone;
- in the owner's inbox for its queue, `sidekiq_py:inbox:<owner>:<queue>`, if a plain LMOVE or BLMOVE took it. Its bytes
name it there, so no script is needed to take it or to acknowledge it: that is what makes a single job cheap.

What the keys hold stands in `docs/architecture.md`.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path import settle_script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.settle_script import Effect, Tally
from sidekiq_py.redis_access.job_path.verbs import verbs
from sidekiq_py.wire import keys

FETCH = Script("fetch")
CLAIM = Script("claim")
TAKE_IN_ORDER = Script("take_in_order")
GIVE_BACK = Script("give_back")
RENEW = Script("renew")
FENCE = Script("fence")

# The error reply of `fetch.lua` to an owner that was recovered.
FENCED = "FENCED"
# The reply of `claim.lua` where the job's queue is paused.
PAUSED = b"PAUSED"
# Lua can hand about 8,000 values to one command.
_SLICE = 1000
_KEPT = "@"
_LEASE_COUNT = 4


_FIELD = re.compile(rb"([0-9.]+)([:!@])(.*)", re.DOTALL)
# An inbox is searched from end to end: with more jobs in it a hash is cheaper.
MOST_LISTED = 64
# In place of a field, what names a job that is listed to another process: its bytes may be long.
_BY_DIGEST = b"0.0@"


def split_field(field: bytes) -> tuple[int, bool, str]:
    """
    The parts of a field of the in-flight hash, or of what stands for one of a job in an inbox: `<batch>.<n>@<queue>`.

    Returns:
        The number of the batch, whether the job is a suspect marked as started, and its queue.
    """
    match = _FIELD.fullmatch(field)
    if match is None:
        raise ValueError(f"{field!r} is no field of an in-flight hash")
    return int(match[1].partition(b".")[0]), match[2] == b"!", match[3].decode()


def is_field(text: bytes) -> bool:
    """Whether it is a field of ours; anybody may have written another one into the hash."""
    try:
        split_field(text)
    except ValueError:
        return False
    return True


def sorted_by_batch(fields: Iterable[bytes]) -> list[bytes]:
    """*fields* in the order in which the jobs were taken."""

    def order(field: bytes) -> tuple[int, int]:
        match = _FIELD.fullmatch(field)
        assert match is not None
        batch, _, number = match[1].partition(b".")
        return int(batch), int(number)

    return sorted(fields, key=order)


class FetchPlan(NamedTuple):
    """
    What one fetch asks for.

    Args:
        batch: A number that never repeats for this owner.
        registration: What to write about the owner; empty once it is entered.
        queues: Names, in order of precedence, each with its weight; all 0 is strict order.
        seed: For the draws.
        may_take_marked: A suspect that already bears a death may come along.
    """

    owner: str
    registration: str
    lease_ms: int
    batch: int
    queues: Sequence[tuple[str, int]]
    max_jobs: int
    max_bytes: int
    seed: int
    may_take_marked: bool

    def command_parts(self) -> tuple[Sequence[str], list[Any]]:
        """KEYS and ARGV of `fetch.lua`."""
        arguments: list[Any] = [
            self.owner,
            self.registration,
            self.lease_ms,
            self.batch,
            self.max_jobs,
            self.max_bytes,
            self.seed,
            "1" if self.may_take_marked else "0",
            *[weight for _, weight in self.queues],
        ]
        return _fetch_keys(self.owner, tuple([name for name, _ in self.queues])), arguments


@lru_cache(maxsize=64)
def _fetch_keys(owner: str, queues: tuple[str, ...]) -> Sequence[str]:
    return (
        keys.in_flight(owner),
        keys.OWNERS,
        keys.lease(owner),
        keys.SUSPECTS,
        keys.PAUSED,
        keys.DEPARTED,
        keys.REVOKED,
        keys.ORDERS,
        *[keys.queue(name) for name in queues],
    )


def may_be_listed(raw: bytes) -> bool:
    """
    Whether the job's bytes can name it in an inbox: with an id in them, equal bytes are the same job. Without one they
    are jobs of their own, and what is sent again after a lost reply (an acknowledgement, an end) would take another one
    for the one that it has removed.
    """
    return b'"jid"' in raw


class TakePlan:
    """
    How single jobs go from queues into an owner's inboxes: by plain commands where it is known which queue has one, by
    a script that asks several in order.

    Behind the moves stands one look at what rarely is there. `is_plain` reads its reply: if it is not plain, what was
    moved must be handed to `claim`, which knows about pauses, suspects, revocations and owners that were shut out. So
    must what `may_be_listed` does not let stay.

    Args:
        wants_notices: The number of the notices is asked for, too.
    """

    __slots__ = ("_look", "_moves", "owner", "queue_names")

    def __init__(self, owner: str, queue_names: Sequence[str], *, wants_notices: bool) -> None:
        self.owner = owner
        self.queue_names = list(queue_names)
        self._moves = {name: (keys.queue(name), keys.inbox(owner, name)) for name in queue_names}
        # The lease counts four times: only with it there, and nothing else, the sum is four.
        look: list[Command] = [
            ("EXISTS", keys.PAUSED, keys.SUSPECTS, keys.REVOKED, *[keys.lease(owner)] * _LEASE_COUNT)
        ]
        self._look = [*look, ("GET", keys.ORDERS)] if wants_notices else look

    @property
    def look(self) -> list[Command]:
        """To be sent behind each move."""
        return self._look

    def wait(self, queue_name: str, seconds: float) -> list[Command]:
        """Move one job as soon as there is one, and look."""
        return [("BLMOVE", *self._moves[queue_name], "RIGHT", "LEFT", seconds), *self._look]

    def take_from(self, queue_names: Sequence[str]) -> list[Command]:
        """Move one job from each of these queues, if there is one, and look."""
        return [*[("LMOVE", *self._moves[name], "RIGHT", "LEFT") for name in queue_names], *self._look]

    def take_in_order(self, orders: Sequence[Sequence[int]], *, has_script: bool = True) -> list[Command]:
        """
        Move one job for each order, if there is one, and look.

        Args:
            orders: For each job the numbers of the queues in the order in which they are asked.
            has_script: Redis knows the script.
        """
        names = [key for pair in self._moves.values() for key in pair]
        numbers = [number for order in orders for number in order]
        call = TAKE_IN_ORDER.call if has_script else TAKE_IN_ORDER.full_call
        return [call(names, [len(self.queue_names), *numbers]), *self._look]

    def taken_in_order(self, reply: Any) -> list[tuple[str, bytes]]:
        """Queue and bytes of each job in the reply to the script of `take_in_order`."""
        flat = reply if type(reply) is list else ()
        return [(self.queue_names[number], raw) for number, raw in zip(flat[::2], flat[1::2], strict=True)]

    @staticmethod
    def is_plain(look: Sequence[Any]) -> bool:
        """Nothing is paused, suspect or revoked, and the lease is there, as the replies to a look say."""
        return bool(look[0] == _LEASE_COUNT)

    @staticmethod
    def notices(look: Sequence[Any]) -> list[bytes]:
        """What was told along with the jobs, as `fetch.lua` tells it."""
        return [look[1] or b""]


@lru_cache(maxsize=64)
def take_plan(owner: str, queue_names: tuple[str, ...], *, wants_notices: bool) -> TakePlan:
    """The plan, put together once."""
    return TakePlan(owner, queue_names, wants_notices=wants_notices)


def claim(link: Link, owner: str, number: str, queue_name: str, raw: bytes) -> Any:
    """
    Take a job from an inbox into the in-flight hash, as a fetch would have.

    Args:
        number: `<batch>.<n>`, with which its field is to begin.

    Returns:
        Its field, its bytes and the notices; None: it went back to its queue, or is gone; `PAUSED`: its queue is, and
        it still stands in the inbox. A suspect that already bears a death goes back: the fetch script takes it, which
        knows whether it may come.
    """
    names = [
        keys.in_flight(owner),
        keys.OWNERS,
        keys.inbox(owner, queue_name),
        keys.queue(queue_name),
        keys.SUSPECTS,
        keys.PAUSED,
        keys.REVOKED,
        keys.ORDERS,
    ]
    return CLAIM.run(link, names, [owner, number, queue_name, raw])


def acknowledge_commands(owner: str, fields: Sequence[bytes], listed: Iterable[tuple[str, bytes]]) -> list[Command]:
    """
    The commands that remove jobs that succeeded; the replies to them add up to how many were still in flight. The rest
    belong to somebody else by now.

    Args:
        fields: Of the in-flight hash.
        listed: Queue and bytes of those in inboxes.
    """
    slices = [fields[start : start + _SLICE] for start in range(0, len(fields), _SLICE)]
    return [
        *[("HDEL", keys.in_flight(owner), *part) for part in slices],
        # From the end: the oldest is the likeliest to be done.
        *[("LREM", keys.inbox(owner, queue), -1, raw) for queue, raw in listed],
    ]


_NONE_LISTED: Mapping[bytes, bytes] = {}


def clear_suspect_command(raw: bytes) -> tuple[Any, ...]:
    """The command that clears a job's name after a run that did not kill its process."""
    return ("HDEL", keys.SUSPECTS, hashlib.sha1(raw, usedforsecurity=False).hexdigest())


def settle(
    link: Link,
    owner: str,
    field: bytes,
    *,
    vital: Sequence[Effect],
    counters: Sequence[Effect] = (),
    listed: bytes | None = None,
) -> bool:
    """
    End one job in one atomic step.

    Args:
        vital: Commands that must succeed for the job to leave its place in flight; the second word of each is its key.
        counters: Commands that may fail.
        listed: The bytes of a job that stands in an inbox.

    Returns:
        False if the job was not in flight any more: nothing was written.
    """
    return bool(
        settle_script.script_for(vital).run(
            link, *settle_script.settle_parts(_key_of(owner, field, listed), field, vital, counters, listed)
        )
    )


def settle_call(
    owner: str, field: bytes, vital: Sequence[Effect], counters: Sequence[Effect] = (), listed: bytes | None = None
) -> tuple[Any, ...]:
    """The command by which `settle` ends a job, to be sent along with others; the script may have to be loaded."""
    return settle_script.script_for(vital).call(
        *settle_script.settle_parts(_key_of(owner, field, listed), field, vital, counters, listed)
    )


def settle_many_call(
    owner: str, jobs: Sequence[tuple[bytes, bytes | None, Tally]], *, has_script: bool = True
) -> tuple[Any, ...]:
    """
    The command that ends several jobs at once. The reply is how many were still in flight.

    Args:
        jobs: Field, bytes if it is listed, and end of each; all for one verb, key and beginning.
        has_script: Redis knows the script.
    """
    in_hash: list[Any] = []
    in_inboxes: dict[str, list[Any]] = {}
    for field, listed, tally in jobs:
        if listed is None:
            in_hash.append(field)
            in_hash += tally[3]
        else:
            in_inboxes.setdefault(keys.inbox(owner, split_field(field)[2]), []).extend((listed, *tally[3]))
    verb, key, first, words = jobs[0][2]
    each = 1 + len(words)
    arguments = [verb, len(first), len(words), *first, "0", len(in_hash) // each, *in_hash]
    for listed_words in in_inboxes.values():
        arguments += ("1", len(listed_words) // each, *listed_words)
    script = verbs.script("settle_many")
    return (script.call if has_script else script.full_call)([_hash_of(owner), *in_inboxes, key], arguments)


def _key_of(owner: str, field: bytes, listed: bytes | None) -> str:
    return _hash_of(owner) if listed is None else keys.inbox(owner, split_field(field)[2])


def kept_commands(name: str, field: bytes, raw: bytes, seconds: int) -> list[Command]:
    """
    The commands that keep a job aside while it runs at most once, for whoever has to end it from outside.

    Args:
        name: From `kept_name`. Nobody brings the job back from there.
        seconds: For how long.
    """
    return [("HSET", _hash_of(name), field, raw), ("EXPIRE", _hash_of(name), seconds)]


def kept_name(token: str) -> str:
    """
    Stands for an owner in `settle` and `find_job`, and owns one job that was kept aside; no owner's name begins so.
    """
    return _KEPT + token


def _hash_of(owner: str) -> str:
    return keys.kept(owner[len(_KEPT) :]) if owner.startswith(_KEPT) else keys.in_flight(owner)


def give_back(link: Link, owner: str, fields: Iterable[bytes], listed: Mapping[bytes, bytes] = _NONE_LISTED) -> int:
    """
    Put jobs back to their queues, to be the next to run there.

    Args:
        fields: The first of them is to run first.
        listed: The bytes of those that stand in inboxes, by field.

    Returns:
        How many were still in flight.
    """
    moved = 0
    in_reverse = list(fields)[::-1]
    for start in range(0, len(in_reverse), _SLICE):
        moved += GIVE_BACK.run(link, *_give_back_parts(owner, in_reverse[start : start + _SLICE], listed))
    return moved


def give_back_at_process_end(
    link: Link, owner: str, fields: Sequence[bytes], listed: Mapping[bytes, bytes] = _NONE_LISTED
) -> None:
    """Send `give_back`, for Redis to do as this process ends."""
    parts = _give_back_parts(owner, list(fields)[::-1], listed)
    link.send_as_process_ends(b"".join(link.pack([GIVE_BACK.full_call(*parts)])))


def _give_back_parts(owner: str, fields: Sequence[bytes], listed: Mapping[bytes, bytes]) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `give_back.lua`; what is to run first comes last."""
    numbers = {keys.in_flight(owner): 1, keys.QUEUES: 2}
    arguments: list[Any] = []
    for field in fields:
        name = split_field(field)[2]
        raw = listed.get(field)
        source = keys.in_flight(owner) if raw is None else keys.inbox(owner, name)
        arguments += [
            field if raw is None else raw,
            numbers.setdefault(source, len(numbers) + 1),
            numbers.setdefault(keys.queue(name), len(numbers) + 1),
        ]
    return list(numbers), arguments


def renew(link: Link, owner: str, lease_ms: int) -> bool:
    """
    Renew the lease; False if the owner was recovered.

    Two plain commands cost Redis a fifth of a script. The fence takes owner and lease away in one step, so whoever has
    both, in whatever order he asks, was not fenced between.
    """
    lease = ("SET", keys.lease(owner), "1", "XX", "PX", lease_ms)
    if link.batch([("HEXISTS", keys.OWNERS, owner), lease]) == [1, b"OK"]:
        return True
    # It has run out, or is refused by a full Redis: a script may write all the same.
    return bool(RENEW.run(link, [keys.OWNERS, keys.lease(owner)], [owner, lease_ms]))


def fence(link: Link, owner: str, *, certain: bool, now: float) -> bool:
    """
    Shut an owner out.

    Args:
        certain: It is known to be dead, or leaves by itself; else only if its lease is missing.

    Returns:
        True if this call did it.
    """
    return bool(FENCE.run(link, *fence_parts(owner, certain=certain, now=now)))


def fence_parts(owner: str, *, certain: bool, now: float) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `fence.lua`."""
    return [keys.OWNERS, keys.lease(owner), keys.DEPARTED], [owner, "1" if certain else "0", f"{now:.3f}"]


def fields(link: Link, owner: str) -> list[bytes]:
    """The fields of all jobs of an owner that are in flight."""
    found: list[bytes] = link.command("HKEYS", keys.in_flight(owner))
    return found


def held(
    link: Link, owner: str, queue_names: Sequence[str], questions: Sequence[Sequence[Any]] = ()
) -> tuple[list[bytes], list[Any], list[Any]]:
    """
    All that an owner has in flight, in one round trip: its fields, and for each queue what stands in the owner's inbox,
    or why that cannot be read; then the replies to *questions*, which go along.
    """
    asked = [("HKEYS", keys.in_flight(owner)), *(("LRANGE", keys.inbox(owner, name), 0, -1) for name in queue_names)]
    found, *replies = link.batch([*asked, *questions])
    return raise_first([found])[0], replies[: len(queue_names)], replies[len(queue_names) :]


def listed(link: Link, owner: str, queue_names: Sequence[str]) -> list[list[bytes]]:
    """For each queue what stands in the owner's inbox for it; the newest comes first."""
    found: list[list[bytes]] = raise_first(
        link.batch([("LRANGE", keys.inbox(owner, name), 0, -1) for name in queue_names])
    )
    return found


def put_back(link: Link, owner: str, queue_name: str, jobs: Mapping[bytes, bytes]) -> int:
    """
    Put jobs of one inbox back to their queue, in the order in which they were moved from there.

    Args:
        jobs: Field to bytes.

    Returns:
        How many were still in flight.
    """
    [newest_first] = listed(link, owner, [queue_name])
    places = {raw: place for place, raw in enumerate(newest_first)}
    return give_back(link, owner, sorted(jobs, key=lambda field: places.get(jobs[field], 0), reverse=True), jobs)


def public_field(field: bytes, listed: bytes | None) -> bytes:
    """What names a job in flight to another process, for `find_job`."""
    if listed is None:
        return field
    digest = hashlib.sha1(listed, usedforsecurity=False).hexdigest()
    return _BY_DIGEST + f"{digest}@{split_field(field)[2]}".encode()


def find_job(link: Link, owner: str, field: bytes) -> tuple[bytes, bytes, bytes | None] | None:
    """
    The job in flight that a `public_field` names.

    Returns:
        Its bytes, then its field and again its bytes, if it is listed, as `settle` takes them; None if it is not in
        flight.
    """
    if field.startswith(_BY_DIGEST):
        digest, _, queue = field[len(_BY_DIGEST) :].decode().partition("@")
        for raw in link.command("LRANGE", keys.inbox(owner, queue), 0, -1):
            if hashlib.sha1(raw, usedforsecurity=False).hexdigest() == digest:
                return raw, f"0.0@{queue}".encode(), raw
        return None
    found: bytes | None = link.command("HGET", _hash_of(owner), field)
    return None if found is None else (found, field, None)
