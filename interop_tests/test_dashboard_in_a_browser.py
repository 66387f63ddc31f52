"""The dashboard in a real browser: axe-core reports nothing, keys are enough, and pages change by themselves."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sidekiq_celery import Celery

import sidekiq_py as sidekiq
from interop_tests.support import axe
from interop_tests.support.browser import Browser, why_missing
from sidekiq_py import program
from sidekiq_py.api import CronJobs
from sidekiq_py.clock import now_seconds
from sidekiq_py.web import hash_password
from sidekiq_py.wire import metrics_keys
from tests.support.celery_program import starting
from tests.support.missing_tools import skip_or_fail
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.web_server import WebServer

BROWSER_SWITCH = "SIDEKIQ_PY_REQUIRE_BROWSER"
JID = "a" * 24


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One window; skipped where there is no browser, a failure in CI."""
    for reason in (why_missing(), axe.why_missing()):
        if reason is not None:
            skip_or_fail(reason, switch=BROWSER_SWITCH)
    with Browser(height=1200) as window:
        yield window


@pytest.fixture(scope="session")
def dashboard(redis_server: RedisServer) -> Iterator[WebServer]:
    """`sidekiq-py web` over the Redis that tests share."""
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}"]
    with WebServer(command, environment={"REDIS_URL": redis_server.url}) as server:
        yield server


@pytest.fixture
def visit(browser: Browser, dashboard: WebServer, redis_client: redis.Redis) -> Callable[[str], str]:
    """Opens a page by its path and returns the text shown; updates run, and the theme is the system's."""
    browser.driver.get(dashboard.url("/assets/icon.svg"))
    browser.driver.execute_script("localStorage.clear()")
    return lambda path: browser.visit(dashboard.url(path))


@pytest.fixture
def shop(redis_client: redis.Redis, redis_url: str) -> None:
    """A Redis with something of everything."""
    now = now_seconds()

    def job(jid: str, **more: object) -> bytes:
        about = {"retry": True, "queue": "default", "class": "HardJob", "args": [1, {"a": [True, "é"]}], "jid": jid}
        about["tags"] = ["vip", "x" * 60]
        return json.dumps({**about, "created_at": now - 99, "enqueued_at": now - 90, **more}).encode()

    failure = {"error_class": "Boom", "error_message": "it broke", "failed_at": now - 9, "retry_count": 1}
    redis_client.sadd("queues", "default", "low")
    redis_client.sadd("paused", "low")
    redis_client.lpush("queue:default", *[job(f"q{n}") for n in range(60)])
    redis_client.zadd("retry", {job(JID, **failure): now + 60, **{job(f"r{n}", **failure): now + n for n in range(60)}})
    redis_client.zadd("schedule", {job("s"): now + 600})
    redis_client.zadd("dead", {job("d", **failure): now, b"\xffjunk": now - 5})
    redis_client.hset(f"it-{JID}", mapping={"ex": 2, "c": '["orders.csv",1200]', "rt": "95"})
    info = {"hostname": "rb", "pid": 1, "tag": "shop", "concurrency": 5, "queues": ["default"], "labels": ["eu-1"]}
    info["capsules"] = {"default": {"weights": {"default": 1}}, "video": {"concurrency": 1, "weights": {"video": 1}}}
    redis_client.sadd("processes", "rb:1:aaa")
    beat = {"info": json.dumps({**info, "started_at": now - 60, "version": "8.1.7"}), "busy": 1, "beat": now}
    redis_client.hset("rb:1:aaa", mapping={**beat, "quiet": "false", "rss": 204800, "concurrency": 5})
    work = {"queue": "default", "run_at": int(now) - 30, "payload": job("w").decode()}
    redis_client.hset("rb:1:aaa:work", "t1", json.dumps(work))
    for minute in range(20):
        counts = {"HardJob|p": 5 + minute, "HardJob|f": minute % 3, "HardJob|ms": 4000}
        redis_client.hset(metrics_keys.minute(now - 60 * minute, 8), mapping=counts)
    sidekiq.configure(redis_url=redis_url)
    with sidekiq.Batch(description="Import 42", track=True).jobs():
        sidekiq.ruby_job("ImportRow").perform_bulk([[number] for number in range(60)])
    CronJobs().add("*/5 * * * * Europe/Berlin", "Report", name="report", args=[1], description="For the boss")
    program.reset()
    minutes = [int(now) // 60 * 60 - 60 * ago for ago in (50, 49, 48, 3, 2, 1)]
    redis_client.rpush("sidekiq_py:trend:default", *(f"{minute}:{minute % 7}:{minute % 5}.5" for minute in minutes))
    _enter_celery_tasks(redis_client)
    redis_client.execute_command("BITFIELD", metrics_keys.histogram("HardJob", now, 8), "SET", "u16", "#14", 2)


def _enter_celery_tasks(client: redis.Redis) -> None:
    """A task that has called a group of 120, one that has failed, a chord and a chain under way."""

    def store(task_id: str, **about: object) -> None:
        client.set(f"celery-task-meta-{task_id}", json.dumps({"status": "SUCCESS", "result": None, **about}))

    store(PARENT, children=[[["g", None], [[[f"t{number}", None], None] for number in range(120)]]], name="shop.import")
    for number in range(60):
        store(f"t{number}", result=number, parent_id=PARENT, group_id="g", date_done="2026-02-14T09:30:12+00:00")
    store("started", status="STARTED", name="shop.ship")
    error = {"exc_type": "Boom", "exc_message": ["it broke"], "exc_module": "shop"}
    store(
        "failed", status="FAILURE", result=error, traceback="Traceback:\n  here", name="shop.add", args=[1], kwargs={}
    )
    client.hset("sidekiq_py:chord:c", mapping={"parts": 80, "body": "{}", "0": "1", "7": "1"})
    steps = {"s1": {"s": {"task": "shop.ship"}, "n": {"id": "f", "next": "s2"}}, "s2": {"s": {"task": "shop.bill"}}}
    client.hset("sidekiq_py:flow:f", mapping={name: json.dumps(step) for name, step in steps.items()})


PARENT = "5f0c2a7e-7f6c-4a3b-8a57-0d1f3a9b2c11"
CELERY_PAGES = (
    *("/celery", "/celery?state=FAILURE", "/celery?name=nothing", "/celery/task?id=failed", "/celery/task?id=started"),
    "/celery/task?id=nowhere",
    *(
        "/celery/workflows",
        "/celery/workflows?ended=1",
        f"/celery/workflow?id={PARENT}",
        f"/celery/workflow?id={PARENT}&group=g&from=50",
    ),
    *("/celery/workflow?id=c", "/celery/workflow?id=f", "/celery/workflow?id=nowhere"),
    *("/celery/workers", "/celery/worker?name=gone", "/celery/limits"),
)
PAGES = (
    *("/", "/?period=day", "/?period=week", "/?period=6-months", "/busy"),
    *("/queues", "/queue?name=default", "/queue/clear?name=default"),
    *(
        "/retries",
        "/retries?class=HardJob&argument=x",
        "/retries?after=nonsense",
        "/retries/all",
        "/scheduled",
        "/dead",
    ),
    *(f"/job?jid={JID}", "/job?jid=nowhere", "/job?jid=w", "/metrics", "/metrics/job?class=HardJob", "/bulk", "/audit"),
    *("/cron", "/cron/job?name=report", "/batches", "/batches/one?bid=nowhere"),
    "/nowhere",
)
ALL_PAGES = (*CELERY_PAGES, *PAGES)


@pytest.mark.parametrize("pages", [PAGES, CELERY_PAGES], ids=["jobs", "celery"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_reports_nothing_about_any_page(
    browser: Browser, visit: Callable[[str], str], shop: None, theme: str, width: int, pages: Sequence[str]
) -> None:
    """With its default rules; dark and light, wide and narrow."""
    browser.driver.execute_script(f"localStorage.setItem('sidekiq-py-theme', '{theme}')")
    browser.driver.set_window_size(width, 1200)
    found = {}
    try:
        for path in pages:
            visit(path)
            found[path] = axe.complaints(browser)
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_axe_reports_nothing_about_an_empty_dashboard(browser: Browser, visit: Callable[[str], str]) -> None:
    """Nor where there is nothing to see."""
    for path in ALL_PAGES:
        visit(path)
        assert axe.complaints(browser) == [], path


def test_axe_reports_nothing_where_redis_is_away(browser: Browser) -> None:
    """Each page says so."""
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}"]
    with WebServer(command, environment={"REDIS_URL": "redis://127.0.0.1:1/0"}) as dashboard:
        for path in ("/", "/queues", "/celery", "/celery/workflow?id=a", "/batches"):
            assert "Redis cannot be reached" in browser.visit(dashboard.url(path)), path
            assert axe.complaints(browser) == [], path
        browser.visit(dashboard.url("/celery/workers"))
        assert eventually(lambda: "The workers could not be asked" in browser.text, within_seconds=60)
        assert axe.complaints(browser) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_reports_nothing_about_a_batch_and_celery_s_workers(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis, redis_url: str, theme: str
) -> None:
    """The pages of one of each, with a worker that answers."""
    browser.driver.execute_script(f"localStorage.setItem('sidekiq-py-theme', '{theme}')")
    [bid] = [name.decode() for name in redis_client.zrange("sidekiq_py:batches", 0, -1)]
    visit(f"/batches/one?bid={bid}")
    assert axe.complaints(browser) == []

    with starting("tests.compat.dashboard.project", redis_url) as start:
        start("-P", "threads", "-c", "1", "-n", "w1@here", "-Q", "nothing")
        app = Celery("sender", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
        app.send_task("shop.add", (1, 2), queue="nothing", countdown=600)
        app.send_task("shop.add", (3, 4), queue="nothing", countdown=600).revoke()
        for path, told in (
            ("/celery/workers", "w1@here"),
            ("/celery/worker?name=w1@here", "that the program has set"),
            ("/celery/limits", "shop.add"),
        ):
            visit(path)
            assert eventually(lambda told=told: told in browser.text, within_seconds=60), path
            for width in (360, 1280):
                browser.driver.set_window_size(width, 1200)
                visit(path)
                browser.driver.execute_script("document.querySelectorAll('details').forEach((one) => one.open = true)")
                assert axe.complaints(browser) == [], path
                assert browser.driver.execute_script(_TOO_WIDE) == [], path


def test_a_job_is_copied_with_another_argument(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """The form has its own button alone, and axe reports nothing about it."""
    visit("/dead?class=HardJob")
    browser.press("#rows a")
    browser.press("a[href*='/job/copy']")
    assert (axe.complaints(browser), browser.driver.execute_script(_TOO_WIDE)) == ([], [])
    assert [one.text for one in browser.find_all("main button")] == ["Enqueue the copy"]
    waiting = redis_client.llen("queue:default")

    argument = browser.find("#argument-0")
    argument.clear()
    argument.send_keys("42")
    browser.press("main button")

    assert redis_client.llen("queue:default") == waiting + 1
    assert json.loads(redis_client.lindex("queue:default", 0))["args"] == [42, {"a": [True, "é"]}]


def test_a_double_click_sends_a_form_once(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """The second click comes before the next page, and would enqueue the job again."""
    visit("/dead?class=HardJob")
    browser.press("#rows a")
    browser.press("a[href*='/job/copy']")

    sent = browser.driver.execute_script(
        """
        const sent = [];
        window.addEventListener("submit", (event) => {
          sent.push(!event.defaultPrevented);
          event.preventDefault();
        });
        const button = document.querySelector("main button");
        button.click();
        button.click();
        return sent;
        """
    )

    assert sent == [True, False]


def test_a_question_is_asked_before_a_job_is_deleted(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """A page of its own, about which axe reports nothing; so is that of a bulk action."""
    visit("/dead?class=HardJob")
    browser.find("#rows input[name='key']").click()
    browser.press("button[value='delete']")
    assert "This cannot be undone." in browser.text
    assert axe.complaints(browser) == []
    browser.press("button[value='delete']")
    assert redis_client.zcard("dead") == 1

    visit("/scheduled/all")
    browser.press("button[value='delete']")
    assert eventually(lambda: "Finished." in browser.text)
    assert axe.complaints(browser) == []
    assert redis_client.zcard("schedule") == 0


def test_a_question_is_asked_once_before_a_periodic_job_is_removed(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_url: str
) -> None:
    """By the script, or without it by a page about which axe reports nothing; the browser accepts the script's."""
    for has_script in (False, True):
        CronJobs(pool=redis_url).add("*/5 * * * * Europe/Berlin", "Report", name="report")
        visit("/cron/job?name=report")
        button = 'button[value="remove"]'
        if not has_script:
            browser.driver.execute_script(f"document.querySelector('{button}').removeAttribute('data-ask')")
            assert "Remove report?" in browser.press(button)
            assert axe.complaints(browser) == []
            button = "button.danger"

        assert "report was removed." in browser.press(button)

    visit("/busy")
    assert "will finish running jobs and exit" in browser.press('button[aria-label="Stop rb:1:aaa"]')


def test_a_button_leads_back_to_its_page(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """A browser says which page has sent the form, with its parameters."""
    visit("/queue?name=default")

    assert "default is paused." in browser.press('button[value="pause"]')
    assert browser.driver.current_url.endswith("/queue?name=default")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_people_sign_in(
    browser: Browser, redis_client: redis.Redis, redis_url: str, tmp_path: Path, theme: str
) -> None:
    """For the page that was asked for; axe reports nothing about the form, nor about one that was refused."""
    config = tmp_path / "dashboard.yml"
    config.write_text(f"accounts: {{ann: {{password_hash: '{hash_password('secret')}', role: viewer}}}}")
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}", "--config", str(config)]

    def sign_in(secret: str) -> None:
        browser.find("#name").send_keys("ann")
        browser.find("#secret").send_keys(secret)
        browser.press("main button")

    with WebServer(command, environment={"REDIS_URL": redis_url}) as dashboard:
        browser.visit(dashboard.url("/retries"))
        browser.driver.execute_script(f"localStorage.setItem('sidekiq-py-theme', '{theme}')")
        browser.visit(dashboard.url("/retries"))
        assert axe.complaints(browser) == []
        sign_in("wrong")
        assert "Sign-in failed." in browser.text
        assert axe.complaints(browser) == []
        sign_in("secret")
        assert "ann (viewer)" in browser.text
        assert browser.driver.current_url == dashboard.url("/retries")


# What stands out to the right of the window, though nothing that scrolls holds it.
_TOO_WIDE = """
return document.documentElement.scrollWidth <= document.documentElement.clientWidth ? [] :
  [...document.querySelectorAll("body *")].filter((one) =>
    !one.closest(".scroll") &&
    one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  ).map((one) => one.outerHTML.slice(0, 80))
"""


_SCROLLING_TABLES = """
return [...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1).length
"""
_HEADS = """
return [...document.querySelectorAll("#rows tr:first-child > *")].map(
  (cell) => getComputedStyle(cell, "::before").content.replaceAll('"', ""))
"""


def test_a_phone_shows_all_columns_of_a_table(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """Each row becomes a block whose cells name their columns; a scrolling table would hide the errors."""
    browser.driver.set_window_size(390, 1200)
    try:
        scrolling = {path: browser.driver.execute_script(_SCROLLING_TABLES) for path in ALL_PAGES if visit(path)}
        visit("/retries")
        heads = browser.driver.execute_script(_HEADS)
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert {path: tables for path, tables in scrolling.items() if tables} == {}
    assert heads == ["none", "none", "Arguments", "Queue", "Next try", "Failures", "Error"]


def test_heads_of_columns_stay_with_their_cells_while_a_page_is_updated(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    browser.driver.set_window_size(390, 1200)
    try:
        visit("/queues")
        redis_client.sadd("queues", "later")
        eventually(lambda: "later" in browser.text)
        labelled = browser.driver.execute_script(
            "return [...document.querySelectorAll('tbody td')].every((cell) => cell.dataset.head)"
        )
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert labelled


def test_no_page_is_wider_than_a_narrow_screen(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """Wide tables fit or scroll inside; the page does not scroll."""
    browser.driver.set_window_size(360, 1200)
    try:
        wide = {path: browser.driver.execute_script(_TOO_WIDE) for path in ALL_PAGES if visit(path)}
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert {path: what for path, what in wide.items() if what} == {}


@pytest.mark.parametrize("path", ["/busy", "/cron"])
def test_actions_are_in_sight_on_a_screen_of_1024_pixels(
    browser: Browser, visit: Callable[[str], str], shop: None, path: str
) -> None:
    """The columns before them leave room for every button."""
    hidden = """
        const end = document.querySelector(".scroll").getBoundingClientRect().right
        const buttons = [...document.querySelectorAll("td.actions button")]
        return [buttons.length, buttons.filter(one => one.getBoundingClientRect().right > end).length]
    """
    browser.driver.set_window_size(1024, 1200)
    try:
        visit(path)
        shown, cut = browser.driver.execute_script(hidden)
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert shown
    assert not cut


def test_labels_of_charts_are_as_large_on_a_narrow_screen(
    browser: Browser, visit: Callable[[str], str], shop: None
) -> None:
    """They are text beside the picture, which would shrink them with itself to four pixels."""
    sizes = (
        "return [...document.querySelectorAll('.chart span')].map(one => parseFloat(getComputedStyle(one).fontSize))"
    )
    browser.driver.set_window_size(320, 1200)
    try:
        visit("/metrics/job?class=HardJob")
        found = browser.driver.execute_script(sizes)
        inside = browser.driver.execute_script("return document.querySelectorAll('.chart svg text').length")
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert len(found) == 1 + 2 + 1 + 5
    assert min(found) >= 12
    assert inside == 0


def test_a_page_asks_nobody_else(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """All that it loads comes from the dashboard, and all of it comes."""
    for path in ALL_PAGES[:-1]:
        visit(path)
        loaded = browser.driver.execute_script(_LOADED)
        assert len(loaded) >= 2
        assert all(urlsplit(name).netloc == urlsplit(browser.driver.current_url).netloc for name, _ in loaded), path
        assert all(status == 200 for name, status in loaded if "/assets/" in name), path


_LOADED = "return performance.getEntriesByType('resource').map((one) => [one.name, one.responseStatus])"


def test_keys_alone_retry_a_job(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """Tab reaches everything in reading order, Space chooses, Enter presses."""
    visit("/retries?argument=zzz")
    visit("/retries")
    body = browser.find("body")
    seen = []

    def press(key: str) -> str:
        browser.driver.switch_to.active_element.send_keys(key)
        return str(
            browser.driver.execute_script(
                "const it = document.activeElement;"
                "return it.getAttribute('aria-label') || it.textContent.trim() || it.name || it.id"
            )
        )

    body.send_keys(Keys.TAB)
    first = browser.driver.switch_to.active_element
    assert first.text == "Skip to the content"
    first.send_keys(Keys.ENTER)
    for _ in range(60):
        seen.append(press(Keys.TAB))
        if seen[-1].startswith("Choose HardJob"):
            break
    assert seen[-1].startswith("Choose HardJob"), seen
    assert not any(name in seen for name in ("Overview", "Busy"))
    browser.driver.switch_to.active_element.send_keys(Keys.SPACE)
    for _ in range(300):
        if press(Keys.TAB) == "Retry now":
            break
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)

    assert eventually(lambda: "1 job was enqueued again." in browser.text)
    assert redis_client.zcard("retry") == 60


def test_keys_alone_revoke_a_task(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """From the list of results to the button, and through its question."""
    visit("/celery?state=STARTED")
    browser.find("body").send_keys(Keys.TAB)
    for text in ("started", "Revoke"):
        for _ in range(100):
            if browser.driver.switch_to.active_element.text == text:
                break
            browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        browser.leave(lambda: browser.driver.switch_to.active_element.send_keys(Keys.ENTER))

    assert eventually(lambda: "The task is revoked" in browser.text)
    assert redis_client.zscore("sidekiq_py:revoked", "started") is not None


@pytest.mark.parametrize(("width", "lines"), [(1440, 1), (1280, 2), (1024, 2)])
def test_the_header_has_the_same_lines_on_every_page(
    browser: Browser, visit: Callable[[str], str], shop: None, width: int, lines: int
) -> None:
    """One on a wide screen. Pages that update have a button more, and must not push what is below the header down."""
    browser.driver.set_window_size(width, 1200)
    try:
        heights = {}
        for path in ("/", "/busy", "/retries", "/audit", "/celery", f"/job?jid={JID}"):
            visit(path)
            heights[path] = browser.driver.execute_script("return document.querySelector('header').offsetHeight")
    finally:
        browser.driver.set_window_size(1280, 1200)

    assert len(set(heights.values())) == 1, heights
    assert heights["/"] // 40 == lines


def test_what_has_the_focus_can_be_seen(browser: Browser, visit: Callable[[str], str], shop: None) -> None:
    """An outline of three pixels on whatever a key reaches."""
    visit("/queues")
    for _ in range(30):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        width = browser.driver.execute_script(
            "const it = document.activeElement;"
            "return it === document.body ? 3 : parseFloat(getComputedStyle(it).outlineWidth)"
        )
        assert width >= 3


def test_a_page_changes_by_itself_and_leaves_the_focus_where_it_is(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """Also where rows come before the one with the focus, and what is folded out stays so."""
    visit("/queues")
    button = next(one for one in browser.find_all("button") if one.get_attribute("aria-label") == "Resume low")
    browser.driver.execute_script("arguments[0].focus()", button)

    redis_client.sadd("queues", "a-new-one")
    redis_client.lpush("queue:low", b"{}", b"{}")

    assert eventually(lambda: "a-new-one" in browser.text)
    assert browser.driver.switch_to.active_element == button
    assert [row[0] for row in browser.rows()] == ["0", "120", "2"]


def test_updates_can_be_paused(
    browser: Browser, visit: Callable[[str], str], shop: None, redis_client: redis.Redis
) -> None:
    """And go on, on this page and on the next one."""
    visit("/queues")
    browser.find("#pause-live").click()
    assert browser.find("#pause-live").get_attribute("aria-pressed") == "true"

    redis_client.sadd("queues", "a-new-one")
    visit("/busy")
    assert browser.find("#pause-live").get_attribute("aria-pressed") == "true"
    visit("/queues")
    redis_client.sadd("queues", "another-one")
    assert "another-one" not in browser.text

    browser.find("#pause-live").click()
    assert eventually(lambda: "another-one" in browser.text)


def test_a_long_search_shows_what_it_finds_and_goes_on(
    browser: Browser, visit: Callable[[str], str], redis_client: redis.Redis
) -> None:
    """Without a press of a button, until all is looked at."""
    rows = {
        json.dumps({"class": "A", "args": ["needle" if n % 5000 == 4999 else n], "jid": str(n)}): n
        for n in range(30_000)
    }
    redis_client.zadd("dead", rows)

    visit("/dead?argument=needle&order=first")

    assert eventually(lambda: len(browser.find_all("#rows tr")) == 6, within_seconds=60)
    assert eventually(lambda: "Looked at 30,000 jobs." in browser.text)


def test_a_bulk_action_is_watched_and_stopped(
    browser: Browser, visit: Callable[[str], str], redis_client: redis.Redis
) -> None:
    """The count goes up by itself; the rest of the jobs stays."""
    redis_client.zadd("retry", {json.dumps({"class": "A", "args": [], "jid": str(n)}): n for n in range(500)})
    visit("/retries/all")
    # All of them would take more than a minute and a half, also for a browser on a busy machine.
    browser.find("#per_second").send_keys("5")
    next(one for one in browser.find_all("button") if one.text == "Delete all").click()

    assert eventually(lambda: "Running." in browser.text)
    # In one step each, as the page changes by itself.
    script = "return document.querySelector('progress').value"
    assert eventually(lambda: browser.driver.execute_script(script) > 0)
    script = "[...document.querySelectorAll('main button')].find(one => one.innerText.trim() === 'Stop').click()"
    browser.driver.execute_script(script)

    assert eventually(lambda: "Stopped." in browser.text)
    assert 0 < redis_client.zcard("retry") < 500


def test_dark_and_light_can_be_chosen(browser: Browser, visit: Callable[[str], str]) -> None:
    """The choice holds on the next page."""
    visit("/queues")
    button = browser.find("#theme")
    colours = set()
    for _ in range(3):
        button.click()
        colours.add((button.text, browser.find("body").value_of_css_property("background-color")))

    assert {text for text, _ in colours} == {"Theme: auto", "Theme: light", "Theme: dark"}
    assert len({colour for _, colour in colours}) == 2
    button.click()
    visit("/busy")
    assert browser.find("#theme").text == "Theme: light"


def test_scripts_of_a_payload_do_not_run(
    browser: Browser, visit: Callable[[str], str], redis_client: redis.Redis
) -> None:
    """On any page, and not by what the page's own script puts in either."""
    attack = "<img src=x onerror=\"window.stolen=document.title='stolen'\"><script>window.stolen=1</script>"
    job = {"class": attack, "args": [attack, {attack: attack}], "jid": JID, "error_class": attack, "queue": attack}
    redis_client.zadd("retry", {json.dumps({**job, "error_message": attack, "retry_count": 1}): now_seconds()})
    redis_client.sadd("queues", attack)
    redis_client.lpush(f"queue:{attack}", json.dumps(job))

    meta = {"status": "FAILURE", "name": attack, "traceback": attack, "children": [[[attack, None], None]]}
    redis_client.set("celery-task-meta-a", json.dumps({**meta, "result": {"exc_type": attack, "exc_message": attack}}))
    redis_client.hset(f"sidekiq_py:chord:{attack}", mapping={"parts": 1, "body": attack})

    celery = ("/celery", "/celery/task?id=a", "/celery/workflow?id=a", "/celery/workflows")
    for path in (*celery, "/", "/queues", "/retries", f"/job?jid={JID}", "/retries?argument=onerror", "/busy"):
        visit(path)
        redis_client.sadd("queues", f"{path}{attack}")
        assert browser.driver.find_elements(By.CSS_SELECTOR, "main img") == []
        assert browser.driver.title != "stolen"
        assert browser.driver.execute_script("return window.stolen") is None
