"""
Jobs on their way through a worker: fetch, claim, acknowledge, settle, requeue.

From the moment a job leaves its queue until it is settled, it is in one of two places:

- in the owner's in-flight hash, `sidekiq_py:inflight:<owner>`, if a script moved it there, along with others or because
  it must run alone;
- in the owner's inbox for its queue, `sidekiq_py:inbox:<owner>:<queue>`, if a plain LMOVE or BLMOVE moved it. There its
  bytes identify it, so neither taking nor acknowledging it needs a script. That makes single jobs cheap.

`docs/architecture.md` describes the contents of these keys.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import well_typed
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import slices_of
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

# The error reply of `fetch.lua` for an owner that was recovered.
FENCED = "FENCED"
# The reply of `claim.lua` if the job's queue is paused.
PAUSED = b"PAUSED"
# Lua can pass about 8,000 values to one command.
_SLICE = 1000
_KEPT = "@"


# The bound keeps out what is no number of ours, of which Python might refuse to make an integer.
_FIELD = re.compile(rb"([0-9]{1,19}\.[0-9]{1,19})([:!@])(.*)", re.DOTALL)
# Redis searches an inbox from end to end; with more jobs in it, a hash is cheaper.
MOST_LISTED = 64
# The prefix that names a job in an inbox to another process by its digest, because its bytes may be long.
_BY_DIGEST = b"0.0@"


def split_field(field: bytes) -> tuple[int, bool, str]:
    """
    Split a field of the in-flight hash, or the substitute for one of a job in an inbox: `<batch>.<n>@<queue>`.

    Returns:
        The number of the batch, True if the job is a suspect that is marked as started, and its queue.
    """
    match = _FIELD.fullmatch(field)
    if match is None:
        raise ValueError(f"{field!r} is not a field of an in-flight hash")
    return int(match[1].partition(b".")[0]), match[2] == b"!", match[3].decode()


def is_field(text: bytes) -> bool:
    """True if *text* is one of our fields. Another program may have written others to the hash."""
    try:
        split_field(text)
    except ValueError:
        return False
    return True


def sorted_by_batch(fields: Iterable[bytes]) -> list[bytes]:
    """*fields* in the order in which the jobs were fetched."""

    def order(field: bytes) -> tuple[int, int]:
        match = _FIELD.fullmatch(field)
        assert match is not None
        batch, _, number = match[1].partition(b".")
        return int(batch), int(number)

    return sorted(fields, key=order)


class FetchPlan(NamedTuple):
    """
    The parameters of one fetch.

    Args:
        batch: A number that never repeats for this owner.
        registration: The owner's entry for the registry; empty once the owner is entered.
        queues: Names in order of precedence, each with its weight; if all are 0, the order is strict.
        seed: The seed of the random draws.
        may_take_marked: True if the fetch may return a suspect that already has a death.
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
        keys.NOTICES,
        *[keys.queue(name) for name in queues],
    )


def may_be_listed(raw: bytes) -> bool:
    """
    True if the job's bytes can identify it in an inbox. If they have an id, equal bytes are the same job. Without an id
    they may be different jobs: an acknowledgement or an end that is sent again after a lost reply would then remove
    another job.
    """
    return b'"jid"' in raw


class TakePlan:
    """
    Moves single jobs from queues to an owner's inboxes: with plain commands if it is known which queue has a job, and
    otherwise with a script that tries several queues in order.

    The moves are followed by one look (an EXISTS) at keys that are rarely there. `is_plain` reads its reply: if the
    look was not plain, pass the moved jobs to `claim`, which handles pauses, suspects, revocations and fenced owners.
    Also pass it the jobs for which `may_be_listed` is False.

    Args:
        wants_notices: True to also look for revoked jobs, and to read the number of the notices.

    Attributes:
        look: The commands to send after the moves.
    """

    __slots__ = ("_moves", "look", "queue_names")

    def __init__(self, owner: str, queue_names: Sequence[str], *, wants_notices: bool) -> None:
        self.queue_names = list(queue_names)
        self._moves = {name: (keys.queue(name), keys.inbox(owner, name)) for name in queue_names}
        rare = [keys.PAUSED, keys.SUSPECTS, *([keys.REVOKED] if wants_notices else [])]
        # The others count twice, so the sum is 1 only if the lease, and nothing else, is there. Redis finds out that a
        # key is missing in less than half of the time that it takes to find the lease, which will expire.
        look: list[Command] = [("EXISTS", *rare, *rare, keys.lease(owner))]
        self.look = [*look, ("GET", keys.NOTICES)] if wants_notices else look

    def wait(self, queue_name: str, seconds: float) -> list[Command]:
        """The commands that wait for a job, move it, and look."""
        return [("BLMOVE", *self._moves[queue_name], "RIGHT", "LEFT", seconds), *self.look]

    def take_from(self, queue_names: Sequence[str]) -> list[Command]:
        """The commands that move one job from each of these queues, if there is one, and look."""
        return [*[("LMOVE", *self._moves[name], "RIGHT", "LEFT") for name in queue_names], *self.look]

    def take_in_order(self, orders: Sequence[Sequence[int]], *, has_script: bool = True) -> list[Command]:
        """
        The commands that move one job for each order, if there is one, and look.

        Args:
            orders: For each job, the numbers of the queues in the order in which to try them.
            has_script: True if Redis knows the script.
        """
        names = [key for pair in self._moves.values() for key in pair]
        numbers = [number for order in orders for number in order]
        call = TAKE_IN_ORDER.call if has_script else TAKE_IN_ORDER.full_call
        return [call(names, [len(self.queue_names), *numbers]), *self.look]

    def taken_in_order(self, reply: Any) -> list[tuple[str, bytes]]:
        """The queue and the bytes of each job in the reply to the script of `take_in_order`."""
        flat = reply if type(reply) is list else ()
        return [(self.queue_names[number], raw) for number, raw in zip(flat[::2], flat[1::2], strict=True)]

    @staticmethod
    def is_plain(look: Sequence[Any]) -> bool:
        """True if the replies to a look say that nothing is paused, suspect or revoked, and the lease is there."""
        return bool(look[0] == 1)

    @staticmethod
    def notices(look: Sequence[Any]) -> list[bytes]:
        """The notices that came with the jobs, in the form of `fetch.lua`."""
        return [look[1] or b""]


@lru_cache(maxsize=64)
def take_plan(owner: str, queue_names: tuple[str, ...], *, wants_notices: bool) -> TakePlan:
    """A cached `TakePlan`."""
    return TakePlan(owner, queue_names, wants_notices=wants_notices)


def claim(link: Link, owner: str, number: str, queue_name: str, raw: bytes) -> Any:
    """
    Move a job from an inbox to the in-flight hash, as a fetch would have done.

    Args:
        number: `<batch>.<n>`, the start of its field.

    Returns:
        Its field, its bytes and the notices; None if it went back to its queue or is gone; `PAUSED` if its queue is
        paused and it is still in the inbox. A suspect that already has a death goes back to its queue: only the fetch
        script knows if it may run now.
    """
    names = [
        keys.in_flight(owner),
        keys.OWNERS,
        keys.inbox(owner, queue_name),
        keys.queue(queue_name),
        keys.SUSPECTS,
        keys.PAUSED,
        keys.REVOKED,
        keys.NOTICES,
    ]
    return CLAIM.run(link, names, [owner, number, queue_name, raw])


def acknowledge_commands(owner: str, fields: Sequence[bytes], listed: Iterable[tuple[str, bytes]]) -> list[Command]:
    """
    The commands that acknowledge jobs that succeeded. Their replies add up to how many were still in flight; other
    processes own the rest by now.

    Args:
        fields: The fields of jobs in the in-flight hash.
        listed: The queue and the bytes of jobs in inboxes.
    """
    return [
        *[("HDEL", keys.in_flight(owner), *part) for part in slices_of(fields, _SLICE)],
        # LREM searches from the end, because the oldest job is the most likely to be done.
        *[("LREM", keys.inbox(owner, queue), -1, raw) for queue, raw in listed],
    ]


_NONE_LISTED: Mapping[bytes, bytes] = {}


def clear_suspect_command(raw: bytes) -> tuple[Any, ...]:
    """The command that removes a job from the suspects after a run that did not kill its process."""
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
    Settle one job in one atomic step.

    Args:
        vital: Commands that must succeed, or the job stays in flight; the second word of each is its key.
        counters: Commands that may fail.
        listed: The job's bytes if it is in an inbox.

    Returns:
        False if the job was no longer in flight; nothing was written then.
    """
    names, words = settle_script.settle_parts(_key_of(owner, field, listed), field, vital, counters, listed)
    return bool(settle_script.script_for(words).run(link, names, words))


def is_overwritten(link: Link, owner: str, field: bytes, listed: bytes | None) -> bool:
    """
    True if another program has overwritten the key that held a job in flight, and nobody has recovered the job: that
    removes the owner first.
    """
    kind, entered = link.batch([("TYPE", _key_of(owner, field, listed)), ("HEXISTS", keys.OWNERS, owner)])
    usual = b"hash" if listed is None else b"list"
    return isinstance(kind, bytes) and kind not in (usual, b"none") and entered == 1


def settle_call(
    owner: str, field: bytes, vital: Sequence[Effect], counters: Sequence[Effect] = (), listed: bytes | None = None
) -> tuple[Any, ...]:
    """The command of `settle`, to send along with others. The server may not know the script yet."""
    names, words = settle_script.settle_parts(_key_of(owner, field, listed), field, vital, counters, listed)
    return settle_script.script_for(words).call(names, words)


def settle_many_call(
    owner: str, jobs: Sequence[tuple[bytes, bytes | None, Tally]], *, has_script: bool
) -> tuple[Any, ...]:
    """
    The command that settles several jobs at once. Its reply is how many were still in flight.

    Args:
        jobs: For each job its field, its bytes if it is in an inbox, and its end. All ends must have the same verb,
            key and first words.
        has_script: True if Redis knows the script.
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
    The commands that keep a copy of a job that runs at most once, for a process that may have to end it from outside.

    Args:
        name: From `new_kept_name`. The job is never recovered from there.
        seconds: How long to keep it.
    """
    return [("HSET", _hash_of(name), field, raw), ("EXPIRE", _hash_of(name), seconds)]


def new_kept_name() -> str:
    """
    A pseudo-owner for one job that is kept aside, for `settle` and `find_job`. No real owner's name starts like this.
    """
    return _KEPT + os.urandom(12).hex()


def _hash_of(owner: str) -> str:
    return keys.kept(owner[len(_KEPT) :]) if owner.startswith(_KEPT) else keys.in_flight(owner)


def give_back(link: Link, owner: str, fields: Iterable[bytes], listed: Mapping[bytes, bytes] = _NONE_LISTED) -> int:
    """
    Put jobs back in their queues, where they are the next to run.

    Args:
        fields: The jobs' fields, in the order in which they should run.
        listed: The bytes of those that are in inboxes, by field.

    Returns:
        How many were still in flight.
    """
    in_reverse = list(fields)[::-1]
    return sum(GIVE_BACK.run(link, *_give_back_parts(owner, part, listed)) for part in slices_of(in_reverse, _SLICE))


def give_back_listed(link: Link, owner: str, jobs: Iterable[tuple[str, bytes]]) -> int:
    """Like `give_back`, for jobs in inboxes, each given by its queue and its bytes."""
    listed = {f"0.{number}@{queue}".encode(): raw for number, (queue, raw) in enumerate(jobs)}
    return give_back(link, owner, listed, listed)


def give_back_overwritten(link: Link, owner: str, jobs: Mapping[bytes, bytes], listed: Mapping[bytes, bytes]) -> None:
    """
    Put those jobs back in their queues by their bytes whose key `is_overwritten`: no process could do it from the key.

    Args:
        jobs: The jobs' bytes by field, in the order in which they should run.
        listed: Those that are in inboxes.
    """
    # Of a process that was considered dead, no job moves, so each key is asked about once.
    found: dict[str, bool] = {}
    for field, raw in reversed(list(jobs.items())):
        key = _key_of(owner, field, listed.get(field))
        if key not in found:
            found[key] = is_overwritten(link, owner, field, listed.get(field))
        if found[key]:
            name = split_field(field)[2]
            settle_script.write(link, [("RPUSH", keys.queue(name), raw)], [("SADD", keys.QUEUES, name)])


def give_back_at_process_end(link: Link, jobs: Iterable[tuple[str, Sequence[bytes], Mapping[bytes, bytes]]]) -> None:
    """Send a `give_back` for each owner so that Redis executes them when this process ends."""
    parts = [_give_back_parts(owner, fields[::-1], listed) for owner, fields, listed in jobs]
    link.send_as_process_ends(b"".join(link.pack([GIVE_BACK.full_call(*each) for each in parts])))


def _give_back_parts(owner: str, fields: Sequence[bytes], listed: Mapping[bytes, bytes]) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `give_back.lua`; the job that should run first comes last."""
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


def renewal(owner: str, lease_ms: int) -> list[Command]:
    """
    The commands that renew an owner's lease, if it has one. Their replies are `RENEWED` if the owner was not recovered.

    Two plain commands cost Redis a fifth of a script. This is safe, because a fence removes the owner and its lease in
    one step: an owner that finds both, in either order, was not fenced in between.
    """
    return [("HEXISTS", keys.OWNERS, owner), ("SET", keys.lease(owner), "1", "XX", "PX", lease_ms)]


RENEWED = [1, b"OK"]


def renew(link: Link, owner: str, registration: str, lease_ms: int) -> bool:
    """
    Renew the lease, and enter the owner again if Redis has lost the registry. Returns False if the owner was recovered.
    """
    if link.batch(renewal(owner, lease_ms)) == RENEWED:
        return True
    # One of the two is missing, or a full Redis refused to renew the lease. The script can write anyway.
    return bool(RENEW.run(link, [keys.OWNERS, keys.lease(owner)], [owner, registration, lease_ms]))


def is_entered(link: Link, owner: str) -> bool:
    """True if the owner is in the registry, so its jobs were never recovered."""
    return bool(link.command("HEXISTS", keys.OWNERS, owner))


def fence(link: Link, owner: str, *, certain: bool, now: float) -> bool:
    """
    Fence an owner, so that it can no longer fetch or settle.

    Args:
        certain: True if it is known to be dead or is leaving. Otherwise it is fenced only if its lease is missing.

    Returns:
        True if this call fenced it.
    """
    return bool(FENCE.run(link, *fence_parts(owner, certain=certain, now=now)))


def fence_parts(owner: str, *, certain: bool, now: float) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `fence.lua`."""
    return [keys.OWNERS, keys.lease(owner), keys.DEPARTED], [owner, "1" if certain else "0", f"{now:.3f}"]


def held(
    link: Link, owner: str, queue_names: Sequence[str], questions: Sequence[Sequence[Any]] = ()
) -> tuple[list[bytes], list[list[bytes]], list[Any]]:
    """
    Everything that an owner has in flight, in one round trip: its fields, and for each queue the jobs in the owner's
    inbox, newest first; then the replies to *questions*, which are sent along. A key that another program has
    overwritten holds no jobs, and must not hold up those in the others; the doctor reports it.
    """
    asked = [("HKEYS", keys.in_flight(owner)), *(("LRANGE", keys.inbox(owner, name), 0, -1) for name in queue_names)]
    replies = link.batch([*asked, *questions])
    found, *inboxes = [jobs or [] for jobs in well_typed(replies[: len(asked)])]
    return [field for field in found if is_field(field)], inboxes, replies[len(asked) :]


def put_back(link: Link, owner: str, queue_name: str, jobs: Iterable[bytes]) -> int:
    """Put jobs from one inbox back in their queue, in their original order. Returns how many were still in flight."""
    newest_first = link.command("LRANGE", keys.inbox(owner, queue_name), 0, -1)
    places = {raw: place for place, raw in enumerate(newest_first)}
    in_order = sorted(jobs, key=lambda raw: places.get(raw, 0), reverse=True)
    return give_back_listed(link, owner, [(queue_name, raw) for raw in in_order])


def public_field(field: bytes, listed: bytes | None) -> bytes:
    """The name of a job in flight for another process, which finds it with `find_job`."""
    if listed is None:
        return field
    digest = hashlib.sha1(listed, usedforsecurity=False).hexdigest()
    return _BY_DIGEST + f"{digest}@{split_field(field)[2]}".encode()


def find_job(link: Link, owner: str, field: bytes) -> tuple[bytes, bytes, bytes | None] | None:
    """
    Find the job in flight that a `public_field` names.

    Returns:
        Its bytes, then its field and, if it is in an inbox, its bytes again, as `settle` takes them. None if it is not
        in flight.
    """
    if field.startswith(_BY_DIGEST):
        digest, _, queue = field[len(_BY_DIGEST) :].decode().partition("@")
        for raw in link.command("LRANGE", keys.inbox(owner, queue), 0, -1):
            if hashlib.sha1(raw, usedforsecurity=False).hexdigest() == digest:
                return raw, f"0.0@{queue}".encode(), raw
        return None
    found: bytes | None = link.command("HGET", _hash_of(owner), field)
    return None if found is None else (found, field, None)
