"""
`docs/celery_reference.md`: whether its tables name all of Celery, and whether what they name is so; and whether the
commands of `docs/migrating_from_celery.md` change imports.

`celery_names.json` holds the public names of Celery 5.7.0, by where they are, and `celery_module_names.json` the
`__all__` of its modules that the page says to be complete here.
"""

import json
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sidekiq_celery
from sidekiq_celery import Celery, Task, beat, canvas, exceptions, result, schedules, signals, states
from sidekiq_celery._config.defaults import OPTIONS
from sidekiq_celery._config.effects import without_effect
from sidekiq_celery._wire.context import Context
from sidekiq_celery.app.control import Control, Inspect
from sidekiq_celery.bin.celery import celery

from sidekiq_py.wire.dialect import Dialect
from tests.support.missing_tools import skip_or_fail
from tests.support.real_celery import python_with_celery

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
NAMES: dict[str, list[str]] = json.loads((HERE / "celery_names.json").read_text())
MODULE_NAMES: dict[str, list[str]] = json.loads((HERE / "celery_module_names.json").read_text())
HOMES: dict[str, Any] = {
    "celery": sidekiq_celery, "Celery": Celery("names", set_as_current=False), "Task": Task,
    "Signature": canvas.Signature, "canvas": canvas, "AsyncResult": result.AsyncResult,
    "GroupResult": result.GroupResult, "ResultSet": result.ResultSet, "EagerResult": result.EagerResult,
    "result": result, "signals": signals, "states": states, "exceptions": exceptions, "request": Context,
    "request methods": Context, "beat": beat, "schedules": schedules, "control": Control, "inspect": Inspect,
}  # fmt: skip


# Names that stand for something else, too: a module `celery.log` is not, `app.log` is. And one that is there to refuse.
AMBIGUOUS = {"log", "Pickler", "start_strategy", "setup_security"}


class Row(NamedTuple):
    """A row of a table."""

    section: str
    names: str
    state: str
    text: str
    test: str

    @property
    def patterns(self) -> list[str]:
        """The words of its first cell that stand in backticks."""
        return [word.removeprefix("celery.") for word in re.findall(r"`([^`]+)`", self.names)]


@cache
def rows() -> tuple[Row, ...]:
    """All rows of the page's tables of names."""
    tables = (REPOSITORY / "docs/celery_reference.md").read_text().partition("## Name by name")[2]
    found = []
    section = ""
    for line in tables.splitlines():
        if line.startswith("### "):
            section = line.removeprefix("### ")
        elif line.startswith("| ") and not line.startswith("| Name |"):
            found.append(Row(section, *(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])))
    return tuple(found)


def rows_of(name: str, section: str | None = None) -> list[Row]:
    """The rows that speak of a name."""
    wanted = (row for row in rows() if section in (None, row.section))
    return [row for row in wanted if any(fnmatchcase(name, pattern) for pattern in row.patterns)]


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        # Nor is the package that it would be in.
        return False


def test_each_row_is_well_made() -> None:
    """Three states; what is not as in Celery says how, and what works or differs has a test."""
    for row in rows():
        assert row.state in {"works", "differs", "absent"}, row
        assert row.text or row.state == "works", row
        assert row.test or row.state == "absent", row


def test_each_test_that_is_named_exists() -> None:
    """By its file and its function."""
    for row in rows():
        if row.test:
            file, _, function = row.test.strip("`").partition("::")
            assert re.search(rf"^(async )?def {function}\(", (HERE / file).read_text(), re.MULTILINE), row.test


@pytest.mark.parametrize("where", NAMES)
def test_every_name_is_in_a_row(where: str) -> None:
    """Of Celery's modules, classes, settings, options and commands."""
    assert [name for name in NAMES[where] if not rows_of(name)] == []


@pytest.mark.parametrize("where", HOMES)
def test_every_name_of_celery_that_is_not_absent_is_there(where: str) -> None:
    """And what a row calls absent is not there."""
    there = set(NAMES[where]) & {*dir(HOMES[where]), *getattr(HOMES[where], "__all__", ())}
    if where == "celery":
        # Its modules are attributes, too, whether or not anything has loaded them.
        there |= {name for name in NAMES[where] if _is_module(f"sidekiq_celery.{name}")}
    promised = {name for name in NAMES[where] if any(row.state != "absent" for row in rows_of(name))}

    assert promised - there - AMBIGUOUS == set()
    assert there - promised - AMBIGUOUS == set()


def test_modules_are_there_unless_they_are_absent() -> None:
    """As `sidekiq_celery.x`, where a row says `.x`."""
    for row in rows():
        for module in (word for word in row.patterns if re.fullmatch(r"(\.\w+)+", word)):
            is_there = _is_module(f"sidekiq_celery{module}")
            assert is_there == (row.state != "absent"), module


@pytest.mark.parametrize("module", MODULE_NAMES)
def test_a_module_that_works_as_in_celery_has_all_its_names(module: str) -> None:
    """The row says so of each module in it: what lacks a name belongs in a row that says which."""
    ours = import_module(f"sidekiq_celery{module}")

    assert rows_of(module, "Modules")[0].state == "works"
    assert [name for name in MODULE_NAMES[module] if not hasattr(ours, name)] == []


def test_every_option_and_command_is_there() -> None:
    """Those of the program, of `worker` and of `beat`; refused ones are known, too."""
    for group, command in (
        ("global options", celery),
        *((f"{n} options", celery.commands[n]) for n in ("worker", "beat")),
    ):
        known = {option for param in command.params for option in param.opts}
        assert set(NAMES[group]) - known - {"--executable"} == set()
    can_be_run = {name for name, command in celery.commands.items() if command.callback is not None}
    for name in NAMES["commands"]:
        assert (name in can_be_run) == any(row.state != "absent" for row in rows_of(name, "Command line")), name


def test_every_setting_has_an_effect_or_says_that_it_has_none() -> None:
    """What has one is read somewhere; what has none stands so on the page."""
    sources = (REPOSITORY / "compat/sidekiq_celery").rglob("*.py")
    words = {
        word
        for path in sources
        if path.name not in {"defaults.py", "effects.py"}
        for word in re.findall(r"\w+", path.read_text())
    }
    for name in OPTIONS:
        told = [row for row in rows_of(name) if row.text.startswith("Without effect")]
        assert bool(without_effect(name)) == bool(told), name
        # Two are read by the ends of their names.
        assert told or name in words or name.removeprefix("redis_") in {"username", "password"}, name


OLD_IMPORTS = """\
import celery
import celery  # noqa
import celery.signals
import celery as c
import celery.schedules as times
from celery import Celery, shared_task
from celery.utils.log import get_task_logger
def late():
    import celery
    from celery.result import AsyncResult
try: from celery import signature
except ImportError: import celery; pass
from .celery import app
from shop.celery import app
import celery_once
import os, celery
with mock.patch("celery.app.base.Celery"): ...
importlib.import_module("celery.canvas")
logger = logging.getLogger("celery.app.trace")
pytest_plugins = ("celery.contrib.pytest",)
"""
NEW_IMPORTS = """\
import sidekiq_celery as celery
import sidekiq_celery as celery  # noqa
import sidekiq_celery as celery, sidekiq_celery.signals
import sidekiq_celery as c
import sidekiq_celery.schedules as times
from sidekiq_celery import Celery, shared_task
from sidekiq_celery.utils.log import get_task_logger
def late():
    import sidekiq_celery as celery
    from sidekiq_celery.result import AsyncResult
try: from sidekiq_celery import signature
except ImportError: import sidekiq_celery as celery; pass
from .celery import app
from shop.celery import app
import celery_once
import os, celery
with mock.patch("celery.app.base.Celery"): ...
importlib.import_module("celery.canvas")
logger = logging.getLogger("celery.app.trace")
pytest_plugins = ("celery.contrib.pytest",)
"""


def _need_xargs() -> None:
    if shutil.which("xargs") is None:
        skip_or_fail("no xargs; on Debian: apt-get install findutils", switch="CI")


def test_the_page_changes_imports_and_lists_those_that_are_left(tmp_path: Path) -> None:
    """By its two commands, as they are printed."""
    _need_xargs()
    step = (REPOSITORY / "docs/migrating_from_celery.md").read_text().partition("3. **The import.**")[2]
    change, check = re.findall(r"```sh\n(.*?)```", step.partition("4. **Workers.**")[0], re.DOTALL)
    source = tmp_path / "src" / "shop tasks.py"
    source.parent.mkdir()
    source.write_text(OLD_IMPORTS)

    def run(command: str) -> str:
        return subprocess.run(["sh", "-ec", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert run(change) == run(change) == ""

    assert source.read_text() == NEW_IMPORTS
    assert [line.partition(":")[2] for line in run(check).splitlines()] == [
        "16:import os, celery",
        '17:with mock.patch("celery.app.base.Celery"): ...',
        '18:importlib.import_module("celery.canvas")',
        '20:pytest_plugins = ("celery.contrib.pytest",)',
    ]


def test_the_page_changes_nothing_where_there_is_nothing_to_change(tmp_path: Path) -> None:
    """And says nothing."""
    _need_xargs()
    step = (REPOSITORY / "docs/migrating_from_celery.md").read_text().partition("3. **The import.**")[2]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "empty.py").write_text("import os\n")
    change = step.partition("```sh\n")[2].partition("```")[0]

    done = subprocess.run(["sh", "-c", change], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout + done.stderr == ""


def test_the_names_are_those_of_the_real_celery() -> None:
    """Settings and signals, for all others stand for them."""
    code = (
        "import json\nfrom celery import signals\nfrom celery.app import defaults\n"
        "print(json.dumps([sorted({n for n, _ in defaults.flatten(defaults.NAMESPACES)}), sorted(signals.__all__)]))"
    )
    printed = subprocess.run([python_with_celery(), "-c", code], capture_output=True, text=True, check=True).stdout

    assert json.loads(printed) == [NAMES["settings"], NAMES["signals"]]


def test_the_page_says_how_often_a_worker_s_heart_beats() -> None:
    """Whoever watches for a hanging worker has to know how old a last heartbeat may be."""
    words = {5: "five", 10: "ten"}
    beside_6, since = (words[Dialect.pinned(release).beat_seconds] for release in ("6", "8"))
    page = (REPOSITORY / "docs/celery_reference.md").read_text()

    assert f"sends a heartbeat every {since} seconds (every {beside_6} beside Sidekiq 6)" in page
