"""`sidekiq-py worker` as users run it: in its own process, on real Redis."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from sidekiq_py.client.sync_client import Client
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

JOBS = "tests.cli.worker_jobs"
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def client(redis_url: str) -> Client:
    """A client that pushes to the shared server."""
    return Client(redis_url, sidekiq_version="7")


def info_of(worker: WorkerProcess, redis_client: redis.Redis) -> dict[str, object]:
    """The information about itself that the worker writes to Redis."""
    info: dict[str, object] = json.loads(redis_client.hget(worker.identity, "info"))
    return info


def test_flags_and_file_reach_the_process(start_worker: StartWorker, redis_client: redis.Redis, tmp_path: Path) -> None:
    """Ruby's Web UI shows them: queues with weights, threads, tag and labels."""
    (tmp_path / "sidekiq.yml").write_text(":concurrency: 3\n:labels: [fast]\nproduction:\n  :queues: [[a, 2], b]\n")

    worker = start_worker(JOBS, arguments=["-C", str(tmp_path / "sidekiq.yml"), "-e", "production", "-g", "shop"])

    info = info_of(worker, redis_client)
    assert info["queues"] == ["a", "b"]
    assert info["concurrency"] == 3
    assert info["tag"] == "shop"
    assert "fast" in info["labels"]  # type: ignore[operator]


def test_lines_of_engine_and_program_are_in_rubys_form(start_worker: StartWorker, client: Client) -> None:
    """The program's own message carries the job's context, and what it prints shows at once."""
    worker = start_worker(JOBS, arguments=["-e", "staging"])

    jid = client.push({"class": "Note", "args": ["this"]})

    lines = eventually(lambda: [line for line in worker.log.splitlines() if "INFO: done" in line] and worker.log)
    form = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z pid={worker.pid} tid=\w+ class=Note jid={jid}"
    assert re.search(rf"^{form} INFO: start$", lines, re.MULTILINE)
    assert re.search(rf"^{form} INFO: noted this$", lines, re.MULTILINE)
    assert re.search(rf"^{form} elapsed=\d\.\d+ INFO: done$", lines, re.MULTILINE)
    assert "printed this in staging" in lines


def test_no_job_log_leaves_out_start_and_done(start_worker: StartWorker, client: Client) -> None:
    """This can save half the cost of a short job."""
    worker = start_worker(JOBS, arguments=["--no-job-log", "--log-format", "json"])

    client.push({"class": "Note", "args": ["that"]})

    eventually(lambda: "noted that" in worker.log)
    messages = [json.loads(line)["msg"] for line in worker.log.splitlines() if line.startswith("{")]
    assert not {"start", "done"} & set(messages)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_term_and_a_terminal_that_is_closed_stop_it_with_code_0(
    name: str, start_worker: StartWorker, client: Client, redis_client: redis.Redis
) -> None:
    """A job that does not finish in time returns to its queue at once, and not only after a lease has expired."""
    worker = start_worker(JOBS, arguments=["-t", "0.2"])
    jid = client.push({"class": "Sleep", "args": [60]})
    eventually(lambda: "class=Sleep" in worker.log)

    worker.send_signal(signal.Signals[name])

    assert worker.wait() == 0
    assert redis_client.llen("queue:default") == 1
    assert f"raising Shutdown in 1 job ({jid})\n" in worker.log
    assert worker.log.endswith("INFO: Bye!\n")


NEVER_STARTS = """
import ctypes
import time
import sidekiq_py as sidekiq
from sidekiq_py.extension import Extension


@sidekiq.job
def report(): ...


def lock_twice():
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


class Stuck(Extension):
    name = "stuck"

    def start(self, pool, config):
        print("stuck", flush=True)
        HANGS


sidekiq.use(Stuck())
"""


@pytest.mark.parametrize("hangs", ["time.sleep(600)", "lock_twice()"], ids=["sleep", "c-code"])
@pytest.mark.parametrize(
    "arguments",
    [[], ["--processes", "1"], ["--processes", "1", "-c", "1"]],
    ids=["threads", "processes", "main-thread"],
)
def test_a_worker_that_never_starts_heeds_term(
    redis_url: str, tmp_path: Path, arguments: list[str], hangs: str
) -> None:
    """It exits within the time that busy jobs would have, and the log shows where it hangs."""
    (tmp_path / "stuck.py").write_text(NEVER_STARTS.replace("HANGS", hangs))
    worker = WorkerProcess(
        "stuck", redis_url=redis_url, arguments=["-t", "0.2", *arguments], environment={"PYTHONPATH": str(tmp_path)}
    )
    worker.start()
    eventually(lambda: "stuck" in worker.log.splitlines())

    worker.send_signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert "before it had started" in worker.log
    assert hangs in worker.log


def test_an_idle_worker_raises_nothing_in_nobody(start_worker: StartWorker) -> None:
    """However short its timeout is. Its last log line is Ruby's."""
    worker = start_worker(JOBS, arguments=["-t", "0.001"])

    worker.send_signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert "raising Shutdown" not in worker.log
    assert worker.log.endswith("INFO: Bye!\n")


def test_ttin_shows_what_each_thread_does(start_worker: StartWorker, client: Client) -> None:
    """In the log, without a debugger."""
    worker = start_worker(JOBS)
    jid = client.push({"class": "Sleep", "args": [60]})
    eventually(lambda: "class=Sleep" in worker.log)

    def shows_the_sleep() -> bool:
        # The job has logged its start, but may not be sleeping yet.
        worker.send_signal(signal.SIGTTIN)
        return "in sleep: time.sleep(seconds)" in worker.log

    eventually(shows_the_sleep, every_seconds=0.2)
    assert re.search(rf"sidekiq\.default/processor runs Sleep jid={jid} queue=default for ", worker.log)
    worker.kill()


def test_two_signals_at_once_ask_for_one_stop(
    start_worker: StartWorker, client: Client, redis_client: redis.Redis
) -> None:
    """A process manager passes Ctrl-C on as TERM; busy jobs still get their time."""
    worker = start_worker(JOBS, arguments=["-t", "20"])
    client.push({"class": "Sleep", "args": [1.5]})
    eventually(lambda: "class=Sleep" in worker.log)

    worker.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert redis_client.get("stat:processed") == b"1"
    assert redis_client.llen("queue:default") == 0


def test_a_second_signal_later_does_not_wait_for_busy_jobs(
    start_worker: StartWorker, client: Client, redis_client: redis.Redis
) -> None:
    """A user who presses Ctrl-C again means it."""
    worker = start_worker(JOBS, arguments=["-t", "60"])
    client.push({"class": "Sleep", "args": [60]})
    eventually(lambda: "class=Sleep" in worker.log)

    worker.send_signal(signal.SIGINT)
    eventually(lambda: "Fetching no more" in worker.log)
    asked_at = time.monotonic()
    eventually(lambda: time.monotonic() - asked_at > 1.2 and worker.send_signal(signal.SIGINT) is None)

    assert worker.wait(60) == 0
    assert redis_client.llen("queue:default") == 1


def test_a_child_that_dies_is_replaced_and_the_parent_ends_with_code_0(
    start_worker: StartWorker, client: Client, redis_client: redis.Redis
) -> None:
    """`--processes` keeps its number of children; every child imports the program itself."""
    worker = start_worker(JOBS, arguments=["--processes", "2", "-c", "1"])
    worker.wait_until_ready(processes=2)
    before = set(worker.identities())

    client.push({"class": "Die", "args": [], "retry": 0})

    eventually(lambda: len(set(worker.identities()) - before) == 1)
    assert "ended with exit code 3" in worker.log
    worker.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        ("", 2, "there is no module 'refused_jobs' (-r)"),
        ("import sidekiq_py\nsidekiq_py.configure(redis_url='nonsense')\n", 1, "redis_url is 'nonsense'"),
    ],
)
def test_children_whose_settings_are_refused_say_why_and_are_not_replaced(
    redis_url: str, tmp_path: Path, program: str, code: int, error: str
) -> None:
    """The parent does not import the program, so a child is the one to find out. Another one would find the same."""
    if program:
        (tmp_path / "refused_jobs.py").write_text(program)
    worker = WorkerProcess(
        "refused_jobs", redis_url=redis_url, arguments=["--processes", "2"], python_path=[tmp_path]
    ).start()

    # The same as for a worker without a parent.
    assert worker.wait(60) == code

    assert error in worker.log
    assert "the worker ends, because its settings are refused" in worker.log
    assert "waiting" not in worker.log


@pytest.mark.parametrize("trouble", ["tls", "cluster"])
def test_children_that_another_url_would_help_are_not_replaced(
    new_redis_server: Callable[..., RedisServer], tmp_path: Path, trouble: str
) -> None:
    """What answers there will never let them work; a Redis that is only away is waited for."""
    (tmp_path / "idle_jobs.py").write_text("import sidekiq_py\n\n@sidekiq_py.job\ndef idle(): ...\n")
    server = new_redis_server(config={"cluster-enabled": "yes"} if trouble == "cluster" else {})
    url = server.url.replace("redis://", "rediss://") + "?socket_timeout=1" if trouble == "tls" else server.url
    worker = WorkerProcess("idle_jobs", redis_url=url, arguments=["--processes", "1"], python_path=[tmp_path]).start()

    assert worker.wait(60) == 1

    assert ("write redis:// in the URL, not rediss://" if trouble == "tls" else "is a Cluster") in worker.log
    assert "the worker ends, because its settings are refused" in worker.log
    assert "waiting" not in worker.log


def test_systemd_hears_of_the_worker(start_worker: StartWorker, tmp_path: Path) -> None:
    """For a unit of Type=notify."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(path)
        line.settimeout(10)
        worker = start_worker(JOBS, environment={"NOTIFY_SOCKET": path})

        assert line.recv(100) == b"READY=1"

        worker.send_signal(signal.SIGTERM)
        assert line.recv(100) == b"STOPPING=1"
        assert worker.wait() == 0


def test_the_programs_own_logging_is_kept(start_worker: StartWorker, client: Client, tmp_path: Path) -> None:
    """A program that calls `basicConfig` gets its own format, for the engine's lines, too."""
    (tmp_path / "logged_jobs.py").write_text(
        "import logging\nlogging.basicConfig(format='own|%(name)s|%(message)s', level=logging.INFO)\n"
        "from tests.cli.worker_jobs import *\n"
    )
    worker = start_worker("logged_jobs", arguments=["--processes", "1"])

    jid = client.push({"class": "Note", "args": ["so"]})

    eventually(lambda: f"own|sidekiq.job|done class=Note jid={jid}" in worker.log)
    assert "own|app|noted so" in worker.log


@pytest.mark.parametrize("arguments", [[], ["--processes", "1", "-c", "1"]], ids=["threads", "main-thread"])
def test_a_stop_waits_for_jobs_although_the_programs_log_handler_raises(
    start_worker: StartWorker, client: Client, redis_client: redis.Redis, tmp_path: Path, arguments: list[str]
) -> None:
    """As one whose log server is gone may. If the stop ended at its first line, it would cut off the jobs."""
    (tmp_path / "unloggable_jobs.py").write_text(
        "import logging, time\n"
        "import sidekiq_py as sidekiq\n"
        "class Broken(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        raise RuntimeError('on purpose')\n"
        "@sidekiq.job(name='Long')\n"
        "def long():\n"
        "    logging.getLogger().addHandler(Broken())\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(1.5)\n"
    )
    worker = start_worker("unloggable_jobs", arguments=["-t", "60", *arguments])
    client.push({"class": "Long", "args": []})
    eventually(lambda: "begun" in worker.log)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert redis_client.get("stat:processed") == b"1"
    assert redis_client.llen("queue:default") == 0
    assert "RuntimeError: on purpose" in worker.log


def test_file_program_and_flags_decide_about_keys_of_extensions(
    start_worker: StartWorker, client: Client, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """Each decides about its own key: the batch job dies, the encrypted job runs, the unique job is refused."""
    (tmp_path / "sidekiq.yml").write_text("extension_keys: {bid: run, encrypt: refuse}\n:queues: [mixed]\n")
    (tmp_path / "deciding_jobs.py").write_text(
        "import sidekiq_py as sidekiq\n"
        "from tests.cli.worker_jobs import *\n"
        "sidekiq.configure(extension_keys={'encrypt': 'run'})\n"
    )
    worker = start_worker(
        "deciding_jobs", arguments=["-C", str(tmp_path / "sidekiq.yml"), "-c", "1", "--extension-key", "bid=bury"]
    )

    batched = client.push({"class": "Note", "args": ["a"], "queue": "mixed", "bid": "b"})
    encrypted = client.push({"class": "Note", "args": ["b"], "queue": "mixed", "encrypt": True})
    unique = client.push({"class": "Note", "args": ["c"], "queue": "mixed", "unique_token": "t"})

    eventually(lambda: re.search(rf"class=Note jid={unique} ERROR: Note \(jid {unique}, queue mixed\)", worker.log))
    assert [json.loads(raw)["jid"] for raw in redis_client.zrange("dead", 0, -1)] == [batched]
    assert f"jid={encrypted} INFO: noted b" in worker.log
    assert [json.loads(raw)["jid"] for raw in redis_client.lrange("queue:mixed", 0, -1)] == [unique]


def test_what_the_program_configures_goes_over_the_environment(
    start_worker: StartWorker, redis_url: str, tmp_path: Path
) -> None:
    """As a `configure_server` block does in Ruby."""
    (tmp_path / "configured_jobs.py").write_text(
        f"import sidekiq_py\nsidekiq_py.configure(redis_url={redis_url!r}, sidekiq_version='8')\n"
        "from tests.cli.worker_jobs import *\n"
    )

    worker = start_worker("configured_jobs", environment={"REDIS_URL": "redis://nowhere.invalid:1"})

    assert f"at {redis_url}" in worker.log
    # The format of the pinned release, in which the level comes first.
    assert re.search(r"^INFO 20\d\d-", worker.log, re.MULTILINE)


def test_the_jobs_of_django_apps_are_found_and_get_fresh_connections(
    start_worker: StartWorker, client: Client, tmp_path: Path
) -> None:
    """With DJANGO_SETTINGS_MODULE set, a worker needs no -r."""
    pytest.importorskip("django")
    application = tmp_path / "shop"
    application.mkdir()
    (application / "__init__.py").touch()
    (application / "jobs.py").write_text(
        "import sidekiq_py\n"
        "from django.db import connection\n"
        "@sidekiq_py.job(name='Ask')\n"
        "def ask():\n"
        "    with connection.cursor() as cursor:\n"
        "        cursor.execute('SELECT 40 + 2')\n"
        "        print('answer', cursor.fetchone()[0], id(connection.connection))\n"
    )
    (tmp_path / "site_settings.py").write_text(
        "SECRET_KEY = 'x'\nUSE_TZ = True\nINSTALLED_APPS = ['shop']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:', 'CONN_MAX_AGE': 0}}\n"
    )

    worker = start_worker([], arguments=["-c", "1"], environment={"DJANGO_SETTINGS_MODULE": "site_settings"})
    client.push({"class": "Ask", "args": []})

    eventually(lambda: "answer 42" in worker.log)


def test_help_names_rubys_flags_and_those_of_python_workers() -> None:
    """All on one page."""
    shown = run("--help").output

    flags = ["-c", "-e", "-g", "-q", "-r", "-t", "-v", "-C", "-V", "--processes", "--async-concurrency", "--no-job-log"]
    flags += ["--log-level", "--log-format", "--fetcher", "--sidekiq-version", "--float-text", "--lease-seconds"]
    assert [flag for flag in flags if flag not in shown] == []


@pytest.mark.parametrize("flag", ["-d", "-Lx.log", "-Px.pid", "-i1"])
def test_flags_that_sidekiq_6_took_away_are_refused_with_advice(flag: str) -> None:
    """Old deploy scripts pass them."""
    result = run(flag)

    assert result.exit_code == 2
    assert "was removed in Sidekiq 6" in result.output


def test_a_worker_without_jobs_does_not_start(redis_url: str, tmp_path: Path) -> None:
    """It would fetch jobs that it cannot run."""
    (tmp_path / "idle.py").touch()

    ran = start_and_fail(tmp_path, "-r", "idle", redis_url=redis_url)

    assert ran.returncode == 1
    assert "no job is declared in idle, so" in ran.stderr
    assert "sidekiq-py worker -r myapp.jobs" in ran.stderr
    assert "sidekiq-celery" not in ran.stderr


def test_a_worker_with_nothing_but_tasks_names_the_one_that_runs_them(redis_url: str, tmp_path: Path) -> None:
    """Both commands take a module, and whoever comes from Celery knows only one word for a worker."""
    (tmp_path / "shop.py").write_text("from sidekiq_celery import Celery\napp = Celery()\n@app.task\ndef pay(): ...\n")

    ran = start_and_fail(tmp_path, "-r", "shop", redis_url=redis_url)

    assert ran.returncode == 1
    assert "sidekiq-celery -A myapp worker" in ran.stderr


def test_a_class_that_is_no_job_yet_is_named(redis_url: str, tmp_path: Path) -> None:
    """`perform` was forgotten or misspelled. A class that others inherit from is deliberately not a job."""
    (tmp_path / "shop.py").write_text(
        "import sidekiq_py\n"
        "class Base(sidekiq_py.Job): ...\n"
        "class Order(Base):\n    def preform(self): ...\n"
        "class Walk(sidekiq_py.IterableJob): ...\n"
    )

    ran = start_and_fail(tmp_path, "-r", "shop", redis_url=redis_url)

    assert ran.returncode == 1
    assert "shop.Order is a subclass of Job without `perform`" in ran.stderr
    assert "shop.Walk is a subclass of Job" in ran.stderr
    assert "shop.Base" not in ran.stderr


def test_a_redis_out_of_reach_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Exit code 1, so that a supervisor starts it again later; no traceback, and no password."""
    ran = start_and_fail(tmp_path, "-r", JOBS, redis_url="redis://:hush@127.0.0.1:1/0")

    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: Redis is out of reach")
    assert "hush" not in ran.stderr + ran.stdout


def test_a_shared_file_that_requires_ruby_needs_a_flag(redis_url: str, tmp_path: Path) -> None:
    """The Rails team's sidekiq.yml may name its own files to load."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "sidekiq.yml").write_text(":require: ./config/environment.rb\n")

    ran = start_and_fail(tmp_path, redis_url=redis_url)

    assert ran.returncode == 2
    assert "is Ruby; name the Python modules that declare jobs: -r myapp.jobs" in ran.stderr


def run(*arguments: str) -> Result:
    """Run the command in this process; only for commands that exit before a worker starts."""
    from sidekiq_py.cli import main

    return CliRunner().invoke(main, ["worker", *arguments], prog_name="sidekiq-py")


def start_and_fail(directory: Path, *arguments: str, redis_url: str) -> "subprocess.CompletedProcess[str]":
    """Run a worker that is expected to fail at its start."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "worker", *arguments],
        cwd=directory,
        env={**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


RAILS_JOBS = """
from sidekiq_py.active_job import active_job

@active_job("Billing::PaymentJob")
def pay(number): ...
"""

UNSERVED_JOBS = """
import sidekiq_py as sidekiq

@sidekiq.job(name="Served")
def served(): ...

@sidekiq.job(name="Mail", queue="mailers")
def mail(): ...

@sidekiq.job(name="Letter", queue="mailers")
def letter(): ...

@sidekiq.job(name="Elsewhere", queue="elsewhere", pool="redis://localhost:1/0")
def elsewhere(): ...
"""


@pytest.mark.parametrize("processes", [None, 2], ids=["one process", "two children"])
def test_declared_jobs_whose_queues_are_not_served_are_named_once(
    start_worker: StartWorker, tmp_path: Path, processes: int | None
) -> None:
    """With the flags that would serve them, in one line for all processes."""
    (tmp_path / "unserved_jobs.py").write_text(UNSERVED_JOBS)

    worker = start_worker("unserved_jobs", arguments=["--processes", str(processes)] if processes else [])
    worker.wait_until_ready(processes=processes or 1)

    [line] = [line for line in worker.log.splitlines() if "does not serve" in line]
    assert line.endswith(
        "WARN: 2 declared jobs would wait in 1 queue that this worker does not serve: Mail (mailers), "
        "Letter (mailers). Unless another worker serves them, start this one with -q default -q mailers"
    )


def test_a_worker_is_not_told_to_serve_default_without_a_job_for_it(start_worker: StartWorker, tmp_path: Path) -> None:
    """On a Rails application's Redis, the jobs of that queue are Ruby's."""
    program = '@sidekiq.job(name="Mail", queue="mailers")\ndef mail(): ...\n'
    (tmp_path / "mail_jobs.py").write_text(f"import sidekiq_py as sidekiq\n{program}")

    worker = start_worker("mail_jobs")

    [line] = [line for line in worker.log.splitlines() if "does not serve" in line]
    assert line.endswith("Mail (mailers). Unless another worker serves them, start this one with -q mailers")


def test_a_queue_that_may_be_misspelled_is_asked_about(start_worker: StartWorker, tmp_path: Path) -> None:
    """It is close to the queue of a declared job, and no declared job is pushed to it."""
    (tmp_path / "unserved_jobs.py").write_text(UNSERVED_JOBS)

    worker = start_worker("unserved_jobs", arguments=["-q", "default", "-q", "mialers"])

    [line] = [line for line in worker.log.splitlines() if "does not serve" in line]
    assert line.endswith("start this one with -q default -q mialers -q mailers (is mialers misspelled?)")


def test_a_worker_is_not_told_to_serve_the_queues_of_its_capsules_twice(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """Flags replace only the queues beside the capsules, and this file has none there."""
    (tmp_path / "unserved_jobs.py").write_text(UNSERVED_JOBS)
    (tmp_path / "sidekiq.yml").write_text("queues: []\ncapsules: {one: {queues: [served], concurrency: 1}}\n")

    worker = start_worker("unserved_jobs", arguments=["-C", str(tmp_path / "sidekiq.yml")])

    [line] = [line for line in worker.log.splitlines() if "does not serve" in line]
    assert line.endswith("start this one with -q default -q mailers")


@pytest.mark.parametrize("more", ["", "--processes 1"])
def test_a_worker_that_may_start_no_more_threads_says_what_to_do(redis_url: str, more: str) -> None:
    """Without a traceback. The stacks of a thousand threads do not fit into this limit."""
    command = f"{sys.executable} -m sidekiq_py worker -r {JOBS} -u {redis_url} -c 1000 {more}"

    with subprocess.Popen(
        ["sh", "-c", f"ulimit -v 1500000; exec {command}"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stderr is not None
        told = worker.stderr.readline()
        worker.terminate()

    assert told.startswith("Error: The system lets this process start no more threads. Lower --concurrency (-c), or")


def test_an_active_job_counts_as_one_declared_job(start_worker: StartWorker, tmp_path: Path) -> None:
    """It runs under two wrapper classes, which no program declares."""
    (tmp_path / "rails_jobs.py").write_text(RAILS_JOBS)

    worker = start_worker("rails_jobs")

    assert "INFO: 1 job declared; queues: default" in worker.log


def test_a_misspelled_key_of_the_file_is_warned_of(start_worker: StartWorker, tmp_path: Path) -> None:
    """Ruby ignores it silently, and the worker serves a different queue than intended."""
    (tmp_path / "sidekiq.yml").write_text(":quues: [low]\n")

    worker = start_worker(JOBS, arguments=["-C", str(tmp_path / "sidekiq.yml")])

    assert "WARN: the YAML file has unknown settings: quues (did you mean queues?)" in worker.log


def test_a_worker_that_serves_every_declared_queue_warns_of_none(start_worker: StartWorker, tmp_path: Path) -> None:
    """In any of its capsules."""
    (tmp_path / "unserved_jobs.py").write_text(UNSERVED_JOBS)
    (tmp_path / "sidekiq.yml").write_text("queues: [default]\ncapsules: {mail: {queues: [mailers], concurrency: 1}}\n")

    worker = start_worker("unserved_jobs", arguments=["-C", str(tmp_path / "sidekiq.yml")])

    assert "does not serve" not in worker.log
