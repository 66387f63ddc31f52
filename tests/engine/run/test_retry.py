"""What becomes of a failed job, beyond what Sidekiq 6.4.1 itself can be asked: newer rules, blocks, and no way out."""

import json
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidekiq_py.config import Config
from sidekiq_py.engine.run.retry import Failure, Outcome, after_failure, is_caused_by_shutdown, retry_jitter_seconds
from sidekiq_py.errors import JobFailed, Shutdown
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import UNPRINTABLE_ERROR, backtrace_lines, error_class_name, error_text
from tests.engine.failing import Boom, FailingJob, raised

NOW = 1_700_000_000.5
JOB = {"retry": True, "queue": "default", "args": [], "class": "FailingJob", "jid": "a1"}


class Attempt:
    """One failed run, with what was reported on its way."""

    def __init__(self, release: str = "8.1.7", *, draw: float = 0.0, config: Config | None = None) -> None:
        self.dialect = Dialect.pinned(release)
        self.config = config or Config()
        self.draw = draw
        self.reported: list[tuple[BaseException, dict[str, Any]]] = []

    def report(self, problem: BaseException, context: dict[str, Any]) -> None:
        """The error handler."""
        self.reported.append((problem, context))

    def fail(
        self,
        raw: bytes | dict[str, Any] = JOB,
        *,
        error: BaseException | None = None,
        job: FailingJob | None = None,
        is_declared: bool = True,
    ) -> Outcome:
        """What comes of it."""
        failure = Failure(
            raw if isinstance(raw, bytes) else json.dumps(raw).encode(),
            queue="default",
            error=error or Boom(),
            job=(job or FailingJob()) if is_declared else None,
            config=self.config,
            dialect=self.dialect,
            now=NOW,
            draw=lambda: self.draw,
            report=self.report,
        )
        return after_failure(failure)


def answering(answer: Any) -> FailingJob:
    """A job whose `retry_in` gives *answer*."""
    return FailingJob(retry_in_block=lambda count, error, job: answer)


def exhausting(answer: Any) -> FailingJob:
    """A job whose `retries_exhausted` gives *answer*."""
    return FailingJob(exhausted_block=lambda job, error: answer)


@pytest.mark.parametrize(
    ("release", "draw", "count", "seconds"),
    [
        ("6.0.4", 0.999, 0, 29),
        ("6.0.4", 0.999, 4, 29 * 5),
        ("6.4.1", 0.999, 4, 9 * 5),
        ("7.3.2", 0.55, 4, 5 * 5),
        ("8.1.7", 0.999, 4, 49),
        ("8.1.7", 0.55, 4, 27),
        ("8.1.7", 0.0, 4, 0),
    ],
)
def test_each_release_has_its_jitter(release: str, draw: float, count: int, seconds: int) -> None:
    """A whole number drawn once and multiplied, or, since 8.0, drawn from the whole range."""
    assert retry_jitter_seconds(count, lambda: draw, Dialect.pinned(release)) == seconds


def test_the_default_delay_grows_with_the_fourth_power() -> None:
    """count⁴ + 15 s and the jitter."""
    outcome = Attempt(draw=0.5).fail({**JOB, "retry_count": 4, "failed_at": 1_699_999_999_000})

    assert (outcome.kind, outcome.score) == ("retry", NOW + 5**4 + 15 + 30)


def test_times_are_milliseconds_since_8() -> None:
    """`failed_at` is a whole number of milliseconds; the score stays in seconds."""
    outcome = Attempt("8.1.7").fail()

    assert outcome.payload["failed_at"] == 1_700_000_000_500
    assert outcome.member is not None
    assert b'"failed_at":1700000000500,"retry_count":0' in outcome.member
    assert outcome.vital == (("ZADD", "retry", "1700000015.5", outcome.member),)


@pytest.mark.parametrize(("answer", "seconds"), [(10, 10), (10.9, 10), ("20", 20), (timedelta(minutes=2), 120)])
def test_a_job_chooses_its_delay(answer: Any, seconds: int) -> None:
    """Seconds in whatever form, with the jitter of the release."""
    outcome = Attempt(draw=0.95).fail(job=answering(answer))

    assert outcome.score == NOW + seconds + 9


def test_a_chosen_delay_had_no_jitter_before_6_2_2() -> None:
    """The block's value is the delay. The default one had it always."""
    assert Attempt("6.2.1", draw=0.9).fail(job=answering(10)).score == NOW + 10
    assert Attempt("6.2.1", draw=0.9).fail().score == NOW + 15 + 27


@pytest.mark.parametrize("answer", [0, -1, True, "soon", [], {}, object(), float("nan"), float("inf"), 10**400])
def test_a_useless_delay_is_reported_and_the_default_taken(answer: Any) -> None:
    """The report names the block; the job is retried all the same."""
    attempt = Attempt()

    outcome = attempt.fail(job=answering(answer))

    assert outcome.score == NOW + 15
    [(_, context)] = attempt.reported
    assert context["context"] == "Failure scheduling retry using the `retry_in` of FailingJob, falling back to default"


def test_no_delay_means_the_default_and_is_no_failure() -> None:
    """`None` is how a block leaves the choice to Sidekiq."""
    attempt = Attempt()

    assert attempt.fail(job=answering(None)).score == NOW + 15
    assert attempt.reported == []


def test_a_block_sees_count_error_and_payload() -> None:
    """The count after this failure, the exception, and the payload as it will be stored."""
    seen: list[Any] = []
    error = Boom("seen")

    def block(count: int, problem: BaseException, job: dict[str, Any]) -> int:
        seen.extend([count, problem, job["error_message"]])
        job["note"] = "kept"
        del job["tags"]
        return 5

    outcome = Attempt().fail(
        {**JOB, "retry_count": 1, "failed_at": 1.5, "tags": ["a"]}, error=error, job=FailingJob(retry_in_block=block)
    )

    assert seen == [2, error, "seen"]
    assert outcome.member is not None
    assert outcome.member.endswith(b'"note":"kept"}')
    assert b"tags" not in outcome.member


def test_kill_ends_the_job_now() -> None:
    """As after the last retry: the exhausted block, the dead set, the death handlers."""
    exhausted: list[str] = []
    job = FailingJob(
        retry_in_block=lambda count, error, job: "kill",
        exhausted_block=lambda job, error: exhausted.append(job["jid"]),
    )

    outcome = Attempt().fail(job=job)

    assert (outcome.kind, outcome.announce_death, outcome.score) == ("dead", True, NOW)
    assert exhausted == ["a1"]


def test_a_job_whose_input_is_bad_dies_at_once() -> None:
    """Another try would end no better: no block is asked for a delay."""
    outcome = Attempt().fail(error=JobFailed("row 3 has no e-mail"), job=answering(5))

    assert (outcome.kind, outcome.announce_death, outcome.score) == ("dead", True, NOW)
    assert outcome.member is not None
    assert b'"error_message":"row 3 has no e-mail"' in outcome.member


def test_a_class_that_nobody_has_declared_is_retried_as_its_payload_says() -> None:
    """A release with the class may be on its way."""
    assert Attempt().fail(is_declared=False).kind == "retry"
    assert Attempt().fail({**JOB, "retry": False}, is_declared=False).kind == "dropped"


def test_a_job_is_kept_if_neither_its_payload_nor_a_class_says_whether_to_retry_it() -> None:
    """In `dead`, and it is reported."""
    attempt = Attempt()

    outcome = attempt.fail({name: value for name, value in JOB.items() if name != "retry"}, is_declared=False)

    assert (outcome.kind, outcome.payload["jid"]) == ("dead", "a1")
    [(_, context)] = attempt.reported
    assert "'FailingJob' is not declared here, and the payload does not say whether" in context["context"]


@pytest.mark.parametrize(
    ("release", "announced", "stamped"), [("7.3.2", False, False), ("8.0.7", True, False), ("8.1.7", True, True)]
)
def test_a_job_may_discard_itself(release: str, announced: bool, stamped: bool) -> None:
    """Nothing is stored; death handlers run since 8.0.7 and see `discarded_at` since 8.0.8."""
    outcome = Attempt(release).fail(job=answering("discard"))

    assert (outcome.kind, outcome.member, outcome.vital) == ("discarded", None, ())
    assert outcome.announce_death is announced
    assert ("discarded_at" in outcome.payload) is stamped


@pytest.mark.parametrize(
    ("release", "kind", "announced"),
    [
        ("7.1.6", "dead", True),
        ("7.3.2", "discarded", False),
        ("8.0.6", "discarded", False),
        ("8.1.7", "discarded", True),
    ],
)
def test_an_exhausted_block_may_discard_since_7_2(release: str, kind: str, announced: bool) -> None:
    """Before, its answer meant nothing; until 8.0.6 no death was announced."""
    outcome = Attempt(release).fail({**JOB, "retry": 0}, job=exhausting("discard"))

    assert (outcome.kind, outcome.announce_death) == (kind, announced)


def test_dead_false_keeps_a_job_out_of_dead_and_announces_its_death() -> None:
    """The payload that handlers see says when it was discarded."""
    outcome = Attempt("8.1.7").fail({**JOB, "retry": 0, "dead": False})

    assert (outcome.kind, outcome.announce_death) == ("discarded", True)
    assert outcome.payload["discarded_at"] == 1_700_000_000_500


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1)])
def test_a_failing_exhausted_block_does_not_save_the_job_from_death(error: BaseException) -> None:
    """It is reported, and the job dies as it would have."""

    def block(job: dict[str, Any], problem: BaseException) -> None:
        raise error

    attempt = Attempt()

    assert attempt.fail({**JOB, "retry": 0}, job=FailingJob(exhausted_block=block)).kind == "dead"
    assert [context["context"] for _, context in attempt.reported] == ["Error calling retries_exhausted"]


def test_the_dead_set_is_trimmed_as_configured() -> None:
    """Too old and too many go, after the job is in."""
    outcome = Attempt(config=Config(dead_max_jobs=5, dead_timeout_seconds=100)).fail({**JOB, "retry": 0})

    assert outcome.vital == (("ZADD", "dead", "1700000000.5", outcome.member),)
    assert outcome.trims == (
        ("ZREMRANGEBYSCORE", "dead", "-inf", "1699999900.5"),
        ("ZREMRANGEBYRANK", "dead", 0, -5),
    )


FAILED_100_SECONDS_AGO = {
    "7.3.2": NOW - 100,
    "8.1.7": int((NOW - 100) * 1000),
}


@pytest.mark.parametrize(
    ("release", "retry_for", "retry", "kind"),
    [
        ("7.1.2", 99, True, "retry"),
        ("7.3.2", 99, True, "dead"),
        ("7.3.2", 101, True, "retry"),
        ("7.3.2", 1000, 2, "dead"),
        ("8.1.7", 99, True, "dead"),
        ("8.1.7", 101, True, "retry"),
        ("8.1.7", 1000, 2, "retry"),
        ("8.1.7", 1000, False, "dropped"),
    ],
)
def test_retry_for_is_a_span_from_the_first_failure(release: str, retry_for: int, retry: Any, kind: str) -> None:
    """Unknown before 7.1.3; beside the count then; instead of it since 8.1."""
    failed_at = FAILED_100_SECONDS_AGO.get(release, NOW - 100)

    outcome = Attempt(release).fail(
        {**JOB, "retry": retry, "retry_for": retry_for, "retry_count": 2, "failed_at": failed_at}
    )

    assert outcome.kind == kind


@pytest.mark.parametrize("release", ["7.1.3", "7.3.2", "8.1.7"])
def test_retry_for_nothing_ends_with_the_first_failure(release: str) -> None:
    """As in Ruby, whose clock has gone on when it compares."""
    assert Attempt(release).fail({**JOB, "retry_for": 0}).kind == "dead"


@pytest.mark.parametrize("release", ["7.3.2", "8.1.7"])
@pytest.mark.parametrize("failed_at", [NOW - 100, int(NOW - 100), int((NOW - 100) * 1000)])
def test_retry_for_ends_whichever_release_noted_the_first_failure(release: str, failed_at: float) -> None:
    """Ruby 7 reads the milliseconds of 8 as a far future and retries for ever."""
    job = {**JOB, "retry_for": 50, "retry_count": 2, "failed_at": failed_at}

    assert Attempt(release).fail(job).kind == "dead"


@pytest.mark.parametrize("failed_at", [NOW - 100, int(NOW - 100), int((NOW - 100) * 1000)])
def test_a_job_within_its_retry_for_is_retried_whichever_release_noted_the_first_failure(failed_at: float) -> None:
    """Whole seconds, as other programs write them, are no milliseconds of 1970: the job would be dead at once."""
    job = {**JOB, "retry_for": 200, "retry_count": 2, "failed_at": failed_at}

    assert Attempt("8.1.7").fail(job).kind == "retry"


@pytest.mark.parametrize("release", ["7.1.3", "7.3.2", "8.1.7"])
def test_retry_for_false_sets_no_span(release: str) -> None:
    """In Ruby `false` is no span of 0 seconds, which would end with the first failure."""
    assert Attempt(release).fail({**JOB, "retry_for": False}).kind == "retry"


def wrapped_shutdown() -> list[BaseException]:
    """The ways in which a job may have hidden the stop."""
    circular = Boom()
    circular.__context__ = Shutdown()
    circular.__context__.__context__ = circular
    in_context = raised(Boom())
    in_context.__context__ = Shutdown()
    return [
        Shutdown(),
        raised(Boom(), cause=Shutdown()),
        raised(Boom(), cause=raised(Boom(), cause=Shutdown())),
        in_context,
        circular,
        BaseExceptionGroup("tasks", [Boom(), Shutdown()]),
    ]


@pytest.mark.parametrize("error", wrapped_shutdown(), ids=repr)
def test_a_job_cut_off_by_the_stop_goes_back(error: BaseException) -> None:
    """Also where the job has put its own error around it: no retry is counted."""
    outcome = Attempt().fail(error=error)

    assert (outcome.kind, outcome.vital, outcome.announce_death) == ("requeue", (), False)


def test_an_error_that_a_job_cut_loose_from_the_stop_counts() -> None:
    """`raise … from None` says that the error stands for itself."""
    error = Boom()
    error.__context__ = Shutdown()
    error.__suppress_context__ = True

    assert not is_caused_by_shutdown(error)
    assert Attempt().fail(error=error).kind == "retry"


def test_errors_that_name_each_other_as_their_causes_are_a_failure_as_any() -> None:
    """Python lets a program link them in a circle."""
    error, other = Boom(), Boom()
    error.__cause__, other.__cause__ = other, error

    assert Attempt().fail(error=error).kind == "retry"


def test_a_stop_in_the_exhausted_block_sends_the_job_back() -> None:
    """It runs again, and so does the block."""

    def block(job: dict[str, Any], error: BaseException) -> None:
        raise Shutdown

    assert Attempt().fail({**JOB, "retry": 0}, job=FailingJob(exhausted_block=block)).kind == "requeue"


@pytest.mark.parametrize("stray", [KeyboardInterrupt, SystemExit, GeneratorExit, Shutdown])
def test_an_error_whose_text_raises_what_it_should_not_is_a_failure_as_any(stray: type[BaseException]) -> None:
    """Given back to its queue, the job would run again at once, and again."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise stray

    outcome = Attempt().fail(error=raised(Unspeakable()))

    assert outcome.kind == "retry"
    assert outcome.payload["error_message"] == UNPRINTABLE_ERROR


def test_an_error_handler_that_ends_the_program_changes_nothing() -> None:
    """What cannot be recorded is kept in dead all the same."""

    class Exiting(Attempt):
        def report(self, problem: BaseException, context: dict[str, Any]) -> None:
            raise SystemExit(1)

    assert Exiting().fail(b"null").kind == "dead"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\x00",
        b'{"class":"FailingJob"',
        b"null",
        b"2",
        b'"text"',
        b"[1]",
        b"{}",
        b'{"retry":true}',
        b'{"class":null,"retry":true}',
        b'{"class":"FailingJob","args":{"a":1}}',
    ],
)
def test_what_is_no_job_is_kept_raw_in_dead(raw: bytes) -> None:
    """Reported once, with the bytes; there is no payload whose death could be announced."""
    attempt = Attempt()

    outcome = attempt.fail(raw)

    assert (outcome.kind, outcome.member, outcome.score, outcome.announce_death) == ("dead", raw, NOW, False)
    [(problem, context)] = attempt.reported
    assert context["jobstr"] == raw
    # The run has failed with the same error, which would be logged before it.
    assert "During handling" not in "".join(traceback.format_exception(problem))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"class":"FailingJob","retry":true,"args":[1E400]}',
        b'{"class":"FailingJob","retry":true,"retry_for":"long","args":[],"retry_count":1}',
        b'{"class":"FailingJob","retry":%s,"retry_count":%s,"args":[]}' % (b"9" * 400, b"8" * 400),
    ],
)
def test_a_failure_that_cannot_be_recorded_keeps_the_bytes_in_dead(raw: bytes) -> None:
    """Ruby raises in its retry code there, and the job is gone."""
    attempt = Attempt("8.1.7")

    outcome = attempt.fail(raw)

    assert (outcome.kind, outcome.member, outcome.announce_death) == ("dead", raw, True)
    assert len(attempt.reported) == 1


def spoil_with(change: Callable[[dict[str, Any]], object]) -> FailingJob:
    """A job with a `retry_in` that changes the payload."""

    def block(count: int, error: BaseException, job: dict[str, Any]) -> int:
        change(job)
        return 5

    return FailingJob(retry_in_block=block)


@pytest.mark.parametrize(
    "change",
    [
        lambda job: job.clear(),
        lambda job: job.update(when=object()),
        lambda job: job.update(args=2),
        lambda job: job.update(jid="another"),
        lambda job: job.pop("class"),
    ],
)
def test_a_block_that_spoils_the_payload_does_not_lose_the_job(change: Callable[[dict[str, Any]], object]) -> None:
    """What it has changed is dropped, and told; the delay that it gave is kept."""
    attempt = Attempt()
    outcome = attempt.fail(job=spoil_with(change))

    assert (outcome.kind, outcome.score) == ("retry", NOW + 5)
    assert json.loads(outcome.member or b"") == outcome.payload
    assert JOB.items() <= outcome.payload.items()
    assert [context["context"] for _, context in attempt.reported] == [
        "A block made the payload invalid; its changes are dropped"
    ]


def test_an_exhausted_block_that_empties_the_payload_does_not_lose_the_job() -> None:
    """The job is dead as it would have been."""
    attempt = Attempt()
    outcome = attempt.fail({**JOB, "retry": 0}, job=FailingJob(exhausted_block=lambda job, error: job.clear()))

    assert outcome.kind == "dead"
    assert json.loads(outcome.member or b"")["jid"] == "a1"


def test_an_exhausted_block_may_keep_its_job_out_of_dead() -> None:
    """As in Ruby, where it changes the payload itself."""
    job = FailingJob(exhausted_block=lambda job, error: job.update(dead=False))

    assert Attempt().fail({**JOB, "retry": 0}, job=job).kind == "discarded"


def test_errors_are_named_as_python_users_know_them() -> None:
    """Built-in ones bare, others with their module."""
    assert error_class_name(ValueError()) == "ValueError"
    assert error_class_name(json.JSONDecodeError("", "", 0)) == "json.decoder.JSONDecodeError"


def test_a_group_of_errors_names_the_first() -> None:
    """The message of a TaskGroup only counts them."""
    group = ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("inner", [KeyError("id")]), ValueError()])

    assert error_text(group) == (
        "unhandled errors in a TaskGroup (2 sub-exceptions): ExceptionGroup: inner (1 sub-exception): KeyError: 'id'"
    )


def test_lone_surrogates_in_a_message_are_scrubbed() -> None:
    """They cannot be UTF-8, and must not cost the retry."""
    outcome = Attempt().fail(error=Boom("bad \udcff name"))

    assert (outcome.kind, outcome.payload["error_message"]) == ("retry", "bad \ufffd name")


def test_a_backtrace_reads_as_rubys() -> None:
    """Innermost first, a file, a line and a name each."""
    lines = backtrace_lines(raised(Boom()))

    assert [line.rpartition("/")[2].partition(":")[0] for line in lines] == ["failing.py"] * 3
    assert lines[0].endswith(":in `raised.<locals>.innermost'")
    assert lines[1].endswith(":in `raised.<locals>.perform'")
    assert lines[2].endswith(":in `raised'")


def test_a_report_that_fails_changes_nothing() -> None:
    """The last resort must hold whatever the error handlers do."""

    def report(problem: BaseException, context: dict[str, Any]) -> None:
        raise RuntimeError("the error tracker is down")

    failure = Failure(
        b"{",
        queue="default",
        error=Boom(),
        job=None,
        config=Config(),
        dialect=Dialect.pinned("7"),
        now=NOW,
        draw=lambda: 0.0,
        report=report,
    )
    outcome = after_failure(failure)

    assert (outcome.kind, outcome.member) == ("dead", b"{")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KEYS = ("retry", "retry_count", "failed_at", "retry_for", "retry_queue", "backtrace", "dead", "queue", "jid", "args")


@settings(max_examples=300, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    release=st.sampled_from(["6.0.4", "6.4.1", "7.3.2", "8.1.7"]),
    is_declared=st.booleans(),
)
def test_whatever_a_payload_holds_its_failure_has_an_outcome(
    changes: dict[str, Any], release: str, is_declared: bool
) -> None:
    """Nothing is raised, and only `retry: false` leaves no trace by itself."""
    job = {"class": "FailingJob", **changes}

    failure = Failure(
        json.dumps(job).encode(),
        queue="default",
        error=Boom(),
        job=FailingJob() if is_declared else None,
        config=Config(),
        dialect=Dialect.pinned(release),
        now=NOW,
        draw=lambda: 0.5,
        report=lambda problem, context: None,
    )
    outcome = after_failure(failure)

    assert outcome.kind in {"retry", "dead", "discarded", "dropped"}
    assert (outcome.kind == "dropped") == (changes.get("retry", True) is False and _is_a_job(changes))
    assert (outcome.member is not None) == (outcome.kind in {"retry", "dead"}) == bool(outcome.vital)


def _is_a_job(changes: dict[str, Any]) -> bool:
    return changes.get("args") is None or isinstance(changes["args"], list)
