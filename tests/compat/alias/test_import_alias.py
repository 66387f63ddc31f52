"""`celery` is this package, whether the real one is installed or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.alias.conftest import ROOT, Run

INSTALL = "import sidekiq_celery; sidekiq_celery.install_as_celery()"


def printed(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """The lines that a program has printed, which must have ended well."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_is_the_same_object(run: Run) -> None:
    """Packages and modules below them, already imported or not, however they are imported."""
    program = f"""
{INSTALL}
import sys
import sidekiq_celery.app.task
import celery, celery.states, celery.app.task, celery.utils.log
from celery import current_app, Task
from celery.app.base import Celery
from celery.contrib import abortable
from importlib import import_module, reload
assert celery is sidekiq_celery
assert sys.modules["celery.states"] is sys.modules["sidekiq_celery.states"]
assert celery.app.task.Task is Task is sidekiq_celery.Task
assert current_app is sidekiq_celery.current_app and Celery is sidekiq_celery.Celery
assert import_module("celery.exceptions") is import_module("sidekiq_celery.exceptions")
assert celery.utils.log.__spec__.name == celery.utils.log.__name__ == "sidekiq_celery.utils.log"
assert reload(abortable) is abortable
print(celery.__version__ >= "5.7", celery.VERSION >= (5, 7))
"""

    assert printed(run("-c", program)) == ["True True"]


@pytest.mark.parametrize(
    "module",
    [
        "app.task",
        "app.base",
        "app.control",
        "backends.base",
        "backends.redis",
        "events.state",
        "exceptions",
        "fixups.django",
        "loaders.app",
        "loaders.base",
        "registry",
        "result",
        "schedules",
        "signals",
        "utils.log",
    ],
)
def test_a_module_is_an_attribute_of_its_package_without_an_import_of_its_own(run: Run, module: str) -> None:
    """Celery loads most of its modules itself, so programs write `celery.app.task.Task` below `import celery`."""
    program = f"""
{INSTALL}
import celery
print(celery.{module}.__name__)
print(hasattr(celery, "task"), hasattr(celery.app, "nothing"), hasattr(celery.utils, "_hidden"))
"""

    assert printed(run("-c", program)) == [f"sidekiq_celery.{module}", "False False False"]


@pytest.mark.parametrize("first", ["install", "import"])
def test_billiard_s_errors_are_those_that_a_worker_raises(run: Run, first: str) -> None:
    """Programs and packages catch them under that name, as Celery takes them from there."""
    lines = [INSTALL, "import billiard.exceptions"]
    program = (
        "\n".join(lines if first == "install" else reversed(lines))
        + """
import celery.exceptions
for name in ("SoftTimeLimitExceeded", "TimeLimitExceeded", "WorkerLostError", "Terminated"):
    assert getattr(billiard.exceptions, name) is getattr(celery.exceptions, name)
import inspect
assert "RestartFreqExceeded" in inspect.getsource(billiard.exceptions)
"""
    )
    pytest.importorskip("billiard")

    assert printed(run("-c", program)) == []


@pytest.mark.parametrize("first", ["install", "import"])
def test_modules_below_kombu_are_there_below_a_mere_import_of_it(run: Run, first: str) -> None:
    """Celery has imported them, and packages rely on it; what kombu shows itself stays as it is."""
    lines = [INSTALL, "import kombu"]
    program = (
        "\n".join(lines if first == "install" else reversed(lines))
        + """
import celery
print(kombu.connection.retry_over_time.__name__, kombu.serialization.registry.__class__.__name__)
print(kombu.Connection is kombu.connection.Connection, kombu.uuid.__name__)
print(hasattr(kombu, "nothing"), hasattr(kombu, "_hidden"))
"""
    )

    assert printed(run("-c", program)) == ["retry_over_time SerializerRegistry", "True uuid", "False False"]


def test_classes_may_be_given_brackets_as_celery_types_asks_for(run: Run) -> None:
    """Programs with its stubs replace `__class_getitem__` before they declare tasks, of `class_property` as well."""
    program = f"""
{INSTALL}
from celery import Celery, Signature, Task, chain
from celery.contrib.abortable import AbortableAsyncResult, AbortableTask
from celery.contrib.django.task import DjangoTask
from celery.local import class_property
from celery.result import AsyncResult, EagerResult
from celery.utils.objects import FallbackContext
changed = (
    *(Celery, Signature, Task, AbortableAsyncResult, AbortableTask, DjangoTask, class_property),
    *(AsyncResult, FallbackContext),
)
for one in changed:
    one.__class_getitem__ = classmethod(lambda cls, *types: cls)
assert all(one[int] is one for one in changed)

import celery.apps.worker, celery.beat
app = Celery(task_always_eager=True)

@app.task(bind=True, base=AbortableTask)
def add(self: AbortableTask[[int, int], int], x: int, y: int) -> int:
    return x + y

result: EagerResult[int] = chain(add.s(1, 2), add.s(3)).apply()
print(result.get(), type(add.delay(1, 2)).__name__)
"""
    pytest.importorskip("django")

    assert printed(run("-c", program)) == ["6 EagerResult"]


def test_nothing_is_patched_for_a_pool(run: Run) -> None:
    """Airflow asks for it before it starts a worker."""
    program = f"""
{INSTALL}
from celery import maybe_patch_concurrency
maybe_patch_concurrency(["-P", "prefork"])
"""

    assert printed(run("-c", program)) == []


def test_what_is_pickled_under_one_name_is_read_under_the_other(run: Run) -> None:
    """A pickle that names `celery.exceptions` gives this package's class."""
    program = f"""
{INSTALL}
import pickle
from sidekiq_celery.exceptions import Retry
assert type(pickle.loads(b"ccelery.exceptions\\nRetry\\n(tR.")) is Retry
assert pickle.loads(pickle.dumps(Retry)) is Retry
"""

    assert printed(run("-c", program)) == []


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("import celery.only_there", "No module named 'celery.only_there'"),
        ("from celery import only_there", "cannot import name 'only_there' from 'sidekiq_celery'"),
        ("from celery.app.task import Nonsense", "cannot import name 'Nonsense' from 'sidekiq_celery.app.task'"),
        ("from celery.app import nonsense", "cannot import name 'nonsense' from 'sidekiq_celery.app'"),
        (
            "from celery.worker.state import active_requests",
            "cannot import name 'active_requests' from 'sidekiq_celery.worker.state': sidekiq_celery's workers do not "
            "keep active_requests in memory; use app.control.inspect().active()",
        ),
    ],
)
def test_what_is_not_here_is_an_import_error_that_says_so(run: Run, statement: str, error: str) -> None:
    """Nothing falls through to the real package, and the message names the page that helps."""
    program = f"""
{INSTALL}
try:
    {statement}
except ImportError as error:
    print(error)
"""

    [line] = printed(run("-c", program))

    assert line.startswith(error)
    assert line.endswith("docs/celery_reference.md")


def test_an_absent_attribute_is_an_attribute_error(run: Run) -> None:
    """`hasattr` and `getattr` with a default go on working on modules."""
    program = f"""
{INSTALL}
import celery, celery.states
print(hasattr(celery, "only_there"), getattr(celery.states, "nonsense", None))
"""

    assert printed(run("-c", program)) == ["False None"]


def test_a_module_that_says_what_to_use_instead_is_heard(run: Run) -> None:
    """Under the alias as well: most who look for what a worker of Celery keeps in memory do so by Celery's name."""
    program = f"""
{INSTALL}
from celery.worker import state
try:
    state.active_requests
except AttributeError as error:
    print(error)
"""

    [line] = printed(run("-c", program))

    assert line.endswith("do not keep active_requests in memory; use app.control.inspect().active()")


def test_installing_again_changes_nothing(run: Run) -> None:
    """The second call does nothing, also after imports by the alias."""
    program = f"""
{INSTALL}
import sys, celery
before = list(sys.meta_path)
celery.install_as_celery()
assert sys.meta_path == before
"""

    assert printed(run("-c", program)) == []


def test_other_packages_whose_names_begin_alike_are_left_alone(run: Run) -> None:
    """`celery_once` is no module of Celery."""
    program = f"""
{INSTALL}
try:
    import celery_nonsense
except ModuleNotFoundError as error:
    print(error)
"""

    assert printed(run("-c", program)) == ["No module named 'celery_nonsense'"]


def test_a_real_celery_that_is_in_use_already_is_refused(tmp_path: Path) -> None:
    """Two in one process would be chaos: the error says where the first came from and what to do."""
    (tmp_path / "celery.py").write_text("")
    program = f"import celery\n{INSTALL}"
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "compat")])

    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False
    )

    error = done.stderr.decode()
    assert "ImproperlyConfigured: the real Celery has been imported already" in error
    assert str(tmp_path / "celery.py") in error
    assert "install_as_celery() before everything that imports celery" in error


def test_run_runs_a_script_under_the_alias(run: Run, tmp_path: Path) -> None:
    """Its folder is on the path, its arguments are its own, and it is `__main__`."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "program.py").write_text(
        "import sys, celery, sidekiq_celery\nfrom neighbour import word\n"
        "print(__name__, celery is sidekiq_celery, word, sys.argv[1:])\n"
    )
    (tmp_path / "here" / "neighbour.py").write_text("word = 'hello'\n")

    done = run("-m", "sidekiq_celery", "run", "program.py", "-x", "--help", "-m", "y")

    assert printed(done) == ["__main__ True hello ['-x', '--help', '-m', 'y']"]


def test_run_runs_a_module_under_the_alias(run: Run, tmp_path: Path) -> None:
    """As `python -m` does, from the folder in which one is; `-m celery` is this package's own command line."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "program.py").write_text("import sys, celery\nprint(celery.__name__, sys.argv[1:])\n")

    done = run("-m", "sidekiq_celery", "run", "-m", "program", "-q", "1")
    version = run("-m", "sidekiq_celery", "run", "-m", "celery", "--version")

    assert printed(done) == ["sidekiq_celery ['-q', '1']"]
    assert printed(version)[0].startswith("5.7.0")


def test_run_of_the_command_line_itself_warns_of_nothing(run: Run) -> None:
    """The installed program has loaded the module that is to be run, of which Python would warn."""
    started = "from sidekiq_celery.__main__ import main; main()"

    done = run("-c", started, "run", "-m", "celery", "--version")

    assert printed(done)[0].startswith("5.7.0")
    assert done.stderr == ""


def test_a_module_that_tasks_import_and_the_alias_lacks_is_named(run: Run, tmp_path: Path) -> None:
    """Although the tasks are loaded late: there is a Celery here."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "late.py").write_text(
        "import celery\napp = celery.Celery('late', broker='redis://localhost:1/0', include=['late_tasks'])\n"
    )
    (tmp_path / "here" / "late_tasks.py").write_text("import celery.no_such\n")

    done = run("-m", "sidekiq_celery", "run", "-m", "celery", "-A", "late", "worker")

    assert done.returncode != 0
    assert "No module named 'celery.no_such': celery is sidekiq_celery here, which has no such module" in done.stderr
    assert "there is no Celery here" not in done.stderr


def test_run_says_when_there_is_no_such_script(run: Run) -> None:
    """A sentence, not a traceback."""
    done = run("-m", "sidekiq_celery", "run", "nowhere.py")

    assert done.returncode == 2
    assert "there is no file 'nowhere.py'; name a script, or a module with -m" in done.stderr


@pytest.mark.parametrize("name", ["nowhere", "nowhere.at_all", "json.nowhere", "json.decoder.at_all"])
def test_run_says_when_there_is_no_such_module(run: Run, name: str) -> None:
    """A sentence, not a traceback."""
    done = run("-m", "sidekiq_celery", "run", "-m", name)

    assert done.returncode == 2
    assert f"there is no module {name!r}, seen from " in done.stderr
    assert "Traceback" not in done.stderr


def test_run_says_how_to_run_a_file(run: Run) -> None:
    """`-m` and a file name are often mixed up."""
    done = run("-m", "sidekiq_celery", "run", "-m", "mailbox.py")

    assert done.returncode == 2
    assert "there is no module 'mailbox.py', seen from " in done.stderr
    assert done.stderr.endswith("; leave out -m to run a file\n")


def test_run_of_a_module_that_is_loaded_already_warns_of_nothing(run: Run) -> None:
    """The command line consists of such modules; Python would warn of each, and fail where warnings are errors."""
    done = run("-W", "error", "-m", "sidekiq_celery", "run", "-m", "celery.bin.celery")

    assert printed(done) == []
    assert done.stderr == ""


def test_run_of_pytest_from_an_installed_wheel_collects_where_warnings_are_errors(run: Run, tmp_path: Path) -> None:
    """The package brings a plug-in, whose asserts pytest would rewrite, and it warns of modules loaded already."""
    here = tmp_path / "here"
    here.mkdir()
    _install(here)
    (here / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (here / "test_celery.py").write_text(
        "def test_it():\n    import celery, sidekiq_celery\n    assert celery is sidekiq_celery\n"
    )

    done = run("-m", "sidekiq_celery", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_celery.py")

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def _install(folder: Path) -> None:
    """What pip writes of a wheel into *folder*; the files themselves are found in the source tree."""
    about = folder / "sidekiq_py-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sidekiq-py\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nsidekiq_py = sidekiq_py.pytest_plugin\n")
    files = [
        path.relative_to(root)
        for root, package in ((ROOT, "sidekiq_py"), (ROOT / "compat", "sidekiq_celery"))
        for path in (root / package).rglob("*.py")
    ]
    (about / "RECORD").write_text("".join(f"{path},,\n" for path in files))
