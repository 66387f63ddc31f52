"""Checks that fail themselves: what they look at is unseen, and the others are shown."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.doctor import examination, fleet
from sidekiq_py.doctor.checks import Check
from sidekiq_py.doctor.finding import Finding, ok, problem
from sidekiq_py.errors import RedisConnectionError
from sidekiq_py.extension import DoctorCheck, Extension, Pool, RedisSettings
from tests.doctor.conftest import Look, push


def bad(_: Any) -> Iterator[Finding]:
    """Yield two findings, then fail."""
    yield ok("All is well.")
    yield problem("A problem.", "Mend it.")
    raise UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "not UTF-8")


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a check before all others."""

    def put(look: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(examination, "CHECKS", (Check("odd", "Odd", "odd things", look), *examination.CHECKS))

    return put


def test_a_check_that_fails_is_unseen_and_the_others_are_shown(
    look: Look, redis_client: redis.Redis, first: Callable[..., None]
) -> None:
    """It is named, with its error; a problem that it had found counts."""
    push(redis_client)
    first(bad)

    diagnosis = look()

    assert diagnosis.levels("odd") == ["problem", "unseen"]
    failed = diagnosis["odd"][1].seen
    assert failed.startswith("Odd things could not be looked at, because the check `odd` failed: UnicodeDecodeError: ")
    assert diagnosis.levels("unworked-queues") == ["problem"]


@pytest.mark.parametrize("look", [lambda _: 1 / 0, lambda _: None, lambda _: ["text"]])
def test_a_failed_check_alone_is_no_problem_for_the_exit_code(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, first: Callable[..., None], look: Callable[[Any], Any]
) -> None:
    """Exit code 1 is for what was found."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    first(look)
    program.reset()

    shown = CliRunner().invoke(main, ["doctor"])
    document = CliRunner().invoke(main, ["doctor", "--json"])

    assert (shown.exit_code, document.exit_code) == (0, 0), shown.output
    assert "Not checked" in shown.output
    assert "the check `odd` failed" in shown.output
    assert "types of keys" in shown.output
    findings = json.loads(document.stdout)["findings"]
    assert [one["level"] for one in findings if one["check"] == "odd"] == ["unseen"]


def test_a_fact_that_cannot_be_gathered_hides_no_other(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it take the head of the report along."""

    def fail(_: Any) -> Any:
        raise KeyError("no such thing")

    monkeypatch.setattr(fleet, "gather", fail)

    diagnosis = look()

    assert diagnosis.levels("processes") == ["unseen"]
    assert diagnosis.levels("eviction") == []
    assert "server" in diagnosis.report.about
    assert "ruby_processes" not in diagnosis.report.about


def test_an_extension_that_cannot_name_its_checks_hides_no_other(look: Look) -> None:
    """Nor one whose check fails."""

    class Nameless(Extension):
        name = "nameless"

        def checks(self) -> Any:
            raise ValueError("no checks today")

    class Failing(Extension):
        name = "failing"

        def checks(self) -> Any:
            return [DoctorCheck("failing", "Odd", "odd things", bad)]

    program.use(Nameless())
    program.use(Failing())

    diagnosis = look()

    assert "ValueError: no checks today" in diagnosis.the("extension-nameless").seen
    assert diagnosis.levels("failing") == ["problem", "unseen"]


def test_an_extension_whose_own_redis_is_out_of_reach_hides_no_other_check(look: Look) -> None:
    """What could not be asked is named, with the reason."""

    def ask_elsewhere(_: Any) -> Any:
        return Pool(RedisSettings("redis://127.0.0.1:1/0")).command("PING")

    class Elsewhere(Extension):
        name = "elsewhere"

        def checks(self) -> Any:
            return [DoctorCheck("elsewhere", "Odd", "other places", ask_elsewhere)]

    class Nameless(Extension):
        name = "nameless"
        checks = ask_elsewhere

    program.use(Elsewhere())
    program.use(Nameless())

    diagnosis = look()

    seen = diagnosis.the("elsewhere").seen
    assert "Other places could not be looked at, because the check `elsewhere` could not reach a Redis" in seen
    assert "127.0.0.1:1" in seen
    assert "127.0.0.1:1" in diagnosis.the("extension-nameless").seen


def test_a_lost_connection_in_an_extensions_check_ends_the_examination(look: Look, new_redis_server: Any) -> None:
    """The checks after it could not look either."""
    server = new_redis_server()

    def stop_and_ask(pool: Pool) -> Any:
        server.stop()
        return pool.command("PING")

    class Last(Extension):
        name = "last"

        def checks(self) -> Any:
            return [DoctorCheck("last", "Odd", "odd things", stop_and_ask)]

    program.use(Last())

    with pytest.raises(RedisConnectionError):
        look(server.url)


def test_a_lost_connection_ends_the_examination(look: Look, first: Callable[..., None]) -> None:
    """No other check could look either."""

    def fail(_: Any) -> Any:
        raise RedisConnectionError("gone")

    first(fail)

    with pytest.raises(RedisConnectionError):
        look()
