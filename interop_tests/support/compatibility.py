"""
A pytest plug-in that writes the table of proven claims: which claim, on which release, by which test.

Each test in `interop_tests/` is a claim, described by its docstring; each value of the fixture `ruby_release`, or of
`any_redis`, is a column. Tests elsewhere that compare with a release's recordings count as well. With
`--compatibility FILE` the table of a run is written there, if the run was complete: every release, and no test skipped.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from interop_tests import servers
from interop_tests.support.recordings import Recording
from interop_tests.support.ruby import RELEASES, RubyRelease, all_series

OPTION = "--compatibility"
# The contents of cells.
FAILED = "**fails**"
NOT_ASKED = "-"

# Names whose spelling cannot be derived from a test's name.
_NAMES = {
    name.lower(): name
    for name in ("Ruby", "Python", "Sidekiq", "Redis", "Rails", "GitLab", "API", "JSON", "TLS", "Active Job")
}

_HEAD = """# What was tested, on which release

`make interop` writes this page. Each row is a test, each column the real software at the other end. A ✓ means that
the test passed, with the number of cases if there are several. "-" means that the release does not have what is
tested, or that the test does not depend on the release.
"""

# As in .ci/interop; by default pytest skips the long tests.
_WHOLE = ("", "long or not long")


@dataclass(slots=True)
class _Claim:
    """One test function, and its result in each column."""

    heading: str
    text: str
    test: str
    passed: dict[str, int] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def cell(self, column: str) -> str:
        if column in self.failed:
            return FAILED
        count = self.passed.get(column, 0)
        return {0: NOT_ASKED, 1: "✓"}.get(count, f"✓ {count}")


class CompatibilityTable:
    """Collects outcomes while tests run, and writes them as Markdown at the end of a complete run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claims: dict[str, _Claim] = {}
        self._columns: dict[str, str] = {}
        """By test id: the column it belongs to."""
        self._releases: dict[str, RubyRelease] = {}
        self._servers: dict[str, None] = {}
        self._left_out = 0

    def pytest_collection_modifyitems(self, items: Iterable[pytest.Item]) -> None:
        """Record each claim and its column."""
        for item in items:
            if not isinstance(item, pytest.Function):
                continue
            column = self._column(getattr(item, "callspec", None))
            if column is None:
                continue
            test = item.nodeid.partition("[")[0]
            self._columns[item.nodeid] = column
            self._claims.setdefault(test, _Claim(_sentence(item.module), _sentence(item.function), test))

    def _column(self, callspec: Any) -> str | None:
        parameters: Mapping[str, Any] = callspec.params if callspec is not None else {}
        release = parameters.get("ruby_release")
        if isinstance(release, RubyRelease):
            self._releases[release.sidekiq_version] = release
            return release.sidekiq_version
        recorded = parameters.get("found")
        if isinstance(recorded, Recording):
            # A suite with a newer release is compared with the recordings of the release before it.
            return next((one.sidekiq_version for one in RELEASES if one.payloads.name == recorded.sidekiq), None)
        if "any_redis" in parameters:
            program = parameters["any_redis"]
            found = isinstance(program, servers.RedisProgram)
            name = f"{program.product} {program.version}" if found else str(program)
            self._servers[name] = None
            return name
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that ran, or one that could not be set up."""
        column = self._columns.get(report.nodeid)
        if column is None or (report.when != "call" and report.passed):
            return
        claim = self._claims[report.nodeid.partition("[")[0]]
        if report.skipped:
            self._left_out += 1
        elif report.passed:
            claim.passed[column] = claim.passed.get(column, 0) + 1
        else:
            claim.failed.add(column)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Write the tables, or print why they are not written."""
        reason = self._why_not_whole(config)
        if reason is not None:
            terminalreporter.line(f"{self._path} is not written: {reason}")
            return
        self._path.write_text("\n".join([_HEAD, *self._lines()]).rstrip() + "\n")
        terminalreporter.line(f"{self._path}: {len(self._claims)} claims on {len(self._releases)} releases")

    def _why_not_whole(self, config: pytest.Config) -> str | None:
        asked = {release.series for release in self._releases.values()}
        if asked != set(all_series()):
            return f"only {', '.join(sorted(asked)) or 'none'} of the releases {', '.join(all_series())} were asked"
        if config.option.keyword or config.option.markexpr not in _WHOLE:
            return "only some of the tests were asked for"
        return f"{self._left_out} tests were skipped" if self._left_out else None

    def _lines(self) -> Iterable[str]:
        releases = sorted(self._releases.values(), key=lambda release: release.numbers)
        yield "## Real Sidekiq"
        yield ""
        yield from _versions(releases)
        yield from self._sections([release.sidekiq_version for release in releases])
        if self._servers:
            yield "## Redis and Valkey"
            yield ""
            yield from self._sections(list(self._servers))

    def _sections(self, columns: list[str]) -> Iterable[str]:
        claims = [claim for claim in self._claims.values() if {*claim.passed, *claim.failed} & set(columns)]
        for heading in dict.fromkeys(claim.heading for claim in claims):
            yield f"### {heading}"
            yield ""
            yield _row(["", *columns])
            yield _row(["---", *[":-:"] * len(columns)])
            for claim in claims:
                if claim.heading == heading:
                    cells = [claim.cell(column) for column in columns]
                    yield _row([f"{_link(claim.test)}. {claim.text}", *cells])
            yield ""


def _versions(releases: list[RubyRelease]) -> Iterable[str]:
    yield _row(["Sidekiq", *[release.sidekiq_version for release in releases]])
    yield _row(["---", *[":-:"] * len(releases)])
    yield _row(["Debian", *[release.suite for release in releases]])
    for name in ("ruby", "json", "rails"):
        yield _row([name.replace("json", "json gem").capitalize(), *[_version(release, name) for release in releases]])
    yield ""


def _version(release: RubyRelease, name: str) -> str:
    return str(getattr(release.versions, name)) if release.versions is not None else NOT_ASKED


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _sentence(documented: object) -> str:
    """The first paragraph of a docstring, formatted for a table."""
    paragraph, _, _ = inspect.cleandoc(getattr(documented, "__doc__", None) or "").partition("\n\n")
    return paragraph.replace("\n", " ").rstrip(".").replace("|", "\\|")


def _link(test: str) -> str:
    """A link to the test, with its name as a sentence."""
    file, _, name = test.partition("::")
    words = re.sub(r"_s(?=_|$)", "'s", name.removeprefix("test_")).replace("_", " ")
    known = "|".join(map(re.escape, _NAMES))
    words = re.sub(rf"\b({known})\b", lambda word: _NAMES[word[0]], words)
    return f"[{words[:1].upper()}{words[1:]}](../{file})"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the table's path."""
    parser.addoption(OPTION, metavar="FILE", help="write docs/compatibility.md's table of this run there")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plug-in only if a table is requested."""
    path = config.getoption(OPTION)
    if path:
        config.pluginmanager.register(CompatibilityTable(Path(path)), "compatibility_table")
