"""Where a namespace is said, and what it cannot stand beside."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.cli.boot import load_program
from sidekiq_py.cli.settings import make_config, read_all
from sidekiq_py.client import sync_client as client
from sidekiq_py.config import Config
from sidekiq_py.engine.boot_checks import check_redis
from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings

ELSEWHERE = "redis://127.0.0.1:1/5"


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing configured, nothing in the environment; a worker writes its own name for it there."""
    for name in ("APP_ENV", "RAILS_ENV", "RACK_ENV"):
        monkeypatch.setenv(name, "test")
    for name in ("SIDEKIQ_NAMESPACE", "REDIS_URL", "REDIS_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    program.reset()
    yield
    program.reset()


def namespace() -> str:
    """Of the program's own Redis."""
    return client.current().pool.settings.namespace


def test_code_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which decides where nothing is said, whoever says where Redis is."""
    monkeypatch.setenv("SIDEKIQ_NAMESPACE", "env")
    assert namespace() == "env"
    program.reset()
    sidekiq.configure(ELSEWHERE)
    assert namespace() == "env"

    sidekiq.configure(namespace="code")
    assert (namespace(), program.settings().redis.url) == ("code", ELSEWHERE)
    sidekiq.configure(namespace="")
    assert namespace() == ""


def test_another_url_keeps_the_namespace_and_whole_settings_bring_their_own() -> None:
    """As a URL says nothing about it."""
    sidekiq.configure(namespace="code")
    sidekiq.configure(ELSEWHERE)
    assert namespace() == "code"

    sidekiq.configure(redis=RedisSettings(ELSEWHERE))
    assert namespace() == ""
    sidekiq.configure(redis=RedisSettings(ELSEWHERE), namespace="both")
    assert namespace() == "both"


def test_a_client_has_the_program_s_namespace_on_the_program_s_redis_alone() -> None:
    """Another Redis is laid out by others."""
    sidekiq.configure(ELSEWHERE, namespace="code")
    clients = [
        sidekiq.Client(),
        sidekiq.Client(namespace="own"),
        sidekiq.Client(namespace=""),
        sidekiq.Client(ELSEWHERE),
        sidekiq.Client(ELSEWHERE, namespace="own"),
        sidekiq.Client(pool=ELSEWHERE, namespace="own"),
        sidekiq.Client(pool=redis.Redis.from_url(ELSEWHERE), namespace="own"),
        sidekiq.Client(pool=Pool(RedisSettings(ELSEWHERE, namespace="own"))),
    ]

    assert [made.pool.settings.namespace for made in clients] == ["code", "own", "", "", "own", "own", "own", "own"]
    assert clients[1].pool.settings.url == ELSEWHERE


def test_a_pool_of_ours_has_its_namespace_in_its_settings() -> None:
    """Two of them for one pool would be one too many."""
    with pytest.raises(ConfigError, match="RedisSettings"):
        sidekiq.Client(pool=Pool(RedisSettings(ELSEWHERE)), namespace="own")


@pytest.mark.parametrize(
    ("yaml", "flags", "expected"),
    [
        (":namespace: file", {}, "file"),
        ("namespace: :symbol", {}, "symbol"),
        (":namespace: file", {"namespace": "flag"}, "flag"),
        (":namespace: file", {"namespace": ""}, ""),
        (":namespace: file\n:redis_url: redis://127.0.0.1:1/3", {"redis_url": ELSEWHERE}, "file"),
        (":concurrency: 1", {}, ""),
    ],
)
def test_a_worker_is_told_by_flag_or_file(tmp_path: Path, yaml: str, flags: dict[str, str], expected: str) -> None:
    """Ruby reads it in its initializer alone, and ignores the file's."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "sidekiq.yml").write_text(yaml)
    require = {"require": ("tests.namespace.jobs",)}

    config = load_program(read_all({**flags, **require}, variables={}, directory=tmp_path))

    assert config.redis.namespace == expected


def test_a_pinned_release_that_refuses_namespaces_is_refused(tmp_path: Path) -> None:
    """Its processes would see none of these keys."""
    said = r"Sidekiq 7 and later refuse a namespace.*pin a release up to 6\.5"
    with pytest.raises(ConfigError, match=said):
        sidekiq.configure(namespace="myapp", sidekiq_version="7")
    with pytest.raises(ConfigError, match=said):
        sidekiq.Client(ELSEWHERE, namespace="myapp", sidekiq_version="8.1.7")
    with pytest.raises(ConfigError, match=said):
        Config(redis=RedisSettings(namespace="myapp"), sidekiq_version="7.0.0")
    with pytest.raises(ConfigError, match=said):
        make_config(read_all({"namespace": "a", "sidekiq_version": "8"}, variables={}, directory=tmp_path))

    sidekiq.configure(namespace="myapp", sidekiq_version="6.5.12")
    assert namespace() == "myapp"


def register_ruby(client: redis.Redis, prefix: str, version: str | None) -> None:
    """What a live Ruby process says of itself."""
    info = {"hostname": "ruby", "pid": 1, "tag": "", "concurrency": 5, "queues": [], "labels": [], "version": version}
    client.sadd(f"{prefix}processes", "ruby:1:abc")
    client.hset(f"{prefix}ruby:1:abc", "info", json.dumps({name: told for name, told in info.items() if told}))


def test_a_ruby_side_that_has_left_the_namespace_is_told_of(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """As an upgrade to Sidekiq 7 makes it, while Python goes on as before."""
    register_ruby(redis_client, "", "7.3.2")
    pool = Pool(RedisSettings(redis_url, namespace="myapp"))

    check_redis(pool)
    pool.close()

    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "No Ruby process uses the namespace myapp, but one of Sidekiq 7.3.2 works" in caplog.text


@pytest.mark.parametrize(
    ("prefix", "version", "name"),
    [("", None, "myapp"), ("myapp:", "7.3.2", "myapp"), ("", "7.3.2", "")],
    ids=["an old one outside", "one within", "no namespace"],
)
def test_other_neighbours_are_no_reason_to_warn(
    redis_url: str,
    redis_client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    prefix: str,
    version: str | None,
    name: str,
) -> None:
    """A Redis is often shared; and whoever is within has found a way."""
    register_ruby(redis_client, prefix, version)
    pool = Pool(RedisSettings(redis_url, namespace=name))

    check_redis(pool)
    pool.close()

    assert caplog.records == []


def test_who_is_confined_to_the_namespace_starts_without_a_word(
    redis_url: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Looking outside is a courtesy; what is missing within is named."""
    redis_client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~myapp:*", "+@all")
    url = redis_url.replace("redis://", "redis://worker:secret@")

    check_redis(Pool(RedisSettings(url, namespace="myapp")))
    assert caplog.records == []
    with pytest.raises(ConfigError, match=r"#other forbids this user.*Allow the keys ~other:\* and"):
        check_redis(Pool(RedisSettings(url, namespace="other")))
    redis_client.execute_command("ACL", "DELUSER", "worker")
