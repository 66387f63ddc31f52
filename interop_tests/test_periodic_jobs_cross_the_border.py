"""One timetable for both languages: sidekiq-cron's Web tab and poller over Python's jobs, and Python over Ruby's."""

import html
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartPython, StartRuby
from interop_tests.support.ruby import RubyRelease
from sidekiq_py import program
from sidekiq_py.api import CronJobs
from sidekiq_py.client import sync_client
from sidekiq_py.config import Config
from sidekiq_py.extensions.periodic import PeriodicJobs, loading, store
from sidekiq_py.extensions.periodic.declared import make
from sidekiq_py.extensions.periodic.firing import Firing
from sidekiq_py.extensions.periodic.layout import layout_of, tick_of
from sidekiq_py.redis_access.connection.pool import Pool

# Debian packages sidekiq-cron for Sidekiq 6 alone.
pytestmark = pytest.mark.releases(before="7")

CRON = {"also": ("cron.rb", "web_ui.rb")}
WEB = 'require "sidekiq/cron/web"; web = WebUi.new; '
# 2030-01-01 12:00 UTC.
NOON = 1893499200


@pytest.fixture
def pool(ruby_release: RubyRelease, redis_url: str) -> Iterator[Pool]:
    """The program's, which writes as the release of the gem that comes with this Sidekiq."""
    gem = "1.2.0" if ruby_release.sidekiq_version.startswith("6.0") else "1.8.0"
    program.reset()
    extension = PeriodicJobs(cron_version=gem)
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version, extensions=[extension])
    yield sync_client.current().pool
    program.reset()


@pytest.fixture
def buttons() -> tuple[str, str]:
    """Where the Web tab has the job `ours`, and what it calls the button that runs it now."""
    return "/cron/ours", "enque"


@pytest.fixture
def save(pool: Pool) -> Callable[..., None]:
    """Saves a periodic job as a Python worker does that declares it."""

    def write(cron: str, name: str, **given: Any) -> None:
        extension = program.extensions.find("periodic")
        assert isinstance(extension, PeriodicJobs)
        layout = layout_of(extension.cron_version or "")
        loading.save(pool, layout, [make(cron, "PythonOnlyJob", name=name, by="test", **given)])

    return write


def hash_of(pool: Pool, name: str) -> Any:
    """A periodic job as it stands in Redis, under the key that this release of the gem gives it."""
    job = store.find(pool, name)
    assert job is not None
    return job


def test_the_web_tab_shows_and_steers_python_s_jobs(
    redis_client: redis.Redis, ruby: RunRuby, save: Callable[..., None], buttons: tuple[str, str]
) -> None:
    """It lists one, disables it, enables it, runs it now and deletes it, by the buttons of its page."""
    place, run_now = buttons
    save("0 9 * * 1-5 Europe/Berlin", "ours", args=["from Python", 1], description="At nine")

    page = html.unescape(ruby(WEB + f'web.visit("/cron") + web.visit("{place}")', **CRON)).replace("\xa0", " ")
    for text in ("ours", "0 9 * * 1-5 Europe/Berlin", "PythonOnlyJob", "At nine"):
        assert text in page

    def press(button: str) -> None:
        assert ruby(WEB + f'web.press("/cron", {{}}, to: "{place}/{button}")', **CRON) == 302

    press("disable")
    assert not CronJobs().find("ours").is_enabled
    press("enable")
    assert CronJobs().find("ours").is_enabled
    press(run_now)
    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["args"] == ["from Python", 1]
    assert [line["jid"] for line in CronJobs().find("ours").history()] == [json.loads(raw)["jid"]]
    press("delete")
    assert CronJobs().find("ours") is None


def test_what_ruby_s_buttons_leave_is_read_as_before(
    ruby: RunRuby, save: Callable[..., None], redis_client: redis.Redis, pool: Pool
) -> None:
    """A save by Ruby keeps every field that Python wrote, and our policies beside it."""
    save("0 9 * * *", "ours", args=[{"a": [1, 2.5, None]}], queue="low", overlap="skip")
    key = hash_of(pool, "ours").key
    before = redis_client.hgetall(key)

    ruby('Sidekiq::Cron::Job.find("ours").disable!; Sidekiq::Cron::Job.find("ours").enable!', **CRON)

    assert redis_client.hgetall(key) == before
    assert CronJobs().find("ours").overlap == "skip"


def test_python_steers_ruby_s_jobs(redis_client: redis.Redis, ruby: RunRuby, pool: Pool) -> None:
    """It disables, enables, runs and removes one, and each time Ruby sees the change."""
    ruby('periodic(name: "theirs", cron: "0 9 * * *", class: "FixtureJob", args: ["ok"])', **CRON)
    job = CronJobs().find("theirs")
    assert (job.klass, job.args, job.is_python) == ("FixtureJob", ["ok"], False)

    job.disable("holidays")
    assert ruby('Sidekiq::Cron::Job.find("theirs").status', **CRON) == "disabled"
    job.enable()
    assert ruby('Sidekiq::Cron::Job.find("theirs").status', **CRON) == "enabled"
    jid = CronJobs().find("theirs").run()
    assert ruby('Sidekiq::Cron::Job.find("theirs").jid_history_from_redis', **CRON)[0]["jid"] == jid
    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["class"] == "FixtureJob"
    CronJobs().find("theirs").remove()
    assert ruby("Sidekiq::Cron::Job.count", **CRON) == 0
    # An index of namespaces stays behind in 2.x.
    assert not [key for key in redis_client.keys("cron*") if b"theirs" in key]


def test_what_python_keeps_about_ruby_s_jobs_goes_with_them(
    redis_client: redis.Redis, ruby: RunRuby, pool: Pool
) -> None:
    """Why one is disabled, and its runs by hand; not if Ruby has saved it again meanwhile."""
    ruby('%w[gone again].each { |name| periodic(name: name, cron: "0 9 * * *", class: "FixtureJob") }', **CRON)
    for name in ("gone", "again"):
        CronJobs().find(name).run()
        CronJobs().find(name).disable("holidays")
    deleted = loading.DeletedJobs()
    deleted.forget(pool)
    kept = hash_of(pool, "again").own_key

    ruby("%w[gone again].each { |name| Sidekiq::Cron::Job.find(name).destroy }", **CRON)
    ruby('periodic(name: "again", cron: "0 9 * * *", class: "FixtureJob")', **CRON)
    deleted.forget(pool)

    assert set(redis_client.keys("sidekiq_py:cron*:cron_job*")) == {
        kept.encode(),
        kept.replace("cron:", "cron_runs:", 1).encode(),
    }


def test_a_tick_fires_once_whoever_comes_first(
    redis_client: redis.Redis, ruby: RunRuby, save: Callable[..., None], pool: Pool
) -> None:
    """Ruby's poller and ours look at the same minute, in both orders."""
    save("* * * * *", "ours", args=["tick"])
    own = f"sidekiq_py:cron:{hash_of(pool, 'ours').key}"
    redis_client.hset(own, "since", "0")

    ruby('tick("2030-01-01 12:01:05 UTC")', **CRON)
    assert Firing().look(pool, NOON + 66.0) == []
    assert redis_client.llen("queue:default") == 1
    assert len(Firing().look(pool, NOON + 121.0)) == 1
    ruby('tick("2030-01-01 12:02:05 UTC")', **CRON)
    assert redis_client.llen("queue:default") == 2


def test_ruby_leaves_ticks_that_python_has_taken_in_advance(
    redis_client: redis.Redis, ruby: RunRuby, save: Callable[..., None], pool: Pool
) -> None:
    """Python takes them for a job whose runs must not overlap, a rule that Ruby's poller does not know."""
    save("* * * * *", "ours", args=["tick"], overlap="skip")
    own = f"sidekiq_py:cron:{hash_of(pool, 'ours').key}"
    redis_client.hset(own, "since", "0")
    assert len(Firing().look(pool, NOON + 30.0)) == 1
    redis_client.hdel(own, "running")

    ruby('tick("2030-01-01 12:01:05 UTC")', **CRON)
    assert redis_client.llen("queue:default") == 1
    assert len(Firing().look(pool, NOON + 67.0)) == 1


def test_neither_language_s_loading_deletes_the_other_s_jobs(
    ruby: RunRuby, save: Callable[..., None], pool: Pool
) -> None:
    """Neither when Ruby loads its file, nor when a Python program starts that no longer declares anything."""
    save("0 9 * * *", "ours", args=["tick"])
    ruby(
        'Sidekiq::Cron::Job.load_from_hash("theirs" => {"cron" => "0 9 * * *", "class" => "FixtureJob"})',
        **CRON,
    )
    loading.load(pool, Config(tag="another"), cron_version="1.8.0", directory=Path("/nonexistent"))

    assert [job.name for job in CronJobs()] == ["ours", "theirs"]


def test_a_job_that_ruby_declares_under_the_name_of_one_in_python_is_ruby_s(
    ruby: RunRuby, redis_client: redis.Redis, pool: Pool
) -> None:
    """Python neither fires it nor deletes it when its program no longer declares a job of that name."""
    extension = program.extensions.find("periodic")
    assert isinstance(extension, PeriodicJobs)
    layout = layout_of(extension.cron_version or "")
    loading.save(pool, layout, [make("* * * * *", "OnlyInPython", name="moved", by="app:json")])
    redis_client.hset(f"sidekiq_py:cron:{hash_of(pool, 'moved').key}", "since", "0")

    ruby('periodic(name: "moved", cron: "* * * * *", class: "EchoJob", active_job: true)', active_job=True, **CRON)

    assert not CronJobs().find("moved").is_python
    assert Firing().look(pool, NOON + 1.0) == []
    loading.load(pool, Config(tag="app"), cron_version=extension.cron_version, directory=Path("/nonexistent"))
    assert CronJobs().find("moved").klass == "EchoJob"
    assert redis_client.smembers("sidekiq_py:cron_declared") == set()


PROGRAM = """
import os

import sidekiq_py as sidekiq
from sidekiq_py.extensions.periodic import PeriodicJobs

sidekiq.use(PeriodicJobs(cron_version=os.environ["CRON_VERSION"]))
sidekiq.job(name="Idle")(lambda: None)
sidekiq.periodic("*/2 * * * * *", "Unworked", name="plain", queue="unworked")
sidekiq.periodic("*/2 * * * * *", "Unworked", name="planted", queue="unworked", catch_up=60)
"""


@pytest.mark.kill
@pytest.mark.timeout(300)
def test_no_tick_fires_twice_while_processes_of_both_languages_are_killed(
    redis_client: redis.Redis,
    ruby_release: RubyRelease,
    start_ruby: StartRuby,
    start_python: StartPython,
    pool: Pool,
    tmp_path: Path,
    report: Callable[[object], None],
) -> None:
    """None that Python has claimed is lost; those that a killed Ruby process had claimed are named."""
    draw = random.Random(2030)
    (tmp_path / "timetable.py").write_text(PROGRAM)
    extension = program.extensions.find("periodic")
    assert isinstance(extension, PeriodicJobs)
    python = {
        "require": "timetable",
        "python_path": [tmp_path],
        "environment": {"CRON_VERSION": extension.cron_version},
    }
    ruby = {"program": "cron.rb", "environment": {"FIXTURE_CRON_POLL_SECONDS": "1"}}
    workers: list[tuple[Any, Callable[[], Any]]] = []
    for start in (lambda: start_ruby(**ruby), lambda: start_python("-q", "idle", **python)) * 2:
        workers.append((start(), start))
    kills = 0
    while kills < 10:
        time.sleep(draw.uniform(0.5, 2.0))
        victim = draw.randrange(len(workers))
        worker, start = workers[victim]
        worker.kill()
        kills += 1
        workers[victim] = (start(), start)
    # Whoever has claimed has pushed by now, or never will.
    for worker, _ in workers:
        worker.kill()

    pushed = [json.loads(raw) for raw in redis_client.lrange("queue:unworked", 0, -1)]
    jids = {payload["jid"] for payload in pushed}
    assert len(jids) == len(pushed)
    for name in ("plain", "planted"):
        job = CronJobs().find(name)
        runs = [run for run in job.runs() if run.jid]
        ours = [run.tick for run in runs]
        assert len(set(ours)) == len(ours), "a tick fired twice through us"
        assert {run.jid for run in runs} <= jids, "a tick that Python claimed is lost"
        if name == "planted":
            span = range(min(ours), max(ours), 2)
            assert set(span) <= set(ours), "a tick was not made up for"
    ruby_pushes = [payload for payload in pushed if "sidekiq_py_cron" not in payload]
    taken = sum(_taken_by_ruby(redis_client, pool, name) for name in ("plain", "planted"))
    report(f"by Python {len(pushed) - len(ruby_pushes)}, by Ruby {len(ruby_pushes)} of {taken} taken")
    # Two of those that count as taken are what each first save plants.
    assert len(ruby_pushes) <= taken


def _taken_by_ruby(client: redis.Redis, pool: Pool, name: str) -> int:
    job = hash_of(pool, name)
    ours = {run.tick for run in store.runs(pool, job.key)} | job.own.planted
    members = {tick_of(member.decode()) for member in client.zrange(f"{job.key}:enqueued", 0, -1)}
    return len(members - ours)
