"""`sidekiq-celery bridge`: its options, its account, and its end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from sidekiq_celery.bin.celery import celery

from tests.compat.bridge.test_from_redis import message
from tests.compat.log.kept import logging_kept
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS

_PROGRAM = """
from sidekiq_celery import Celery
app = Celery("moving")
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs the command in this process."""
    (tmp_path / "moving.py").write_text(_PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(*arguments: str) -> Result:
        sys.modules.pop("moving", None)
        return CliRunner().invoke(celery, ["-A", "moving", "-q", "bridge", *arguments])

    with logging_kept():
        yield run
    sys.modules.pop("moving", None)


def test_the_account_for_people_and_as_json(
    call: Any, redis_url: str, redis_client: redis.Redis, other_redis: RedisServer
) -> None:
    """Of this run, and of all bridges so far."""
    with other_redis.client() as source:
        source.lpush("celery", message("a"), b"rubbish")
        ends = ("--from", other_redis.url, "--to", redis_url, "--once")

        dry = call(*ends, "--dry-run")
        done = call(*ends, "--json")
        source.lpush("celery", message("b"))
        again = call(*ends, "--json", "--rename", "celery=python")

    assert "celery: 1 to move, 1 unreadable" in dry.output
    assert "2 would be moved, 0 left" in dry.output
    account = json.loads(done.output)
    assert (account["moved"], account["left"]) == (2, 0)
    assert account["queues"]["celery"] == {"moved": 1, "unreadable": 1, "left": {}}
    assert json.loads(again.output)["totals"] == {
        **{"forward:celery:moved": 1, "forward:celery:unreadable": 1},
        "forward:python:moved": 1,
    }
    assert redis_client.llen("queue:python") == 1


def test_queues_that_only_routes_or_tasks_name_are_moved_too(
    call: Any, redis_url: str, redis_client: redis.Redis, other_redis: RedisServer, tmp_path: Path
) -> None:
    """Celery makes such queues as it sends to them, so most projects declare none of them."""
    (tmp_path / "moving.py").write_text(
        _PROGRAM
        + """
app.conf.task_routes = [{"mails.*": "mails", "reports.*": {"queue": "slow"}, "else": {"priority": 3}}]
app.task(name="urgent", queue="high")(print)
"""
    )
    queues = ("celery", "mails", "slow", "high")
    with other_redis.client() as source:
        for queue in queues:
            source.lpush(queue, message(queue))

        done = call("--from", other_redis.url, "--to", redis_url, "--once", "--json")

    assert json.loads(done.output)["moved"] == len(queues)
    assert [redis_client.llen(f"queue:{queue}") for queue in queues] == [1] * len(queues)


def test_a_total_of_a_queue_whose_name_is_not_utf_8_hides_no_other(
    call: Any, redis_url: str, redis_client: redis.Redis, other_redis: RedisServer
) -> None:
    """The sums of all bridges are printed."""
    redis_client.hset("sidekiq_py:bridge:totals", mapping={b"forward:caf\xe9:moved": 1, "forward:celery:moved": 2})

    done = call("--from", other_redis.url, "--to", redis_url, "--once", "--json")

    assert json.loads(done.output)["totals"] == {"forward:caf\ufffd:moved": 1, "forward:celery:moved": 2}


def test_a_way_back_by_the_command_line(
    call: Any, redis_url: str, redis_client: redis.Redis, other_redis: RedisServer
) -> None:
    """The URLs say from where to where."""
    redis_client.lpush("queue:celery", b'{"class":"a.task","args":[1],"jid":"j","celery":{"kw":false}}')

    done = call("--reverse", "--from", redis_url, "--to", other_redis.url, "--once", "--json")

    assert json.loads(done.output)["totals"] == {"backward:celery:moved": 1}
    with other_redis.client() as target:
        assert target.llen("celery") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "amqp://host"), "--to has to be the URL of the Redis with Sidekiq's queues"),
        (("--reverse", "--from", "amqp://host"), "--from has to be the URL of the Redis with Sidekiq's queues"),
        (("--rename", "celery"), "write old=new"),
        (("--from", "htp://user:secret@host"), "--from is htp://user:**@host/, which kombu cannot use here: No such"),
        (
            ("--reverse", "--to", "htp://host"),
            "--to is htp://host/, which kombu cannot use here: No such transport: htp",
        ),
        (("--from", "amqp://host", "--unacked", "9"), "any other broker handles this itself"),
        (("--reverse", "--unacked", "9"), "any other broker handles this itself"),
        (("--transport-options", "[]"), "JSON object"),
        (("--transport-options", '{"priority_steps": 10}'), "--transport-options has a value of the wrong type: 'int'"),
        (("--transport-options", '{"visibility_timeout": "1h"}'), "a value of the wrong type: could not convert"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str, call: Any) -> None:
    """With what it means."""
    done = call(*arguments)

    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "redis://127.0.0.1:6379/0?no_such_option=1"), "has no option no_such_option"),
        (("--from", "sentinel://127.0.0.1"), "name the master"),
        (("--to", "sentinel://127.0.0.1"), "name the master"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(arguments: tuple[str, ...], said: str, call: Any) -> None:
    """In a sentence."""
    done = call(*arguments, "--once")

    assert done.exit_code == 1
    assert said in done.output


def test_an_app_of_another_broker_has_to_be_told_where_sidekiq_is(call: Any, tmp_path: Path) -> None:
    """Before it has moved over, its settings name the old one."""
    (tmp_path / "moving.py").write_text(f"{_PROGRAM}\napp.conf.broker_url = 'amqp://rabbit//'\n")

    done = call("--once")

    assert done.exit_code == 1
    assert "--to names Sidekiq's Redis" in done.output


def test_a_missing_right_points_to_those_that_the_bridge_needs(
    call: Any, redis_url: str, redis_client: redis.Redis
) -> None:
    """The address is right."""
    redis_client.execute_command("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "-evalsha")
    url = redis_url.replace("redis://", "redis://weak:secret@")

    done = call("--from", url, "--to", url, "--once")

    redis_client.execute_command("ACL", "DELUSER", "weak")
    assert done.exit_code == 1
    # Redis 8 names the user here.
    assert re.search("NOPERM .* has no permissions to run the 'evalsha' command", done.output)
    assert "Nothing is lost: give this user the rights in docs/bridge.md, and start the bridge again" in done.output


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("redis://127.0.0.1:1/0", "127.0.0.1:1. Connection refused. Nothing"),
        ("amqp://ada:secret@127.0.0.1:1//", "Celery's broker amqp://ada:********@127.0.0.1:1// failed"),
    ],
)
def test_a_broker_out_of_reach_is_told_in_a_line(source: str, named: str, call: Any, redis_url: str) -> None:
    """With an exit code and the broker's address; what was moved before is told, too."""
    done = call("--from", source, "--to", redis_url, "--once", "--json")

    assert done.exit_code == 1
    assert named in done.output
    assert "Nothing is lost: check the addresses (--from, --to), and start the bridge again" in done.output
    assert json.loads(done.output.splitlines()[0])["moved"] == 0


def test_it_follows_until_it_is_told_to_stop(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis, other_redis: RedisServer
) -> None:
    """Through an absence of the source; then it tells its account."""
    (tmp_path / "moving.py").write_text(_PROGRAM)
    source = other_redis.client()
    source.lpush("celery", message("a"))
    paths = os.pathsep.join([str(tmp_path), *map(str, SOURCE_ROOTS)])
    bridge = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sidekiq_celery",
            "-A",
            "moving",
            "bridge",
            "--from",
            other_redis.url,
            "--to",
            redis_url,
        ],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: redis_client.llen("queue:celery") == 1, within_seconds=60)
        other_redis.restart()
        source.lpush("celery", message("b"))
        eventually(lambda: redis_client.llen("queue:celery") == 2, within_seconds=60)
        bridge.send_signal(signal.SIGTERM)
        output, log = bridge.communicate(timeout=60)
    finally:
        bridge.kill()
        source.close()

    assert bridge.returncode == 0, log
    assert "2 moved, 0 left" in output
