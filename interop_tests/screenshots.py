"""
Takes the screenshots in docs/images: Ruby's Web UI and our dashboard, with a Ruby process and two Python processes that
work on the same Redis.

    python -m interop_tests.screenshots [FOLDER]

The tabs of gems are included: sidekiq-cron 1.8 from Debian and, if the folder SIDEKIQ_PY_GEMS (build/gems) has their
public sources (`make gems`), sidekiq-cron 2.3 and sidekiq-status.

Processes, jobs, tasks and failures are real. Only the past hour on the Metrics page and in the queue trends is
simulated: the worker's own code counted and wrote it, with times in that hour.
"""

import html
import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import redis
from sidekiq_celery import Celery

import sidekiq_py as sidekiq
from interop_tests.support import shop_jobs
from interop_tests.support.browser import Browser
from interop_tests.support.ruby import UTF8, RubyRelease, release, run_ruby, why_missing, with_public_gems
from interop_tests.support.web_ui_server import WebUiServer
from sidekiq_py import deploy
from sidekiq_py.api import CronJobs, DeadSet
from sidekiq_py.client import sync_client
from sidekiq_py.engine.run.metrics import ExecutionMetrics
from sidekiq_py.extensions.periodic import loading
from sidekiq_py.extensions.periodic.declared import make
from sidekiq_py.extensions.periodic.layout import layout_of
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.reads import queue_trends
from sidekiq_py.redis_access.reads.queue_trends import Sample
from sidekiq_py.web import hash_password
from sidekiq_py.wire.dialect import Dialect
from tests.support.celery_program import command, environment
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually
from tests.support.web_server import HttpClient, WebServer
from tests.support.worker_process import REPOSITORY, SidekiqProcess, WorkerProcess

IMAGES = REPOSITORY / "docs" / "images"
PAGES = {"6.4": ("busy",), "7.3": ("busy",), "8.1": ("busy", "retries", "metrics")}
# Our dashboard, for the scene of this release: file → path.
DASHBOARD_OVER = "8.1"
DASHBOARD_PAGES = {
    "overview": "/",
    "busy": "/busy",
    "retries": "/retries",
    "job": "/job?jid={jid}",
    "metrics": "/metrics/job?class=FraudCheck",
    "celery_workflow": "/celery/workflow?id={task}&group={group}",
    "celery_workers": "/celery/workers",
}
# Pages that show more than the scene has; `_fill_the_other_pages` adds the rest.
OTHER_PAGES = {
    "queues": "/queues",
    "queue": "/queue?name=images",
    "scheduled": "/scheduled",
    "dead": "/dead",
    "metrics_all": "/metrics",
    "copy": "{copy}",
    "batches": "/batches",
    "batch": "/batches/one?bid={bid}",
    "cron": "/cron",
    "cron_job": "/cron/job?name=count_stock",
    "celery_tasks": "/celery",
    "celery_task": "/celery/task?id={task}",
    "celery_workflows": "/celery/workflows?ended=1",
    "celery_limits": "/celery/limits",
    "bulk": "/bulk",
    "audit": "/audit",
}
CELERY_PROJECT = "tests.compat.dashboard.project"
_SHORTEN = """
for (const one of document.querySelectorAll("pre")) one.textContent = one.textContent.replaceAll(arguments[0], "");
"""
WIDTH, LEAST_HEIGHT = 1280, 500
PHONE_WIDTH = 390
GEMS = Path(os.environ.get("SIDEKIQ_PY_GEMS", REPOSITORY / "build" / "gems"))

# Used instead of host names, so that the screenshots show whose process it is.
RUBY_HOST, PYTHON_HOST = "ruby.1", "python.1"
# Loaded by its short name, because that is the prefix of its error names.
JOBS = (Path(shop_jobs.__file__).stem, "interop_tests.support.quick_beats")

# The mean seconds of a run and the number of runs per minute, by class.
_PAST = {
    "FraudCheck": (1.4, 9),
    "Catalogue::ResizeImage": (0.6, 14),
    "ForecastDemand": (6.0, 2),
    "CountStock": (0.02, 40),
}

# By queue: how many jobs waited at the end of the hour, and for how many seconds each.
_WAITED = (("images", 12, 0.9), ("mailers", 3, 2.0), ("python", 22, 0.4))


def photograph(shown: RubyRelease, browser: Browser, folder: Path) -> list[Path]:
    """Play the scene for one release. Returns the screenshots taken."""
    taken: list[Path] = []
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        client = stack.enter_context(server.client())
        sidekiq.configure(redis_url=server.url, sidekiq_version=shown.sidekiq_version)
        stack.enter_context(_ruby_worker(shown, server.url))
        stack.enter_context(_python_worker(shown, server.url)).wait_until_ready(processes=2)
        stack.callback(client.set, shop_jobs.CLOSED, 1)
        _open_the_shop(client)
        _write_the_past_hour(server.url, shown)
        if shown.series == DASHBOARD_OVER:
            stack.enter_context(_celery_worker(server.url))
            taken = _photograph_dashboard(server.url, client, browser, folder)
        web_ui = stack.enter_context(WebUiServer(shown, server.url))
        return taken + [
            _take(browser, web_ui, page, folder / f"web_ui_{page}_{shown.series}.png") for page in PAGES[shown.series]
        ]


def _photograph_dashboard(redis_url: str, client: redis.Redis, browser: Browser, folder: Path) -> list[Path]:
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}"]
    with WebServer(command, environment={"REDIS_URL": redis_url}) as dashboard:
        browser.visit(dashboard.url("/"))
        # The doctor checks in the background, and a rate needs two checks.
        eventually(lambda: "is checking" not in browser.text and "Jobs per second\n\N{EN DASH}" not in browser.text)
        [raw, *_] = client.zrange("retry", 0, 0)
        task, group = _run_a_workflow(redis_url)
        browser.visit(dashboard.url("/celery/workers"))
        # Workers are queried in the background.
        eventually(lambda: "Asking" not in browser.text)
        taken = []
        for name, page in DASHBOARD_PAGES.items():
            browser.visit(dashboard.url(page.format(jid=json.loads(raw)["jid"], task=task, group=group)))
            # A backtrace contains this machine's paths.
            browser.driver.execute_script(_SHORTEN, f"{REPOSITORY}/")
            taken.append(folder / f"dashboard_{name}.png")
            browser.photograph(taken[-1])
        browser.visit(dashboard.url("/retries"))
        taken.append(folder / "dashboard_phone.png")
        browser.photograph(taken[-1], width=PHONE_WIDTH)
        addresses = _fill_the_other_pages(dashboard, json.loads(raw)["jid"])
        for name, page in OTHER_PAGES.items():
            browser.visit(dashboard.url(page.format(task=task, **addresses)))
            taken.append(folder / f"dashboard_{name}.png")
            browser.photograph(taken[-1])
    with TemporaryDirectory() as own:
        config = Path(own) / "dashboard.yml"
        config.write_text(f"accounts: {{ann: {{password_hash: '{hash_password('secret')}', role: operator}}}}")
        with WebServer([*command, "--config", str(config)], environment={"REDIS_URL": redis_url}) as dashboard:
            browser.visit(dashboard.url("/sign-in"))
            taken.append(folder / "dashboard_sign_in.png")
            browser.photograph(taken[-1])
    return taken


def _fill_the_other_pages(dashboard: WebServer, jid: str) -> dict[str, str]:
    """Add an open batch, periodic jobs, and actions of an operator. Returns the values for the pages' addresses."""
    operator = HttpClient(dashboard)
    _, page = operator.get(f"/job?jid={jid}")
    [copy] = re.findall(r'href="(/job/copy[^"]*)"', page)
    token = {"form_token": operator.cookie("sidekiq_py_form")}
    operator.post("/queue/pause", {**token, "name": "images", "action": "pause"})
    operator.post("/retries/all", {**token, "action": "kill", "argument": "alps", "counted": "1"})
    CronJobs().add("*/5 * * * *", "CountStock", name="count_stock", args=[1], description="What is left on the shelves")
    CronJobs().add("0 3 * * * Europe/Berlin", "ForecastDemand", name="forecast_demand", args=["north", 4])
    CronJobs().find("forecast_demand").disable("the figures of last year are missing")
    batch = sidekiq.Batch(description="The new catalogue", track=True)
    with batch.jobs():
        shop_jobs.count_stock.perform_bulk([[article] for article in range(24)])
        # The queue of this job is paused.
        shop_jobs.resize_image.perform_bulk([[f"boots/{number}.png", 640] for number in range(6)])
    eventually(lambda: batch.status().pending == 6)
    eventually(lambda: DeadSet().size == 1)
    return {"bid": batch.bid, "copy": html.unescape(copy)}


def photograph_timetable(shown: RubyRelease, browser: Browser, path: Path) -> Path:
    """Show the Cron tab with periodic jobs in both languages."""
    with RedisServer() as server:
        sidekiq.configure(redis_url=server.url, sidekiq_version=shown.sidekiq_version)
        layout = layout_of("1.8" if shown.numbers < (7,) else "2")
        saved = [
            make(cron, name, name=name, by="shop", description=description)
            for cron, name, description in (
                ("0 3 * * * Europe/Berlin", "forecast_demand", "Python: how much to order"),
                ("*/5 * * * *", "count_stock", "Python: what is left on the shelves"),
            )
        ]
        loading.save(sync_client.current().pool, layout, saved)
        CronJobs().find("count_stock").disable("the shelves are being moved")
        receipts = 'periodic(name: "send_receipts", cron: "0 8 * * mon-fri Europe/Berlin", class: "SendReceipt",'
        run_ruby(shown, receipts + ' description: "Ruby: by e-mail")', server.url, also=["cron.rb"])
        with WebUiServer(shown, server.url, tabs=["sidekiq-cron", "sidekiq/cron/web"]) as web_ui:
            return _take(browser, web_ui, "cron", path)


def photograph_statuses(shown: RubyRelease, browser: Browser, path: Path) -> Path:
    """Show the Statuses tab with jobs that Ruby has enqueued and Python runs."""
    is_over = threading.Event()

    @sidekiq.job(name="PythonImport", queue="python", retry=False)
    def run(name: str, rows: int, of: int) -> None:
        sidekiq.current_job().progress(at=rows, total=of, message=f"row {rows} of {name}")
        if rows < of:
            is_over.wait(60)

    jobs = (("customers.csv", 420, 1000), ("articles.csv", 8_000, 10_000), ("prices.csv", 300, 300))
    with RedisServer() as server:
        sidekiq.configure(redis_url=server.url, sidekiq_version=shown.sidekiq_version)
        code = f"{json.dumps(jobs)}.each {{ |args| PythonImport.perform_async(*args) }}"
        run_ruby(shown, code, server.url, also=["sidekiq_status.rb"])
        with (
            sidekiq.embed(concurrency=3, queues=["python"]),
            WebUiServer(shown, server.url, tabs=["sidekiq-status"]) as web_ui,
            server.client() as client,
        ):
            eventually(
                lambda: (
                    sorted(client.hget(key, "message") or b"" for key in client.keys("sidekiq:status:*"))
                    == sorted(f"row {rows} of {name}".encode() for name, rows, _ in jobs)
                )
            )
            try:
                return _take(browser, web_ui, "statuses", path)
            finally:
                is_over.set()


def _photograph_tabs(browser: Browser, folder: Path) -> Iterator[Path]:
    yield photograph_timetable(release("6.4"), browser, folder / "web_ui_cron_6.4.png")
    if GEMS.is_dir():
        newest = with_public_gems(release("8.1"), GEMS)
        yield photograph_timetable(newest, browser, folder / "web_ui_cron_8.1.png")
        yield photograph_statuses(newest, browser, folder / "web_ui_statuses_8.1.png")
    else:
        print(f"no gems in {GEMS}: the tabs of sidekiq-cron 2 and sidekiq-status are left out (make gems)")


def _celery_worker(redis_url: str) -> SidekiqProcess:
    arguments = ["-A", CELERY_PROJECT, "worker", "-P", "threads", "-c", "2", "-n", f"shop@{PYTHON_HOST}"]
    return SidekiqProcess(command(*arguments), redis_url=redis_url, environment=environment(DYNO=PYTHON_HOST))


def _run_a_workflow(redis_url: str) -> tuple[str, str]:
    """Run a task that calls a group of twelve. Returns the ids of both once all have ended."""
    app = Celery("shop", broker=redis_url, backend=redis_url, set_as_current=False, fixups=[])
    called = app.send_task("shop.fan_out", (12,))
    called.get(timeout=60)
    [group] = called.children
    group.get(timeout=60)
    app.close()
    return called.id, group.id


def _ruby_worker(shown: RubyRelease, redis_url: str) -> SidekiqProcess:
    command = [*shown.sidekiq, "-r", str(shown.fixtures / "shop.rb"), "-c", "3", "-q", "mailers", "-g", "shop"]
    return SidekiqProcess(command, redis_url=redis_url, environment={**UTF8, "DYNO": RUBY_HOST})


def _python_worker(shown: RubyRelease, redis_url: str) -> WorkerProcess:
    arguments = ["--processes", "2", "-c", "4", "-q", "python,3", "-q", "images,1", "-g", "shop"]
    return WorkerProcess(
        JOBS,
        redis_url=redis_url,
        arguments=[*arguments, "--sidekiq-version", shown.sidekiq_version],
        environment={"DYNO": PYTHON_HOST},
        python_path=[Path(shop_jobs.__file__).parent],
    )


def _open_the_shop(client: redis.Redis) -> None:
    """Add finished, failed, running, waiting and scheduled jobs. Returns once heartbeats report the running ones."""
    shop_jobs.count_stock.perform_bulk([[article] for article in range(240)])
    for region, weeks in (("north", 4), ("alps", 12), ("islands", 4)):
        shop_jobs.forecast_demand.perform_async(region, weeks)
    eventually(lambda: client.zcard("retry") == 3 and not client.exists("queue:python"))
    shop_jobs.fraud_check.perform_bulk([[f"A-10{number}", 99.5 + number] for number in range(11, 14)])
    shop_jobs.resize_image.perform_bulk([[f"shoes/{number}.png", 640] for number in (7, 8)])
    receipt = sidekiq.ruby_job("SendReceipt", queue="mailers")
    receipt.perform_async("A-1009", "ann@example.com")
    shop_jobs.count_stock.perform_bulk([[article] for article in range(6)], at=time.time() + 3_600)
    eventually(lambda: _busy(client) == 6, within_seconds=60)


def _busy(client: redis.Redis) -> int:
    return sum(int(client.hget(identity, "busy") or 0) for identity in client.smembers("processes"))


def _write_the_past_hour(redis_url: str, shown: RubyRelease) -> None:
    dice = random.Random(7)
    dialect = Dialect.pinned(shown.sidekiq_version)
    metrics = ExecutionMetrics()
    now = datetime.now(UTC)
    deploy.mark("v42", at=now - timedelta(minutes=25))
    pool = Pool(RedisSettings(redis_url))
    for minutes_ago in range(58, 0, -1):
        for job_class, (seconds, times) in _PAST.items():
            for _ in range(dice.randint(times // 2, times)):
                metrics.record({"class": job_class}, dice.expovariate(1 / seconds), dice.random() > 0.03)
        at = (now - timedelta(minutes=minutes_ago)).timestamp()
        metrics.flush(pool, now=at, dialect=dialect)
        queue_trends.keep(
            pool,
            [
                (queue, Sample(int(at) // 60 * 60, size, size * seconds))
                for queue, least, seconds in _WAITED
                for size in [max(0, least - minutes_ago // 3 + dice.randint(0, 4))]
            ],
        )
    pool.close()


def _take(browser: Browser, web_ui: WebUiServer, page: str, path: Path) -> Path:
    browser.visit(web_ui.url(f"/{page}"))
    browser.photograph(path)
    return path


def main(arguments: Sequence[str]) -> int:
    """Take all screenshots and print their paths. Returns 1 if a release or the browser is missing."""
    folder = Path(arguments[0]) if arguments else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    releases = [release(series) for series in PAGES]
    missing = [reason for shown in releases if (reason := why_missing(shown))]
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 1
    with Browser(width=WIDTH, height=LEAST_HEIGHT) as browser:
        for shown in releases:
            _print_paths(photograph(shown, browser, folder))
        _print_paths(_photograph_tabs(browser, folder))
    return 0


def _print_paths(taken: Iterable[Path]) -> None:
    for path in taken:
        print(f"{path} ({path.stat().st_size // 1024} KB)", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
