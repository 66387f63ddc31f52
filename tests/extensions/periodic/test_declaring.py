"""Ways to declare a periodic job, and who removes it."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery

import sidekiq_py as sidekiq
from sidekiq_py.active_job import active_job, forget_active_jobs
from sidekiq_py.api import CronJobs
from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError, JobDeclarationError, SidekiqError
from sidekiq_py.extensions.periodic import PeriodicJobs, loading, schedule_file, store
from sidekiq_py.extensions.periodic.cron_text import CronTextError
from sidekiq_py.extensions.periodic.declared import declarations, declare, make
from sidekiq_py.extensions.periodic.keys import usual_places
from sidekiq_py.redis_access.connection.pool import Pool
from tests.extensions.periodic.conftest import NOON
from tests.web.conftest import round_trips

__all__ = ["round_trips"]

Start = Callable[..., None]


def names() -> list[str]:
    """Of all periodic jobs in Redis."""
    return [job.name for job in CronJobs()]


def test_a_decorator_above_a_job_declares_it(start: Start) -> None:
    """What comes back is the job itself."""

    @sidekiq.periodic("every weekday at noon", args=["x"], tz="Europe/Berlin", description="Lunch")
    @sidekiq.job(name="Lunch", queue="low")
    def lunch(what: str) -> str:
        return what

    start()

    [job] = CronJobs()
    assert lunch("x") == "x"
    assert (job.name, job.cron, job.args, job.queue) == ("Lunch", "0 12 * * 1-5 Europe/Berlin", ["x"], "low")
    assert (job.description, job.declared_by) == ("Lunch", f"shop:{__name__}")


def test_policies_are_kept(start: Start) -> None:
    """Beside the gem's hash."""
    sidekiq.periodic(
        "0 3 * * *", sidekiq.ruby_job("R"), name="n", overlap="skip", catch_up=timedelta(hours=1), jitter=5
    )
    start()

    job = CronJobs().find("n")
    assert (job.overlap, job.catch_up, job.jitter) == ("skip", timedelta(hours=1), 5.0)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"cron": "61 * * * *"}, "character 1: '61' is not a valid minute"),
        ({"cron": "0 9 * * *", "tz": 5}, "tz=5: give the name of a time zone, such as 'Europe/Berlin'"),
        ({"cron": "0 9 * * *", "tz": b"UTC"}, "tz=b'UTC': give the name of a time zone"),
        ({"cron": "0 9 * * *", "tz": "Mars/Olympus"}, "tz='Mars/Olympus': Mars/Olympus is not a time zone"),
        ({"cron": "0 9 * * *", "tz": ""}, "tz='': give the name of a time zone"),
        ({"cron": "0 9 * * *", "tz": "europe/berlin"}, "tz='europe/berlin': europe/berlin is not a time zone"),
        ({"cron": "0 9 * * *", "tz": "Eastern Time (US)"}, "Eastern Time (US) is not a time zone"),
        (
            {"cron": "0 9 * * *", "tz": "Europe/Berlin2"},
            "Europe/Berlin2 is not a time zone; did you mean",
        ),
        ({"cron": "0 9 * * *", "tz": "Europe/Berlin2"}, "did you mean Europe/Berlin?"),
        ({"cron": "0 9 * * * Etc/UTC", "tz": "Europe/Berlin"}, "give one of them"),
        ({"cron": "0 9 * * *", "overlap": "never"}, "give one of allow, skip"),
        ({"cron": "0 9 * * *", "args": "a"}, "give a list"),
        ({"cron": "0 9 * * *", "args": [object()]}, "arguments that cannot be written as JSON"),
        ({"cron": "0 9 * * *", "jitter": -1}, "jitter=-1"),
        ({"cron": "* * * * *", "jitter": 61}, "its ticks can be only 60 s apart"),
        ({"cron": "0,5 9 * * mon", "jitter": timedelta(minutes=6)}, "its ticks can be only 300 s apart"),
        ({"cron": "0 9 * * *", "catch_up": "1h"}, "catch_up='1h'"),
        ({"cron": "0 9 * * *", "namespace": "a:b"}, "without a colon"),
        ({"cron": "0 9 * * *", "queue": "low "}, "queue='low ', with the character"),
        ({"cron": "0 9 * * *", "queue": ""}, "queue=''; give the queue's name"),
        ({"cron": "0 9 * * *", "name": b"report"}, "name=b'report'; give a text"),
    ],
)
def test_what_is_unusable_says_so(given: dict[str, object], part: str) -> None:
    """At the declaration, with what to do instead."""
    with pytest.raises(SidekiqError) as caught:
        sidekiq.periodic(given.pop("cron"), sidekiq.ruby_job("R"), **{"name": "n", **given})  # type: ignore[call-overload]
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("args", "part"), [([], "missing a required argument: 'number'"), ([1, 2], "too many positional arguments")]
)
def test_arguments_that_the_job_does_not_take_are_refused(args: list[object], part: str) -> None:
    """Each tick would fail."""

    @sidekiq.job(name="Counted")
    def counted(number: int) -> None: ...

    sidekiq.periodic("0 9 * * *", counted, name="good", args=[1])
    with pytest.raises(JobDeclarationError, match=part):
        sidekiq.periodic("0 9 * * *", counted, name="bad", args=args)


def test_a_job_may_have_other_options_for_its_ticks(start: Start) -> None:
    """Those of `set`; but not those that say when or where to push."""

    @sidekiq.job(name="Report", queue="reports", tags=["a"])
    def report() -> None: ...

    sidekiq.periodic("0 9 * * *", report.set(queue="low", retry=False))
    start()

    [job] = CronJobs()
    assert job.stored.entry is not None
    assert job.stored.entry.payload(0) == {"retry": False, "queue": "low", "tags": ["a"], "class": "Report", "args": []}
    with pytest.raises(JobDeclarationError, match="has wait=, which only counts for a call"):
        sidekiq.periodic("0 9 * * *", report.set(wait=5), name="late")


def test_the_program_s_default_options_count_for_ticks(start: Start, redis_url: str) -> None:
    """As in Ruby, where a class's options include `Sidekiq.default_job_options`; the job's own come first."""

    @sidekiq.job(name="Report", retry=5)
    def report() -> None: ...

    sidekiq.configure(
        redis_url=redis_url, default_job_options={"queue": "low", "retry": 3, "retry_for": timedelta(hours=1)}
    )
    sidekiq.periodic("0 9 * * *", report)
    start()

    [job] = CronJobs()
    assert job.stored.entry is not None
    options = {"retry": 5, "queue": "low", "retry_for": 3600}
    assert job.stored.entry.payload(0) == {**options, "class": "Report", "args": []}
    by_name = make("0 9 * * *", "RubyReport", name="by name")
    assert by_name.entry.payload(0) == {**options, "retry": 3, "class": "RubyReport", "args": []}


def test_a_celery_task_goes_where_its_app_routes_it(start: Start, redis_url: str) -> None:
    """No worker of Celery's tasks serves the queue `default`, in which each tick would wait unseen."""
    celery = Celery("proj", broker=redis_url, set_as_current=False, fixups=[])
    celery.conf.task_routes = {"proj.report": {"queue": "reports"}}

    @celery.task(name="proj.report")
    def report(month: int) -> None: ...

    @celery.task(name="proj.clean")
    def clean() -> None: ...

    sidekiq.periodic("0 9 * * *", report, args=[5])
    sidekiq.periodic("0 9 * * *", clean)
    sidekiq.periodic("0 9 * * *", clean, name="elsewhere", queue="low")
    start()
    celery.close()

    queues = {job.name: job.stored.entry.payload(0)["queue"] for job in CronJobs() if job.stored.entry is not None}
    assert queues == {"proj.report": "reports", "proj.clean": "celery", "elsewhere": "low"}


def test_the_app_s_routes_may_be_set_after_the_declaration(start: Start, redis_url: str) -> None:
    """An app keeps the routes that it has when they are first asked for, so a declaration does not ask."""
    celery = Celery("proj", broker=redis_url, set_as_current=False, fixups=[])

    @celery.task(name="proj.tidy")
    def clean() -> None: ...

    sidekiq.periodic("0 9 * * *", clean)
    celery.conf.task_routes = {"proj.tidy": {"queue": "cleaning"}}
    CronJobs().add("0 9 * * *", clean, name="by hand")
    start()
    celery.close()

    assert {job.queue for job in CronJobs()} == {"cleaning"}
    assert clean.__sidekiq_queue__([]) == "cleaning"


def test_what_is_no_job_is_refused() -> None:
    """A plain function is none."""
    with pytest.raises(JobDeclarationError, match="is not a job; give a @job"):
        sidekiq.periodic("0 9 * * *", len)


def test_an_active_job_is_refused() -> None:
    """By its name, it was pushed without the job object that makes it one, and each run failed."""

    @active_job("PayJob")
    def pay(number: int) -> None: ...

    for named in (pay, pay.set(queue="low"), "PayJob"):
        with pytest.raises(JobDeclarationError, match="PayJob is an Active Job, which cannot be periodic"):
            sidekiq.periodic("0 9 * * *", named, args=[1])
    forget_active_jobs()


def test_a_function_that_wraps_a_job_stands_for_it(start: Start) -> None:
    """As a decorator between the two makes it."""

    @sidekiq.job(name="Report", queue="low")
    def report() -> None: ...

    @sidekiq.periodic("0 9 * * *")
    @functools.wraps(report)
    def logged() -> None: ...

    start()

    [job] = CronJobs()
    assert (job.stored.name, job.queue) == ("Report", "low")


def test_decorators_in_the_wrong_order_are_refused() -> None:
    """The function below `periodic` is no job yet."""
    with pytest.raises(JobDeclarationError, match="report is not a job yet; put @sidekiq"):

        @sidekiq.job(name="Report")
        @sidekiq.periodic("0 9 * * *")
        def report() -> None: ...


def test_a_name_is_taken_once() -> None:
    """The message names both places; the same declaration twice is one."""
    job = sidekiq.ruby_job("R")
    sidekiq.periodic("0 9 * * *", job)
    sidekiq.periodic("0 9 * * *", job)

    with pytest.raises(JobDeclarationError, match="two periodic jobs are called 'R'"):
        sidekiq.periodic("0 10 * * *", job)
    assert len(declarations) == 1


def test_a_job_that_is_declared_no_more_is_removed_by_its_own_program_alone(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """Not another program's, not one that was added by hand, not Ruby's."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="kept")
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="dropped")
    declare("0 9 * * *", "R", name="other", by="another.module")
    start()
    CronJobs().add("0 9 * * *", "R", name="added")
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", "klass": "R", "cron": "0 9 * * *"})
    declarations.clear()
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="kept")

    start()

    assert names() == ["added", "kept", "other", "ruby"]
    assert not redis_client.keys("*dropped*")


def test_a_declared_job_keeps_its_state_over_a_restart(start: Start, redis_client: redis.Redis) -> None:
    """Disabled stays disabled, and the time of the last push is not forgotten."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    CronJobs().find("n").disable("broken")
    redis_client.hset("cron_job:default:n", "last_enqueue_time", "2030-01-01 09:00:00 +0000")
    before = redis_client.hgetall("cron_job:default:n")

    start(NOON + 500)

    assert redis_client.hgetall("cron_job:default:n") == before
    assert CronJobs().find("n").reason == "broken"


def test_a_changed_text_starts_anew(start: Start, look: Callable[[float], list[str]]) -> None:
    """Ticks that the new text would have had before are not made up for."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n", catch_up=timedelta(days=1))
    start(NOON)
    declarations.clear()
    sidekiq.periodic("0 10 * * *", sidekiq.ruby_job("R"), name="n", catch_up=timedelta(days=1))
    start(NOON + 10)

    assert look(NOON + 20) == []


def test_a_job_that_is_added_while_deleted_ones_are_looked_for_is_not_taken_for_one(
    start: Start, pool: Pool, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would no longer be known as Python's, or the log would say that another program has deleted it."""
    start()
    listed = store.listed

    def list_and_add(*args: Any, **options: Any) -> list[store.Listed]:
        found = listed(*args, **options)
        monkeypatch.undo()
        CronJobs().add("* * * * *", "Report", name="new")
        return found

    monkeypatch.setattr(store, "listed", list_and_add)
    loading.restore(pool)

    assert redis_client.smembers("sidekiq_py:cron_declared") == {b"cron_job:default:new"}


def test_looking_for_deleted_jobs_reads_no_job_that_is_there(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """With 10,000 periodic jobs, one worker spent a second of its interpreter on it every half minute."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="declared")
    start()
    redis_client.config_resetstat()

    loading.restore(pool)

    assert "cmdstat_hgetall" not in redis_client.info("commandstats")


def test_a_declared_job_that_others_delete_is_written_again(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """As sidekiq-cron 1.10 does when it starts; one that was added by hand stays deleted."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="declared", args=[1])
    start()
    CronJobs().add("0 9 * * *", "R", name="added")
    before = redis_client.hgetall("cron_job:default:declared")
    for name in ("declared", "added"):
        redis_client.delete(f"cron_job:default:{name}")
        redis_client.srem("cron_jobs:default", f"cron_job:default:{name}")

    loading.restore(pool)

    assert names() == ["declared"]
    assert redis_client.hgetall("cron_job:default:declared") == before
    assert redis_client.smembers("sidekiq_py:cron_declared") == {b"cron_job:default:declared"}
    assert redis_client.keys("sidekiq_py:cron:*") == [b"sidekiq_py:cron:cron_job:default:declared"]


def test_our_jobs_move_to_the_layout_that_ruby_reads(start: Start, redis_client: redis.Redis) -> None:
    """Where Ruby's 1.8 comes to a Redis in which Python was alone."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    redis_client.sadd("cron_jobs", "cron_job:ruby")
    redis_client.hset(
        "cron_job:ruby", mapping={"name": "ruby", "klass": "R", "cron": "0 9 * * *", "symbolize_args": "0"}
    )

    start()

    assert redis_client.smembers("cron_jobs") == {b"cron_job:n", b"cron_job:ruby"}
    assert not redis_client.exists("cron_jobs:default", "cron_job:default:n")


SCHEDULE = """
# <%= ENV["X"] || "nothing" %>
report:
  cron: "*/5 * * * *"
  class: "Report"
  args:
    - 1
  queue: low
  description: Every five minutes
  tz: Europe/Berlin
  overlap: skip
hourly:
  cron: "@hourly"
  klass: Other
  args: '{"a": 1}'
"""


def test_a_schedule_file_declares_jobs(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the gem's format, with our own keys beside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yml").write_text(SCHEDULE)

    start(extra={"schedule": "jobs.yml"})

    hourly, report = CronJobs()
    assert (report.cron, report.klass, report.args) == ("*/5 * * * * Europe/Berlin", "Report", [1])
    assert (report.queue, report.description, report.overlap) == ("low", "Every five minutes", "skip")
    assert (hourly.cron, hourly.klass, hourly.args) == ("0 * * * * Etc/UTC", "Other", [{"a": 1}])
    assert report.declared_by == "shop:jobs.yml"


def test_the_timetable_of_sidekiq_scheduler_is_left_to_ruby(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That gem keeps it in `sidekiq.yml`, under the key that names a file here."""
    monkeypatch.chdir(tmp_path)

    start(extra={"schedule": {"HeartbeatJob": {"every": "5m"}}})

    assert names() == []


def test_symbols_and_repeated_anchors_are_read_as_by_the_gem(tmp_path: Path) -> None:
    """sidekiq-cron 2.3.1 makes `["low",{"c":1,"a":"b"}]` of these arguments."""
    path = tmp_path / "jobs.yml"
    path.write_text("""
:weekly: &default
  :cron: "0 9 * * *"
  :class: Report
  :args:
    - :low
    - c: 1
      :a: :b
monthly: &default
  cron: "@monthly"
  class: Report
again:
  <<: *default
""")

    weekly, monthly, again = (one.entry for one in schedule_file.read(path, environment={}, by="x"))

    assert (weekly.name, weekly.klass, weekly.args) == ("weekly", "Report", '["low",{"c":1,"a":"b"}]')
    assert again.cron == monthly.cron


def test_a_job_that_leaves_the_file_is_removed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a worker that starts with it. The log helps two programs that remove each other's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yml").write_text(SCHEDULE)
    start(extra={"schedule": "jobs.yml"})
    (tmp_path / "jobs.yml").write_text(SCHEDULE.partition("hourly:")[0])

    with caplog.at_level("INFO", "sidekiq"):
        start(extra={"schedule": "jobs.yml"})

    assert names() == ["report"]
    assert "hourly was removed: shop:jobs.yml no longer declares it. If another program does, give each" in caplog.text


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody may enter the folder within the block; root, who may enter any, is another user for that long."""
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_a_folder_that_this_user_may_not_enter_has_no_schedule_file(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the working directory of an image, made by root."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "schedule.yml").write_text(SCHEDULE)
    monkeypatch.chdir(tmp_path)
    pool.command("PING")

    with locked(tmp_path / "config"):
        PeriodicJobs().start(pool, Config())
        found = schedule_file.find(None, usual_places({}), tmp_path)

    assert found is None
    assert names() == []


def test_a_deleted_working_directory_has_no_schedule_file(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is declared in code is written all the same."""
    gone = tmp_path / "release"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    sidekiq.periodic("0 * * * *", "Report")

    start()

    assert names() == ["Report"]


@pytest.mark.parametrize(
    ("place", "extra"), [("config/schedule.yml", {}), ("config/ours.yml", {"cron_schedule_file": "config/ours.yml"})]
)
def test_of_a_file_where_the_gem_looks_only_our_own_jobs_are_read(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    extra: dict[str, Any],
) -> None:
    """It may be Ruby's, as `sidekiq.yml` with sidekiq-cron 1.x's option may be: what cannot be read stops nobody."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / place).write_text(SCHEDULE + "rails:\n  cron: x\n  class: R\n  active_job: true\n")

    @sidekiq.job(name="Other")
    def other(options: object) -> None: ...

    start(extra=extra)
    assert names() == ["hourly"]

    (tmp_path / place).write_text("<%= Rails.env %>")
    start(extra=extra)
    assert "periodic jobs are not read" in caplog.text
    assert names() == ["hourly"], "nobody knows whether it left the file"


@pytest.fixture
def write_usual_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes `config/schedule.yml` of the program in this directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()

    def write(text: str) -> None:
        (tmp_path / "config" / "schedule.yml").write_text(text)

    return write


def test_a_job_of_such_a_file_that_cannot_be_read_takes_no_other_along(
    start: Start, write_usual_file: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The others still fire, and do not count as gone from the file."""
    write_usual_file("""
good: {cron: "* * * * *", class: Other}
unfit: {cron: "* * * * *", class: Other, args: [1]}
""")

    @sidekiq.job(name="Other")
    def other() -> None: ...

    start()

    assert names() == ["good"]
    assert "unfit: the periodic job 'unfit' does not fit its job" in caplog.text


def test_jobs_of_such_a_file_that_are_left_to_ruby_are_named(
    start: Start, write_usual_file: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a class that is misspelled would never run, and nothing would say why."""
    write_usual_file("""
rails: {cron: "* * * * *", class: Billing}
slip: {cron: "* * * * *", class: Othr}
""")

    @sidekiq.job(name="Other")
    def other() -> None: ...

    with caplog.at_level("INFO", "sidekiq"):
        start()

    assert names() == []
    assert (
        "2 periodic jobs of config/schedule.yml are left to Ruby, because this program declares no such class: "
        "Othr (did you mean Other?), Billing"
    ) in caplog.text


def test_arguments_in_a_file_must_fit_the_function(tmp_path: Path) -> None:
    """As in a declaration in code: every tick would fail."""

    @sidekiq.job(name="Pair")
    def pair(one: int, other: int) -> None: ...

    (tmp_path / "jobs.yml").write_text("a: {cron: '* * * * *', class: Pair, args: [1]}")

    with pytest.raises(ConfigError, match=r"a: the periodic job 'a' does not fit its job, which takes \(one: int, "):
        schedule_file.read(tmp_path / "jobs.yml", environment={}, by="x")


def test_arguments_must_fit_perform_and_not_a_class_method_that_pushes(tmp_path: Path) -> None:
    """A tick pushes the arguments as they are."""

    class Welcome(sidekiq.Job, name="Welcome"):
        def perform(self, user_id: int, name: str) -> None: ...

        @classmethod
        def perform_async(cls, user: Any) -> str | None:  # type: ignore[override]
            return super().perform_async(user.id, user.name)

    (tmp_path / "jobs.yml").write_text("a: {cron: '* * * * *', class: Welcome, args: [1, Ann]}")

    [read] = schedule_file.read(tmp_path / "jobs.yml", environment={}, by="x")

    assert read.entry.args == '[1,"Ann"]'
    with pytest.raises(JobDeclarationError, match=r"takes \(user_id: int, name: str\)"):
        sidekiq.periodic("* * * * *", Welcome, args=["Ann"])


def test_a_description_may_be_a_number(tmp_path: Path) -> None:
    """The gem takes YAML's numbers for texts, too."""
    (tmp_path / "jobs.yml").write_text("a: {cron: '* * * * *', class: R, description: 42}")

    [declared] = schedule_file.read(tmp_path / "jobs.yml", environment={}, by="x")

    assert declared.entry.description == "42"


@pytest.mark.parametrize(("text", "is_true"), [('"false"', False), ('"no"', False), ("false", False), ('"Yes"', True)])
def test_a_boolean_in_quotes_is_read_as_by_the_gem(tmp_path: Path, text: str, is_true: bool) -> None:
    """Which takes true, t, yes, y and 1 for true. Source: sidekiq-cron 2.3.1, job.rb, `initialize`."""
    (tmp_path / "jobs.yml").write_text(
        f"a: {{cron: '* * * * *', class: R, date_as_argument: {text}}}\n"
        "b: {cron: '* * * * *', class: R, active_job: 'false', symbolize_args: 'no'}"
    )

    first, _ = schedule_file.read(tmp_path / "jobs.yml", environment={}, by="x")

    assert first.entry.date_as_argument is is_true


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1", "each job needs a name, and under it cron and class"),
        ("a: {class: R}", "a has no cron"),
        ("a: {cron: '* * * * *'}", "a has no class"),
        ("a: {cron: '* * * * 9', class: R}", "'9' is not a valid day of the week"),
        ("a: {cron: '* * * * *', class: R, active_job: true}", "active_job needs Rails"),
        ("- {name: a, cron: '* * * * *', class: R}\n- {name: a, cron: '* * * * *', class: R}", "two periodic jobs"),
        ("a: {cron: '* * * * *', class: R, active_job: 'yes'}", "active_job needs Rails"),
        ("a: {cron: '* * * * *', class: R, once_on_dst: 'no'}", "once_on_dst='no'; give True or False, without quotes"),
        ("'text'", "must map names to periodic jobs"),
        ("a: [", "jobs.yml, line 1: expected"),
        ("a: {cron: '* * * * *', class: R, description: [1]}", "has description=[1]; give a text"),
        ("a: {cron: '* * * * *', class: R, namespace: 5}", "has namespace=5; give a text without a colon"),
        ("a: &x [*x]", "jobs.yml: a value contains itself by an alias"),
        ("a: {cron: '* * * * *', class: R, args: &x [*x]}", "jobs.yml: a value contains itself by an alias"),
    ],
)
def test_a_bad_file_says_where(tmp_path: Path, text: str, part: str) -> None:
    """The message names file and job."""
    (tmp_path / "jobs.yml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        schedule_file.read(tmp_path / "jobs.yml", environment={}, by="x")
    assert part in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_class_that_nobody_declares_is_warned_about_and_kept(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Ruby may have it."""
    declare("* * * * *", "Nobody", by="file", name="n")

    start()

    assert names() == ["n"]
    assert "pushes Nobody, a class that this program does not declare" in caplog.text
    assert "declare it: sidekiq.ruby_job('Nobody')" in caplog.text


def test_a_class_that_ruby_job_declares_is_not_warned_about(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Also where a file or a text names it."""
    sidekiq.ruby_job("Billing::Reminder")
    sidekiq.periodic("every weekday at noon", "Billing::Reminder")

    start()

    assert names() == ["Billing::Reminder"]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_misspelled_option_is_named() -> None:
    """With the one that was probably meant."""
    with pytest.raises(TypeError, match="'catchup'; did you mean 'catch_up'"):
        sidekiq.periodic("* * * * *", "R", catchup=60)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'zzz'; it has args, catch_up, description"):
        sidekiq.periodic("* * * * *", "R", zzz=1)  # type: ignore[call-overload]


def test_an_added_name_must_not_be_declared(start: Start) -> None:
    """The program would write its own again."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()

    with pytest.raises(ConfigError, match="declares a periodic job 'n'"):
        CronJobs().add("0 9 * * *", "R", name="n")


def test_errors_of_texts_have_a_position() -> None:
    """For an editor or a form."""
    with pytest.raises(CronTextError) as caught:
        sidekiq.periodic("0 9 * * 1,8", sidekiq.ruby_job("R"))
    assert caught.value.position == 11


def test_what_the_gem_s_second_release_moved_is_not_written_back(
    start: Start, pool: Pool, redis_client: redis.Redis
) -> None:
    """It takes the members of 1.x when it starts; the next worker finds its jobs there."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start(cron_version="1.8")
    fields = redis_client.hgetall("cron_job:n")
    redis_client.hset("cron_job:default:n", mapping={**fields, b"namespace": b"default"})
    redis_client.sadd("cron_jobs:default", "cron_job:default:n")
    redis_client.srem("cron_jobs", "cron_job:n")

    loading.restore(pool)
    assert redis_client.smembers("cron_jobs") == set()
    start()

    assert [(job.name, job.declared_by != "") for job in CronJobs()] == [("n", True)]
    assert not redis_client.exists("cron_job:n", "sidekiq_py:cron:cron_job:n")


def test_one_job_is_found_without_reading_the_others(redis_client, round_trips):
    """With ten thousand, `cron add` read all of them three times: 8 s."""
    asked = []
    for count in (3, 30):
        for number in range(count):
            CronJobs().add("@daily", "Report", name=f"a:{number}")
        with round_trips() as made:
            found = CronJobs().find("a:2")
        asked.append(made.commands)

    assert (found.name, found.namespace) == ("a:2", "default")
    assert CronJobs().find("2") is None
    assert asked[0] == asked[1]
