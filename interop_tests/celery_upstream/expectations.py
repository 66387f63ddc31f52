"""What was chosen, what is expected, and how a run differs from that."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent

PARTS = ("unit", "integration")


@dataclass(frozen=True, slots=True)
class Part:
    """
    One of Celery's two suites.

    Args:
        name: `unit` or `integration`.
        files: That are run, below `t/`.
        slow: Those of them, and single tests, that a quick run leaves out.
        not_asked: Tests that are left out, by their ids or what these begin with.
    """

    name: str
    files: tuple[str, ...]
    slow: tuple[str, ...]
    not_asked: tuple[str, ...]

    def wanted(self, quick: bool) -> list[str]:
        """The files of a run."""
        return [file for file in self.files if not (quick and file in self.slow)]

    def deselected(self, quick: bool) -> list[str]:
        """Tests that are left out of these files."""
        return [*self.not_asked, *(test for test in self.slow if quick and "::" in test)]


@dataclass(frozen=True, slots=True)
class Reason:
    """
    Why some tests do not hold.

    Args:
        name: In a few words.
        why: In a sentence.
        tests: Their ids.
    """

    name: str
    why: str
    tests: frozenset[str]


@dataclass(frozen=True, slots=True)
class Drift:
    """
    How a run differs from what is expected; all empty if it does not.

    Args:
        failing: Tests that fail and are not listed.
        holding: Tests that are listed and pass.
        gone: Tests that are listed, and that nobody ran.
    """

    failing: tuple[str, ...]
    holding: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def surprising(self) -> tuple[str, ...]:
        """Tests that ended otherwise than expected."""
        return (*self.failing, *self.holding)

    def __bool__(self) -> bool:
        return bool(self.failing or self.holding or self.gone)


def part(name: str) -> Part:
    """The part of that name."""
    chosen = _chosen()[name]
    return Part(name, tuple(chosen["files"]), tuple(chosen["slow"]), tuple(chosen["not_asked"]))


def left_out() -> list[tuple[str, str, tuple[str, ...]]]:
    """Of files that are not run: in a few words what they test, why, and their paths or folders below `t/`."""
    return [(group["name"], group["why"], tuple(group["files"])) for group in _chosen()["left_out"]]


@cache
def reasons(name: str) -> tuple[Reason, ...]:
    """Why tests of a part do not hold."""
    text = (_HERE / f"expected_{name}.toml").read_text()
    return tuple(
        Reason(each["name"], each["why"], frozenset(each["tests"])) for each in tomllib.loads(text).get("reason", ())
    )


def drift(name: str, quick: bool, outcomes: Mapping[str, str]) -> Drift:
    """How *outcomes* differ from what is expected of a part."""
    chosen = part(name)
    asked = tuple(f"t/{file}" for file in chosen.wanted(quick))
    left_out = tuple(f"t/{test}" for test in chosen.deselected(quick))
    every = {test for reason in reasons(name) for test in reason.tests}
    listed = {test for test in every if test.startswith(asked) and not test.startswith(left_out)}
    failing = {test for test, outcome in outcomes.items() if outcome == "failed"}
    return Drift(
        failing=tuple(sorted(failing - listed)),
        holding=tuple(sorted(test for test in listed - failing if test in outcomes)),
        gone=tuple(sorted(listed - outcomes.keys())),
    )


@cache
def _chosen() -> dict[str, Any]:
    return tomllib.loads((_HERE / "chosen.toml").read_text())
