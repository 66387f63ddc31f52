"""The examples in docs/enqueueing.md and docs/writing_jobs.md do what they say."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.errors import ConfigError
from sidekiq_py.registry import registry
from tests.support.documents import empty_program, python_examples
from tests.support.waiting import eventually


@pytest.fixture
def own_program(redis_url: str) -> Iterator[str]:
    """A program that has declared and configured nothing but where Redis is; its URL."""
    with empty_program(redis_url) as url:
        yield url


def run_examples(page: str, redis_url: str) -> dict[str, Any]:
    """Run a page's blocks one after the other, on the Redis of this test; what they have defined."""
    source = python_examples(page)
    for port in (6379, 6380):
        source = source.replace(f"redis://localhost:{port}/0", redis_url)
    names: dict[str, Any] = {"__name__": page.removesuffix(".md")}
    exec(compile(source, page, "exec"), names)
    return names


def test_what_the_page_enqueues_arrives(own_program: str, redis_client: redis.Redis) -> None:
    """Every receipt from A-1001 to A-1013 once, in a queue or scheduled, and every picture."""
    pytest.importorskip("django")
    pytest.importorskip("sqlalchemy")
    run_examples("enqueueing.md", own_program)

    queued = [json.loads(raw) for key in redis_client.keys("queue:*") for raw in redis_client.lrange(key, 0, -1)]
    scheduled = [json.loads(raw) for raw in redis_client.zrange("schedule", 0, -1)]
    numbers = [job["args"][0] for job in [*queued, *scheduled] if job["class"] == "SendReceipt"]
    assert sorted(numbers) == [f"A-{number}" for number in range(1001, 1014)]
    assert Counter(job["class"] for job in scheduled) == {"ResizeImage": 20, "SendReceipt": 3}
    assert [job["args"] for job in queued if job["class"] == "ResizeImage"][-1] == ["cat.png", 400]


def test_the_jobs_of_the_page_run(
    own_program: str,
    redis_client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a worker that refuses only the one with a hard limit; hooks, middleware and the cancelled job included."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("ann\nbob\n")
    page = run_examples("writing_jobs.md", own_program)
    worker_options = {"queues": ["python", "rates", "critical", "default"], "concurrency": 2}
    with pytest.raises(ConfigError, match="--processes N -c 1"):
        sidekiq.embed(**worker_options).start()
    registry.remove("Convert")

    page["fraud_check"].perform_async("A-1", 9.5)
    page["fetch_rate"].perform_async("EUR")
    page["HardWorker"].perform_async("bob", 5)
    page["charge"].perform_async(7)
    page["ImportPeople"].perform_async("people.csv")
    sidekiq.Client().push({"class": "Charge", "args": [], "retry": 0})
    with sidekiq.embed(**worker_options):
        assert eventually(lambda: redis_client.get("stat:processed") == b"7")

    printed = capsys.readouterr().out
    for line in (
        "before the first job",
        "order A-1 over 9.5 looks honest",
        " bob 5",
        "attempt 1 from default until None",
        "FetchRate took 0.0",
        "gave up on []",
        "dead: Charge",
        "Job raised exception",
        "a stop begins",
    ):
        assert line in printed
    assert printed.count("person ") == 2
    assert (redis_client.zcard("dead"), redis_client.zcard("retry")) == (1, 0)
