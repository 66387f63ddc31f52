"""Running what Rails enqueued: finding the implementation, its arguments, `retry_on` and `discard_on`."""

import asyncio
import functools
import json
import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.active_job import (
    GlobalID,
    Keywords,
    Symbol,
    active_job,
    current_active_job,
    forget_active_jobs,
    perform_later,
    register_locator,
)
from sidekiq_py.active_job.rescue import RetryRule, find_rule, rules_of
from sidekiq_py.errors import DeserializationError, JobDeclarationError, JobNotFoundError, Stopped
from sidekiq_py.registry import registry
from sidekiq_py.testing import fake
from sidekiq_py.testing.performing import perform
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER
from tests.support.worker_process import SOURCE_ROOTS


class FlakyError(Exception):
    """What jobs here fail with."""


def payload_of(job, wrapper=OLD_WRAPPER, **more):
    """The bytes of an Active Job's payload."""
    return json.dumps({"class": wrapper, "queue": "low", "jid": "j1", "args": [job], **more}).encode()


def run(job, wrapper=OLD_WRAPPER, **more):
    """Run one payload as a worker does."""
    return perform(payload_of(job, wrapper, **more), sidekiq.server_middleware, is_scheduled=False)


def job_object(job_class="FlakyJob", **more):
    """A job object as Rails 6.1 writes it."""
    return {
        "job_class": job_class,
        "job_id": "abc",
        "provider_job_id": None,
        "queue_name": "low",
        "priority": 4,
        "arguments": [],
        "executions": 0,
        "exception_executions": {},
        "locale": "de",
        "timezone": "UTC",
        "enqueued_at": "2024-01-01T00:00:00Z",
        **more,
    }


def retried(enqueued):
    """The job object of the one job that waits."""
    [job] = enqueued
    return job.payload["args"][0]


@pytest.mark.parametrize("wrapper", [OLD_WRAPPER, NEW_WRAPPER])
def test_a_job_under_either_wrapper_class_is_found(wrapper):
    """Rails' own adapter and Sidekiq 8's name it differently."""

    @active_job("EchoJob")
    def echo(*args, **keywords):
        return args, keywords

    result = run(
        job_object("EchoJob", arguments=[1, {"b": 2, "_aj_symbol_keys": ["b"]}, {"c": 3, "_aj_ruby2_keywords": ["c"]}]),
        wrapper,
    )

    assert result == ((1, {Symbol("b"): 2}), {"c": 3})


def test_four_keys_are_enough():
    """sidekiq-cron writes no more than these."""

    @active_job("EchoJob")
    def echo(number):
        return number, current_active_job().executions

    assert run({"job_class": "EchoJob", "job_id": "x", "queue_name": "low", "arguments": [7]}) == (7, 1)


def test_an_async_implementation_runs_on_the_loop():
    """Decided for each job, though all share one class."""
    seen = []

    @active_job("SlowJob")
    async def slow(number):
        await asyncio.sleep(0)
        seen.append((number, current_active_job().job_id))

    @active_job("QuickJob")
    def quick(): ...

    run(job_object("SlowJob", arguments=[1]))

    assert seen == [(1, "abc")]
    assert current_active_job() is None


def test_an_unknown_job_class_is_not_found():
    """A worker puts it into the retry set; another one may know it."""

    @active_job("EchoJob")
    def echo(): ...

    with pytest.raises(JobNotFoundError, match=r"declare it under @active_job\('Billing::InvoiceJob'\)"):
        run(job_object("Billing::InvoiceJob"), wrapped="Billing::InvoiceJob")


@pytest.mark.parametrize("args", [[], [1], [{}], [{"job_class": None}]])
def test_a_wrapper_without_a_job_object_is_not_found(args):
    """It fails, and is kept."""

    @active_job("EchoJob")
    def echo(): ...

    raw = json.dumps({"class": OLD_WRAPPER, "queue": "low", "jid": "j", "args": args}).encode()
    with pytest.raises(JobNotFoundError):
        perform(raw, sidekiq.server_middleware, is_scheduled=False)


def test_without_active_jobs_the_wrapper_is_unknown_too():
    """Nothing is claimed that is not declared."""
    forget_active_jobs()

    assert registry.find(OLD_WRAPPER) is None


def test_arguments_that_are_no_array_fail_the_job():
    """As every argument that cannot be read."""

    @active_job("EchoJob")
    def echo(): ...

    with pytest.raises(DeserializationError, match="array"):
        run(job_object("EchoJob", arguments="x"))


def test_a_plain_call_is_the_function():
    """For its own tests and for other code."""

    @active_job("EchoJob")
    def echo(number, *, twice=False):
        """Say it."""
        return number * 2 if twice else number

    assert echo(2, twice=True) == 4
    assert (echo.__name__, echo.__doc__) == ("echo", "Say it.")


def test_middleware_sees_the_declared_job():
    """Not the wrapper that all of them share."""
    seen = []

    @active_job("EchoJob")
    def echo(): ...

    @sidekiq.server_middleware.add
    def watch(job, payload, queue, call_next):
        seen.append(job)
        return call_next()

    run(job_object("EchoJob"))

    assert seen == [echo]


def test_a_script_may_be_imported_beside_running(tmp_path):
    """As `__main__` and under its name it is the same file."""
    script = tmp_path / "reports.py"
    script.write_text(
        "from sidekiq_py.active_job import active_job\n"
        "@active_job('ReportJob')\n"
        "def report(): ...\n"
        "import reports\n"
        "print(reports.report)\n"
    )

    ran = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout.splitlines() == 2 * ["<ActiveJob ReportJob>"], ran.stderr


class ReportJob:
    """As somebody from Rails might write it."""

    def perform(self, number): ...


def rows():
    """A generator, of which a run would only make an object."""
    yield 1


@pytest.mark.parametrize(
    ("job_class", "options", "function", "message"),
    [
        (rows, {}, rows, "give the Ruby class's name"),
        ("", {}, print, "give the Ruby class's name"),
        ("EchoJob", {"queue": 5}, print, "EchoJob has queue=5; give the queue's name"),
        ("EchoJob", {"timeout": "5 m"}, print, "EchoJob has timeout='5 m'; give seconds above 0, or a timedelta"),
        ("EchoJob", {"sidekiq_options": {"retry": "x"}}, print, "EchoJob has retry='x'"),
        ("EchoJob", {}, rows, "EchoJob has a yield"),
        ("EchoJob", {}, ReportJob, "is a method or no function"),
        ("EchoJob", {}, ReportJob.perform, "is a method or no function"),
        ("EchoJob", {}, functools.partial(print, 1), "is a method or no function"),
    ],
)
def test_an_unusable_declaration_is_refused(job_class, options, function, message):
    """As by `@job`, and not when the first job is pushed or runs."""
    with pytest.raises(JobDeclarationError, match=re.escape(message)):
        active_job(job_class, **options)(function)


def test_one_class_has_one_implementation():
    """A second one is a mistake; a reload of the first is not."""

    def declare():
        @active_job("EchoJob")
        def echo(): ...

    declare()
    declare()

    with pytest.raises(JobDeclarationError, match="EchoJob"):

        @active_job("EchoJob")
        def other(): ...


def test_a_retry_keeps_job_id_and_counts_and_waits():
    """Enqueued again under a new jid, its options with it."""

    @active_job("FlakyJob", retry_on={FlakyError: {"wait": 30, "jitter": 0, "queue": "later"}})
    def flaky():
        raise FlakyError

    with fake() as enqueued:
        run(job_object(executions=1, exception_executions={"[FlakyError]": 1, "[Other]": 3}), retry=7, tags=["x"])

    job = retried(enqueued)
    assert (job["job_id"], job["provider_job_id"], job["executions"]) == ("abc", "j1", 2)
    assert job["exception_executions"] == {"[FlakyError]": 2, "[Other]": 3}
    assert (job["locale"], job["timezone"], job["priority"], job["queue_name"]) == ("de", "UTC", 4, "later")
    assert (enqueued[0].queue, enqueued[0].payload["retry"], enqueued[0].payload["tags"]) == ("later", 7, ["x"])
    assert enqueued[0].jid != "j1"
    enqueued.assert_enqueued("FlakyJob", at=30)


def test_a_retry_has_all_options_that_the_ruby_class_declares():
    """Ruby's own retry has them because the class does. In its payload they precede the arguments."""

    @active_job("FlakyJob", retry_on={FlakyError: {}})
    def flaky():
        raise FlakyError

    options = {"retry": 3, "queue": "low", "display_class": "Shown", "tenant": 5}
    payload = {**options, "wrapped": "FlakyJob", "args": [job_object()], "class": OLD_WRAPPER, "jid": "j1", "own": 1}

    with fake() as enqueued:
        registry.find(OLD_WRAPPER).bind(payload, lambda: False)(*payload["args"])

    kept = {key: value for key, value in enqueued[0].payload.items() if key in options or key == "own"}
    assert list(kept.items()) == list(options.items())


def test_the_payload_that_failed_is_left_as_it_was():
    """Sidekiq's own retry must store what was fetched."""

    @active_job("FlakyJob", retry_on={FlakyError: {"attempts": 1}})
    def flaky():
        raise FlakyError

    payload = json.loads(payload_of(job_object()))

    with pytest.raises(FlakyError):
        registry.find(OLD_WRAPPER).bind(payload, lambda: False)(*payload["args"])

    assert payload == json.loads(payload_of(job_object()))


def test_after_the_last_attempt_the_error_is_sidekiqs():
    """`attempts` counts executions in all; the error raised is the job's own."""

    @active_job("FlakyJob", retry_on={FlakyError: {"attempts": 3, "wait": 0}})
    def flaky():
        raise FlakyError("the third")

    with fake() as enqueued:
        perform_later("FlakyJob")
        enqueued.perform_one()
        enqueued.perform_one()
        with pytest.raises(FlakyError, match="the third"):
            enqueued.perform_one()

    assert len(enqueued) == 0


def test_an_async_job_is_retried_too():
    """The same rules, awaited."""

    @active_job("FlakyJob", retry_on={FlakyError: {}})
    async def flaky():
        raise FlakyError

    with fake() as enqueued:
        perform_later("FlakyJob")
        enqueued.perform_one()

        assert retried(enqueued)["executions"] == 1


def test_a_block_may_stand_in_for_the_last_error():
    """As the block of Ruby's `retry_on`."""
    given_up = []

    @active_job(
        "FlakyJob",
        retry_on={FlakyError: {"attempts": 1, "exhausted": lambda job, error: given_up.append((job["job_id"], error))}},
    )
    def flaky():
        raise FlakyError

    run(job_object())

    [(job_id, error)] = given_up
    assert (job_id, type(error)) == ("abc", FlakyError)


@pytest.mark.parametrize("errors", [(LookupError, FlakyError), {LookupError, FlakyError}])
def test_discard_on_ends_the_job_quietly(errors):
    """Nothing is raised, nothing enqueued."""

    @active_job("FlakyJob", discard_on=errors)
    def flaky():
        raise KeyError

    with fake() as enqueued:
        assert run(job_object()) is None

    assert len(enqueued) == 0


@pytest.mark.parametrize("error", [sidekiq.JobFailed("no e-mail"), Stopped("by the user")])
@pytest.mark.parametrize("rules", [{"retry_on": {Exception: {}}}, {"discard_on": Exception}])
def test_bad_input_and_a_stop_are_raised_whatever_the_rules_cover(error, rules):
    """A rule for all errors must not try bad input again or end it as a success: `JobFailed` is to die at once."""

    @active_job("FlakyJob", **rules)
    def flaky():
        raise error

    with fake() as enqueued, pytest.raises(type(error)):
        run(job_object())

    assert len(enqueued) == 0


def test_an_error_without_a_rule_is_raised():
    """Sidekiq's retries take it."""

    @active_job("FlakyJob", retry_on={FlakyError: {}}, discard_on=LookupError)
    def flaky():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(job_object())


def test_the_nearest_class_wins():
    """A general discard leaves a special retry alone, and the other way round."""

    @active_job("FlakyJob", retry_on={KeyError: {}}, discard_on=Exception)
    def flaky(kind):
        raise KeyError if kind == "key" else IndexError

    with fake() as enqueued:
        run(job_object(arguments=["key"]))
        run(job_object(arguments=["index"]))

    assert len(enqueued) == 1


def test_a_rule_looks_at_causes():
    """A record that is gone arrives as the cause of a DeserializationError."""

    @register_locator()
    def find(gid: GlobalID):
        raise LookupError(f"no {gid}")

    @active_job("FlakyJob", discard_on=LookupError)
    def flaky(record): ...

    assert run(job_object(arguments=[{"_aj_globalid": "gid://shop/Invoice/1"}])) is None


@pytest.mark.parametrize("is_async", [False, True])
def test_the_cause_that_a_rule_names_is_raised_when_its_attempts_are_used_up(is_async):
    """Rails raises it too, so Sidekiq's retries show the same error in both languages, and count for its class."""

    def fail():
        try:
            raise FlakyError("inner")
        except FlakyError as error:
            raise RuntimeError("outer") from error

    if is_async:

        @active_job("FlakyJob", retry_on={FlakyError: {"attempts": 1}})
        async def flaky():
            fail()

    else:
        active_job("FlakyJob", retry_on={FlakyError: {"attempts": 1}})(fail)

    with pytest.raises(FlakyError, match="inner"):
        run(job_object())


def test_a_cause_that_is_raised_keeps_what_it_came_from():
    """Backtraces show it, and Sidekiq looks there for the stop of a process, which is no failure of the job."""
    first = ZeroDivisionError()

    @active_job("FlakyJob", retry_on={FlakyError: {"attempts": 1}})
    def flaky():
        try:
            try:
                raise first
            finally:
                raise FlakyError("inner")
        except FlakyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(FlakyError) as raised:
        run(job_object())

    assert raised.value.__context__ is first


def test_causes_in_a_circle_have_an_end():
    """An error may have been raised from itself in a roundabout way."""
    first, second = FlakyError(), ZeroDivisionError()
    first.__cause__, second.__cause__ = second, first

    assert find_rule(rules_of(None, LookupError), first) is None


def test_errors_that_share_a_rule_are_counted_together():
    """Under Ruby's text for the list of classes."""

    @active_job("FlakyJob", retry_on={(KeyError, IndexError): {}})
    def flaky(kind):
        raise KeyError if kind == "key" else IndexError

    with fake() as enqueued:
        run(job_object(arguments=["key"], exception_executions={"[KeyError, IndexError]": 1}))

    assert retried(enqueued)["exception_executions"] == {"[KeyError, IndexError]": 2}


def test_without_counts_the_executions_count():
    """Jobs from before Rails 6 know no counts per error, and get none."""

    @active_job("FlakyJob", retry_on={FlakyError: {"attempts": 3}})
    def flaky():
        raise FlakyError

    with fake() as enqueued, pytest.raises(FlakyError):
        run(job_object(exception_executions=None, executions=2))

    with fake() as enqueued:
        run(job_object(exception_executions=None, executions=1))
    assert retried(enqueued)["exception_executions"] is None


def test_keys_of_the_ruby_class_ride_along():
    """A class that extends `serialize` (a Continuable job does) finds its own keys again."""

    @active_job("FlakyJob", retry_on={FlakyError: {}}, rails_version="8.1")
    def flaky():
        raise FlakyError

    with fake() as enqueued:
        run(job_object(scheduled_at=None, continuation={"completed": ["a"]}, resumptions=1))

    job = retried(enqueued)
    assert list(job)[-4:] == ["enqueued_at", "scheduled_at", "continuation", "resumptions"]
    assert job["continuation"] == {"completed": ["a"]}


def test_a_retry_of_a_newer_rails_job_is_written_as_that_rails_writes():
    """The job object itself shows its age, whatever Sidekiq stands beside it."""
    sidekiq.configure(sidekiq_version="6.4.1")

    @active_job("FlakyJob", retry_on={FlakyError: {}})
    def flaky():
        raise FlakyError

    with fake() as enqueued:
        run(job_object(scheduled_at=None))

    assert retried(enqueued)["scheduled_at"] is not None


@pytest.mark.parametrize(
    ("wait", "executions", "seconds"),
    [
        (3, 1, 3),
        (timedelta(minutes=1), 4, 60),
        ("polynomially_longer", 1, 3),
        ("exponentially_longer", 3, 83),
        (lambda executions: executions * 10, 2, 20),
        (lambda executions, error: len(str(error)), 2, 7),
    ],
)
def test_the_delay_of_a_retry(wait, executions, seconds):
    """Without jitter; the polynomial one is executions to the fourth, plus 2."""
    rule = RetryRule((FlakyError,), wait=wait, jitter=0)

    assert rule.delay_seconds(executions, FlakyError("no luck"), 0.5) == seconds


def test_jitter_adds_a_share_of_the_delay():
    """15 % by default, as under Rails' own defaults; a function's delay is left alone."""
    assert RetryRule((FlakyError,), wait=100).delay_seconds(1, FlakyError(), 0.5) == pytest.approx(107.5)
    assert RetryRule((FlakyError,), wait="polynomially_longer").delay_seconds(2, FlakyError(), 1.0) == pytest.approx(
        20.4
    )
    assert RetryRule((FlakyError,), wait=lambda n: 100).delay_seconds(1, FlakyError(), 0.5) == 100


def test_attempts_may_be_unlimited():
    """Rails 7's `:unlimited`."""
    [rule] = rules_of({FlakyError: {"attempts": "unlimited"}}, ())

    assert rule.attempts is None


@pytest.mark.parametrize(
    ("retry_on", "discard_on", "message"),
    [
        ({FlakyError: {"tries": 3}}, (), "tries"),
        ({FlakyError: {"wait": "long"}}, (), "polynomially_longer"),
        ({"FlakyError": {}}, (), "not an error class"),
        (FlakyError, (), "give the options of each error class"),
        (None, (KeyboardInterrupt,), "not an error class"),
        (None, "FlakyError", "'FlakyError' is not an error class"),
        ({sidekiq.JobFailed: {}}, (), "JobFailed ends a job without a retry, whatever its rules say; leave it out"),
        (None, (KeyError, Stopped), "Stopped ends a job without a retry"),
    ],
)
def test_an_unusable_rule_is_refused_at_the_declaration(retry_on, discard_on, message):
    """Not when the first error comes."""
    with pytest.raises(JobDeclarationError, match=message):
        rules_of(retry_on, discard_on)


def test_keywords_in_the_middle_stay_a_value():
    """Only the last argument can be Ruby's keywords."""

    @active_job("EchoJob")
    def echo(*args):
        return args

    first, last = run(job_object("EchoJob", arguments=[{"a": 1, "_aj_ruby2_keywords": ["a"]}, 2]))

    assert (type(first), last) == (Keywords, 2)
