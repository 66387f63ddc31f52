"""One timetable for both languages, with sidekiq-cron 2.3.1: what is tried with Debian's releases, and its Web tab."""

import html
import json
from collections.abc import Callable, Iterator

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby
from interop_tests.support.ruby import RubyRelease
from interop_tests.test_periodic_jobs_cross_the_border import (
    CRON,
    WEB,
    save,
    test_a_tick_fires_once_whoever_comes_first,
    test_neither_language_s_loading_deletes_the_other_s_jobs,
    test_no_tick_fires_twice_while_processes_of_both_languages_are_killed,
    test_ruby_leaves_ticks_that_python_has_taken_in_advance,
    test_what_ruby_s_buttons_leave_is_read_as_before,
)
from sidekiq_py import program
from sidekiq_py.api import CronJobs
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.periodic import PeriodicJobs
from sidekiq_py.redis_access.connection.pool import Pool

__all__ = (
    "save",
    "test_a_tick_fires_once_whoever_comes_first",
    "test_neither_language_s_loading_deletes_the_other_s_jobs",
    "test_no_tick_fires_twice_while_processes_of_both_languages_are_killed",
    "test_ruby_leaves_ticks_that_python_has_taken_in_advance",
    "test_what_ruby_s_buttons_leave_is_read_as_before",
)

PAGE = "/cron/namespaces/default/jobs/ours"


@pytest.fixture
def pool(ruby_release: RubyRelease, redis_url: str) -> Iterator[Pool]:
    """The program's, which writes as that release of the gem."""
    program.reset()
    extension = PeriodicJobs(cron_version="2.3.1")
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version, extensions=[extension])
    yield sync_client.current().pool
    program.reset()


def test_the_web_tab_shows_and_steers_python_s_jobs(
    redis_client: redis.Redis, ruby: RunRuby, save: Callable[..., None]
) -> None:
    """It lists one, disables it, enables it, runs it now and deletes it, by the buttons of its page."""
    save("0 9 * * 1-5 Europe/Berlin", "ours", args=["from Python", 1], description="At nine")

    page = html.unescape(ruby(WEB + f'web.visit("/cron") + web.visit("{PAGE}")', **CRON)).replace("\xa0", " ")
    for text in ("ours", "0 9 * * 1-5 Europe/Berlin", "PythonOnlyJob", "At nine"):
        assert text in page

    def press(button: str) -> None:
        assert ruby(WEB + f'web.press("/cron", {{}}, to: "{PAGE}/{button}")', **CRON) == 302

    press("disable")
    assert not CronJobs().find("ours").is_enabled
    press("enable")
    assert CronJobs().find("ours").is_enabled
    press("enqueue")
    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["args"] == ["from Python", 1]
    assert [line["jid"] for line in CronJobs().find("ours").history()] == [json.loads(raw)["jid"]]
    press("delete")
    assert CronJobs().find("ours") is None


def test_python_steers_ruby_s_jobs(redis_client: redis.Redis, ruby: RunRuby, pool: Pool) -> None:
    """Each as Ruby sees it afterwards."""
    ruby('periodic(name: "theirs", cron: "0 9 * * *", class: "FixtureJob", args: ["ok"])', **CRON)
    job = CronJobs().find("theirs")
    assert (job.klass, job.args, job.is_python) == ("FixtureJob", ["ok"], False)

    job.disable("holidays")
    assert ruby('Sidekiq::Cron::Job.find("theirs").status', **CRON) == "disabled"
    job.enable()
    assert ruby('Sidekiq::Cron::Job.find("theirs").status', **CRON) == "enabled"
    jid = CronJobs().find("theirs").run()
    assert ruby('Sidekiq::Cron::Job.find("theirs").jid_history_from_redis', **CRON)[0]["jid"] == jid
    CronJobs().find("theirs").remove()
    assert ruby("Sidekiq::Cron::Job.count", **CRON) == 0
