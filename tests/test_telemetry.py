"""The stream of events: who hears what, and what becomes of a handler that fails."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py import program, telemetry
from sidekiq_py.errors import ConfigError, Shutdown, SoftTimeLimitError
from sidekiq_py.telemetry import EVENTS, JOB_STOP, PUSH

ROOT = Path(__file__).resolve().parents[1]
ENDED: dict[str, Any] = {"payload": {}, "queue": "default", "identity": "me:1:abc", "seconds": 0.5}
PUSHED: dict[str, Any] = {"queue": "default", "jids": ["7"], "payloads": [b"{}"], "is_scheduled": False}


@pytest.fixture(autouse=True)
def fresh_program() -> Iterator[None]:
    """No handler of another test."""
    program.reset()
    yield
    program.reset()


def test_a_handler_hears_of_the_events_it_names() -> None:
    """It is handed the event's name and its measurements."""
    emitted: list[tuple[str, object]] = []
    telemetry.attach("mine", ["sidekiq.job.stop", "sidekiq.job.exception"], lambda *event: emitted.append(event))

    JOB_STOP.emit(ENDED)
    PUSH.emit(PUSHED)

    assert emitted == [("sidekiq.job.stop", ENDED)]


def test_a_detached_handler_hears_nothing_more() -> None:
    """And the event looks again as if nobody had ever listened."""
    emitted: list[tuple[str, object]] = []
    telemetry.attach("mine", "sidekiq.push", lambda *event: emitted.append(event))

    telemetry.detach("mine")
    telemetry.detach("never attached")
    PUSH.emit(PUSHED)

    assert (emitted, PUSH.handlers) == ([], ())


def test_handlers_are_called_in_the_order_in_which_they_were_attached() -> None:
    """Whoever relies on another attaches after it."""
    emitted: list[str] = []
    for name in ("first", "second", "third"):
        telemetry.attach(name, "sidekiq.push", lambda _, __, name=name: emitted.append(name))

    PUSH.emit(PUSHED)

    assert emitted == ["first", "second", "third"]


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    """A misspelled name would wait for ever for its event."""
    with pytest.raises(ConfigError, match=r"'sidekiq.job.end' is not a telemetry event; there are sidekiq.job.start, "):
        telemetry.attach("mine", ["sidekiq.push", "sidekiq.job.end"], print)

    assert PUSH.handlers == ()


def test_an_id_is_taken_once() -> None:
    """Two modules that pick the same id would detach each other."""
    telemetry.attach("mine", "sidekiq.push", print)

    with pytest.raises(ConfigError, match="'mine' is attached already"):
        telemetry.attach("mine", "sidekiq.push", print)


def test_a_coroutine_function_is_no_handler() -> None:
    """Nobody would await it."""

    async def handler(name: str, measurements: dict[str, Any]) -> None: ...

    with pytest.raises(ConfigError, match="give a plain function"):
        telemetry.attach("mine", "sidekiq.push", handler)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), Shutdown(), KeyboardInterrupt()])
def test_a_handler_that_raises_is_reported_and_the_next_is_called(error: BaseException) -> None:
    """Whatever it raises stays with it."""
    calls: list[tuple[BaseException, dict[str, Any]]] = []
    emitted: list[str] = []
    program.on_error(lambda error, context: calls.append((error, context)))

    def fail(name: str, measurements: dict[str, Any]) -> None:
        raise error

    telemetry.attach("broken", "sidekiq.job.stop", fail)
    telemetry.attach("sound", "sidekiq.job.stop", lambda name, measurements: emitted.append(name))

    JOB_STOP.emit(ENDED)

    context = {"context": "The telemetry handler 'broken' failed on sidekiq.job.stop", "event": "sidekiq.job.stop"}
    assert calls == [(error, context)]
    assert emitted == ["sidekiq.job.stop"]


def test_a_handler_that_always_raises_is_reported_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays attached, as a network comes back, and does not flood an error tracker meanwhile."""
    seconds = iter([0.0, 1.0, 59.0, 61.0])
    monkeypatch.setattr(telemetry, "monotonic", lambda: next(seconds))
    calls: list[str] = []
    program.on_error(lambda error, context: calls.append(context["context"]))
    telemetry.attach("broken", "sidekiq.push", lambda *event: 1 / 0)

    for _ in range(4):
        PUSH.emit(PUSHED)

    first = "The telemetry handler 'broken' failed on sidekiq.push"
    assert calls == [first, f"{first}, 3 times since the last report"]


@pytest.mark.parametrize("error", [Shutdown(), SoftTimeLimitError("late")])
def test_what_strikes_a_job_while_its_push_is_measured_ends_the_job(error: BaseException) -> None:
    """A time limit may come due at any instruction of a job, also in a handler that the job's push has called."""

    def struck(name: str, measurements: dict[str, Any]) -> None:
        raise error

    telemetry.attach("mine", "sidekiq.push", struck)

    with pytest.raises(type(error)):
        PUSH.emit(PUSHED)


@pytest.mark.parametrize(
    ("enqueued_at", "expected"),
    [
        (1_700_000_000.5, 1.5),
        (1_700_000_000_500, 1.5),
        (1_700_000_000, 2.0),
        (1_700_000_100.0, 0.0),
        (None, None),
        ("yesterday", None),
        (True, None),
        (10**400, None),
    ],
)
def test_latency_is_read_from_any_release(enqueued_at: Any, expected: float | None) -> None:
    """Sidekiq 8 writes milliseconds, those before it seconds, and strangers may write anything."""
    assert telemetry.latency_seconds({"enqueued_at": enqueued_at}, 1_700_000_002.0) == expected


def test_the_page_lists_each_event_with_its_measurements() -> None:
    """What is measured and what is documented are the same."""
    page = (ROOT / "docs" / "telemetry.md").read_text()

    listed = {
        name: dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
        for name, section in re.findall(r"^### `([\w.]+)`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    }

    assert listed == {name: dict(event.measurements) for name, event in EVENTS.items()}
    assert set(EVENTS) == {event.name for event in vars(telemetry).values() if isinstance(event, telemetry.Event)}
