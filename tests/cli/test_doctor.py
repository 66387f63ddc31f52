"""`sidekiq-py doctor`: what it prints, and its exit codes."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from click.testing import Result

from sidekiq_py.registry import registry
from tests.doctor.conftest import push, python_process, ruby_process
from tests.support.redis_server import RedisServer

Run = Callable[..., Result]

PROGRAM = """
import sidekiq_py as sidekiq

@sidekiq.job(name="DoctorSum")
def total(*numbers):
    return sum(numbers)
"""


@pytest.fixture
def program_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that declares a job; unloaded after the test."""
    path = tmp_path / "doctor_program.py"
    path.write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "doctor_program"
    registry.remove("DoctorSum")


def test_a_redis_without_problems(run: Run) -> None:
    """The summary of passed checks takes a line or two."""
    result = run("doctor")

    assert result.exit_code == 0
    assert "processes: 0 Ruby, 0 Python, looked at 0 of 0 waiting jobs" in result.output
    assert "OK: the server's version, eviction, memory" in result.output
    assert "problem" not in result.output


def test_a_problem_is_shown_with_what_to_do(run: Run, redis_client: redis.Redis) -> None:
    """It appears under the heading of its group, and the exit code shows it."""
    ruby_process(redis_client)
    push(redis_client, queue="mailers")

    result = run("doctor")

    assert result.exit_code == 1
    _, _, queues = result.output.partition("\nQueues\n")
    lines = queues.splitlines()
    assert lines[0] == "  problem  1 job waits in `mailers`, and no process serves that queue."
    advice = "           → Start a worker for it (-q mailers), or let a running worker serve it. Or move its jobs to a"
    assert lines[1].startswith(advice)
    assert result.output.splitlines()[-1].startswith("1 problem, ")


def test_warnings_count_where_that_is_wanted(run: Run, redis_client: redis.Redis) -> None:
    """With --strict, for CI."""
    ruby_process(redis_client, version="9.9.9")

    assert run("doctor").exit_code == 0
    assert run("doctor", "--strict").exit_code == 1


def test_what_is_in_order_is_shown_on_demand(run: Run) -> None:
    """With --verbose, each passed check has a line."""
    assert "  ok       maxmemory-policy is noeviction." in run("doctor", "-v").output


def test_json_has_it_all(run: Run, redis_client: redis.Redis, redis_url: str) -> None:
    """It is one document that names each check."""
    push(redis_client, queue="mailers")

    result = run("doctor", "--json")

    document = json.loads(result.output)
    assert result.exit_code == 1
    assert (document["redis"], document["healthy"], document["jobs_waiting"]) == (redis_url, False, 1)
    [found] = [found for found in document["findings"] if found["level"] == "problem"]
    assert (found["check"], found["subjects"]) == ("unworked-queues", ["mailers"])
    assert found["advice"] == "Start a worker: sidekiq-py worker -r MODULE."


def test_the_program_is_loaded(run: Run, redis_client: redis.Redis, program_file: str) -> None:
    """Its classes count as served."""
    python_process(redis_client, classes=())
    push(redis_client, "DoctorSum")

    assert "DoctorSum" in run("doctor").output
    with_program = run("doctor", "-r", program_file, "-v")

    assert "No problem was found with 1 queued class" in with_program.output


def test_a_namespace_can_be_looked_into(run: Run, redis_client: redis.Redis) -> None:
    """The doctor sees the keys as programs in the namespace do, and ignores other keys."""
    redis_client.sadd("myapp:queues", "mailers")
    redis_client.lpush("myapp:queue:mailers", "{}")
    push(redis_client, queue="outside")

    result = run("doctor", "--namespace", "myapp")

    assert "1 job waits, and no process is running: mailers (1)." in result.output
    assert "outside" not in result.output


def test_the_release_can_be_set(run: Run, redis_client: redis.Redis) -> None:
    """As the program would configure it."""
    ruby_process(redis_client, version="7.3.2")

    result = run("doctor", "--sidekiq-version", "8")

    assert result.exit_code == 1
    assert "because sidekiq_version is set, but Ruby runs 7.3.2" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-u", "redis://127.0.0.1:1/0"), "Redis is out of reach"),
        (("-u", "redis://127.0.0.1:1/0"), "Start Redis, or say where it is: REDIS_URL=redis://host:6379/0"),
        (("-u", "http://x"), "it must start with redis://"),
        (("-r", "no_such_module"), "no module 'no_such_module'"),
        (("--sidekiq-version", "four"), "sidekiq_version is 'four'"),
        (("--no-such-flag",), "No such option"),
        (("stray",), "unexpected extra argument"),
    ],
)
def test_what_keeps_it_from_looking_ends_with_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """The exit code differs from the one for problems."""
    result = run("doctor", *arguments)

    assert result.exit_code == 2
    assert said in result.output


def test_a_program_that_breaks_ends_with_2(run: Run, tmp_path: Path) -> None:
    """The traceback is shown."""
    broken = tmp_path / "doctor_broken.py"
    broken.write_text("raise RuntimeError('boom')")

    result = run("doctor", "-r", str(broken))

    assert result.exit_code == 2
    assert "RuntimeError: boom" in result.output


def test_a_password_is_wanted(run: Run, new_redis_server: Callable[..., RedisServer]) -> None:
    """The checks could not run; the password in the URL is never shown."""
    server = new_redis_server()
    client = server.client()
    client.config_set("requirepass", "secret")
    client.close()

    refused = run("doctor", "-u", server.url)
    let_in = run("doctor", "-u", f"redis://:secret@127.0.0.1:{server.port}/0")

    assert (refused.exit_code, let_in.exit_code) == (2, 0)
    assert "secret" not in let_in.output


def test_what_was_not_seen_is_told_once_for_each_reason(run: Run, new_redis_server: Callable[..., RedisServer]) -> None:
    """It does not count as a problem."""
    server = new_redis_server()
    client = server.client()
    client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-sscan")
    client.close()

    result = run("doctor", "--strict", "-u", f"redis://limited:secret@127.0.0.1:{server.port}/0")

    assert result.exit_code == 0
    shown = " ".join(result.output.partition("\nNot checked\n")[2].split())
    assert shown.startswith("unseen The processes, releases of Sidekiq, the dialect,")
    assert re.search(r"[a-z] and [^,]+ could not be looked at, because Redis answered: NOPERM", shown)
    assert shown.count("could not be looked at, because Redis answered: NOPERM") == 1


def test_what_a_payload_says_cannot_steer_the_terminal(run: Run, redis_client: redis.Redis) -> None:
    """A class name can be any text."""
    python_process(redis_client, classes=())
    push(redis_client, "\x1b[2JEvil")

    result = run("doctor")

    assert "\x1b" not in result.output
    assert "Evil" in result.output


@pytest.mark.parametrize(("value", "has_colours"), [("", True), ("1", False)])
def test_no_color_turns_colours_off(run: Run, value: str, has_colours: bool) -> None:
    """As https://no-color.org asks of every program, and as `worker` and `top` do."""
    result = run("doctor", color=True, env={"NO_COLOR": value})

    assert ("\x1b[" in result.output) is has_colours


def test_the_help_tells_the_exit_codes(run: Run) -> None:
    """The list of commands has the doctor, too."""
    assert "1  there is a problem (with --strict: or a warning)" in run("doctor", "--help").output
    assert "doctor" in run("--help").output


def test_a_server_without_a_free_connection_is_told_apart_from_one_that_is_away(
    run: Run, new_redis_server: Callable[..., RedisServer]
) -> None:
    """Nobody has to start it."""
    server = new_redis_server(config={"maxclients": "1"})
    client = server.client()
    client.ping()

    result = run("doctor", "-u", server.url)
    client.close()

    assert result.exit_code == 2
    assert "max number of clients reached. All connections that its `maxclients` allows are in use" in result.output
    assert "Start Redis" not in result.output
