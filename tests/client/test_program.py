"""What a program sets, and what importing it costs."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.errors import ConfigError, SidekiqError
from sidekiq_py.extension import Extension
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire.dialect import Dialect, FloatText
from tests.client.conftest import Pushed
from tests.support.threads_at_once import at_once
from tests.support.worker_process import REPOSITORY


def test_without_configuration_the_environment_decides(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, pushed: Pushed
) -> None:
    """REDIS_PROVIDER names the variable, as in Ruby."""
    monkeypatch.setenv("REDIS_PROVIDER", "MY_REDIS")
    monkeypatch.setenv("MY_REDIS", redis_url)

    sidekiq.ruby_job("A").perform_async()

    assert len(pushed.queue()) == 1


def test_redis_url_counts_if_the_variable_that_redis_provider_names_is_not_set(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, pushed: Pushed
) -> None:
    """As in Ruby since Sidekiq 7; if that is not set either, no job goes to another Redis by accident."""
    monkeypatch.setenv("REDIS_PROVIDER", "MY_REDIS")
    monkeypatch.setenv("REDIS_URL", redis_url)

    sidekiq.ruby_job("A").perform_async()

    assert len(pushed.queue()) == 1
    monkeypatch.delenv("REDIS_URL")
    program.reset()
    with pytest.raises(ConfigError, match="names MY_REDIS, which is not set"):
        sidekiq.ruby_job("A").perform_async()


def test_what_is_configured_while_another_thread_reads_the_environment_stays(
    monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    """A thread that pushes before the program is configured must not undo that."""
    read = program._redis_from_environment

    def configured_meanwhile() -> RedisSettings:
        sidekiq.configure(redis_url=redis_url)
        return read()

    monkeypatch.setattr(program, "_redis_from_environment", configured_meanwhile)

    assert program.settings().redis.url == redis_url
    assert program.settings().redis.url == redis_url


def test_pushes_follow_what_is_configured_during_the_first_push_of_another_thread(
    monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    """That thread's client is kept for all later pushes, so it must not be one with the settings from before."""
    urls = [redis_url]

    class ConfiguredMeanwhile(sidekiq.Client):
        def __init__(self) -> None:
            super().__init__()
            if urls:
                sidekiq.configure(redis_url=urls.pop())

    monkeypatch.setattr(sync_client, "Client", ConfiguredMeanwhile)
    sidekiq.configure(redis_url="redis://127.0.0.1:1/0")

    assert sync_client.current().pool.settings.url == redis_url
    assert sync_client.current().pool.settings.url == redis_url


def test_threads_that_configure_at_once_keep_what_each_has_set(redis_url: str) -> None:
    """As modules do that are imported side by side."""
    for _ in range(50):
        program.reset()
        at_once(
            lambda: sidekiq.configure(redis_url=redis_url),
            lambda: sidekiq.configure(sidekiq_version="8"),
            lambda: sidekiq.configure(default_job_options={"retry": 5}),
            lambda: sidekiq.configure(strict_args="warn"),
        )

        settings = program.settings()
        assert (settings.redis.url, settings.sidekiq_version) == (redis_url, "8")
        assert (settings.default_job_options, settings.strict_args) == ({"retry": 5}, "warn")


def test_another_thread_configures_the_program_while_extensions_are_made(redis_url: str) -> None:
    """To make one may import a module that the other thread is importing: they would wait for each other for ever."""

    class Quick(Extension):
        name = "quick"

    def extensions() -> Iterator[Extension]:
        other.submit(sidekiq.configure, sidekiq_version="8").result(timeout=10)
        yield Quick()

    with ThreadPoolExecutor(1) as other:
        sidekiq.configure(redis_url=redis_url, extensions=extensions())

    assert program.extensions.find("quick") is not None
    assert (program.settings().redis.url, program.settings().sidekiq_version) == (redis_url, "8")


def test_a_namespace_that_is_set_while_extensions_are_made_stays(redis_url: str) -> None:
    """By another thread or by an extension: a URL does not say which namespace there is."""

    def extensions() -> Iterator[Extension]:
        sidekiq.configure(namespace="shop")
        yield from ()

    sidekiq.configure(redis_url=redis_url, sidekiq_version="6.5", extensions=extensions())

    assert program.settings().redis == RedisSettings(redis_url, namespace="shop")


def test_a_later_setting_leaves_the_others(redis_url: str) -> None:
    """Only what is given changes."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8")
    sidekiq.configure(float_text="ruby")

    settings = program.settings()
    assert settings.redis.url == redis_url
    assert settings.pinned_dialect() == Dialect.pinned("8", FloatText.RUBY)


def test_policies_for_keys_of_extensions_are_set_one_by_one(redis_url: str) -> None:
    """So that a file, the program and flags can each decide about keys of their own."""
    sidekiq.configure(redis_url=redis_url, extension_keys={"bid": "run", "encrypt": "bury"})
    sidekiq.configure(extension_keys={"bid": "bury"})

    assert program.settings().extension_keys == {"bid": "bury", "encrypt": "bury"}


def test_jobs_may_be_declared_before_the_program_is_configured(redis_url: str, pushed: Pushed) -> None:
    """And the address may change between two pushes."""
    job = sidekiq.ruby_job("A")
    sidekiq.configure(redis_url="redis://127.0.0.1:1/0", sidekiq_version="7")
    with pytest.raises(SidekiqError):
        job.perform_async()

    sidekiq.configure(redis_url=redis_url)
    job.perform_async()

    assert len(pushed.queue()) == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"redis_url": "localhost:6379"}, "redis://"),
        ({"redis_url": 6379}, "redis_url is of the type int; give a URL as a string"),
        ({"redis": "redis://localhost:6379/0"}, "pass a URL as redis_url="),
        ({"redis": 5}, "redis is of type int; give RedisSettings"),
        ({"extensions": 5}, "extensions is 5; give a list of extensions"),
        ({"default_job_options": ["retry"]}, "give a mapping"),
        ({"redaction": {"jobs": {}}}, "give a Redaction"),
        ({"sidekiq_version": "latest"}, "'8'"),
        ({"float_text": "python"}, "'json3'"),
        ({"strict_args": "maybe"}, "'warn'"),
        ({"extension_keys": {"bid": "ignore"}}, "refuse, run, bury"),
        ({"extension_keys": {"unique_tokens": "run"}}, "did you mean unique_token?"),
    ],
)
def test_an_unusable_setting_is_refused_and_nothing_changes(settings: dict[str, str], said: str) -> None:
    """The message says what would be usable."""
    before = program.settings()

    with pytest.raises(ConfigError, match=said):
        sidekiq.configure(**settings)  # type: ignore[arg-type]

    assert program.settings() == before


@pytest.mark.parametrize("name", ["socket_timeout_seconds", "connect_timeout_seconds", "pool_size"])
@pytest.mark.parametrize("value", ["5", None, -1, True])
def test_numbers_about_redis_are_numbers(name: str, value: Any) -> None:
    """A text from the environment would only fail at the first command."""
    wanted = "whole number, 0 or more" if name == "pool_size" else "number greater than 0"
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; it must be a {wanted}"):
        RedisSettings(**{name: value})


@pytest.mark.parametrize(
    "settings",
    [
        {"redis_url": b"redis://:hunter2@localhost:6379/0"},
        {"redis": "redis://:hunter2@localhost:6379/0"},
        {"redis": {"host": "localhost", "password": "hunter2"}},
    ],
)
def test_an_error_about_redis_shows_no_password(settings: dict[str, Any]) -> None:
    """As in every error and log line."""
    with pytest.raises(ConfigError) as raised:
        sidekiq.configure(**settings)

    assert "hunter2" not in str(raised.value)


def test_every_public_name_is_there() -> None:
    """Those of the worker may come with it."""
    for name in sidekiq.__all__:
        assert getattr(sidekiq, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        sidekiq.nope  # noqa: B018


def test_enqueuing_imports_nothing_that_only_workers_need(redis_url: str) -> None:
    """The first push neither."""
    code = (
        "import sys, redis; before = set(sys.modules)\n"
        "import sidekiq_py as sidekiq\n"
        f"sidekiq.configure(redis_url={redis_url!r}, sidekiq_version='8')\n"
        "sidekiq.ruby_job('A').perform_async(1, 2.5, 'x')\n"
        "print(*sorted(set(sys.modules) - before), sep='\\n')\n"
    )

    ran = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    loaded = set(ran.stdout.split())
    needless = ("sidekiq_py.engine", "sidekiq_py.api", "sidekiq_py.config", "click", "yaml", "kombu", "uuid", "decimal")
    assert not [name for name in loaded if name.startswith(needless)]
    assert (
        not {
            "sidekiq_py.middleware.running",
            "sidekiq_py.client.async_client",
            "sidekiq_py.client.bulk",
            "logging.config",
        }
        & loaded
    )


def test_a_program_may_be_run_from_any_folder(tmp_path: Path) -> None:
    """Nothing is read from the working directory."""
    ran = subprocess.run(
        [sys.executable, "-c", "import sidekiq_py; print(sidekiq_py.Job.__name__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == "Job\n"
