"""
The payloads that real Sidekiq wrote, as values. `ruby_fixtures/README.md` describes the files.

They are data: tests that need no Ruby run against every recorded release.
"""

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from interop_tests.support.ruby import RUBY_FIXTURES
from sidekiq_py.wire.dialect import Dialect

FOLDER = RUBY_FIXTURES / "payloads"
RECORDED = tuple(sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir()))
"""The releases of Sidekiq that have been recorded, as their folders are named."""

PUSHES = ("perform_async", "perform_in", "perform_at", "perform_bulk", "push", "push_bulk")


@dataclass(frozen=True, slots=True)
class Recording:
    """
    One situation of one release.

    Args:
        situation: Its name.
        sidekiq: The release that wrote it.
        input: The call or the step.
        key: The Redis key it is about.
        type: The key's type; `none` if nothing is there.
        members: The raw bytes; for hashes pairs of field and value.
        scores: Of sorted sets, one a member.
        elsewhere: The rest of the database, as in the file.
        commands: What the step sent to Redis, as in the file.
    """

    situation: str
    sidekiq: str
    input: dict[str, Any]
    key: str
    type: str
    members: list[Any]
    scores: list[float]
    elsewhere: dict[str, Any]
    commands: list[list[Any]]

    @property
    def dialect(self) -> Dialect:
        """That release's way of writing."""
        return Dialect.pinned(self.sidekiq)

    @property
    def id(self) -> str:
        """For the names of tests: the situation and the release."""
        return f"{self.situation}-{self.sidekiq}"

    @property
    def before(self) -> bytes:
        """The bytes that the step began with."""
        return _bytes(self.input["before"])

    @property
    def is_push(self) -> bool:
        """Whether it is a call of a client."""
        return self.input.get("call") in PUSHES


def recordings(sidekiq: str | None = None) -> list[Recording]:
    """All situations recorded of a release, or of all releases, by name."""
    return [recording for release in ([sidekiq] if sidekiq else RECORDED) for recording in _of(release)]


def recording(situation: str, sidekiq: str = "6.4.1") -> Recording:
    """
    The recording of that name.

    Raises:
        KeyError: That release was not recorded in this situation.
    """
    for found in _of(sidekiq):
        if found.situation == situation:
            return found
    raise KeyError(f"{situation} of Sidekiq {sidekiq}")


def recordings_of(situation: str) -> list[Recording]:
    """The recordings of that name, of each release that has one."""
    return [found for found in recordings() if found.situation == situation]


@cache
def _of(sidekiq: str) -> list[Recording]:
    return [_read(path) for path in sorted((FOLDER / sidekiq).glob("*.json"))]


def _read(path: Path) -> Recording:
    content = json.loads(path.read_text())
    return Recording(
        situation=content["situation"],
        sidekiq=content["sidekiq"],
        input=content["input"],
        key=content["key"],
        type=content["type"],
        members=[_member(member) for member in content["members"]],
        scores=[float(score) for score in content.get("scores", [])],
        elsewhere=content["elsewhere"],
        commands=content["commands"],
    )


def _member(member: Any) -> Any:
    return tuple(_bytes(part) for part in member) if isinstance(member, list) else _bytes(member)


def _bytes(text: str | dict[str, str]) -> bytes:
    return base64.b64decode(text["base64"]) if isinstance(text, dict) else text.encode()
