"""What `-r` can name. Each case runs in its own interpreter, because imports leave traces."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sidekiq_py.cli import main

_JOB = "import sidekiq_py\n@sidekiq_py.job()\ndef work(): ...\n"
_PROGRAM = """
import sys
from pathlib import Path
import click
from sidekiq_py.cli.program_files import import_all
from sidekiq_py.errors import ConfigError
from sidekiq_py.registry import registry
try:
    import_all(tuple(sys.argv[1:]), Path.cwd())
    print(",".join(sorted(definition.name for definition in registry)))
except (ConfigError, click.ClickException) as error:
    print("refused:", error)
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """A directory with jobs in every usual place."""
    for place in (
        "tasks.py",
        "shop/__init__.py",
        "shop/jobs.py",
        "shop/mail/__init__.py",
        "shop/mail/letters.py",
        "bare/jobs.py",
        "src/store/__init__.py",
        "src/store/jobs.py",
        "loose/odd-name.py",
    ):
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("" if file.name == "__init__.py" else _JOB)
    (tmp_path / "rails" / "config").mkdir(parents=True)
    (tmp_path / "rails" / "config" / "application.rb").touch()
    (tmp_path / "nothing").mkdir()
    return tmp_path


def load(directory: Path, *names: str, path: str = "") -> tuple[str, str]:
    """The names of the declared jobs, or the error; and the contents of standard error."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *names],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{path}:{ROOT}", "PATH": "/usr/bin:/bin", "PYTHONSAFEPATH": "1"},
    )
    return ran.stdout.strip(), ran.stderr


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("tasks", "tasks.work"),
        ("tasks.py", "tasks.work"),
        ("./tasks.py", "tasks.work"),
        ("shop.jobs", "shop.jobs.work"),
        ("shop", "shop.jobs.work"),
        ("./shop", "shop.jobs.work"),
        ("shop/jobs.py", "shop.jobs.work"),
        ("shop/mail/letters.py", "shop.mail.letters.work"),
        ("./bare", "jobs.work"),
        ("bare/jobs.py", "bare.jobs.work"),
    ],
)
def test_jobs_are_named_as_the_program_itself_imports_them(application: Path, name: str, declared: str) -> None:
    """Under a second name, a module would be loaded twice and its jobs would have different names on the wire."""
    assert load(application, name)[0] == declared


def test_a_source_folder_on_the_path_is_heeded(application: Path) -> None:
    """src/store is `store`, both if the program runs with PYTHONPATH=src and if nothing says so."""
    assert load(application, "src/store/jobs.py", path=str(application / "src"))[0] == "store.jobs.work"
    assert load(application, "src/store/jobs.py")[0] == "store.jobs.work"
    assert load(application, "src/store")[0] == "store.jobs.work"


def test_a_source_folder_that_is_imported_itself_keeps_its_name(application: Path) -> None:
    """Some programs say `from src.store import …`, with a file `src/__init__.py`, or have modules in `src` itself."""
    (application / "src" / "loose.py").write_text(_JOB)
    assert load(application, "src/loose.py")[0] == "src.loose.work"

    (application / "src" / "__init__.py").touch()
    assert load(application, "src/store/jobs.py")[0] == "src.store.jobs.work"


def test_a_file_elsewhere_is_imported_from_the_folder_of_its_package(application: Path, tmp_path: Path) -> None:
    """The worker may be started in any directory."""
    assert load(application / "nothing", str(application / "shop" / "jobs.py"))[0] == "shop.jobs.work"


def test_several_modules_are_imported_in_order(application: Path) -> None:
    """`-r` may be given several times."""
    assert load(application, "tasks", "shop.mail.letters")[0] == "shop.mail.letters.work,tasks.work"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no module 'nowhere' (-r)"),
        ("shop.nowhere", "there is no module 'shop.nowhere' (-r)"),
        ("nowhere.py", "there is no nowhere.py (-r)"),
        ("./nowhere", "there is no ./nowhere (-r)"),
        ("./nothing", "./nothing (-r) is not a package and has no jobs.py"),
        ("./rails", "./rails (-r) is Ruby"),
        ("app.rb", "app.rb (-r) is Ruby"),
        ("loose/odd-name.py", "is not a module name; rename the file"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_advice(application: Path, name: str, message: str) -> None:
    """This is the most common mistake when starting a worker for the first time."""
    assert message in load(application, name)[0]


def test_an_error_in_the_program_shows_where_it_is(application: Path) -> None:
    """Only the program's own frames are shown."""
    (application / "tasks.py").write_text("def f():\n    raise RuntimeError('no database')\nf()\n")

    refusal, trace = load(application, "tasks")

    assert refusal == "refused: tasks (-r) could not be imported: RuntimeError: no database"
    assert trace.splitlines()[1].strip().startswith(f'File "{application}/tasks.py", line 3')


def test_a_module_that_the_program_misses_is_its_own_error(application: Path) -> None:
    """It must not look like a mistyped -r."""
    (application / "tasks.py").write_text("import not_installed\n")

    refusal, trace = load(application, "tasks")

    assert refusal == "refused: tasks (-r) could not be imported: ModuleNotFoundError: No module named 'not_installed'"
    assert "tasks.py" in trace


def test_a_syntax_error_shows_the_line_and_where_in_it(application: Path) -> None:
    """No frame of the program is shown, because it never ran."""
    (application / "tasks.py").write_text("def f(:\n    pass\n")

    refusal, trace = load(application, "tasks")

    assert refusal.startswith("refused: tasks (-r) could not be imported: SyntaxError: ")
    assert "tasks.py" in trace
    assert "def f(:" in trace
    assert "^" in trace


def start_with_django(directory: Path, settings: str) -> subprocess.CompletedProcess[str]:
    """Run `sidekiq-py worker` in a Django project that cannot be set up."""
    return subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "worker"],
        cwd=directory,
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "DJANGO_SETTINGS_MODULE": settings},
    )


def test_settings_of_django_that_are_not_there_are_named(application: Path) -> None:
    """In one sentence, without a traceback through Django."""
    pytest.importorskip("django")
    ran = start_with_django(application, "shop.nope")

    assert ran.returncode == 2
    assert "there is no module 'shop.nope': DJANGO_SETTINGS_MODULE is shop.nope" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_error_in_the_settings_shows_where_it_is(application: Path) -> None:
    """Only the project's own frames are shown."""
    pytest.importorskip("django")
    (application / "shop" / "settings.py").write_text("raise OSError('no .env')\n")

    ran = start_with_django(application, "shop.settings")

    assert ran.returncode == 1
    _, first, *_, last = ran.stderr.splitlines()
    assert first.strip().startswith(f'File "{application}/shop/settings.py", line 1')
    assert last == "Error: Django could not be set up (DJANGO_SETTINGS_MODULE=shop.settings): OSError: no .env"


def test_a_django_project_without_jobs_says_where_they_are_looked_for(application: Path) -> None:
    """In the module `jobs` of each app; without -r, nothing else is imported."""
    pytest.importorskip("django")
    (application / "shop" / "settings.py").write_text("SECRET_KEY = 'x'\nINSTALLED_APPS = []\n")

    ran = start_with_django(application, "shop.settings")

    assert ran.returncode == 1
    assert "no app in INSTALLED_APPS has a module jobs that declares one" in ran.stderr


def test_a_wrong_declaration_shows_the_line_of_the_program_alone(application: Path) -> None:
    """The frames of this library below it explain nothing to whoever wrote the line."""
    (application / "tasks.py").write_text(
        "import sidekiq_py as sidekiq\n\n@sidekiq.periodic('61 * * * *')\n@sidekiq.job(name='A')\ndef a():\n    pass\n"
    )

    refusal, trace = load(application, "tasks")

    assert "CronTextError: cron text '61 * * * *', character 1: '61' is not a valid minute" in refusal
    assert f'File "{application}/tasks.py", line 3' in trace
    assert trace.count("  File ") == 1


def test_a_program_beside_this_library_whose_name_begins_like_it_has_its_line_shown(tmp_path: Path) -> None:
    """Both are in one folder if they are installed, so the beginning of the path does not tell them apart."""
    (tmp_path / "sidekiq_py").symlink_to(ROOT / "sidekiq_py")
    (tmp_path / "sidekiq_py_shop").mkdir()
    (tmp_path / "sidekiq_py_shop" / "jobs.py").write_text(
        "import sidekiq_py\n\nsidekiq_py.periodic('61 * * * *', 'A')\n"
    )

    refusal, trace = load(tmp_path, "sidekiq_py_shop", path=str(tmp_path))

    assert "'61' is not a valid minute" in refusal
    assert f'File "{tmp_path}/sidekiq_py_shop/jobs.py", line 3' in trace


@pytest.mark.parametrize("command", [["worker"], ["push", "X"], ["doctor"]])
def test_a_name_too_long_for_a_file_is_that_of_no_module(command: list[str]) -> None:
    """Such as one from a variable that was filled by mistake."""
    result = CliRunner().invoke(main, [*command, "-r", "x" * 300])

    assert result.exit_code == 2
    assert f"there is no module '{'x' * 300}' (-r)" in result.output


@pytest.mark.parametrize("command", [["worker", "-r", "app"], ["push", "X", "-r", "app"], ["doctor", "-r", "app"]])
def test_a_working_directory_that_was_deleted_is_named(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of an old release is, once a deploy has removed it."""
    gone = tmp_path / "release"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    result = CliRunner().invoke(main, command)

    assert result.exit_code == 2
    assert "the working directory was deleted; go to that of your program, and start again" in result.output
