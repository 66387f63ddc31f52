"""`beat list`, `add`, `remove`, `pause`, `resume`, `run`; and beat as a process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from sidekiq_celery import Celery, beat_state
from sidekiq_celery.beat import PersistentScheduler
from sidekiq_celery.bin.beat import beat as command
from sidekiq_celery.schedules import BaseSchedule, crontab, schedule

from tests.compat.beat.beats import TICK, beat_of, jobs, run_due, sunset
from tests.compat.beat.clock import Clock
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

Call = Callable[..., Result]


@pytest.fixture
def call(app: Celery) -> Call:
    """Runs `beat` with arguments."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(command, list(arguments), obj=SimpleNamespace(app=app))

    return run


def listed(call: Call) -> dict[str, Any]:
    """What `beat list --json` says, by name."""
    rows = [json.loads(line) for line in call("list", "--json").output.splitlines()]
    return {row["name"]: row for row in rows}


def test_the_list_shows_what_was_sent_and_when(app: Celery, clock: Clock, call: Call) -> None:
    """Before and after the first run."""
    app.conf.beat_schedule = {"tick": TICK, "noon": {"task": "proj.noon", "schedule": crontab(0, 12)}}
    assert listed(call)["tick"]["last_run_at"] is None

    beat = PersistentScheduler(app)
    clock.advance(10)
    run_due(beat)

    assert listed(call)["tick"] == {
        "name": "tick",
        "task": "proj.tick",
        "schedule": "every 10.00 seconds",
        "last_run_at": "2026-05-01T12:00:10+00:00",
        "runs": 1,
        "paused": False,
        "added": False,
    }
    assert "every 10.00 seconds\t1 run, last 2026-05-01T12:00:10" in call("list").output
    assert "noon\tproj.noon\t0 12 * * *\t0 runs" in call("list").output


def test_a_task_that_was_never_sent_has_no_last_run(app: Celery, clock: Clock, call: Call) -> None:
    """Though a beat has seen it, and counts from then on."""
    beat_of(app, tick=TICK)

    assert listed(call)["tick"]["last_run_at"] is None
    assert "0 runs, last never" in call("list").output


def test_resuming_a_task_is_no_run_of_it(app: Celery, clock: Clock, call: Call) -> None:
    """The next one is counted from that moment, and the last one stays when it was."""
    beat = beat_of(app, tick=TICK)
    clock.advance(10)
    run_due(beat)
    call("pause", "tick")
    clock.advance(600)

    call("resume", "tick")

    assert listed(call)["tick"]["last_run_at"] == "2026-05-01T12:00:10+00:00"


def test_a_task_that_is_added_is_sent_by_the_beats_that_run(
    app: Celery, clock: Clock, call: Call, redis_client: redis.Redis
) -> None:
    """Until it is removed."""
    beat = beat_of(app)
    added = call("add", "new", "proj.new", "--every", "10", "-a", "[1]", "-k", '{"key": "é"}', "-Q", "slow")
    assert added.exit_code == 0
    assert listed(call)["new"]["added"]

    beat.refresh()
    clock.advance(10)
    run_due(beat)
    [job] = jobs(redis_client, "slow")
    assert (job["class"], job["args"]) == ("proj.new", [1, {"key": "é"}])

    assert call("remove", "new").exit_code == 0
    beat.refresh()
    clock.advance(10)
    run_due(beat)
    assert len(jobs(redis_client, "slow")) == 1
    assert redis_client.keys("sidekiq_py:beat:*") == []


def test_an_added_task_outlives_all_beats(make_app: Callable[[], Celery], clock: Clock, call: Call) -> None:
    """It is in Redis, as JSON; a beat that starts finds it, and forgets it no more than a second one does."""
    assert call("add", "nightly", "proj.nightly", "--crontab", "0 3 * * *").exit_code == 0

    for _ in range(2):
        assert beat_of(make_app()).schedule["nightly"].schedule == crontab(0, 3)


def test_a_paused_task_is_sent_by_no_beat(
    make_app: Callable[[], Celery], clock: Clock, redis_client: redis.Redis
) -> None:
    """Not even by one that has not heard of it; when it is resumed it is due an interval later."""
    app = make_app()
    beat = beat_of(app, tick=TICK)
    beat_state.pause(app, "tick")
    clock.advance(10)
    run_due(beat)
    assert beat.apply_async(beat.schedule["tick"]) is None
    assert jobs(redis_client) == []

    beat_state.resume(app, "tick")
    beat.refresh()
    run_due(beat)
    assert jobs(redis_client) == []
    clock.advance(10)
    run_due(beat)

    assert len(jobs(redis_client)) == 1


def test_pausing_is_shown(app: Celery, call: Call) -> None:
    """In both forms of the list."""
    beat_of(app, tick=TICK)

    assert call("pause", "tick").output == "tick: paused\n"

    assert listed(call)["tick"]["paused"]
    assert "(paused)" in call("list").output


def test_a_task_that_is_run_by_hand_stays_due_when_it_was(
    app: Celery, clock: Clock, call: Call, redis_client: redis.Redis
) -> None:
    """It is sent once more than its schedule says."""
    beat = beat_of(app, tick=TICK)
    clock.advance(5)
    assert call("run", "tick").output == "tick: sent\n"
    assert len(jobs(redis_client)) == 1

    clock.advance(5)
    run_due(beat)

    assert len(jobs(redis_client)) == 2


def test_a_task_that_cannot_be_sent_by_hand_is_told_in_a_line(app: Celery, call: Call) -> None:
    """The arguments of the entry do not fit the task."""
    app.task(name="proj.pay")(lambda order: None)
    assert call("add", "pay", "proj.pay", "--every", "10").output == "pay: added\n"

    result = call("run", "pay")

    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)
    assert "Couldn't apply scheduled task pay: " in result.output


def test_a_list_without_tasks_says_so(app: Celery, call: Call) -> None:
    """In JSON it is empty."""
    assert call("list").output.startswith("There are no periodic tasks")
    assert call("list", "--json").output == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "x", "proj.x"), "either --every or --crontab"),
        (("add", "x", "proj.x", "--crontab", "61 * * * *"), "'61 * * * *': Invalid end range: 61 > 59. There are min"),
        (("add", "x", "proj.x", "--crontab", "* *"), "expected 5"),
        (("add", "x", "proj.x", "--every", "1", "-a", "{}"), "JSON array; write it as in '[4, \"bob\"]'"),
        (("add", "x", "proj.x", "--every", "1", "-a", "1,2"), "write it as in '[4, \"bob\"]'"),
        (("add", "x", "proj.x", "--every", "1", "-k", "x"), "not JSON"),
        (("add", "tick", "proj.x", "--every", "1"), "beat_schedule"),
        (("remove", "tick"), "settings"),
        (("pause", "tock"), "there are tick"),
        (("--detach",), "systemd"),
        (("-n", "%z"), "Unknown format %z in"),
        (("-S", "no_such.module:Scheduler"), "which cannot be imported: No module named 'no_such'. Check the name"),
        (("-S", "json:Scheduler"), "beat_scheduler is 'json:Scheduler', which cannot be imported"),
        (("-S", "os:sep"), "beat_scheduler is 'os:sep', which is no class; name one"),
    ],
)
def test_what_cannot_be_done_is_refused(app: Celery, call: Call, arguments: tuple[str, ...], message: str) -> None:
    """With what to do instead, and nothing is written."""
    app.conf.beat_schedule = {"tick": TICK}

    result = call(*arguments)

    assert result.exit_code != 0
    assert message in result.output


@pytest.mark.parametrize(
    "arguments",
    [("list",), ("add", "x", "proj.x", "--every", "1"), ("remove", "x"), ("pause", "tick"), ("run", "tick")],
)
def test_a_redis_out_of_reach_is_one_sentence(arguments: tuple[str, ...]) -> None:
    """With the exit code of the other commands, and no traceback."""
    app = Celery("lost", broker="redis://127.0.0.1:1/0", set_as_current=False, fixups=[])
    app.conf.beat_schedule = {"tick": TICK}

    result = CliRunner().invoke(command, arguments, obj=SimpleNamespace(app=app))

    assert result.exit_code == 69
    assert result.output.startswith("Error: Could not connect to Redis; check that it is running and that broker_url")
    app.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedule(10),
        lambda: schedule(timedelta(hours=1), relative=True),
        lambda: crontab("*/5", [8, 12], {1, 2}, 1, "jan"),
        sunset,
    ],
    ids=["schedule", "relative schedule", "crontab", "solar"],
)
def test_schedules_are_kept_as_data(app: Celery, redis_client: redis.Redis, make: Callable[[], BaseSchedule]) -> None:
    """JSON without a class in it; read back they are equal."""
    when = make()
    beat_state.add(app, "one", "proj.one", when)

    text = redis_client.hget("sidekiq_py:beat:proj:added", "one")
    assert b"sidekiq_celery" not in text
    read = beat_of(app).schedule["one"].schedule
    assert read == when
    assert getattr(read, "relative", None) == getattr(when, "relative", None)


def test_the_keys_of_a_kept_schedule_come_in_any_order(app: Celery, redis_client: redis.Redis) -> None:
    """Another program may have written them, and JSON gives their order no meaning."""
    beat_state.add(app, "one", "proj.one", schedule(timedelta(seconds=5)))
    text = b'{"task": "proj.one", "schedule": {"relative": true, "every": 5}}'
    redis_client.hset("sidekiq_py:beat:proj:added", "one", text)

    assert beat_of(app).schedule["one"].schedule == schedule(timedelta(seconds=5), relative=True)


def test_a_schedule_of_a_programs_own_class_belongs_into_the_settings(app: Celery) -> None:
    """It cannot be written as data."""

    class Own(BaseSchedule):
        pass

    with pytest.raises(TypeError, match="beat_schedule"):
        beat_state.add(app, "one", "proj.one", Own())


@pytest.mark.parametrize("text", [b"1", b'{"task": "a"}', b'{"task": "a", "schedule": {"every": "x"}}', b"{"])
def test_a_broken_entry_in_redis_stops_no_other(
    app: Celery, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    """It is named, and can be removed."""
    redis_client.hset("sidekiq_py:beat:proj:added", "broken", text)

    beat = beat_of(app, tick=TICK)

    assert set(beat.schedule) == {"tick"}
    assert "Entry 'broken' is ignored" in caplog.text
    beat_state.remove(app, "broken")
    assert not redis_client.exists("sidekiq_py:beat:proj:added")


def test_beat_runs_as_a_process_until_a_signal(
    redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """It names its pid, sends, and ends with success."""
    program = f"""
from types import SimpleNamespace
from sidekiq_celery import Celery
from sidekiq_celery.bin.beat import beat
app = Celery("proj", broker={redis_server.socket_url!r}, fixups=[])
app.conf.beat_schedule = {{"tick": {{"task": "proj.tick", "schedule": 0.05}}}}
beat(["--pidfile", "beat.pid", "-l", "info", "-s", "file"], obj=SimpleNamespace(app=app))
"""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'compat'}"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        eventually(lambda: len(jobs(redis_client)) >= 3, within_seconds=60)
        assert (tmp_path / "beat.pid").read_text() == f"{process.pid}\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 0
    assert b"scheduler -> sidekiq_celery.beat.PersistentScheduler" in output
    assert b"the file file has no effect" in output
    assert b"Sending due task tick (proj.tick)" in output
    assert not (tmp_path / "beat.pid").exists()


def test_a_setting_names_the_pidfile_of_beat(app: Celery, call: Call, tmp_path: Path) -> None:
    """As in Celery. Here it cannot be written, so beat ends and says which file it wanted."""
    wanted = tmp_path / "no_such_directory" / "beat.pid"
    app.conf.update(beat_pidfile=str(wanted), beat_scheduler="no_such_module:Scheduler")

    done = call()

    assert f"{wanted} cannot be written" in done.output


@pytest.mark.parametrize(
    ("start_of_url", "error", "advice"),
    [
        ("redis://:wrong@", "NOAUTH ", "correct; check the user and password in the URL"),
        ("rediss://", "Redis is out of reach: ", "If this server does not use TLS, write redis:// in the URL"),
    ],
)
def test_a_beat_with_a_wrong_url_ends(
    redis_server: RedisServer, tmp_path: Path, start_of_url: str, error: str, advice: str
) -> None:
    """Waiting would not help, so it says so in one line."""
    program = f"""
from types import SimpleNamespace
from sidekiq_celery import Celery
from sidekiq_celery.bin.beat import beat
app = Celery("proj", broker={redis_server.url.replace("redis://", start_of_url)!r}, fixups=[])
app.conf.broker_connection_timeout = 1
beat(["--pidfile", "beat.pid"], obj=SimpleNamespace(app=app))
"""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'compat'}"}

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    [line] = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert f"beat cannot start: {error}" in line
    assert advice in line
    assert not (tmp_path / "beat.pid").exists()


def test_a_scheduler_that_fails_ends_beat_with_one_traceback(redis_server: RedisServer, tmp_path: Path) -> None:
    """Not with a line for each piece of another one."""
    program = f"""
from types import SimpleNamespace
from sidekiq_celery import Celery
from sidekiq_celery.beat import Scheduler
from sidekiq_celery.bin.beat import beat
class Broken(Scheduler):
    def setup_schedule(self):
        raise LookupError("no table of entries")
app = Celery("proj", broker={redis_server.socket_url!r}, fixups=[])
app.conf.beat_scheduler = Broken
beat([], obj=SimpleNamespace(app=app))
"""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'compat'}"}

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1
    assert "no table of entries" in ran.stderr.splitlines()[-1]
    assert ran.stderr.count("Traceback") == 1
    assert ran.stderr.count("MainProcess") == 1


def test_a_name_that_is_not_utf_8_is_listed_beside_the_others(
    app: Celery, call: Call, redis_client: redis.Redis
) -> None:
    """Each of its bytes is spelled."""
    app.conf.beat_schedule = {"tick": TICK}
    redis_client.hset("sidekiq_py:beat:proj:added", b"caf\xe9", '{"task": "proj.added", "schedule": {"every": 10}}')

    assert set(listed(call)) == {"tick", "caf\udce9"}
    assert "caf\\udce9\tproj.added" in call("list").output
