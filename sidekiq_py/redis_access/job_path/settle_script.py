"""
The script that ends a job, and what it writes, as values.

An end is a sequence of commands. Some hang on a condition, which is a value of its own (`Once`, `Join`, `Unless`,
`Held`), or take the next job along (`Take`). `settle.lua` writes all of it in one step, or nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.verbs import verbs
from sidekiq_py.wire import keys

SETTLE = Script("settle")

# Lua can hand about 8,000 values to one command.
_SLICE = 1000
_DAY_SECONDS = 24 * 3600
_ADDS_UP = frozenset({"LPUSH", "RPUSH", "INCR", "INCRBY", "COUNT", "HINCRBY", "ZINCRBY", "APPEND", "PUBLISH"})
# Their values, and the pairs of HSET, may come in several commands.
_CAN_BE_CUT = frozenset({"SADD", "SREM", "LPUSH", "RPUSH", "HSET", "HDEL", "ZREM"})


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
        placeholder: Stands in the words of *then* wherever the texts go, joined by commas, in the order of their
            numbers. It must not occur in anybody's data.
    """

    key: str
    mark: str
    parts: int
    placeholder: bytes
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


Effect = Command | Once | Join | Unless | Held | Take | Tally
"""What a job's end writes. All are tuples; a command is one of no class of its own."""


class Counted(tuple[Command, ...]):
    """The commands of `count_commands`, which stand in nearly every end: their words are put together once."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.numbers = dict(zip(dict.fromkeys(command[1] for command in self), count(2), strict=False))
        self.words: list[Any] = []
        _add_words(self.words, self, self.numbers)


def write(link: Link, vital: Sequence[Effect], counters: Sequence[Effect] = ()) -> None:
    """As `settle`, for a job that is in flight nowhere: without condition."""
    script_for(vital).run(link, *settle_parts(keys.in_flight(""), b"", vital, counters))


def write_calls(vital: Sequence[Effect]) -> tuple[Command, Command]:
    """The command that does what `write` does, and the one for a server that does not know the script."""
    script, parts = script_for(vital), settle_parts(keys.in_flight(""), b"", vital, ())
    return script.call(*parts), script.full_call(*parts)


def take_out(link: Link, key: str, job: bytes, *, is_sorted_set: bool, vital: Sequence[Effect]) -> bool:
    """
    End a job that stands in a queue or in a sorted set, by its bytes.

    Returns:
        False if it was not there any more: nothing was written.
    """
    names, arguments = settle_parts(key, job, vital, ())
    arguments[1] = "2" if is_sorted_set else "1"
    return bool(script_for(vital).run(link, names, arguments))


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


def script_for(effects: Iterable[Effect]) -> Script:
    """The script that knows the verbs among *effects*."""
    return verbs.script() if verbs and any(_has_verb(effect) for effect in effects) else SETTLE


def settle_parts(
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


def _has_verb(effect: Effect) -> bool:
    if isinstance(effect, Once | Unless | Held | Join):
        return any(_has_verb(command) for command in effect.then)
    return effect[0] in verbs


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
    return [("JOIN", effect.key, effect.mark, len(then), effect.parts, effect.placeholder), *then]


@lru_cache(maxsize=64)
def _take_keys(owner: str, queue_keys: tuple[str, ...]) -> Callable[[Mapping[Any, int]], tuple[int, ...]]:
    """The numbers of the in-flight hash, owners, lease and orders, then of what must not be there."""
    absent = (keys.PAUSED, keys.SUSPECTS, keys.REVOKED, *queue_keys)
    return itemgetter(keys.in_flight(owner), keys.OWNERS, keys.lease(owner), keys.ORDERS, *absent)


def _short(command: Command) -> list[Command]:
    """*command*, or several that do the same, none of them too long for a script."""
    if len(command) <= _SLICE + 2 or command[0] not in _CAN_BE_CUT:
        return [command]
    verb, key, *values = command
    return [(verb, key, *values[start : start + _SLICE]) for start in range(0, len(values), _SLICE)]
