"""The chosen tests, the expected results, and how a run differs from them."""

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
        files: The files to run, below `t/`.
        slow: The files and single tests that a quick run skips.
        not_asked: The tests that are never run, by id or prefix.
    """

    name: str
    files: tuple[str, ...]
    slow: tuple[str, ...]
    not_asked: tuple[str, ...]

    def wanted(self, quick: bool) -> list[str]:
        """The files for a run."""
        return [file for file in self.files if not (quick and file in self.slow)]

    def deselected(self, quick: bool) -> list[str]:
        """The tests in these files to skip."""
        return [*self.not_asked, *(test for test in self.slow if quick and "::" in test)]


@dataclass(frozen=True, slots=True)
class Reason:
    """
    The reason why some tests are expected to fail.

    Args:
        name: The reason in a few words.
        why: The reason in a sentence.
        tests: The ids of the tests.
    """

    name: str
    why: str
    tests: frozenset[str]


@dataclass(frozen=True, slots=True)
class Drift:
    """
    How a run differs from the expectations; all empty if it does not.

    Args:
        failing: The tests that fail and are not listed.
        holding: The tests that are listed and pass.
        gone: The tests that are listed and were not run.
    """

    failing: tuple[str, ...]
    holding: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def surprising(self) -> tuple[str, ...]:
        """The tests with an unexpected result."""
        return (*self.failing, *self.holding)

    def __bool__(self) -> bool:
        return bool(self.failing or self.holding or self.gone)


def part(name: str) -> Part:
    """The part with that name."""
    chosen = _chosen()[name]
    return Part(name, tuple(chosen["files"]), tuple(chosen["slow"]), tuple(chosen["not_asked"]))


def left_out() -> list[tuple[str, str, tuple[str, ...]]]:
    """The files that are not run: what they test in a few words, the reason, and their paths or folders below `t/`."""
    return [(group["name"], group["why"], tuple(group["files"])) for group in _chosen()["left_out"]]


@cache
def reasons(name: str) -> tuple[Reason, ...]:
    """The reasons why tests of a part are expected to fail."""
    text = (_HERE / f"expected_{name}.toml").read_text()
    return tuple(
        Reason(each["name"], each["why"], frozenset(each["tests"])) for each in tomllib.loads(text).get("reason", ())
    )


def drift(name: str, quick: bool, outcomes: Mapping[str, str]) -> Drift:
    """How *outcomes* differ from the expectations for a part."""
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
