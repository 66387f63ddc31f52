"""`sidekiq-celery`: finding the app, its commands, and what it refuses."""

import fcntl
import os
import pty
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import redis
from click.testing import CliRunner, Result
from kombu.exceptions import OperationalError
from sidekiq_celery import VERSION_BANNER, Celery
from sidekiq_celery.beat import Scheduler
from sidekiq_celery.bin.celery import celery, main
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.platforms import EX_UNAVAILABLE
from sidekiq_celery.utils.pidfile import write_pidfile
from sidekiq_celery.worker import WorkController
from sidekiq_celery.worker.pools import cpu_count

from tests.compat.log.kept import logging_kept
from tests.compat.worker.conftest import PROJECT
from tests.support.celery_program import StartWorker, command, environment
from tests.support.real_celery import python_with_celery
from tests.support.waiting import eventually

Call = Callable[..., Result]
_PROJECT = "tests.compat.worker.project"


def run_with_package(folder: Path, redis_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, where the packages in *folder* are installed."""
    env = environment(REDIS_URL=redis_url)
    env["PYTHONPATH"] = os.pathsep.join([str(folder), env["PYTHONPATH"]])
    return subprocess.run(
        command(*arguments), env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def call(project: ModuleType) -> Iterator[Call]:
    """Runs the command line in this process, on the project's app."""

    def run(*arguments: str, app: str = _PROJECT) -> Result:
        return CliRunner().invoke(celery, ["-A", app, *arguments])

    with logging_kept():
        yield run


def test_a_task_is_called_by_its_name(call: Call, redis_client: redis.Redis) -> None:
    """Its id is printed."""
    done = call("call", f"{_PROJECT}.add", "-a", "[1, 2]", "--queue", "high")

    assert done.exit_code == 0, done.output
    [job] = redis_client.lrange("queue:high", 0, -1)
    assert done.output.strip().encode() in job


def test_a_call_with_an_unknown_serializer_is_refused_in_a_line(call: Call, redis_client: redis.Redis) -> None:
    """Whoever mistypes the name is told which option to correct; a traceback would hide that. Nothing is sent."""
    done = call("call", f"{_PROJECT}.add", "-a", "[1, 2]", "--serializer", "jsno")

    assert done.exit_code == 2, done.output
    assert "Invalid value for --serializer: No encoder installed for jsno; check its name" in done.output
    assert not redis_client.keys("queue:*")


@pytest.mark.parametrize("name", ["call", "result", "inspect", "control"])
def test_the_help_of_a_command_lists_its_options_alone(call: Call, name: str) -> None:
    """Its arguments stand in the first line, with nothing to say about them."""
    shown = call(name, "--help").output

    [options] = [part for part in shown.split("\n\n") if part.startswith("Options:")]
    assert all(line.startswith("  -") or line.startswith("   ") for line in options.splitlines()[1:])


@pytest.mark.parametrize("name", ["worker", "beat", "events --camera sidekiq_celery.events.snapshot.Polaroid"])
@pytest.mark.parametrize("option", ["--pidfile", "--logfile"])
def test_a_file_that_cannot_be_written_takes_no_traceback(call: Call, name: str, option: str) -> None:
    """In a container, for example, whose file system is read-only."""
    done = call(*name.split(), option, "/proc/none/file")

    assert done.exit_code == 1
    assert done.output.endswith(
        "Error: /proc/none/file cannot be written: No such file or directory; name another file, or leave the option "
        "out\n"
    )


def test_a_folder_in_place_of_a_pidfile_takes_no_traceback(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the file's name was forgotten behind the folder's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()

    done = call("worker", "--pidfile", "run/")

    assert done.exit_code == 1
    assert "Error: run cannot be written: Is a directory" in done.output


def test_a_pipe_in_place_of_a_pidfile_takes_no_traceback(call: Call, tmp_path: Path) -> None:
    """What is written there cannot be read back, so nobody would find the process by it."""
    os.mkfifo(tmp_path / "pid")

    done = call("worker", "--pidfile", str(tmp_path / "pid"))

    assert done.exit_code == 1
    assert f"Error: {tmp_path}/pid cannot be written: it is no plain file; name another file" in done.output


def test_the_name_of_such_a_log_file_may_be_made_of_the_workers(call: Call) -> None:
    """As in Celery's files for systemd."""
    done = call("worker", "-n", "w1@host", "--logfile", "/proc/none/%n%I.log")

    assert done.exit_code == 1
    assert "Error: /proc/none/w1.log cannot be written" in done.output


def test_settings_that_cannot_be_used_take_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever part of a command reads them first."""
    (tmp_path / "mixed.py").write_text(
        "from sidekiq_celery import Celery\napp = Celery('mixed')\n"
        "app.conf.update(task_time_limit=5, CELERY_ACKS_LATE=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    done = CliRunner().invoke(celery, ["-A", "mixed", "worker"])

    assert done.exit_code == 1
    assert done.output.startswith("Error: Cannot mix new and old setting keys")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("app.task(name='mail', rate_limit='10 per minute')(print)", "the rate_limit of mail is '10 per minute'"),
        ("app.task(name='mail', rate_limit='10/d')(print)", "the rate_limit of mail is '10/d'"),
        ("app.conf.task_default_rate_limit = 'fast'", "task_default_rate_limit is 'fast'"),
    ],
)
def test_a_rate_limit_that_cannot_be_read_takes_no_traceback(
    declared: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends before it starts children, and says which one."""
    app = "Celery('rated', broker='redis://localhost:1/0', broker_connection_retry_on_startup=False)"
    (tmp_path / "rated.py").write_text(f"from sidekiq_celery import Celery\napp = {app}\n{declared}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rated", raising=False)

    with logging_kept():
        done = CliRunner().invoke(celery, ["-A", "rated", "worker"])

    assert done.exit_code == 1
    assert f"Error: {message}; write it as in '10/s'" in done.output


def test_a_result_is_printed(call: Call, project: ModuleType) -> None:
    """Or its traceback."""
    project.app.backend.store_result("the-id", 42, "SUCCESS")

    project.app.backend.store_result("bad-id", ValueError("x"), "FAILURE", traceback="where it was")

    assert call("result", "the-id").output == "42\n"
    assert call("result", "bad-id", "--traceback").output == "where it was\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("an-id",), "Error: No result backend is configured."),
        (("an-id", "--traceback"), "Error: No result backend is configured."),
        (("an-id", "-t", "nowhere"), "Error: the app has no task 'nowhere'; check its name, or leave -t out"),
    ],
)
def test_a_result_that_cannot_be_looked_up_is_an_error_in_one_line(
    arguments: tuple[str, ...], error: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is missing, without a traceback."""
    (tmp_path / "storing_nothing.py").write_text(
        "from sidekiq_celery import Celery\napp = Celery('nothing', set_as_current=False, fixups=[])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    done = call("result", *arguments, app="storing_nothing")

    assert done.exit_code == 1
    assert done.output.startswith(error)
    assert done.output.count("\n") == 1


def test_queues_are_purged_when_that_is_confirmed(call: Call, project: ModuleType, redis_client: redis.Redis) -> None:
    """Those that are named, or all of the app. What waits for its time stays."""
    for queue in ("celery", "high", "high"):
        project.add.apply_async((1, 1), queue=queue)
    project.add.apply_async((1, 1), countdown=1000)

    assert call("purge").exit_code == 1
    assert redis_client.llen("queue:celery") == 1
    assert "Purged 2 messages from 1 known task queue." in call("purge", "-f", "-Q", "high").output
    assert "Purged 1 message from" in call("purge", "-f").output
    assert call("purge", "-f", "-X", "high").output == "No messages purged from 1 queue.\n"
    assert redis_client.zcard("schedule") == 1


def test_a_purge_that_excludes_all_queues_is_no_error(
    call: Call, project: ModuleType, redis_client: redis.Redis
) -> None:
    """As `celery -A proj purge -X celery` of Celery's guide, which scripts may run."""
    project.add.delay(1, 1)

    done = call("purge", "-X", "celery,high")

    assert (done.exit_code, done.output) == (0, "No queue is left to purge.\n")
    assert redis_client.llen("queue:celery") == 1


def test_a_report_hides_secrets(call: Call) -> None:
    """It names the versions."""
    assert "software -> " in call("report").output


def test_the_version_is_celery_s_and_then_this_package_s() -> None:
    """The first line is what programs read that ask which Celery there is."""
    first, second = CliRunner().invoke(celery, ["--version"]).output.splitlines()

    assert first == VERSION_BANNER
    assert second == f"sidekiq-py {version('sidekiq-py')}, whose sidekiq_celery has the API of Celery 5.7.0"


def test_without_a_command_it_helps() -> None:
    """As in Celery."""
    assert "worker" in CliRunner().invoke(celery, []).output


def test_commands_that_are_not_there_are_refused(call: Call) -> None:
    """By click's own words."""
    assert "No such command" in call("no-such-thing").output


def test_a_program_may_replace_a_command_of_celery_that_is_not_there(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indico deletes `shell` from Celery's command line, and adds a command of its own."""
    monkeypatch.setattr(celery, "commands", dict(celery.commands))
    assert "start python" in call("shell").output
    assert "shell" not in CliRunner().invoke(celery, ["--help"]).output

    del celery.commands["shell"]
    celery.command("unlock")(lambda: click.echo("unlocked"))
    celery.command("graph")(lambda: click.echo("a graph"))

    assert "No such command" in call("shell").output
    assert call("unlock").output == "unlocked\n"
    assert call("graph").output == "a graph\n"


@pytest.mark.parametrize("option", ["-A", "--app"])
def test_an_app_behind_the_command_is_told_where_it_goes(option: str, call: Call) -> None:
    """Scripts that were written before Celery 5 have it there."""
    result = call("worker", option, "shop")

    assert result.exit_code == 2
    assert f"{option} goes before the command: sidekiq-celery -A proj worker" in result.output


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("no_such_module", "there is no module 'no_such_module'"),
        ("no_such_package.celery:app", "there is no module 'no_such_package'"),
        ("tests.support.waiting", "has no app"),
        ("tests.support.waiting:nosuch", "module 'tests.support.waiting' has no app 'nosuch'; name the variable"),
        ("tests.support.waiting:eventually", "tests.support.waiting:eventually is a function, not a Celery app"),
    ],
)
def test_an_app_that_is_not_there_is_told(app: str, message: str, call: Call) -> None:
    """With what to do."""
    done = call("report", app=app)

    assert done.exit_code == 2
    assert message in done.output


def test_an_error_in_the_program_is_shown_with_its_place(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing module within it is not taken for the app's."""
    (tmp_path / "broken_app.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    done = call("report", app="broken_app")

    assert "while importing broken_app" in done.output
    assert "not_installed_anywhere" in done.output


@pytest.mark.parametrize("name", ["settings_app", "settings_app:app"])
def test_settings_that_are_not_there_are_told_with_their_place(
    name: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not taken for an app that is missing."""
    (tmp_path / "some_settings.py").touch()
    (tmp_path / "settings_app.py").write_text(
        "from sidekiq_celery import Celery\n"
        "app = Celery('x', set_as_current=False)\n"
        "app.config_from_object('some_settings:nosuch', silent=False, force=True)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    done = call("report", app=name)

    assert "module 'some_settings' has no attribute 'nosuch'" in done.output
    assert "settings_app.py" in done.output


def test_a_package_with_a_module_celery_is_found(tmp_path: Path, redis_url: str) -> None:
    """From the working directory, as Django's projects have it."""
    package = tmp_path / "a_site"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "celery.py").write_text("from sidekiq_celery import Celery\napp = Celery('a_site')\n")
    arguments = [*command("-A", PROJECT), "--workdir", str(tmp_path), "-b", redis_url, "call", "a.task"]
    arguments[arguments.index(_PROJECT)] = "a_site"

    done = subprocess.run(arguments, env={**os.environ, **environment()}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("queue:celery") == 1


@pytest.mark.parametrize("tasks", ["", "@app.task\ndef pay(): ..."])
def test_a_worker_without_tasks_says_where_they_come_from(tasks: str, start: StartWorker, tmp_path: Path) -> None:
    """It starts, as Celery's does."""
    (tmp_path / "the_shop.py").write_text(f"from sidekiq_celery import Celery\napp = Celery('shop')\n{tasks}\n")
    path = os.pathsep.join((environment()["PYTHONPATH"], str(tmp_path)))

    worker = start("-c", "1", "-P", "solo", app="the_shop", PYTHONPATH=path)

    assert worker.stop() == 0
    assert ("no task is declared" in worker.log) == (not tasks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-P", "gevent"), "use -P threads"),
        (("-P", "eventlet"), "use -P threads"),
        (("-P", "fibres"), "the pools are prefork, threads, solo, asyncio"),
        (("-c", "many"), "concurrency is 'many'"),
        (("-c", "-1"), "concurrency is '-1'"),
        (("-D",), "run the command under systemd, a container"),
        (("-l", "loud"), "is not one of DEBUG"),
        (("worker.no_such_setting=1",), "these are not settings"),
        (("-X", "celery"), "there is no queue left"),
        (("--autoscale", "few"), "neither one number nor two"),
        (("-Q", ""), "'' has an empty queue name"),
        (("-Q", "a,,b"), "has an empty queue name"),
        (("-n", "w1@%x"), "Unknown format %x in 'w1@%x'"),
        (("-f", "%x.log"), "Unknown format %x in '%x.log'"),
        (("--pidfile", "%x.pid"), "Unknown format %x in '%x.pid'"),
    ],
)
def test_a_worker_refuses_what_it_cannot_do(arguments: tuple[str, ...], message: str, call: Call) -> None:
    """In a sentence that says what to do."""
    done = call("worker", *arguments)

    # Only `-X` is wrong because of the settings.
    assert done.exit_code == (1 if arguments[0] == "-X" else 2)
    assert message in done.output


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_a_user_in_the_settings_is_refused_like_the_option(command: str, call: Call, project: ModuleType) -> None:
    """Celery would change to that user. Running on as root without a word would be dangerous."""
    project.app.conf.update({f"{command}_uid": "nobody"})

    done = call(command)

    assert done.exit_code == 2
    assert f"the setting {command}_uid is not supported: run the command under systemd" in done.output


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_refuses_a_scheduler_that_is_not_there(pool: str, call: Call, project: ModuleType) -> None:
    """It would run on without beat, or replace beat's process again and again."""
    project.app.conf.beat_scheduler = "no_such.module:Scheduler"

    done = call("worker", "-B", "-c", "1", "-P", pool)

    assert done.exit_code == 1
    assert "beat_scheduler is 'no_such.module:Scheduler', which cannot be imported" in done.output


def test_an_environment_that_cannot_be_used_takes_no_traceback(redis_url: str, tmp_path: Path) -> None:
    """The engine reads variables that Celery does not know."""
    (tmp_path / "shop.py").write_text(
        f"from sidekiq_celery import Celery\napp = Celery('shop', broker={redis_url!r})\n"
    )
    given = environment() | {"REDIS_URL": "localhost:6379", "REDIS_PROVIDER": ""}

    ran = subprocess.run(
        [*command("-A", "shop", "worker")], cwd=tmp_path, env=given, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: redis_url is 'localhost:6379'; it must start with redis://")


def test_the_banner_names_results_that_have_no_url(project: ModuleType) -> None:
    """Such as those of django-celery-results."""
    project.app.conf.result_backend = "tests.compat.results.test_choosing:DictBackend"

    assert "results      tests.compat.results.test_choosing:DictBackend" in project.app.Worker().startup_info()


def test_a_subclass_of_the_worker_changes_its_banner(project: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    """By the methods that Celery has for that, whose overriding forms pass on what Celery passes."""

    class Renamed(project.app.Worker):  # type: ignore[misc,name-defined]
        def startup_info(self, artlines: bool = True) -> str:
            return super().startup_info(artlines).replace("concurrency", "slots")  # type: ignore[no-any-return]

        def extra_info(self) -> None:
            return None

        def emit_banner(self) -> None:
            print("welcome", file=sys.__stdout__)
            super().emit_banner()

    project.app.conf.worker_redirect_stdouts = False
    Renamed(hostname="w1@here").on_start()

    shown = capfd.readouterr().out
    assert shown.startswith("welcome\nw1@here runs tasks of ")
    assert "slots " in shown


def test_options_of_the_worker_come_from_the_environment_by_celery_s_names(
    project: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images for containers set `CELERY_WORKER_POOL` and the like."""
    made: list[WorkController] = []

    def worker(**options: Any) -> None:
        made.append(WorkController(app=project.app, **options))
        raise ImproperlyConfigured("enough")

    monkeypatch.setattr(project.app, "Worker", worker)
    monkeypatch.setenv("CELERY_WORKER_POOL", "threads")
    monkeypatch.setenv("CELERY_WORKER_CONCURRENCY", "3")
    monkeypatch.setattr(sys, "argv", ["sidekiq-celery", "-A", _PROJECT, "worker"])

    with logging_kept(), pytest.raises(SystemExit):
        main()

    assert [(each.pool_name, each.concurrency) for each in made] == [("threads", 3)]


def test_a_concurrency_of_0_is_that_of_the_settings(
    call: Call, project: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Celery. An empty one, too: it comes from a variable that is not set, as in `-c "$CONCURRENCY"`."""
    given: list[Any] = []

    def worker(**options: Any) -> None:
        given.append(options["concurrency"])
        raise ImproperlyConfigured("enough")

    monkeypatch.setattr(project.app, "Worker", worker)
    for concurrency in ("0", "", "3", "auto", "AUTO"):
        assert "enough" in call("worker", "-c", concurrency).output
    assert given == [None, None, 3, "auto", "auto"]


def test_a_concurrency_is_auto_in_any_case(call: Call, project: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Celery, for the option and for the setting."""
    made: list[int] = []

    def worker(**options: Any) -> None:
        made.append(WorkController(app=project.app, **options).concurrency)
        raise ImproperlyConfigured("enough")

    monkeypatch.setattr(project.app, "Worker", worker)
    assert "enough" in call("worker", "-c", "AUTO").output
    project.app.conf.worker_concurrency = "Auto"
    assert "enough" in call("worker").output

    assert made == [cpu_count()] * 2


def test_a_worker_refuses_another_broker(call: Call, project: ModuleType) -> None:
    """Before anything runs."""
    project.app.conf.broker_url = "amqp://guest@localhost//"

    done = call("worker")

    assert done.exit_code == 1
    assert "keeps its jobs in Redis" in done.output


def test_a_worker_refuses_a_queue_that_is_not_declared(call: Call, project: ModuleType) -> None:
    """Where none may be added."""
    project.app.conf.task_create_missing_queues = False

    assert "task_queues does not have" in call("worker", "-Q", "other").output


def test_a_pidfile_of_a_living_process_is_respected(call: Call, tmp_path: Path) -> None:
    """That of one that is gone is replaced."""
    file = tmp_path / "worker.pid"
    file.write_text(f"{os.getppid()}\n")

    assert f"says that process {os.getppid()} is already running" in call("-q", "worker", "--pidfile", str(file)).output
    assert f"says that process {os.getppid()} is already running" in call("-q", "beat", "--pidfile", str(file)).output
    assert file.read_text() == f"{os.getppid()}\n"


def test_a_pidfile_on_a_full_disk_takes_no_traceback(call: Call, tmp_path: Path) -> None:
    """The error of such a write does not say which file it is about."""
    file = tmp_path / "worker.pid"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        done = call("worker", "--pidfile", str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert done.exit_code == 1
    assert done.output.endswith(
        f"Error: {file} cannot be written: File too large; name another file, or leave the option out\n"
    )


def test_a_worker_that_may_start_no_more_threads_says_what_to_do(redis_url: str) -> None:
    """Without a traceback. The stacks of a thousand threads do not fit into this limit."""
    limits = (resource.RLIMIT_AS, (1_500_000_000, 1_500_000_000))
    done = subprocess.run(
        command("-A", _PROJECT, "worker", "-P", "threads", "-c", "1000"),
        env={**os.environ, **environment(REDIS_URL=redis_url)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(*limits),
    )

    told = "the worker cannot start: The system lets this process start no more threads. Lower --concurrency (-c), or"
    assert told in done.stderr
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_pidfile_without_an_end_is_not_read_to_it() -> None:
    """As /dev/full and /dev/zero, in a process that soon has no more memory."""
    limits = (resource.RLIMIT_AS, (2**31, 2**31))
    done = subprocess.run(
        command("-b", "redis://localhost:1", "worker", "--pidfile", "/dev/full"),
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(*limits),
    )

    assert done.stderr.endswith(
        "Error: /dev/full cannot be written: No space left on device; name another file, or leave the option out\n"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["-A", _PROJECT, "report"]], ids=lambda arguments: arguments[-1])
def test_a_full_disk_for_the_output_is_told_in_one_sentence(redis_url: str, arguments: list[str]) -> None:
    """And by the exit code: a script must not take half the output for all of it."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments),
            env={**os.environ, **environment(REDIS_URL=redis_url)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "Error: The output could not be written: No space left on device.\n"


def test_a_worker_starts_although_the_disk_of_its_log_is_full(redis_url: str, redis_client: redis.Redis) -> None:
    """One that has started works on, so the banner must not end one that starts."""
    with open("/dev/full", "wb") as full:
        worker = subprocess.Popen(
            command("-A", _PROJECT, "worker", "-P", "solo"),
            env={**os.environ, **environment(REDIS_URL=redis_url)},
            stdout=full,
            stderr=full,
        )
        try:
            eventually(lambda: worker.poll() is not None or redis_client.scard("processes"), within_seconds=60)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_worker_starts_without_standard_error(redis_url: str, redis_client: redis.Redis, pool: str) -> None:
    """
    Whoever starts it may have closed all three descriptors; with no log file, there is no log. None of the worker's
    pipes and connections gets their numbers, and programs that tasks start can print.
    """
    worker = subprocess.Popen(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command("-A", _PROJECT, "worker", "-P", pool, "-c", "1")],
        env={**os.environ, **environment(REDIS_URL=redis_url)},
    )
    try:
        eventually(lambda: worker.poll() is not None or redis_client.scard("processes"), within_seconds=60)
        # A library may have taken the first number while Python was starting, as libffi does for a file of its own.
        assert os.readlink(f"/proc/{worker.pid}/fd/0").startswith("/")
        for number in (1, 2):
            assert os.readlink(f"/proc/{worker.pid}/fd/{number}") == os.devnull
            [flags] = re.findall(r"flags:\s+(\d+)", Path(f"/proc/{worker.pid}/fdinfo/{number}").read_text())
            assert not int(flags, 8) & os.O_CLOEXEC
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()


def test_commands_run_without_standard_streams(redis_url: str, tmp_path: Path) -> None:
    """A program may print while it is loaded, and a question that nobody can answer ends the command."""
    (tmp_path / "printing_app.py").write_text(
        "import sys\nfrom sidekiq_celery import Celery\nsys.stdout.write('loading')\napp = Celery('printing')\n"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command("-A", "printing_app", "--workdir", str(tmp_path), "purge")],
        env={**os.environ, **environment(REDIS_URL=redis_url)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (1, "Aborted!\n")


START_AT_ONCE = """
import os, pathlib, sys
from sidekiq_celery.exceptions import ImproperlyConfigured
from sidekiq_celery.utils.pidfile import write_pidfile
from sidekiq_celery.worker import WorkController
from sidekiq_celery.worker.pools import cpu_count

file = pathlib.Path(sys.argv[1])
gone = os.fork() or os._exit(0)
os.waitpid(gone, 0)
for turn in range(20):
    file.write_text(f"{gone} has left a line that is longer\\n" if turn % 2 else f"{gone}\\n")
    gun, said, over = os.pipe(), os.pipe(), os.pipe()
    children = []
    for number in range(8):
        child = os.fork()
        if not child:
            os.close(gun[1]), os.close(over[1])
            os.read(gun[0], 1)
            try:
                write_pidfile(str(file))
            except ImproperlyConfigured:
                os.write(said[1], b".")
            else:
                os.write(said[1], b"1")
            os.read(over[0], 1)
            os._exit(0)
        children.append(child)
    os.close(gun[1])
    heard = b""
    while len(heard) < len(children):
        heard += os.read(said[0], 8)
    assert heard.count(b"1") == 1, heard
    assert int(file.read_text()) in children, file.read_text()
    os.close(over[1])
    for child in children:
        os.waitpid(child, 0)
print("each time one")
"""


def test_of_workers_that_start_at_once_one_has_the_pidfile(tmp_path: Path) -> None:
    """The file that all of them find was left by a process that is gone."""
    ran = subprocess.run(
        [sys.executable, "-c", START_AT_ONCE, str(tmp_path / "worker.pid")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.stdout, ran.stderr) == ("each time one\n", "")


def test_a_pidfile_that_another_program_has_locked_is_written_all_the_same(tmp_path: Path) -> None:
    """As by `flock worker.pid sidekiq-celery worker …`, which holds its lock for as long as the worker runs."""
    file = tmp_path / "worker.pid"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        remove = write_pidfile(str(file))

        assert int(file.read_text()) == os.getpid()
        remove()
    assert not file.exists()


def test_a_pidfile_may_be_the_null_device() -> None:
    """By which some say that they want none."""
    remove = write_pidfile(os.devnull)
    remove()

    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_beat_runs_beside_a_worker(
    pool: str, start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """And ends with it."""
    worker = start("-B", "-c", "1", "-P", pool, EVERY_SECONDS="0.2")

    eventually(lambda: redis_client.llen("noted:ticks") > 1, within_seconds=60)
    assert worker.stop() == 0


def _family_of(pid: int) -> set[int]:
    """The processes of a prefork worker: its children, remote control and beat. Each leads a process group."""
    found = set()
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        # One that was killed may be reaped in the meantime.
        with suppress(ProcessLookupError):
            if os.getpgid(child) == child:
                found.add(child)
    return found


@pytest.mark.kill
def test_a_beat_beside_a_worker_is_replaced_when_it_is_killed(
    start: StartWorker, redis_client: redis.Redis, project: ModuleType
) -> None:
    """Like a child of the worker, so that periodic tasks go on. When the worker is killed, its beat ends too."""
    worker = start("-B", "-c", "1", "-P", "prefork", EVERY_SECONDS="0.2")
    eventually(lambda: redis_client.llen("noted:ticks") > 1, within_seconds=60)

    first = _family_of(worker.pid)
    for process in first:
        os.kill(process, signal.SIGKILL)

    eventually(lambda: "the beat process" in worker.log and len(_family_of(worker.pid) - first) == 3, within_seconds=60)
    redis_client.delete("noted:ticks")
    eventually(lambda: redis_client.llen("noted:ticks") > 1, within_seconds=60)
    family = _family_of(worker.pid)
    worker.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), within_seconds=60)


@pytest.mark.parametrize("by", ["a setting", "the namespace of Django", "an option"])
def test_beat_beside_a_worker_has_the_scheduler_that_was_chosen(by: str) -> None:
    """The option goes before the setting."""
    chosen = "sidekiq_celery.beat:Scheduler"
    with Celery("proj", set_as_current=False, fixups=[], broker="redis://nowhere/0") as app:
        if by == "a setting":
            app.conf.beat_scheduler = chosen
        elif by == "the namespace of Django":
            app.config_from_object({"CELERY_BEAT_SCHEDULER": chosen}, namespace="CELERY")
        else:
            app.conf.beat_scheduler = "no.such:Scheduler"

        worker = app.WorkController(beat=True, pool_cls="solo", scheduler=chosen if by == "an option" else None)

    assert type(worker.beat.service.get_scheduler(lazy=True)) is Scheduler


def test_an_app_runs_the_command_line_itself(
    call: Call, project: ModuleType, redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """`app.start` with arguments; -A is not needed."""
    project.app.start(["call", f"{_PROJECT}.add", "-a", "[1, 1]"])

    assert capsys.readouterr().out.strip().encode() in redis_client.lindex("queue:celery", 0)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (("call", "a.task"), "broker_url (-b)"),
        (("purge", "-f"), "broker_url (-b)"),
        (("result", "an-id"), "result_backend (--result-backend)"),
        (("result", "an-id", "--traceback"), "result_backend (--result-backend)"),
        (("worker", "-P", "solo", "--purge"), "broker_url (-b)"),
    ],
)
def test_commands_tell_that_redis_is_out_of_reach(
    arguments: tuple[str, ...], setting: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence that names what to look at."""
    (tmp_path / "nowhere_app.py").write_text(
        "from sidekiq_celery import Celery\n"
        "url = 'redis://127.0.0.1:1/0'\n"
        "app = Celery('nowhere', broker=url, backend=url, set_as_current=False, fixups=[])\n"
        "app.conf.task_publish_retry = False\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    done = call(*arguments, app="nowhere_app")

    assert done.exit_code == EX_UNAVAILABLE
    assert f"Could not connect to Redis; check that it is running and that {setting} is right" in done.output


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        (b"{", "the stored result of an-id cannot be read: DecodeError("),
        (b"[]", "the stored result of an-id cannot be read: TypeError("),
        (b"{}", "the stored result of an-id cannot be read: KeyError('status')"),
        (
            b'{"status":"FAILURE","result":{"exc_type":"dict","exc_module":"builtins"}}',
            "the stored result of an-id cannot be read: SecurityError(",
        ),
        (b'{"status":"FAILURE","result":null}', "task an-id has failed, and its stored result does not say why"),
    ],
)
def test_a_malformed_result_is_an_error_in_one_line(
    stored: bytes, error: str, call: Call, redis_client: redis.Redis
) -> None:
    """Another program may have stored anything."""
    redis_client.set("celery-task-meta-an-id", stored)

    done = call("result", "an-id")

    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {error}")
    assert done.output.count("\n") == 1


def test_a_terminal_does_not_obey_the_control_characters_of_a_result(project: ModuleType, redis_url: str) -> None:
    """They are spelled out, except for newlines and tabs. A pipe gets them as they are."""
    project.app.backend.store_result("an-id", "a\x07\u202eb\n\tc", "SUCCESS")
    arguments = command("-A", _PROJECT, "result", "an-id")
    env = {**os.environ, **environment(REDIS_URL=redis_url)}
    terminal, end = pty.openpty()

    shown = b""
    with os.fdopen(terminal, "rb") as screen, suppress(OSError):
        subprocess.run(arguments, env=env, stdout=end, timeout=60, check=True)
        os.close(end)
        # Ends with an error: no process has the terminal open any more.
        while part := os.read(screen.fileno(), 1000):
            shown += part
    piped = subprocess.run(arguments, env=env, capture_output=True, timeout=60, check=True).stdout

    assert shown.decode().split() == ["a\\x07\\u202eb", "c"]
    assert piped.decode() == "a\x07\u202eb\n\tc\n"


def test_the_error_of_a_task_is_raised_by_result(call: Call, project: ModuleType) -> None:
    """As in Celery, also one that is called as that of a lost connection."""
    project.app.backend.store_result("bad-id", OperationalError("of the task"), "FAILURE")

    done = call("result", "bad-id")

    assert isinstance(done.exception, OperationalError)
    assert str(done.exception) == "of the task"


def _uninstall_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not Path(path, "celery").is_dir()])
    for name in [name for name in sys.modules if name.partition(".")[0] == "celery"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_package_that_imports_celery_when_tasks_are_loaded_is_told_of_the_same(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as django-celery-beat, which Django imports as late as that."""
    (tmp_path / "moved.py").write_text(
        "from sidekiq_celery import Celery\napp = Celery('moved', include=['their_models'])\n"
    )
    (tmp_path / "their_models.py").write_text("from celery import current_app, schedules\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _uninstall_celery(monkeypatch)

    done = call("worker", app="moved")

    assert done.exit_code == 2
    assert "their_models.py, line 1: from celery import current_app, schedules: there is no Celery here" in done.output
    assert "sidekiq_celery.install_as_celery()" in done.output


@pytest.mark.parametrize("line", ["from celery import Celery", "import celery.schedules"])
def test_a_program_that_still_imports_celery_is_told_what_to_do(
    line: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the place, and without a traceback."""
    (tmp_path / "not_moved.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _uninstall_celery(monkeypatch)

    done = call("report", app="not_moved")

    assert done.exit_code == 2
    assert f"not_moved.py, line 1: {line}: there is no Celery here; change the imports" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("app", ["app = Celery('not_moved')", "app = current_app", "shop_app = Celery('not_moved')"])
def test_an_app_of_the_real_celery_is_refused(app: str, tmp_path: Path) -> None:
    """Its worker would be Celery's, which does not look where our programs send. It may have any name."""
    (tmp_path / "not_moved.py").write_text(f"from celery import Celery, current_app\n\n{app}\n")
    words = [python_with_celery(), "-m", "sidekiq_celery", "-A", "not_moved", "report"]

    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **environment()}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "not_moved is an app of the real Celery; change the imports from `celery`" in done.stderr


def test_an_app_is_found_beside_a_name_of_the_real_celery(tmp_path: Path) -> None:
    """While a program moves, a module may still import `current_app`, which is not the module's app."""
    (tmp_path / "half_moved.py").write_text(
        "from celery import current_app\nfrom sidekiq_celery import Celery\n\nshop_app = Celery('half_moved')\n"
    )
    words = [python_with_celery(), "-m", "sidekiq_celery", "-A", "half_moved", "report"]

    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **environment()}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_a_package_adds_a_command(tmp_path: Path, redis_url: str) -> None:
    """By an entry point, as in Celery. It is named in the help without being imported, and has the app of `-A`."""
    (tmp_path / "greeting-1.0.dist-info").mkdir()
    (tmp_path / "greeting-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"
    )
    (tmp_path / "greeting-1.0.dist-info" / "entry_points.txt").write_text(
        "[celery.commands]\ngreet = greeting:greet\nbroken = greeting_that_is_nowhere:greet\n"
    )
    (tmp_path / "greeting.py").write_text(
        "import click\nfrom celery.bin.base import CeleryCommand\n\n"
        "@click.command(cls=CeleryCommand)\n@click.option('--name')\n@click.pass_context\n"
        "def greet(ctx, name):\n    print('hello', name, 'from', ctx.obj.app.main)\n"
    )
    run = partial(run_with_package, tmp_path, redis_url)

    greeted, broken = run("-A", _PROJECT, "greet", "--name", "you"), run("-A", _PROJECT, "broken", "--option")
    helped = run("--help")

    assert greeted.stdout.startswith("hello you from "), greeted.stderr
    assert "Added by the package greeting." in helped.stdout
    assert broken.returncode == 1
    assert (
        "the command 'broken' (greeting_that_is_nowhere:greet) cannot be loaded: ModuleNotFoundError" in broken.stderr
    )


def test_a_command_of_a_package_has_the_app_s_preload_options(tmp_path: Path, redis_url: str) -> None:
    """Flower is one: an app that reads its settings from `--ini` needs the option there, too."""
    (tmp_path / "greeting-1.0.dist-info").mkdir()
    (tmp_path / "greeting-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
    (tmp_path / "greeting-1.0.dist-info" / "entry_points.txt").write_text("[celery.commands]\ngreet = greeting:greet\n")
    (tmp_path / "greeting.py").write_text("import click\n\n@click.command()\ndef greet():\n    print('hello')\n")
    (tmp_path / "pyramid.py").write_text(
        "import click\nfrom sidekiq_celery import Celery, signals\n\napp = Celery('pyramid')\n"
        "app.user_options['preload'].add(click.Option(('--ini',)))\n\n"
        "@signals.user_preload_options.connect\ndef read(options, **_):\n    print('reads', options['ini'])\n"
    )
    done = run_with_package(tmp_path, redis_url, "-A", "pyramid", "greet", "--ini", "a.ini")

    assert done.stdout == "reads a.ini\nhello\n", done.stderr
