"""The payloads that real Sidekiq wrote, as values. `ruby_fixtures/README.md` describes the files."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop_tests.support.ruby import RUBY_FIXTURES

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
    """

    situation: str
    sidekiq: str
    input: dict[str, Any]
    key: str
    type: str
    members: list[Any]
    scores: list[float]
    elsewhere: dict[str, Any]

    @property
    def before(self) -> bytes:
        """The bytes that the step began with."""
        return _bytes(self.input["before"])

    @property
    def is_push(self) -> bool:
        """Whether it is a call of a client."""
        return self.input.get("call") in PUSHES


def recordings(sidekiq: str = "6.4.1") -> list[Recording]:
    """All situations recorded of a release, by name."""
    folder = RUBY_FIXTURES / "payloads" / sidekiq
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def recording(situation: str, sidekiq: str = "6.4.1") -> Recording:
    """The recording of that name."""
    return _read(RUBY_FIXTURES / "payloads" / sidekiq / f"{situation}.json")


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
    )


def _member(member: Any) -> Any:
    return tuple(_bytes(part) for part in member) if isinstance(member, list) else _bytes(member)


def _bytes(text: str | dict[str, str]) -> bytes:
    return base64.b64decode(text["base64"]) if isinstance(text, dict) else text.encode()
