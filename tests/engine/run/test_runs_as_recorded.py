"""Failed runs as each recorded release of real Sidekiq ended them: the same bytes, scores, trims and deaths."""

from typing import Any

import pytest
import redis

from interop_tests.support.recordings import Recording, bytes_of, database_of, named, recordings, recordings_of
from sidekiq_py.config import Config
from sidekiq_py.engine.run import retry
from sidekiq_py.engine.run.retry import Failure, after_failure, dead_letter
from sidekiq_py.outcome import Outcome
from sidekiq_py.redis_access.connection.link import Command
from sidekiq_py.redis_access.connection.pool import Pool
from tests.engine.failing import FailingJob

# What `rand` gave, and the draw from [0, 1) that gives the same.
DREW = 7

# Where Ruby loses a job, ours is kept in `dead` and reported.
LOST_BY_RUBY = {
    # Nobody knows the class, and the job does not say itself if it is to be retried.
    "class_not_loadable_retry_absent",
    # Parsed, but no class to look up: Ruby forgets it, or retries what can never run.
    "class_missing",
}
# Before 6.5.2 an answer that is no number made the retry itself fail: `:kill` and `:discard` lost the job.
ANSWERS_OF_LATER_RELEASES = {"retry_in_answers_kill", "retry_in_answers_discard", "retry_in_answers_default"}


class SpeechlessError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def answer(value: Any) -> Any:
    """A `retry_in` block that gives a value, or raises it."""

    def block(_count: int, _error: BaseException, _payload: dict[str, Any]) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return block


def by_hundreds(count: int, _error: BaseException, _payload: dict[str, Any]) -> int:
    """Retries after 100, 200, 300, … seconds."""
    return (count + 1) * 100


def fails(_payload: dict[str, Any], _error: BaseException) -> None:
    """A block that fails in turn."""
    raise RuntimeError("nobody listens")


ANSWERS = {
    "kill": "kill",
    "discard": "discard",
    "default": "default",
    "text": "90",
    "float": 90.75,
    "zero": 0,
    "negative": -5,
    "nil": None,
    "raises": RuntimeError("no delay"),
}
JOBS = {
    "RetryThreeJob": FailingJob(options={"retry": 3}),
    "RetryInJob": FailingJob(retry_in_block=by_hundreds),
    "DiscardedWhenExhaustedJob": FailingJob(exhausted_block=lambda payload, error: "discard"),
    "RaisesWhenExhaustedJob": FailingJob(exhausted_block=fails),
}


def is_failed_run(found: Recording) -> bool:
    """Whether it is a run that failed, of a job that an engine retries or moves to `dead`."""
    given = found.input
    return given.get("step") == "run" and given.get("error") is not None and found.key in ("retry", "dead")


def is_different(found: Recording) -> bool:
    """Whether ours keeps what Ruby loses."""
    is_old = found.dialect.version < (6, 5, 2)
    return found.situation in LOST_BY_RUBY or (is_old and found.situation in ANSWERS_OF_LATER_RELEASES)


# What stands in `wrapped` is an Active Job to us, which no class of another kind wraps.
RUNS = [found for found in recordings() if is_failed_run(found) and found.situation != "first_failure_of_the_wrapped"]


def error_of(found: Recording) -> BaseException:
    """What the job raised, under the name of its class in Ruby."""
    given = found.input["error"]
    if given["message"] is None:
        base: type[Exception] = SpeechlessError
        text = ""
    else:
        base, text = Exception, bytes_of(given["message"]).decode(errors="surrogateescape")
    kind = type(given["class"], (base,), {"__module__": "builtins"})
    return kind(text)  # type: ignore[no-any-return]


def job_of(found: Recording) -> FailingJob | None:
    """The job of the recorded class; None for one that cannot be loaded."""
    if found.situation.startswith("class_"):
        return None
    if found.situation.startswith("retry_in_answers_"):
        return FailingJob(retry_in_block=answer(ANSWERS[found.situation.removeprefix("retry_in_answers_")]))
    raw = found.before
    return next((job for name, job in JOBS.items() if b'"class":"%s"' % name.encode() in raw), FailingJob())


def draw_of(found: Recording) -> float:
    """The draw that stands for Ruby's; of 8 it is scaled by the count."""
    if found.dialect.jitter != "rand_range":
        return (DREW + 0.5) / (30 if found.dialect.jitter == "rand30" else 10)
    member = found.members[0] if found.members else b'"retry_count":0}'
    count = int(member.rsplit(b'"retry_count":', 1)[1].split(b",")[0].rstrip(b"}"))
    return (DREW + 0.5) / (10 * (count + 1))


def outcome_of(found: Recording, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """What ours decides."""
    given = found.input
    monkeypatch.setattr(retry, "backtrace_lines", lambda error: given["error"]["backtrace"] or [])
    limits = {name: given[name] for name in ("max_retries", "dead_max_jobs") if name in given}
    failure = Failure(
        found.before,
        queue=given["queue"],
        error=error_of(found),
        job=job_of(found),
        config=Config(**limits),
        dialect=found.dialect,
        now=given["now"],
        draw=lambda: draw_of(found),
        report=lambda error, context: None,
    )
    return after_failure(failure)


@pytest.mark.parametrize("found", named(*[found for found in RUNS if not is_different(found)]))
def test_a_failed_run_leaves_what_ruby_left(
    found: Recording, pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member, its score to the last digit, and nothing else; death handlers are called where Ruby calls them."""
    outcome = outcome_of(found, monkeypatch)
    if commands := commands_of(outcome):
        pool.batch(commands)

    expected = {name: held for name, held in found.database.items() if name in ("retry", "dead", "schedule")}
    assert database_of(redis_client) == expected
    assert outcome.announce_death == ("fixture:deaths" in found.elsewhere)


@pytest.mark.parametrize("found", named(*[found for found in RUNS if not is_different(found)]))
def test_a_failed_run_sends_the_commands_that_ruby_sent(found: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ZADD, and for the dead set its two trims with the same bounds."""
    outcome = outcome_of(found, monkeypatch)

    ours = [tuple(as_bytes(word) for word in command) for command in commands_of(outcome)]
    assert ours == found.sent("ZADD", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK")


@pytest.mark.parametrize("found", named(*[found for found in RUNS if is_different(found)]))
def test_what_ruby_loses_is_kept(found: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `dead`, or in `retry` where the answer means the default; or it is discarded because the job says so."""
    outcome = outcome_of(found, monkeypatch)

    wanted = {"retry_in_answers_discard": "discarded", "retry_in_answers_default": "retry"}
    assert outcome.kind == wanted.get(found.situation, "dead")


@pytest.mark.parametrize("found", named(*recordings_of("dead_set_trimmed_by_count")))
def test_a_death_trims_the_dead_set_as_ruby_does(found: Recording, pool: Pool, redis_client: redis.Redis) -> None:
    """To one less than the limit, by rank."""
    redis_client.zadd("dead", {member.encode(): score for member, score in found.input["before"]})
    [(_, rank_from, rank_to)] = [command[1:] for command in found.sent("ZREMRANGEBYRANK")]
    config = Config(dead_max_jobs=found.input["dead_max_jobs"])

    pool.batch(commands_of(dead_letter(found.members[-1], {}, config, found.input["now"])))

    assert (rank_from, rank_to) == (b"0", b"-4")
    assert database_of(redis_client)["dead"] == found.database["dead"]


def commands_of(outcome: Outcome) -> list[Command]:
    """What is written, all of it plain commands: the job's own definition has no say here."""
    return [effect for effect in (*outcome.vital, *outcome.trims) if isinstance(effect, tuple)]


def as_bytes(word: Any) -> bytes:
    """A word of a command as it is sent."""
    return word if isinstance(word, bytes) else str(word).encode()
