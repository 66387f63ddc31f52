"""One timetable for both languages, with sidekiq-cron 2.3.1: what is tried with Debian's releases, and its Web tab."""

from collections.abc import Iterator

import pytest

import sidekiq_py as sidekiq
from interop_tests.support.ruby import RubyRelease
from interop_tests.test_periodic_jobs_cross_the_border import (
    save,
    test_a_job_that_ruby_declares_under_the_name_of_one_in_python_is_ruby_s,
    test_a_tick_fires_once_whoever_comes_first,
    test_neither_language_s_loading_deletes_the_other_s_jobs,
    test_no_tick_fires_twice_while_processes_of_both_languages_are_killed,
    test_python_steers_ruby_s_jobs,
    test_ruby_leaves_ticks_that_python_has_taken_in_advance,
    test_the_web_tab_shows_and_steers_python_s_jobs,
    test_what_python_keeps_about_ruby_s_jobs_goes_with_them,
    test_what_ruby_s_buttons_leave_is_read_as_before,
)
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.extensions.periodic import PeriodicJobs
from sidekiq_py.redis_access.connection.pool import Pool

__all__ = (
    "save",
    "test_a_job_that_ruby_declares_under_the_name_of_one_in_python_is_ruby_s",
    "test_a_tick_fires_once_whoever_comes_first",
    "test_neither_language_s_loading_deletes_the_other_s_jobs",
    "test_no_tick_fires_twice_while_processes_of_both_languages_are_killed",
    "test_python_steers_ruby_s_jobs",
    "test_ruby_leaves_ticks_that_python_has_taken_in_advance",
    "test_the_web_tab_shows_and_steers_python_s_jobs",
    "test_what_python_keeps_about_ruby_s_jobs_goes_with_them",
    "test_what_ruby_s_buttons_leave_is_read_as_before",
)


@pytest.fixture
def buttons() -> tuple[str, str]:
    """Where the Web tab has the job `ours`, and what it calls the button that runs it now."""
    return "/cron/namespaces/default/jobs/ours", "enqueue"


@pytest.fixture
def pool(ruby_release: RubyRelease, redis_url: str) -> Iterator[Pool]:
    """The program's, which writes as that release of the gem."""
    program.reset()
    extension = PeriodicJobs(cron_version="2.3.1")
    sidekiq.configure(redis_url=redis_url, sidekiq_version=ruby_release.sidekiq_version, extensions=[extension])
    yield sync_client.current().pool
    program.reset()
