"""
The script that settles a job, and the values that describe what it writes.

The end of a job is a sequence of commands. Some depend on a condition, which is a value itself (`Once`, `Join`,
`Unless`, `Held`), or take the next job along (`Take`). `settle.lua` writes everything in one step, or nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.slices import slices_of
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.verbs import verbs
from sidekiq_py.wire import keys

SETTLE = Script("settle")

# Lua can pass about 8,000 values to one command.
_SLICE = 1000
_DAY_SECONDS = 24 * 3600
_ADDS_UP = frozenset({"LPUSH", "RPUSH", "INCR", "INCRBY", "HINCRBY", "ZINCRBY", "APPEND", "PUBLISH"})
# The values of these (for HSET, the pairs) can be split over several commands.
_CAN_BE_CUT = frozenset({"SADD", "SREM", "LPUSH", "RPUSH", "HSET", "HDEL", "ZREM"})


class Once(NamedTuple):
    """
    Commands of a job's end that only the first job to get there runs.

    Args:
        key: A hash.
        mark: The field that the first job sets; a job that finds it set does nothing.
    """

    key: str
    mark: str
    then: tuple[Command, ...]


class Join(NamedTuple):
    """
    Commands that run once, by the job that completes a hash.

    A job that runs again writes its own part again, so nothing is counted twice.

    Args:
        key: A hash that maps the numbers of the parts, from "0", to texts.
        mark: The field that the last job sets.
        parts: How many parts there are, in addition to those that the hash's field `more` counts.
        placeholder: Replaced, in the words of *then*, by the texts joined by commas, in the order of their numbers. It
            must not occur in any data.
    """

    key: str
    mark: str
    parts: int
    placeholder: bytes
    then: tuple[Command, ...]


class Unless(NamedTuple):
    """
    Commands of a job's end that are skipped if a text starts in a certain way.

    Args:
        key: The key of a string. If it does not exist or has another type, the commands run.
        start: The start of the text that skips the commands.
    """

    key: str
    start: str
    then: tuple[Command, ...]


class Held(NamedTuple):
    """
    Commands of a job's end that run only if the job holds a lock.

    Args:
        key: The key of a string.
        text: The value that it must have. If it has another value, or is gone, the commands are skipped.
    """

    key: str
    text: str
    then: tuple[Command, ...]


class Take(NamedTuple):
    """
    The push of a job that goes straight in flight if an immediately following fetch would return exactly this job.

    Args:
        key: The queue's key.
        field: The job's field in the in-flight hash.
        owner: The owner that fetches.
        queue_keys: The keys of all queues of that fetch.
    """

    key: str
    job: bytes
    field: bytes
    owner: str
    queue_keys: tuple[str, ...]


class Tally(NamedTuple):
    """
    An extension's verb whose commands can be combined: many jobs that write nothing else at their end are settled by
    one command, for those that are still in flight.

    Args:
        first: The words that all jobs share.
        words: The job's own words, which follow.
    """

    verb: str
    key: str
    first: tuple[Any, ...]
    words: tuple[Any, ...]


Effect = Command | Once | Join | Unless | Held | Take | Tally
"""What a job's end writes. All of these are tuples; a command is a plain tuple."""

CONDITIONS = (Once, Unless, Held, Join)


class Counted(tuple[Command, ...]):
    """The commands of `count_commands`. Nearly every end has them, so their words are only assembled once."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self.numbers = dict(zip(dict.fromkeys(command[1] for command in self), count(2), strict=False))
        self.words: list[Any] = []
        _add_words(self.words, self, self.numbers)


def write(link: Link, vital: Sequence[Effect], counters: Sequence[Effect] = (), *, pushes: bool = False) -> None:
    """
    Like `settle`, for a job that is not in flight: the commands run unconditionally.

    Args:
        pushes: True for a push, which a full Redis refuses. Other commands are written even then, as a job's end
            must be.
    """
    names, words = _parts_without_job(vital, counters, pushes=pushes)
    script_for(words).run(link, names, words)


def _parts_without_job(
    vital: Sequence[Effect], counters: Sequence[Effect], *, pushes: bool
) -> tuple[list[str], list[Any]]:
    names, words = settle_parts(keys.in_flight(""), b"", vital, counters)
    if pushes:
        words[1] = "3"
    return names, words


def write_calls(vital: Sequence[Effect], *, pushes: bool = False) -> tuple[Command, Command]:
    """The command of `write`, and the one for a server that does not know the script."""
    names, words = _parts_without_job(vital, (), pushes=pushes)
    script = script_for(words)
    return script.call(names, words), script.full_call(names, words)


def take_from_queue(link: Link, key: str, job: bytes, vital: Sequence[Effect]) -> bool:
    """
    Settle a job that is in a queue, by its bytes.

    Returns:
        False if it was no longer there; nothing was written then.
    """
    names, words = settle_parts(key, job, vital, ())
    words[1] = "4"
    return bool(script_for(words).run(link, names, words))


def take_from_set(link: Link, key: str, jobs: Sequence[tuple[bytes, Sequence[Effect]]]) -> list[Any]:
    """
    Like `take_from_queue`, for several jobs of a sorted set in one round trip. Returns the replies, with the errors
    among them.
    """
    calls = [settle_parts(key, job, vital, ()) for job, vital in jobs]
    for _, words in calls:
        words[1] = "2"
    return script_for(word for _, words in calls for word in words).replies(link, calls)


def repeatable(effects: Sequence[Effect], key: str) -> list[Effect]:
    """
    *effects* in a form that may be written again after a lost reply.

    Args:
        key: A hash that nothing else uses. Commands that would add up, such as a push, depend on marks in it, which
            last a day.
    """
    marked: list[Effect] = [
        Once(key, str(number), (effect,)) if type(effect) is tuple and effect[0] in _ADDS_UP else effect
        for number, effect in enumerate(effects)
    ]
    return marked if marked == list(effects) else [*marked, ("EXPIRE", key, _DAY_SECONDS)]


def script_for(words: Iterable[Any]) -> Script:
    """The script that knows the verbs among *words*. Another word that reads like a verb does no harm."""
    try:
        return SETTLE if verbs.names.isdisjoint(words) else verbs.script()
    except (TypeError, ValueError):
        # A word that has no hash, such as a memoryview of a bytearray.
        return verbs.script()


def settle_parts(
    in_flight_key: str,
    field: bytes,
    vital: Sequence[Effect],
    counters: Sequence[Effect],
    listed: bytes | None = None,
) -> tuple[list[str], list[Any]]:
    """KEYS and ARGV of `settle.lua`."""
    # Maps each key to its number, in order of appearance; an end may name thousands.
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
    Append the words of each command. A condition is a separate command before those that depend on it.

    Returns:
        The number of commands.
    """
    commands: list[Command] = []
    for effect in effects:
        if type(effect) is tuple and len(effect) <= _SLICE:
            commands.append(effect)
        else:
            commands += _parts_of(effect, numbers)
    for command in commands:
        # Copied whole, then its key is replaced: that takes half as long as taking the words apart.
        key_at = len(words) + 2
        words.append(len(command))
        words += command
        words[key_at] = numbers[command[1]]
    return len(commands)


def _parts_of(effect: Effect, numbers: Mapping[Any, int]) -> list[Command]:
    if isinstance(effect, Tally):
        return [(effect.verb, effect.key, *effect.first, *effect.words)]
    if isinstance(effect, Take):
        return [("TAKE", *effect[:4], *_take_keys(effect.owner, effect.queue_keys)(numbers))]
    if not isinstance(effect, CONDITIONS):
        if not isinstance(effect, tuple | list):
            raise TypeError(f"{effect!r} is not a Redis command")
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
    """The numbers of the in-flight hash, owners, lease and notices, then of the keys that must not exist."""
    absent = (keys.PAUSED, keys.SUSPECTS, keys.REVOKED, *queue_keys)
    return itemgetter(keys.in_flight(owner), keys.OWNERS, keys.lease(owner), keys.NOTICES, *absent)


def _short(command: Command) -> list[Command]:
    """*command*, or several that do the same and are short enough for a script."""
    if len(command) <= _SLICE + 2 or command[0] not in _CAN_BE_CUT:
        return [command]
    verb, key, *values = command
    return [(verb, key, *part) for part in slices_of(values, _SLICE)]
