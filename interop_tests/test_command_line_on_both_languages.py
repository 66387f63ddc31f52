"""The operator's commands see Ruby's and Python's processes alike, and both obey them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, entries, open_gate, raw_jobs
from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.client import sync_client
from tests.support.waiting import eventually

QUICK_BEAT = {"FIXTURE_BEAT_SECONDS": "0.3"}

Run = Callable[..., Any]


@pytest.fixture
def command(redis_url: str) -> Iterator[Run]:
    """Runs a command line that prints JSON, and reads it: `command("processes", "quiet", "--all")`."""
    program.reset()

    def run(*words: str) -> Any:
        result = CliRunner().invoke(main, [*words, "--json", "-u", redis_url])
        sync_client.current().close()
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    yield run
    program.reset()


def test_running_jobs_of_both_languages_are_listed(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython, command: Run
) -> None:
    """By `jobs`, `processes list` and `top --once`, with the language of each."""
    rails = start_ruby(queues=["ruby"], environment=QUICK_BEAT)
    app = start_python("-q", "python")
    code = (
        'FixtureJob.set(queue: "ruby").perform_async("ledger_and_wait_for", key, 1, gate)\n'
        'Sidekiq::Client.push("class" => "PythonJob", "queue" => "python", '
        '"args" => ["ledger_and_wait_for", key, 2, gate])'
    )
    ruby(code, key=LEDGER, gate=GATE)

    running = eventually(lambda: found if len(found := command("jobs")) == 2 else None)
    [seen_by_top] = [command("top", "--once", "--sample", "0")]
    open_gate(redis_client)

    assert {(job["process"], job["language"], job["queue"]) for job in running} == {
        (rails.identity, "ruby", "ruby"),
        (app.identity, "python", "python"),
    }
    assert {one["identity"]: one["is_python"] for one in command("processes")} == {
        rails.identity: False,
        app.identity: True,
    }
    assert {job["jid"] for job in seen_by_top["jobs"]} == {job["jid"] for job in running}


def test_both_languages_are_quieted_and_stopped(start_ruby: StartRuby, start_python: StartPython, command: Run) -> None:
    """By the signals that the Web UI sends."""
    rails = start_ruby(environment=QUICK_BEAT)
    app = start_python()

    command("processes", "quiet", "--all", "--yes")
    eventually(lambda: all(one["quiet"] for one in command("processes")))
    command("processes", "stop", rails.identity, app.identity, "--yes")

    assert (rails.wait(), app.wait()) == (0, 0)


def test_both_languages_dump_their_threads_to_their_logs(
    start_ruby: StartRuby, start_python: StartPython, command: Run
) -> None:
    """Each process writes to its own log, at its next heartbeat."""
    workers = [start_ruby(environment=QUICK_BEAT), start_python()]
    before = [worker.log_path.read_text(errors="replace").count("TID-") for worker in workers]

    command("processes", "dump", "--all")

    for worker, lines in zip(workers, before, strict=True):
        eventually(lambda: worker.log_path.read_text(errors="replace").count("TID-") > lines)  # noqa: B023


def test_a_pause_holds_python_and_names_the_ruby_process_that_goes_on(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython, command: Run
) -> None:
    """Open-source Ruby knows nothing of the set `paused`."""
    rails = start_ruby(queues=["ruby"])
    start_python("-q", "python")

    [python, rubys] = command("queues", "pause", "python", "ruby")
    ruby('PythonJob.set(queue: "python").perform_async("ledger", key, 1)', key=LEDGER)
    ruby('FixtureJob.set(queue: "ruby").perform_async("ledger", key, 2)', key=LEDGER)

    eventually(lambda: entries(redis_client) == [2])
    assert (python["ruby_processes"], rubys["ruby_processes"]) == ([], [rails.identity])
    assert len(raw_jobs(redis_client, "python")) == 1
    command("queues", "unpause", "python")
    eventually(lambda: sorted(entries(redis_client)) == [1, 2])


def test_jobs_that_were_moved_run_in_both_languages(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, command: Run
) -> None:
    """Their bytes stay the same, and one that fails is retried in the queue that it was moved to."""
    ruby(
        'FixtureJob.set(queue: "from").perform_async("ledger", key, 1); '
        'FixtureJob.set(queue: "from").perform_async("raise")',
        key=LEDGER,
    )
    before = raw_jobs(redis_client, "from")

    assert command("queues", "move", "from", "to", "--create", "--yes")["moved"] == 2

    assert raw_jobs(redis_client, "to") == before
    start_ruby(queues=["to"])
    eventually(lambda: entries(redis_client) == [1] and redis_client.zcard("retry") == 1)
    [failed] = redis_client.zrange("retry", 0, -1)
    assert json.loads(failed)["queue"] == "to"
