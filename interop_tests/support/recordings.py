"""
The payloads that real Sidekiq has written, as values. `ruby_fixtures/README.md` describes the files.

As they are data, tests can compare with every recorded release without Ruby.
"""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis

from interop_tests.support.ruby import RUBY_FIXTURES
from sidekiq_py.wire.dialect import Dialect

FOLDER = RUBY_FIXTURES / "payloads"
RECORDED = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()))
"""The recorded releases of Sidekiq, by the names of their folders."""

PUSHES = ("perform_async", "perform_in", "perform_at", "perform_bulk", "push", "push_bulk")


@dataclass(frozen=True, slots=True)
class Held:
    """
    The contents of a Redis key.

    Args:
        type: The type as reported by TYPE; `none` if the key does not exist.
        members: The raw bytes; for hashes, pairs of field and value.
        scores: For sorted sets, one score per member.
    """

    type: str
    members: list[Any]
    scores: list[float]


@dataclass(frozen=True, slots=True)
class Recording:
    """
    The recording of one situation in one release.

    Args:
        situation: The situation's name.
        sidekiq: The release that wrote it.
        input: The call or the step.
        key: The Redis key that it is about.
        type: The key's type; `none` if it does not exist.
        members: The raw bytes; for hashes, pairs of field and value.
        scores: For sorted sets, one score per member.
        elsewhere: The rest of the database.
        commands: The commands that the step sent to Redis, as in the file.
    """

    situation: str
    sidekiq: str
    input: dict[str, Any]
    key: str
    type: str
    members: list[Any]
    scores: list[float]
    elsewhere: dict[str, Held]
    commands: list[list[Any]]

    @property
    def dialect(self) -> Dialect:
        """The dialect of that release."""
        return Dialect.pinned(self.sidekiq)

    @property
    def database(self) -> dict[str, Held]:
        """A copy of all data left in Redis, by key, without what the fixtures' jobs wrote themselves."""
        held = {} if self.type == "none" else {self.key: Held(self.type, self.members, self.scores)}
        kept = {name: value for name, value in (held | self.elsewhere).items() if not name.startswith("fixture:")}
        return deepcopy(kept)

    def sent(self, *names: str) -> list[tuple[bytes, ...]]:
        """The commands with those names that the step sent."""
        return [tuple(bytes_of(word) for word in command) for command in self.commands if command[0] in names]

    @property
    def id(self) -> str:
        """The situation and the release, for the names of tests."""
        return f"{self.situation}-{self.sidekiq}"

    @property
    def before(self) -> bytes:
        """The bytes that the step began with."""
        return bytes_of(self.input["before"])

    @property
    def is_push(self) -> bool:
        """Whether it is a client call."""
        return self.input.get("call") in PUSHES


def recordings(sidekiq: str | None = None) -> list[Recording]:
    """All situations recorded for a release, or for all releases, by name."""
    return [recording for release in ([sidekiq] if sidekiq else RECORDED) for recording in _of(release)]


def recording(situation: str, sidekiq: str = "6.4.1") -> Recording:
    """
    The recording with that name.

    Raises:
        KeyError: This situation was not recorded for that release.
    """
    for found in _of(sidekiq):
        if found.situation == situation:
            return found
    raise KeyError(f"{situation} of Sidekiq {sidekiq}")


def recordings_of(situation: str) -> list[Recording]:
    """The recordings with that name, from each release that has one."""
    return [found for found in recordings() if found.situation == situation]


@cache
def _of(sidekiq: str) -> list[Recording]:
    return [_read(path) for path in sorted((FOLDER / sidekiq).glob("*.json"))]


def named(*found: Recording) -> list[Any]:
    """
    Test parameters, named by situation and release.

    Raises:
        AssertionError: There are none, so that the test would be skipped silently.
    """
    assert found
    return [pytest.param(one, id=one.id) for one in found]


def put(client: Any, database: Mapping[str, Held]) -> None:
    """Write what a recording left into Redis, and make Redis keep the order of a short hash's fields."""
    keep_order_of_hashes(client)
    for name, held in database.items():
        match held.type:
            case "set":
                client.sadd(name, *held.members)
            case "hash":
                client.hset(name, mapping=dict(held.members))
            case "string":
                client.set(name, held.members[0])
            case "list":
                client.rpush(name, *held.members)
            case "zset":
                client.zadd(name, dict(zip(held.members, held.scores, strict=True)))


def database_of(client: redis.Redis) -> dict[str, Held]:
    """The contents of Redis in the form of `Recording.database`, without our own keys and those of fixture jobs."""
    names = sorted(name.decode() for name in client.scan_iter())
    return {name: _held(client, name) for name in names if not name.startswith(("sidekiq_py:", "fixture:"))}


def keep_order_of_hashes(client: Any) -> None:
    """Make the server keep the fields of a short hash in the order in which they were written, whatever the length."""
    for name in ("hash-max-listpack-value", "hash-max-ziplist-value"):
        with suppress(redis.ResponseError):  # before 7.0 the first is not known, and in some that follow the second
            client.config_set(name, 100_000)


def bytes_of(text: str | dict[str, str]) -> bytes:
    """The bytes that a text in a file stands for."""
    return base64.b64decode(text["base64"]) if isinstance(text, dict) else text.encode()


def _held(client: Any, name: str) -> Held:
    match client.type(name).decode():
        case "string":
            return Held("string", [client.get(name)], [])
        case "list":
            return Held("list", client.lrange(name, 0, -1), [])
        case "set":
            return Held("set", sorted(client.smembers(name)), [])
        case "hash":
            return Held("hash", list(client.hgetall(name).items()), [])
        case "zset":
            pairs = client.zrange(name, 0, -1, withscores=True)
            return Held("zset", [member for member, _ in pairs], [score for _, score in pairs])
        case other:
            raise AssertionError(f"{name} is of type {other}")


def _read(path: Path) -> Recording:
    content = json.loads(path.read_text())
    held = _recorded(content)
    return Recording(
        situation=content["situation"],
        sidekiq=content["sidekiq"],
        input=content["input"],
        key=content["key"],
        type=held.type,
        members=held.members,
        scores=held.scores,
        elsewhere={name: _recorded(value) for name, value in content["elsewhere"].items()},
        commands=content["commands"],
    )


def _recorded(content: dict[str, Any]) -> Held:
    members = [_member(member) for member in content["members"]]
    return Held(content["type"], members, [float(score) for score in content.get("scores", [])])


def _member(member: Any) -> Any:
    return tuple(bytes_of(part) for part in member) if isinstance(member, list) else bytes_of(member)
