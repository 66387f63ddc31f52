"""
Ruby's Web UI in a real browser, with Python processes and their jobs: what its pages show, and what its buttons do.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator

import pytest
import redis

from interop_tests.conftest import PYTHON_JOBS, StartPython
from interop_tests.support import python_jobs
from interop_tests.support.browser import Browser, why_missing
from interop_tests.support.ledger import GATE, LEDGER, masked, members, open_gate, raw_jobs
from interop_tests.support.ruby import RubyRelease
from interop_tests.support.web_ui_server import WebUiServer
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("python_client")

BROWSER_SWITCH = "SIDEKIQ_PY_REQUIRE_BROWSER"
QUICK = (PYTHON_JOBS, "interop_tests.support.quick_beats")

Visit = Callable[[str], str]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One window for all releases; skipped where there is no browser, a failure in CI."""
    reason = why_missing()
    if reason is not None:
        skip_or_fail(reason, switch=BROWSER_SWITCH)
    # High enough for every button to stand above the footer, which covers the window's end.
    with Browser(height=2000) as window:
        yield window


@pytest.fixture(scope="session")
def web_ui(ruby_release: RubyRelease, redis_server: RedisServer) -> Iterator[WebUiServer]:
    """The Web UI of each release, over the Redis that tests share."""
    with WebUiServer(ruby_release, redis_server.url) as server:
        yield server


@pytest.fixture
def visit(browser: Browser, web_ui: WebUiServer) -> Visit:
    """Opens a page by its path and returns the text shown."""
    return lambda path: browser.visit(web_ui.url(path))


@pytest.fixture
def failures(redis_client: redis.Redis, start_python: StartPython) -> list[str]:
    """The jids of five jobs that failed in a Python worker, which has gone, by the time of their retries."""
    with start_python():
        python_jobs.backtrace_job.perform_bulk([["raise", f"boom {number}", 1e22, "<i>é</i>"] for number in range(5)])
        return eventually(lambda: found if len(found := _jids(redis_client, "retry")) == 5 else None)


def test_the_busy_page_shows_python_with_its_threads_queues_memory_and_jobs(
    redis_client: redis.Redis, ruby_release: RubyRelease, start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """
    One row for the process and one for the job it runs; a class or an argument is shown as text, whatever it
    contains.
    """
    worker = start_python("-c", "3", "-q", "critical,2", "-q", "default,1", "-g", "shop", require=QUICK)
    jid = python_jobs.fixture_job.perform_async("ledger_and_wait_for", LEDGER, "<b>bold</b>", GATE)
    eventually(lambda: redis_client.hget(worker.identity, "busy") == b"1")

    visit("/busy")
    [process], [job] = browser.rows(0), browser.rows(1)
    open_gate(redis_client)

    for shown in (f"{os.environ.get('DYNO') or socket.gethostname()}:{worker.pid}", "shop", "sidekiq_py", "critical"):
        assert shown in process[0]
    assert "Version" not in process[0]  # shown where it is not the Web UI's own
    if ruby_release.numbers >= (6, 2):
        assert process[2].endswith((" KB", " MB"))
    assert process[-3:-1] == ["3", "1"]
    assert job[0] == worker.identity
    assert job[2:5] == [jid, "default", "FixtureJob"]
    assert job[5] == f'"ledger_and_wait_for", "{LEDGER}", "<b>bold</b>", "{GATE}"'


@pytest.mark.releases(since="7.0.2")
def test_the_busy_page_names_another_release_that_a_python_process_writes_for(
    start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """A process that is pinned to a release other than the Web UI's own says so."""
    start_python(environment={"FIXTURE_SIDEKIQ_VERSION": "7.1.6"})

    visit("/busy")

    [process] = browser.rows()
    assert process[0].endswith("Version: 7.1.6")


def test_the_buttons_of_the_busy_page_quiet_and_stop_one_python_process_or_all(
    redis_client: redis.Redis, start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """Two children of one parent: one is quieted and stopped, then all are, and the parent exits normally."""
    parent = start_python("--processes", "2", require=QUICK).wait_until_ready(processes=2)
    one, other = parent.identities()
    of_one = f"form:has(input[name=identity][value='{one}'])"

    visit("/busy")
    browser.press(f"{of_one} [name=quiet]")
    eventually(lambda: redis_client.hget(one, "quiet") == b"true")
    shown = visit("/busy")
    assert shown.count("quiet") == 1
    assert redis_client.hget(other, "quiet") == b"false"
    assert not browser.find_all(f"{of_one} [name=quiet]")

    browser.press(f"{of_one} [name=stop]")
    eventually(lambda: redis_client.smembers("processes") == {other.encode()})

    visit("/busy")
    browser.press(".warning-messages [name=quiet]")
    eventually(lambda: redis_client.hget(other, "quiet") == b"true")
    visit("/busy")
    browser.press(".warning-messages [name=stop]")
    assert parent.wait(within_seconds=60) == 0
    visit("/busy")
    assert browser.rows() == []


def test_the_retries_page_retries_kills_and_deletes_what_failed_in_python(
    redis_client: redis.Redis, browser: Browser, visit: Visit, failures: list[str]
) -> None:
    """With the checkboxes of the list and from the page of one entry; afterwards each entry is in one place."""
    retried, killed, deleted, looked_at, left = failures
    before = dict(zip(failures, members(redis_client, "retry"), strict=True))

    shown = visit("/retries")
    assert "python_jobs.FixtureError: boom 0" in shown
    assert shown.count("BacktraceJob") == 5
    for jid, button in ((retried, "retry"), (killed, "kill"), (deleted, "delete")):
        _tick(browser, jid)
        browser.press(f"form[action$=retries] [name={button}]")

    page = browser.press(f"a[href$='{looked_at}']")
    assert "in `_raise'" in page
    assert ', "<i>é</i>"' in page
    browser.press("form[action*=retries] [name=retry]")

    assert members(redis_client, "retry") == [before[left]]
    assert members(redis_client, "dead") == [before[killed]]
    assert [masked(raw) for raw in raw_jobs(redis_client, "default")] == [
        masked(before[jid]).replace(b'"retry_count":0', b'"retry_count":-1') for jid in (looked_at, retried)
    ]


def test_the_dead_page_retries_and_deletes_what_python_gave_up(
    redis_client: redis.Redis, start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """Dead entries of a Python worker, including raw text that is not a job."""
    with start_python():
        python_jobs.retry_zero_job.perform_bulk([["raise", "no more"]] * 2)
        redis_client.lpush("queue:default", b"not json at all")
        eventually(lambda: redis_client.zcard("dead") == 3)
    retried, deleted = (json.loads(raw)["jid"] for raw in members(redis_client, "dead") if raw.startswith(b"{"))

    shown = visit("/morgue")
    assert shown.count("FixtureError: no more") == 2
    _tick(browser, retried)
    browser.press("form[action$=morgue] [name=retry]")
    _tick(browser, deleted)
    browser.press("form[action$=morgue] [name=delete]")

    assert members(redis_client, "dead") == [b"not json at all"]
    assert [json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")] == [retried]


def test_the_scheduled_page_queues_and_deletes_what_python_scheduled(
    redis_client: redis.Redis, browser: Browser, visit: Visit
) -> None:
    """Three jobs at the same time: one is queued, one is deleted, one stays as it was."""
    jids = python_jobs.fixture_job.perform_bulk([["ok", number] for number in range(3)], at=4_000_000_000.25)
    queued, deleted, left = map(str, jids)
    before = {json.loads(raw)["jid"]: raw for raw in members(redis_client, "schedule")}

    assert visit("/scheduled").count("FixtureJob") == 3
    _tick(browser, queued)
    browser.press("form[action$=scheduled] [name=add_to_queue]")
    _tick(browser, deleted)
    browser.press("form[action$=scheduled] [name=delete]")

    assert redis_client.zrange("schedule", 0, -1, withscores=True) == [(before[left], 4_000_000_000.25)]
    assert [json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")] == [queued]


def test_the_page_of_a_queue_deletes_one_job_of_python(
    redis_client: redis.Redis, browser: Browser, visit: Visit
) -> None:
    """The raw text goes through a browser's form and comes back unchanged."""
    odd = ["é😀\u2028/\x7f", 1e22, 5e-324, 10**30, "\"<b>&amp;'", "two\r\nlines"]
    kept = python_jobs.fixture_job.perform_async("ok", "kept")
    python_jobs.fixture_job.perform_async("ok", *odd)

    assert "default" in visit("/queues")
    visit("/queues/default")
    browser.press("form:has(input[name=key_val][value*='e+22']) [name=delete]")

    assert [json.loads(raw)["jid"] for raw in raw_jobs(redis_client, "default")] == [kept]


def test_the_dashboard_shows_the_numbers_of_python(
    redis_client: redis.Redis, start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """Processed, failed, busy, enqueued, retries, scheduled and dead."""
    with start_python():
        python_jobs.retry_zero_job.perform_async("raise")
        python_jobs.fixture_job.perform_bulk([["raise"], ["raise"], *[["ok"]] * 3])
        eventually(lambda: redis_client.get("stat:processed") == b"6")
    python_jobs.python_job.perform_bulk([["ok"]] * 4)
    python_jobs.fixture_job.perform_bulk([["ok"]] * 5, at=4_000_000_000)

    visit("/")

    names = ("Processed", "Failed", "Busy", "Enqueued", "Retries", "Scheduled", "Dead")
    assert [browser.find(f"#txt{name}, .{name.lower()} .count").text for name in names] == [
        *("6", "3", "0", "4", "2", "5", "1")
    ]


@pytest.mark.releases(since="7.0")
def test_the_metrics_page_shows_a_python_job(
    redis_client: redis.Redis, start_python: StartPython, browser: Browser, visit: Visit
) -> None:
    """Successes, failures and time by class, and a page of charts for one class."""
    with start_python():
        python_jobs.retry_false_job.perform_bulk([["sleep_and_ledger", LEDGER, 1, 0.05]] * 3)
        python_jobs.retry_false_job.perform_bulk([["raise"]] * 2)
        eventually(lambda: redis_client.llen(LEDGER) == 3 and not redis_client.exists("queue:default"))

    visit("/metrics")

    [[name, successes, failures, seconds, average]] = browser.rows()
    assert (name.strip(), successes, failures) == ("RetryFalseJob", "3", "2")
    assert float(seconds) >= 0.15
    assert float(average) >= 0.05
    browser.press("a[href*='metrics/RetryFalseJob']")
    assert len(browser.find_all("canvas")) == 2


def _tick(browser: Browser, jid: str) -> None:
    browser.find(f"input[name='key[]'][value$='{jid}']").click()


def _jids(client: redis.Redis, set_name: str) -> list[str]:
    return [json.loads(member)["jid"] for member in members(client, set_name)]
