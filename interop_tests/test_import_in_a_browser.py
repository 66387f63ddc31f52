"""The example of an import, in a real browser: upload, bar, failed rows, retry; with jobs in Python, and in Ruby."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from selenium.webdriver.remote.file_detector import UselessFileDetector

from interop_tests.support.browser import Browser, why_missing
from interop_tests.support.ruby import UTF8, RubyRelease
from sidekiq_py.cli import ruby_support
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually
from tests.support.web_server import WebServer
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS, SidekiqProcess, WorkerProcess

EXAMPLE = REPOSITORY / "examples" / "import_with_progress"
IMAGES = REPOSITORY / "docs" / "images"
WAIT_SECONDS = 60
ROWS = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Skipped where there is none, a failure in CI."""
    reason = why_missing()
    if reason is not None:
        skip_or_fail(reason, switch="SIDEKIQ_PY_REQUIRE_BROWSER")
    with Browser(width=960, height=1000) as window:
        yield window


@pytest.fixture
def countries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the import looks up to which countries it may deliver: as the example has it; the test may change it."""
    path = tmp_path / "countries.txt"
    shutil.copy(EXAMPLE / "countries.txt", path)
    monkeypatch.setenv("COUNTRIES", str(path))
    return path


@pytest.fixture
def program(redis_url: str, countries: Path) -> Iterator[WebServer]:
    """The web program of the example."""
    roots = os.pathsep.join(map(str, (EXAMPLE, *SOURCE_ROOTS)))
    command = [sys.executable, "-m", "uvicorn", "main:app", "--host", "127.0.0.1", "--port", "{port}"]
    with WebServer(command, environment={"REDIS_URL": redis_url, "PYTHONPATH": roots}, folder=EXAMPLE) as server:
        yield server


@pytest.fixture
def support(tmp_path: Path) -> Path:
    """The file that batches need in Ruby."""
    path = tmp_path / "sidekiq_py.rb"
    path.write_text(ruby_support.text())
    return path


@pytest.fixture
def rack_program(ruby_release: RubyRelease, redis_url: str, countries: Path, support: Path) -> Iterator[WebServer]:
    """The web program of the example in Ruby."""
    command = [*ruby_release.ruby, "-S", "puma", "--environment", "production", "--threads", "1:8"]
    command += ["--bind", "tcp://127.0.0.1:{port}", str(EXAMPLE / "config.ru")]
    environment = {**UTF8, **ruby_release.environment, "REDIS_URL": redis_url, "SIDEKIQ_PY_SUPPORT": str(support)}
    with WebServer(command, environment=environment, folder=EXAMPLE) as server:
        yield server


@pytest.fixture
def start_ruby_worker(ruby_release: RubyRelease, redis_url: str, support: Path) -> Iterator[Callable[[], None]]:
    """Starts the worker of the example in Ruby, which is killed at the end: an orderly stop takes it two seconds."""
    command = (*ruby_release.sidekiq, "-r", str(EXAMPLE / "jobs.rb"), "-q", "ruby_imports")
    environment = {**UTF8, **ruby_release.environment, "SIDEKIQ_PY_SUPPORT": str(support)}
    with ExitStack() as stack:

        def start() -> None:
            worker = stack.enter_context(SidekiqProcess(command, redis_url=redis_url, environment=environment))
            stack.callback(worker.kill)

        yield start


@pytest.fixture
def start_worker(redis_url: str) -> Iterator[Callable[[], WorkerProcess]]:
    """Starts the worker of the example in Python."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            WorkerProcess("jobs", redis_url=redis_url, arguments=["-q", "imports"], python_path=[EXAMPLE])
        )


def customers(path: Path, count: int) -> Path:
    """A file of rows: every 500th lacks its e-mail, every 1,000th is for another country, one breaks the code."""
    lines = []
    for number in range(1, count + 1):
        country = "FR" if number % 1000 == 7 else "AT"
        email = "" if number % 500 == 3 else f"customer{number}@example.com"
        name = "Robert'); DROP TABLE" if number == 42 else f"Customer {number}"
        lines.append(f"{name},{email},{country}")
    file = path / "customers.csv"
    file.write_text("\n".join(lines))
    return file


def choose(browser: Browser, file: Path) -> None:
    """A file of this machine, which the browser sees too: nothing is sent to the driver."""
    with browser.driver.file_detector_context(UselessFileDetector):
        browser.find("#file").send_keys(str(file))
    browser.find("#upload button").click()


def upload(browser: Browser, program: WebServer, file: Path) -> None:
    """As a user does; the page of the import comes."""
    browser.visit(program.url("/"))
    choose(browser, file)
    eventually(lambda: browser.find_all("#finished"), WAIT_SECONDS)


def count(browser: Browser, state: str) -> int:
    """What the page says now."""
    return int(browser.driver.execute_script("return document.getElementById(arguments[0])?.textContent ?? -1", state))


def wait_for(browser: Browser, state: str, wanted: int) -> None:
    """As long as the page goes on counting."""
    while (before := count(browser, state)) != wanted:
        eventually(lambda before=before: count(browser, state) != before, WAIT_SECONDS)


def test_an_import_of_ten_thousand_rows(
    browser: Browser,
    program: WebServer,
    start_worker: Callable[[], WorkerProcess],
    countries: Path,
    tmp_path: Path,
) -> None:
    """The bar moves, bad rows come with their messages, and those that were mended succeed when they are retried."""
    upload(browser, program, customers(tmp_path, ROWS))
    assert count(browser, "enqueued") == ROWS
    assert not browser.find("#retry").is_enabled()

    start_worker()
    # Somewhere in the middle: nobody has loaded the page anew.
    eventually(lambda: 0 < count(browser, "finished") < ROWS, WAIT_SECONDS)
    # In any order: a row that fails last is told after the last one that is finished.
    for state, wanted in (("finished", ROWS - 31), ("failed", 30), ("error", 1), ("dead", 0)):
        wait_for(browser, state, wanted)
    eventually(lambda: len(browser.rows()) == 31, WAIT_SECONDS)
    shown = browser.rows()
    assert ["3", "Customer 3", "Python", "failed", "row 3 has no e-mail"] in shown
    assert ["7", "Customer 7", "Python", "failed", "row 7: we do not deliver to FR"] in shown
    assert ["42", "Robert'); DROP TABLE", "Python", "error", "row 42 broke the code"] in shown
    if os.environ.get("SIDEKIQ_PY_PICTURES"):
        browser.photograph(IMAGES / "import_with_progress.png")

    with countries.open("a") as file:
        file.write("FR\n")
    browser.find("#retry").click()
    wait_for(browser, "finished", ROWS - 21)
    eventually(lambda: len(browser.rows()) == 21, WAIT_SECONDS)
    assert {row[4].partition(" has ")[2] for row in browser.rows() if row[3] == "failed"} == {"no e-mail"}


def test_a_file_that_is_no_list_of_customers(browser: Browser, program: WebServer, tmp_path: Path) -> None:
    """The page says what is wrong with it, and nothing is enqueued."""
    file = tmp_path / "letter.csv"
    file.write_text("a,b,c\nDear Sir")

    browser.visit(program.url("/"))
    choose(browser, file)

    problem = "line 2 has 1 columns; it must have name, e-mail and country"
    eventually(lambda: browser.find("#problem").text == problem, WAIT_SECONDS)


def test_half_of_an_import_in_ruby(
    browser: Browser,
    program: WebServer,
    start_worker: Callable[[], WorkerProcess],
    start_ruby_worker: Callable[[], None],
    tmp_path: Path,
) -> None:
    """Where a Ruby process serves its queue, it runs every other row; the page shows both."""
    start_ruby_worker()
    upload(browser, program, customers(tmp_path, 100))
    start_worker()

    eventually(lambda: count(browser, "finished") == 97, WAIT_SECONDS)
    eventually(lambda: len(browser.rows()) == 3, WAIT_SECONDS)
    assert browser.rows() == [
        ["3", "Customer 3", "Python", "failed", "row 3 has no e-mail"],
        ["7", "Customer 7", "Python", "failed", "row 7: we do not deliver to FR"],
        ["42", "Robert'); DROP TABLE", "Ruby", "error", "row 42 broke the code"],
    ]


def test_the_same_import_by_a_rack_program(
    browser: Browser,
    rack_program: WebServer,
    start_worker: Callable[[], WorkerProcess],
    start_ruby_worker: Callable[[], None],
    countries: Path,
    tmp_path: Path,
) -> None:
    """Opened, shown and retried by Ruby; rows of odd numbers run in Python, the others in Ruby."""
    start_worker()
    upload(browser, rack_program, customers(tmp_path, 1200))
    # Ruby's rows wait for a worker: nobody loads the page anew.
    eventually(lambda: (count(browser, "finished"), count(browser, "enqueued")) == (595, 600), WAIT_SECONDS)
    start_ruby_worker()
    eventually(lambda: count(browser, "finished") == 1194, WAIT_SECONDS)

    eventually(lambda: len(browser.rows()) == 6, WAIT_SECONDS)
    assert browser.rows() == [
        ["3", "Customer 3", "Python", "failed", "row 3 has no e-mail"],
        ["7", "Customer 7", "Python", "failed", "row 7: we do not deliver to FR"],
        ["503", "Customer 503", "Python", "failed", "row 503 has no e-mail"],
        ["1003", "Customer 1003", "Python", "failed", "row 1003 has no e-mail"],
        ["1007", "Customer 1007", "Python", "failed", "row 1007: we do not deliver to FR"],
        ["42", "Robert'); DROP TABLE", "Ruby", "error", "row 42 broke the code"],
    ]
    if os.environ.get("SIDEKIQ_PY_PICTURES"):
        browser.photograph(IMAGES / "import_by_a_rack_program.png")

    with countries.open("a") as file:
        file.write("FR\n")
    browser.find("#retry").click()
    eventually(lambda: count(browser, "finished") == 1196, WAIT_SECONDS)
    eventually(lambda: len(browser.rows()) == 4, WAIT_SECONDS)
    browser.visit("about:blank")


def test_a_rack_program_says_what_is_wrong_with_a_file(
    browser: Browser, rack_program: WebServer, tmp_path: Path
) -> None:
    """In the same words."""
    file = tmp_path / "letter.csv"
    file.write_text("a,b,c\nDear Sir")

    browser.visit(rack_program.url("/"))
    choose(browser, file)

    problem = "line 2 has 1 columns; it must have name, e-mail and country"
    eventually(lambda: browser.find("#problem").text == problem, WAIT_SECONDS)
