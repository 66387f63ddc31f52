"""Lines that tests add to the report at the end of a run: what they counted, and not only that they passed."""

from collections.abc import Callable

import pytest

_LINES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The lines of all tests."""
    lines = terminalreporter.config.stash.setdefault(_LINES, [])
    if lines:
        terminalreporter.section("counts")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Adds a line: `report(counts)`."""

    def note(line: object) -> None:
        text = f"{request.node.name}: {line}"
        request.config.stash.setdefault(_LINES, []).append(text)
        print(text)

    return note
