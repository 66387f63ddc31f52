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
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.replies import raise_first
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.verbs import verbs
from sidekiq_py.wire import keys

FETCH = Script("fetch")
CLAIM = Script("claim")
TAKE_IN_ORDER = Script("take_in_order")
SETTLE = Script("settle")
GIVE_BACK = Script("give_back")
RENEW = Script("renew")
FENCE = Script("fence")

# The error reply of `fetch.lua` to an owner that was recovered.
FENCED = "FENCED"
STAT_TTL_SECONDS = 5 * 365 * 24 * 3600
# Lua can hand about 8,000 values to one command.
_SLICE = 1000
_COUNTED_TTL_SECONDS = 3600
_KEPT = "@"
_DAY_SECONDS = 24 * 3600
_LEASE_COUNT = 4
_ADDS_UP = frozenset({"LPUSH", "RPUSH", "INCR", "INCRBY", "COUNT", "HINCRBY", "ZINCRBY", "APPEND", "PUBLISH"})
# Their values, and the pairs of HSET, may come in several commands.
_CAN_BE_CUT = frozenset({"SADD", "SREM", "LPUSH", "RPUSH", "HSET", "HDEL", "ZREM"})


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
def _take_keys(owner: str, queue_keys: tuple[str, ...]) -> Callable[[Mapping[Any, int]], tuple[int, ...]]:
    """The numbers of the in-flight hash, owners, lease and orders, then of what must not be there."""
    absent = (keys.PAUSED, keys.SUSPECTS, keys.REVOKED, *queue_keys)
    return itemgetter(keys.in_flight(owner), keys.OWNERS, keys.lease(owner), keys.ORDERS, *absent)


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
    How single jobs go from queues into an owner's inboxes, by plain commands where there is one queue.

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

    def take(self, orders: Sequence[Sequence[int]], *, has_script: bool = True) -> list[Command]:
        """
        Move one job for each order, if there is one, and look.

        Args:
            orders: For each job the numbers of the queues in the order in which they are asked; all of them equal if
                there is one queue.
            has_script: Redis knows the script that several queues take.
        """
        if len(self.queue_names) == 1:
            move = self._moves[self.queue_names[0]]
            return [*[("LMOVE", *move, "RIGHT", "LEFT")] * len(orders), *self._look]
        names = [key for pair in self._moves.values() for key in pair]
        numbers = [number for order in orders for number in order]
        call = TAKE_IN_ORDER.call if has_script else TAKE_IN_ORDER.full_call
        return [call(names, [len(self.queue_names), *numbers]), *self._look]

    def taken(self, replies: Sequence[Any]) -> list[tuple[str, bytes]]:
        """Queue and bytes of each job in the replies to the moves of `take`."""
        if len(self.queue_names) == 1:
            return [(self.queue_names[0], reply) for reply in replies if type(reply) is bytes]
        flat = replies[0] if type(replies[0]) is list else ()
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
        Its field, its bytes and the notices; None: it went back to its queue, or is gone. A suspect that already bears
        a death goes back: the fetch script takes it, which knows whether it may come.
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


def count_processed(link: Link, day: str, count: int) -> None:
    """
    Add to the numbers of jobs that were processed; a counter of a foreign type is left as it is.

    Args:
        day: A UTC date as `YYYY-MM-DD`.
    """
    daily = keys.stat_processed_on(day)
    replies = link.batch([("INCRBY", keys.STAT_PROCESSED, count), ("INCRBY", daily, count)])
    raise_first([reply for reply in replies if isinstance(reply, RedisReplyError) and reply.is_about_server])
    if replies[1] == count:
        link.command("EXPIRE", daily, STAT_TTL_SECONDS)


def begin_count(link: Link, key: str, before: str) -> None:
    """Make *key* ready for `count_processed_once`; may be repeated until that is sent."""
    link.command("SET", key, before, "EX", _COUNTED_TTL_SECONDS)


def count_processed_once(link: Link, day: str, count: int, *, key: str, before: str, mark: str) -> None:
    """
    `count_processed` that may be sent again after a lost reply: the text at *key* says which was written last.

    Args:
        before: What stands there if this one was not written yet.
        mark: What stands there afterwards.
    """
    commands: tuple[Command, ...] = (
        ("INCRBY", keys.STAT_PROCESSED, count),
        ("COUNT", keys.stat_processed_on(day), count, STAT_TTL_SECONDS),
        ("SET", key, mark, "EX", _COUNTED_TTL_SECONDS),
    )
    write(link, (), [Held(key, before, commands)])


class Counted(tuple[Command, ...]):
    """The commands of `count_commands`, which stand in nearly every end: their words are put together once."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.numbers = dict(zip(dict.fromkeys(command[1] for command in self), count(2), strict=False))
        self.words: list[Any] = []
        _add_words(self.words, self, self.numbers)


@lru_cache(maxsize=4)
def count_commands(day: str, *, failed: bool) -> Counted:
    """The commands that count one finished attempt, as Sidekiq does: a failure counts in both."""
    counts = [("INCRBY", keys.STAT_PROCESSED, 1), ("COUNT", keys.stat_processed_on(day), 1, STAT_TTL_SECONDS)]
    if failed:
        counts += [("INCRBY", keys.STAT_FAILED, 1), ("COUNT", keys.stat_failed_on(day), 1, STAT_TTL_SECONDS)]
    return Counted(counts)


class Once(NamedTuple):
    """
    Commands of a job's end that are to be done by whichever job comes first.

    Args:
        key: A hash.
        mark: The field that the first one sets; whoever finds it does nothing.
    """

    key: str
    mark: str
    then: tuple[Command, ...]


class Join(NamedTuple):
    """
    Commands that are to be done once, by the job that completes a hash.

    A job that runs again writes its own part again, so nothing is counted twice.

    Args:
        key: A hash from the numbers of the parts, from "0", to texts.
        mark: The field that the last one sets.
        parts: How many there are, besides those that the hash's field `more` counts.
        seam: Stands in the words of *then* wherever the texts are to be put, joined by commas in the order of their
            numbers. It must not occur in anybody's data.
    """

    key: str
    mark: str
    parts: int
    seam: bytes
    then: tuple[Command, ...]


class Unless(NamedTuple):
    """
    Commands of a job's end that are not to be done where a text says so already.

    Args:
        key: A text; where there is none, or something else, the commands are done.
        start: The beginning of a text that keeps them from being done.
    """

    key: str
    start: str
    then: tuple[Command, ...]


class Held(NamedTuple):
    """
    Commands of a job's end that are to be done where it holds a lock.

    Args:
        key: A text.
        text: What it must be; where it is another, or gone, the commands are not done.
    """

    key: str
    text: str
    then: tuple[Command, ...]


class Take(NamedTuple):
    """
    The push of a job that goes straight in flight where a fetch right behind would bring it and no other.

    Args:
        key: The queue's.
        field: Where it is to stand.
        owner: By whose fetch.
        queue_keys: Of all queues of that fetch.
    """

    key: str
    job: bytes
    field: bytes
    owner: str
    queue_keys: tuple[str, ...]


class Tally(NamedTuple):
    """
    A verb of an extension whose commands can be taken together: the ends of many jobs that write nothing else go out as
    one, for those of them that are still in flight.

    Args:
        first: Words of the verb that all have.
        words: The job's own, behind them.
    """

    verb: str
    key: str
    first: tuple[Any, ...]
    words: tuple[Any, ...]


_NONE_LISTED: Mapping[bytes, bytes] = {}

Effect = Command | Once | Join | Unless | Held | Take | Tally
"""What a job's end writes. All are tuples; a command is one of no class of its own."""


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
        _script_for(vital).run(link, *_settle_parts(_key_of(owner, field, listed), field, vital, counters, listed))
    )


def settle_call(
    owner: str, field: bytes, vital: Sequence[Effect], counters: Sequence[Effect] = (), listed: bytes | None = None
) -> tuple[Any, ...]:
    """The command by which `settle` ends a job, to be sent along with others; the script may have to be loaded."""
    return _script_for(vital).call(*_settle_parts(_key_of(owner, field, listed), field, vital, counters, listed))


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


def write(link: Link, vital: Sequence[Effect], counters: Sequence[Effect] = ()) -> None:
    """As `settle`, for a job that is in flight nowhere: without condition."""
    _script_for(vital).run(link, *_settle_parts(keys.in_flight(""), b"", vital, counters))


def write_calls(vital: Sequence[Effect]) -> tuple[Command, Command]:
    """The command that does what `write` does, and the one for a server that does not know the script."""
    script, parts = _script_for(vital), _settle_parts(keys.in_flight(""), b"", vital, ())
    return script.call(*parts), script.full_call(*parts)


def take_out(link: Link, key: str, job: bytes, *, is_sorted_set: bool, vital: Sequence[Effect]) -> bool:
    """
    End a job that stands in a queue or in a sorted set, by its bytes.

    Returns:
        False if it was not there any more: nothing was written.
    """
    names, arguments = _settle_parts(key, job, vital, ())
    arguments[1] = "2" if is_sorted_set else "1"
    return bool(_script_for(vital).run(link, names, arguments))


def _script_for(effects: Iterable[Effect]) -> Script:
    """The script that knows the verbs among *effects*."""
    return verbs.script() if verbs and any(_has_verb(effect) for effect in effects) else SETTLE


def _has_verb(effect: Effect) -> bool:
    if isinstance(effect, Once | Unless | Held | Join):
        return any(_has_verb(command) for command in effect.then)
    return effect[0] in verbs


def _settle_parts(
    in_flight_key: str,
    field: bytes,
    vital: Sequence[Effect],
    counters: Sequence[Effect],
    listed: bytes | None = None,
) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `settle.lua`."""
    # From each key to its number, as it comes; an end may name thousands.
    known = {in_flight_key: 1}
    if type(counters) is Counted:
        known |= counters.numbers
    numbers: defaultdict[Any, int] = defaultdict(count(len(known) + 1).__next__, known)
    arguments: list[Any] = [field, "0", 0] if listed is None else [listed, "1", 0]
    arguments[2] = _add_words(arguments, vital, numbers)
    if type(counters) is Counted:
        arguments += counters.words
    else:
        _add_words(arguments, counters, numbers)
    return list(numbers), arguments


def _add_words(words: list[Any], effects: Iterable[Effect], numbers: Mapping[Any, int]) -> int:
    """
    Append the words of each command; a condition is a command of its own, before those that hang on it.

    Returns:
        How many commands they are.
    """
    commands = 0
    for effect in effects:
        if type(effect) is tuple and len(effect) <= _SLICE:
            words += (len(effect), effect[0], numbers[effect[1]], *effect[2:])
            commands += 1
        else:
            for part in _parts_of(effect, numbers):
                words += (len(part), part[0], numbers[part[1]], *part[2:])
                commands += 1
    return commands


def _parts_of(effect: Effect, numbers: Mapping[Any, int]) -> list[Command]:
    if isinstance(effect, Tally):
        return [(effect.verb, effect.key, *effect.first, *effect.words)]
    if isinstance(effect, Take):
        return [("TAKE", *effect[:4], *_take_keys(effect.owner, effect.queue_keys)(numbers))]
    if not isinstance(effect, Once | Unless | Held | Join):
        if not isinstance(effect, tuple | list):
            raise TypeError(f"{effect!r} is no command to Redis")
        return _short(tuple(effect))
    then = [part for command in effect.then for part in _short(command)]
    if isinstance(effect, Once):
        return [("ONCE", effect.key, effect.mark, len(then)), *then]
    if isinstance(effect, Unless):
        return [("UNLESS", effect.key, effect.start, len(then)), *then]
    if isinstance(effect, Held):
        return [("HELD", effect.key, effect.text, len(then)), *then]
    return [("JOIN", effect.key, effect.mark, len(then), effect.parts, effect.seam), *then]


def _short(command: Command) -> list[Command]:
    """*command*, or several that do the same, none of them too long for a script."""
    if len(command) <= _SLICE + 2 or command[0] not in _CAN_BE_CUT:
        return [command]
    verb, key, *values = command
    return [(verb, key, *values[start : start + _SLICE]) for start in range(0, len(values), _SLICE)]


def repeatable(effects: Sequence[Effect], key: str) -> list[Effect]:
    """
    *effects* that may be written again after a lost reply.

    Args:
        key: A hash that nobody else uses. What would add up, as a push, hangs on a mark in it, which lasts a day.
    """
    marked: list[Effect] = [
        Once(key, str(number), (effect,)) if type(effect) is tuple and effect[0] in _ADDS_UP else effect
        for number, effect in enumerate(effects)
    ]
    return marked if marked == list(effects) else [*marked, ("EXPIRE", key, _DAY_SECONDS)]


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
