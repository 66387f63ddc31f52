"""Progress on the gem sidekiq-status: its page over a job that Python runs, and Python over one that Ruby runs."""

import html
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby, StartRuby
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.api import JobStatus
from tests.support.documents import empty_program
from tests.support.waiting import eventually

STATUS = {"also": ("sidekiq_status.rb",)}
WAIT_SECONDS = 30


@pytest.fixture(autouse=True)
def _program(ruby_release: RubyRelease, redis_url: str) -> Iterator[None]:
    with empty_program(redis_url, ruby_release.sidekiq_version):
        yield


def status_of(jid: str) -> JobStatus:
    """As it stands now."""
    found = JobStatus.find(jid)
    assert found is not None
    return found


@pytest.mark.parametrize("ruby_release", ["8.1"], indirect=True)
def test_the_gem_s_page_shows_a_job_that_python_runs_and_ruby_stops_it(ruby: RunRuby) -> None:
    """Ruby enqueues it; the page shows it queued, at work with its message, and stopped."""
    goes_on = threading.Event()

    @sidekiq.job(name="PythonImport", queue="python")
    def run(path: str) -> None:
        sidekiq.current_job().progress(at=30, total=120, message=f"row 30 of {path}")
        goes_on.wait(WAIT_SECONDS)
        sidekiq.current_job().progress(at=31)

    def page(jid: str) -> str:
        shown: Any = ruby(f'WebUi.new.visit("/statuses/{jid}")', **STATUS)
        return html.unescape(shown)

    jid = ruby('PythonImport.perform_async("people.csv")', **STATUS)
    assert "queued" in page(jid)

    with sidekiq.embed(concurrency=1, queues=["python"]):
        eventually(lambda: status_of(jid).message == "row 30 of people.csv", WAIT_SECONDS)
        shown = page(jid)
        assert "working" in shown
        assert "row 30 of people.csv" in shown
        assert "25" in shown
        ruby(f'Sidekiq::Status.stop!("{jid}")', **STATUS)
        goes_on.set()
        eventually(lambda: status_of(jid).status == "stopped", WAIT_SECONDS)

    assert "stopped" in page(jid)
    assert sidekiq.api.RetrySet().size == 0


def test_python_reads_the_status_of_a_job_that_ruby_runs(start_ruby: StartRuby, redis_client: redis.Redis) -> None:
    """While it is at work, and at its end; Python enqueues it, so it is known from its first word on."""
    start_ruby(program="sidekiq_status.rb", queues=["ruby"])

    jid = sidekiq.ruby_job("RubyImport", queue="ruby").perform_async(200)
    eventually(lambda: (one := JobStatus.find(jid)) is not None and one.message == "half of 200 rows", WAIT_SECONDS)
    assert (status_of(jid).status, status_of(jid).at, status_of(jid).percent) == ("working", 100.0, 50)
    redis_client.rpush("gate", 1)

    eventually(lambda: status_of(jid).status == "complete", WAIT_SECONDS)
    assert status_of(jid).message == "all rows"


def test_a_ruby_job_with_a_status_is_queued_from_the_push_on(start_ruby: StartRuby, redis_client: redis.Redis) -> None:
    """The gem goes on with the hash that Python's push has written."""
    jid = sidekiq.ruby_job("RubyImport", queue="ruby", status=True).perform_async(200)
    assert status_of(jid).status == "queued"

    redis_client.rpush("gate", 1)
    start_ruby(program="sidekiq_status.rb", queues=["ruby"])

    eventually(lambda: status_of(jid).status == "complete", WAIT_SECONDS)
    assert (status_of(jid).at, status_of(jid).message) == (200.0, "all rows")
