"""One policy, by one setting: what it hides is in no log line, on no page, in no output and in no report."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

pytest.importorskip("sentry_sdk")
pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("starlette")

from sidekiq_py import program
from sidekiq_py.cli import main
from sidekiq_py.client import sync_client
from tests.support.waiting import eventually
from tests.support.web_server import HttpClient, WebServer
from tests.support.worker_process import SOURCE_ROOTS, WorkerProcess

StartWorker = Callable[..., WorkerProcess]

SECRET = "4111-1111-hunter2"
POLICY = """
jobs:
  "Pay*": ["args[0]", tags, error_message]
"""

PROGRAM = """
import logging
import time
from pathlib import Path

import sentry_sdk
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from sentry_sdk.envelope import Envelope

import sidekiq_py as sidekiq
from sidekiq_py.contrib import opentelemetry, sentry

FOLDER = Path(__file__).parent


class Kept(sentry_sdk.Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        with (FOLDER / "sentry.txt").open("ab") as kept:
            kept.write(envelope.serialize() + b"\\n")


sentry_sdk.init(dsn="http://key@localhost/1", transport=Kept, traces_sample_rate=1.0)
sentry.instrument(send_arguments=True)
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=(FOLDER / "traces.txt").open("a"))))
opentelemetry.instrument(tracer_provider=provider)


@sidekiq.job(name="PayByCard", retry=2)
def pay(card, options):
    try:
        int(card)
    except ValueError:
        logging.getLogger("program").exception("the card cannot be charged")
        raise


@sidekiq.job(name="PayDead", retry=0)
def die(card, options):
    raise ValueError(f"no {card}")


@sidekiq.job(name="PaySlowly")
def hold(card, options):
    while not (FOLDER / "go").exists():
        time.sleep(0.05)


sidekiq.periodic("0 5 1 1 *", hold, args=["SECRET", {"token": "SECRET"}], name="yearly")
""".replace("SECRET", SECRET)

PUSHES = f'''
import sidekiq_py as sidekiq
from shop import die, hold, pay

card = ("{SECRET}", {{"password": "{SECRET}"}})
for job in (pay, die, hold):
    job.set(tags=["{SECRET}"]).perform_async(*card)
pay.set(queue="later").perform_async(*card)
pay.perform_in(5000, *card)
for track in (False, True):
    batch = sidekiq.Batch(description="payments", track=track)
    with batch.jobs():
        die.perform_async(*card)
    print(batch.bid)
'''

COMMANDS = [
    *(("queues", "show", "later"), ("retries",), ("scheduled",), ("dead",), ("jobs",), ("cron", "show", "yearly")),
    *(("top", "--once", "--sample", "0"), ("cron", "list"), ("processes",), ("doctor",), ("stats",)),
]


@pytest.fixture
def environment(redis_url: str, tmp_path: Path) -> dict[str, str]:
    """Of all processes of this installation."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "redaction.yml").write_text(POLICY)
    return {
        "REDIS_URL": redis_url,
        "SIDEKIQ_REDACTION": str(tmp_path / "redaction.yml"),
        "PYTHONPATH": os.pathsep.join(map(str, (*SOURCE_ROOTS, tmp_path))),
    }


@pytest.fixture
def command_line(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Runs `sidekiq-py` in this process and gives what it prints."""
    monkeypatch.setenv("REDIS_URL", environment["REDIS_URL"])
    monkeypatch.setenv("SIDEKIQ_REDACTION", environment["SIDEKIQ_REDACTION"])
    monkeypatch.delenv("REDIS_PROVIDER", raising=False)
    program.reset()
    yield lambda *words: CliRunner().invoke(main, words, prog_name="sidekiq-py").output
    sync_client.current().close()
    program.reset()


def pushed(environment: dict[str, str]) -> list[str]:
    """Push jobs of every kind from a program of their own; the ids of its batches."""
    done = subprocess.run(
        [sys.executable, "-c", PUSHES], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_a_secret_leaves_by_no_exit(
    start_worker: StartWorker,
    environment: dict[str, str],
    command_line: Callable[..., str],
    tmp_path: Path,
    redis_client: redis.Redis,
    log_format: str,
) -> None:
    """Arguments, tags, texts of errors, results: in two languages' formats, running, failed, dead and waiting."""
    worker = start_worker(
        "shop",
        arguments=["--log-format", log_format, "-c", "5", "-t", "5"],
        environment=environment,
    )
    bids = pushed(environment)
    eventually(lambda: redis_client.zcard("retry") and redis_client.zcard("dead") == 3, within_seconds=60)
    eventually(lambda: redis_client.hlen(f"{worker.identity}:work") == 1, within_seconds=60)

    exits = {
        " ".join(words): command_line(*words)
        for command in [*COMMANDS, *(("batches", "show", bid) for bid in bids)]
        for words in (command, (*command, "--json"))
    }
    web = WebServer([sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}"], environment=environment)
    with web:
        somebody = HttpClient(web)
        pages = ("busy", "queue?name=later", "retries", "scheduled", "dead", "periodic", "batches")
        exits |= {page: somebody.get(f"/{page}")[1] for page in pages}
        exits |= {f"batch {bid}": somebody.get(f"/batches/one?bid={bid}")[1] for bid in bids}
    (tmp_path / "go").touch()
    worker.stop()
    exits |= {name: (tmp_path / name).read_text() for name in ("sentry.txt", "traces.txt")}
    exits["log"] = worker.log

    assert [name for name, text in exits.items() if SECRET in text or "hunter2" in text] == []
    assert not [name for name, text in exits.items() if len(text) < 2]
    hiding = ("log", "sentry.txt", "traces.txt", "jobs", "jobs --json", "retries", "retries --json", "dead", "busy")
    assert [name for name in hiding if "[redacted]" not in exits[name]] == []
    assert "PayByCard" in exits["sentry.txt"]
    assert "ValueError" in exits["traces.txt"]
