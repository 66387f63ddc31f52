"""Failed jobs through Sidekiq 6.4.1's own `JobRetry` and through ours: the same bytes, scores and deaths."""

import base64
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py.config import Config
from sidekiq_py.engine.run.retry import Failure, Outcome, after_failure
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import backtrace_lines, error_class_name
from tests.engine.failing import Boom, FailingJob, raised
from tests.support.missing_tools import skip_or_fail

RUBY_SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
NOW = 1_700_000_000.123456
PUSHED = b'{"retry":true,"queue":"default","args":[1],"class":"FailingJob","jid":"a1b2","created_at":1700000000.1}'
LOST = "lost by Ruby"


def payload(**changes: Any) -> bytes:
    """A pushed payload with keys changed, or left out where the value is `...`."""
    job = {**json.loads(PUSHED), **changes}
    return json.dumps({key: value for key, value in job.items() if value is not ...}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Case:
    """One failed run."""

    raw: bytes
    message: str = "boom"
    raises: bool = False
    declared: bool = True
    options: dict[str, Any] = field(default_factory=lambda: {"retry": True})
    retry_in: Any = None
    exhausted: str | None = None
    max_retries: int | None = None
    queue: str = "default"
    draw: float = 0.75


FOREIGN = (
    rb'{ "traceparent" : "00-ab\u002dcd", "class":"FailingJob",'
    rb'"args":[123456789012345678901234567890,1e-7,1E+22,-0.0],'
    rb'"big":340282366920938463463374607431768211456,"retry":true,"odd":[1.50,100e-2],"jid":"x",'
    rb'"s":"caf\u00e9 \/ \u2028"}'
)

CASES = {
    "first failure": Case(PUSHED),
    "second failure": Case(payload(error_message="old", error_class="E", failed_at=1.5, retry_count=0)),
    "ninth failure": Case(payload(failed_at=1.5, retry_count=7, retried_at=2.5, error_class="E")),
    "jitter at its least": Case(payload(failed_at=1.5, retry_count=7), draw=0.0),
    "jitter at its most": Case(payload(failed_at=1.5, retry_count=7), draw=0.999999),
    "foreign spelling": Case(FOREIGN),
    "fetched from another queue": Case(PUSHED, queue="low"),
    "retry queue": Case(payload(retry_queue="later")),
    "retry queue is null": Case(payload(retry_queue=None)),
    "backtrace": Case(payload(backtrace=True)),
    "backtrace of two lines": Case(payload(backtrace=2)),
    "backtrace of no lines": Case(payload(backtrace=0)),
    "backtrace without the last line": Case(payload(backtrace=-1)),
    "backtrace as a number in text": Case(payload(backtrace="1")),
    "backtrace is false": Case(payload(backtrace=False)),
    "message of 10,001 characters": Case(PUSHED, message="é" * 10_001),
    "message in many scripts": Case(PUSHED, message='caf\u00e9 \U0001f600 "\\ \n\t\x00\u2028 </script>'),
    "message raises": Case(PUSHED, raises=True),
    "empty message": Case(PUSHED, message=""),
    "retry 3, third failure": Case(payload(retry=3, retry_count=1, failed_at=1.5)),
    "retry 3, exhausted": Case(payload(retry=3, retry_count=2, failed_at=1.5)),
    "retry 0": Case(payload(retry=0)),
    "retry -1": Case(payload(retry=-1)),
    "retry in text counts as 25": Case(payload(retry="3", retry_count=20, failed_at=1.5)),
    "retry in text exhausted at 25": Case(payload(retry="3", retry_count=24, failed_at=1.5)),
    "retry 3.0 counts as 25": Case(payload(retry=3.0, retry_count=5, failed_at=1.5)),
    "retry false": Case(payload(retry=False)),
    "retry false, not declared": Case(payload(retry=False), declared=False),
    "retry absent, class says true": Case(payload(retry=...)),
    "retry absent, class says 1": Case(payload(retry=...), options={"retry": 1}),
    "retry absent, class says 0": Case(payload(retry=...), options={"retry": 0}),
    "retry absent, class says false": Case(payload(retry=...), options={"retry": False}),
    "retry null, class says 5": Case(payload(retry=None), options={"retry": 5}),
    "not declared": Case(PUSHED, declared=False),
    "not declared, exhausted": Case(payload(retry=1, retry_count=0, failed_at=1.5), declared=False),
    "max_retries reached": Case(payload(retry_count=1, failed_at=1.5), max_retries=2),
    "max_retries not reached": Case(payload(retry_count=0, failed_at=1.5), max_retries=2),
    "dead is false": Case(payload(retry=0, dead=False)),
    "dead is null": Case(payload(retry=0, dead=None)),
    "exhausted block": Case(payload(retry=0), exhausted="changed"),
    "retry_in 10": Case(PUSHED, retry_in=10),
    "retry_in 10 at the fourth failure": Case(payload(retry_count=2, failed_at=1.5), retry_in=10),
    "retry_in 10.9": Case(PUSHED, retry_in=10.9),
    "retry_in as text": Case(PUSHED, retry_in="20"),
    "retry_in 0": Case(PUSHED, retry_in=0),
    "retry_in negative": Case(PUSHED, retry_in=-5),
    "retry_in raises": Case(PUSHED, retry_in="raises"),
    "retry_for is not known yet": Case(payload(retry_for=1, failed_at=1.5, retry_count=0)),
    "retry_count is false": Case(payload(retry_count=False)),
}

LOST_BY_RUBY = {
    "1E400": Case(payload(args=...)[:-1] + b',"args":[1E400]}'),
    "retry absent, not declared": Case(payload(retry=...), declared=False),
    "retry null, not declared": Case(payload(retry=None), declared=False),
}


@pytest.fixture(scope="module")
def ruby_answers(redis_server: Any) -> dict[str, dict[str, Any]]:
    """What Ruby makes of every case; one process for all."""
    everything = {**CASES, **LOST_BY_RUBY}
    try:
        done = subprocess.run(
            ["ruby", "-W0", str(Path(__file__).with_name("ruby_job_retry.rb"))],
            input=json.dumps([for_ruby(case) for case in everything.values()]),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "REDIS_URL": redis_server.url, "LANG": "C.UTF-8", "TZ": "UTC"},
        )
    except OSError as error:
        skip_or_fail(f"no Ruby ({error}); on Debian: apt-get install ruby-sidekiq", switch=RUBY_SWITCH)
    if done.returncode != 0:
        skip_or_fail(f"no Ruby with Sidekiq 6.4.1 ({done.stderr[-300:]})", switch=RUBY_SWITCH)
    return dict(zip(everything, json.loads(done.stdout), strict=True))


def for_ruby(case: Case) -> dict[str, Any]:
    """A case as `ruby_job_retry.rb` reads it."""
    error = error_of(case)
    return {
        "raw": base64.b64encode(case.raw).decode(),
        "queue": case.queue,
        "error_class": error_class_name(error),
        "message": base64.b64encode(case.message.encode()).decode(),
        "raises": case.raises,
        "backtrace": backtrace_lines(error),
        "now": NOW,
        "draw": case.draw,
        "declared": case.declared,
        "options": case.options,
        "retry_in": case.retry_in,
        "exhausted": case.exhausted,
        "max_retries": case.max_retries,
    }


def error_of(case: Case) -> BaseException:
    """What the case's run raised, the same frames each time."""
    return raised(Boom(case.message, has_message=not case.raises))


def outcome_of(case: Case) -> tuple[Outcome, list[str]]:
    """What we make of a case, and what was reported on the way."""
    reported: list[str] = []
    job = FailingJob(
        options=case.options, retry_in_block=answering(case.retry_in), exhausted_block=marking(case.exhausted)
    )
    failure = Failure(
        case.raw,
        queue=case.queue,
        error=error_of(case),
        job=job if case.declared else None,
        config=Config() if case.max_retries is None else Config(max_retries=case.max_retries),
        dialect=Dialect.pinned("6.4.1"),
        now=NOW,
        draw=lambda: case.draw,
        report=lambda error, context: reported.append(f"{context['context']}: {error}"),
    )
    return after_failure(failure), reported


def answering(answer: Any) -> Any:
    """A `retry_in` block."""

    def block(count: int, error: BaseException, job: dict[str, Any]) -> Any:
        if answer == "raises":
            raise RuntimeError("the block failed")
        return answer

    return None if answer is None else block


def marking(text: str | None) -> Any:
    """A `retries_exhausted` block that changes the payload."""
    return None if text is None else lambda job, error: job.update(seen=text)


@pytest.mark.ruby
@pytest.mark.parametrize("name", CASES)
def test_a_failure_leaves_what_ruby_leaves(name: str, ruby_answers: dict[str, dict[str, Any]]) -> None:
    """The member byte for byte, its set, its score, and the payload that death handlers see."""
    theirs = ruby_answers[name]

    ours, _ = outcome_of(CASES[name])

    assert theirs["escaped"] is None
    written = [[base64.b64encode(ours.member).decode(), ours.score]] if ours.member is not None else []
    assert (written if ours.kind == "retry" else []) == theirs["retry"]
    assert (written if ours.kind == "dead" else []) == theirs["dead"]
    assert ([ours.payload] if ours.announce_death else []) == theirs["deaths"]
    assert [list(death) for death in theirs["deaths"]] == ([list(ours.payload)] if ours.announce_death else [])


@pytest.mark.ruby
@pytest.mark.parametrize("name", LOST_BY_RUBY)
def test_what_ruby_loses_is_kept_in_dead_and_reported(name: str, ruby_answers: dict[str, dict[str, Any]]) -> None:
    """Ruby leaves neither a retry nor a dead entry; we leave a dead entry and say why."""
    theirs = ruby_answers[name]

    ours, reported = outcome_of(LOST_BY_RUBY[name])

    assert theirs["retry"] == theirs["dead"] == []
    assert (ours.kind, ours.score, ours.announce_death) == ("dead", NOW, True)
    assert len(reported) == 1
    assert "kept in dead" in reported[0]
