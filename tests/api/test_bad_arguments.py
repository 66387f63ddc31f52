"""What the data API says about arguments that it cannot use, before it changes anything."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Integral

import pytest

from sidekiq_py.api import (
    AuditLog,
    BulkRuns,
    CronJobs,
    DeadSet,
    Deploy,
    History,
    JobDraft,
    JobFilter,
    JobRecord,
    JobStatus,
    Metrics,
    Queue,
    RetrySet,
)
from sidekiq_py.errors import ConfigError, PayloadError

NAIVE = datetime(2030, 1, 1)


@Integral.register
class NumPyInt(Decimal):
    """An Integral that is no int, as numpy.int64 is."""


@pytest.fixture
def retries(pool, redis_client, payload):
    """Three retries."""
    redis_client.zadd("retry", {payload(str(number)): number for number in range(1, 4)})
    return RetrySet()


@pytest.mark.parametrize("name", [None, 5, b"default", ["default"]])
def test_a_queue_needs_its_name(name):
    """Also when it is made, not only when it is first read."""
    with pytest.raises(TypeError, match="give its name as a string"):
        Queue(name)


@pytest.mark.parametrize("match", [5, None, b"HardJob"])
def test_a_search_needs_a_text(retries, match):
    """The error names the argument."""
    with pytest.raises(TypeError, match="give a text or a pattern as a string"):
        retries.scan(match)


@pytest.mark.parametrize("at", ["2030-01-01", None, b"1", True, float("inf"), 10**400])
def test_a_retry_is_not_rescheduled_to_what_is_no_time(retries, at):
    """True would be the first second of 1970, and run it now."""
    entry = retries.find_job("1")

    with pytest.raises(ValueError, match="is not a time; pass epoch seconds or an aware datetime"):
        entry.reschedule(at)

    assert retries.find_job("1").score == 1


@pytest.mark.parametrize("kind", [int, float, Decimal, Fraction])
def test_numbers_of_each_kind_will_do(retries, kind):
    """A database gives epoch seconds as a Decimal, for example."""
    entry = retries.find_job("1")

    entry.reschedule(kind(4_000_000_000))

    (moved,) = retries.fetch(kind(4_000_000_000))
    assert (moved.jid, retries.delete_many([moved], per_second=kind(5)).moved) == ("1", 1)


def test_a_time_needs_a_zone(retries):
    """Machines differ in theirs."""
    with pytest.raises(ValueError, match="has no time zone; pass an aware time"):
        retries.find_job("1").reschedule(NAIVE)


@pytest.mark.parametrize("score", ["1", None, NAIVE, True, (0, "9")])
def test_entries_are_fetched_by_their_score(retries, score):
    """A datetime is not exact enough to find one again."""
    with pytest.raises(ValueError, match="such as an entry's score"):
        retries.fetch(score)


@pytest.mark.parametrize("pace", ["5/s", "5", 0, -1, True, float("inf")])
def test_a_pace_is_a_number_of_jobs(retries, pace):
    """The message says of what."""
    with pytest.raises(ValueError, match="give how many jobs a second, more than 0, or None"):
        retries.delete_many(retries, per_second=pace)

    assert retries.size == 3


def test_a_number_in_the_place_of_the_progress_is_noticed_before_jobs_move(retries):
    """The caller probably means the pace."""
    with pytest.raises(TypeError, match="progress is 5; give a function"):
        retries.retry_all(5)

    assert retries.size == 3


@pytest.mark.parametrize("number", [0, -1, "5", None, 1.5, True])
@pytest.mark.parametrize("name", ["limit", "look_at"])
@pytest.mark.parametrize("place", [Queue, RetrySet])
def test_a_page_has_at_least_one_job(pool, place, name, number):
    """Otherwise a search would read the whole queue, or never end."""
    with pytest.raises(ValueError, match=f"{name} is .*; give a whole number, 1 or more"):
        place().page(**{"limit": 10, name: number})


@pytest.mark.parametrize("place", [Queue, RetrySet, AuditLog])
def test_a_page_may_be_as_long_as_an_integer_of_numpy(pool, redis_client, payload, place):
    """As times and paces may be its numbers. Redis gets it as a plain one."""
    for number in range(2):
        redis_client.lpush("queue:default", payload(str(number)))
        redis_client.zadd("retry", {payload(str(number)): number})
        AuditLog().record("bob", "delete", str(number))

    page = place().page(NumPyInt(1))

    assert len(getattr(page, "jobs", None) or getattr(page, "entries", None) or page) == 1


@pytest.mark.parametrize(("start", "count"), [(None, 5), (0, None), (-1, 5), (0, "5")])
def test_a_page_of_periodic_jobs_begins_at_a_position(pool, start, count):
    """None is not the first one."""
    with pytest.raises(ValueError, match=r"(start|count) is .*; give a whole number, 0 or more"):
        CronJobs().page(start, count)


@pytest.mark.parametrize("reason", [None, 5])
def test_a_reason_is_a_text(pool, reason):
    """The job is not disabled."""
    job = CronJobs().add("0 6 * * *", "A", name="report")

    with pytest.raises(TypeError, match=f"the reason is {reason}; give a text, or leave it out"):
        job.disable(reason)
    with pytest.raises(TypeError, match=f"the reason is {reason}; give a text, or leave it out"):
        CronJobs().disable_all(reason)

    assert CronJobs().find("report").is_enabled


def test_limits_of_the_dead_set_are_two_numbers():
    """One alone does not say of what."""
    with pytest.raises(TypeError, match=r"dead_limits is 5; give DeadLimits\(max_jobs, timeout_seconds\)"):
        DeadSet(dead_limits=5)


@pytest.mark.parametrize("place", [Queue, RetrySet])
def test_a_page_selects_by_a_filter(pool, place):
    """A jid is not one."""
    with pytest.raises(TypeError, match="'abc' is not a JobFilter"):
        place().page(10, wanted="abc")


@pytest.mark.parametrize("action", ["retry_many", "kill_many", "delete_many", "add_many_to_queue"])
def test_bulk_actions_take_the_entries_themselves(retries, action):
    """Neither their ids nor a single one, which would be read like a dict."""
    with pytest.raises(TypeError, match="'1' is not a SortedEntry; pass a list of SortedEntry objects"):
        getattr(retries, action)(["1"])
    with pytest.raises(TypeError, match=r"jid=1 .*is not a list of jobs; pass a list of SortedEntry objects"):
        getattr(retries, action)(retries.find_job("1"))

    assert retries.size == 3


@pytest.mark.parametrize("action", [Queue.delete_many, lambda queue, jobs: queue.move_to("low", jobs)])
def test_bulk_actions_of_a_queue_take_its_jobs(retries, action):
    """Not those of a set."""
    with pytest.raises(TypeError, match="is not a QueuedJob; pass a list of QueuedJob objects"):
        action(Queue(), retries)


@pytest.mark.parametrize("name", ["job_class", "queue", "argument", "text", "error", "tag"])
@pytest.mark.parametrize("value", [5, b"x", ValueError])
def test_a_filter_compares_text(name, value):
    """With the class itself in place of its name it would match nothing."""
    with pytest.raises(TypeError, match=f"{name} is .*give a string"):
        JobFilter(**{name: value})


def test_an_entry_is_written_from_a_dict(retries):
    """None would be written as `null`, which no worker can read."""
    with pytest.raises(TypeError, match="give it as a dict"):
        retries.schedule(5, None)

    assert retries.size == 3


def test_a_url_is_not_a_client():
    """It belongs in another place."""
    with pytest.raises(ConfigError, match=r"give a sidekiq_py\.Client, or a URL as pool="):
        Queue(client="redis://localhost")


@pytest.mark.parametrize("days", [0, 1826, "7", None, 1.5])
def test_a_history_has_a_number_of_days(days):
    """As many as Redis keeps."""
    with pytest.raises(ValueError, match=r"days is .*; Redis keeps 1 to 1825"):
        History(days)


@pytest.mark.parametrize("start_date", ["2030-01-31", NAIVE, 5])
def test_a_history_ends_on_a_date(start_date):
    """With a time, no day of Redis's would match, and all would be 0."""
    with pytest.raises(ValueError, match=r"start_date is .*; give a date, such as date\(2030, 1, 31\)"):
        History(7, start_date)


@pytest.mark.parametrize("at", [NAIVE, 5, "now"])
def test_a_deploy_is_marked_at_an_aware_time(pool, at):
    """A naive one would be taken for this machine's time."""
    with pytest.raises(ValueError, match=r"at is .*; give an aware datetime"):
        Deploy().mark("v1", at=at)


@pytest.mark.parametrize("at", [NAIVE, "now", True])
def test_a_copy_is_scheduled_for_an_aware_time(pool, redis_client, at):
    """A naive one would be taken for this machine's time."""
    with pytest.raises(PayloadError, match="an aware datetime"):
        JobDraft(JobRecord(b'{"class":"A","args":[]}')).enqueue(at=at, pool=pool)

    assert redis_client.keys() == []


@pytest.mark.parametrize(("start", "count"), [(-1, 1), (0, 0), (0, -1), ("0", 1)])
def test_entries_are_read_from_a_position_on(retries, start, count):
    """Redis takes the entry before the first for the last one, and would return all."""
    with pytest.raises(ValueError, match="give a whole number"):
        retries.at_rank(start, count)


def test_a_page_of_a_queue_begins_at_a_position(pool, redis_client, payload):
    """Redis would count a negative one from the other end."""
    redis_client.lpush("queue:default", payload("1"), payload("2"))

    with pytest.raises(ValueError, match="after is -1; give a whole number, 0 or more"):
        Queue().page(1, after=-1)


def test_none_of_the_latest_bulk_runs_cannot_be_asked_for(pool):
    """Redis would return all of them."""
    BulkRuns(pool=pool).start("ada", "retry", "retry")

    with pytest.raises(ValueError, match="limit is 0; give a whole number, 1 or more"):
        BulkRuns(pool=pool).latest(0)


def test_metrics_are_of_a_number_of_minutes(pool):
    """Or of hours."""
    with pytest.raises(ValueError, match="minutes is '5'; give a whole number"):
        Metrics().top_jobs(minutes="5")
    with pytest.raises(ValueError, match=r"hours is 1\.5; give a whole number"):
        Metrics().totals(hours=1.5)


def test_a_page_of_the_audit_log_has_at_least_one_entry(pool):
    """Redis would take a negative number for no limit."""
    with pytest.raises(ValueError, match="limit is -1; give a whole number"):
        AuditLog().page(-1)


def test_a_status_is_found_by_a_jid(pool):
    """None is no mistake, because a push may have been stopped."""
    with pytest.raises(TypeError, match="the jid is 5; give the job's id as a string"):
        JobStatus.find(5)

    assert JobStatus.find(None) is None


@pytest.mark.parametrize("count", [None, -1, "5"])
def test_ticks_are_counted(pool, count):
    """With None, a job that fires every minute would fire for ever."""
    CronJobs().add("* * * * *", "Report", name="report")

    with pytest.raises(ValueError, match=r"count is .*; give how many ticks"):
        CronJobs().find("report").next_ticks(count)
