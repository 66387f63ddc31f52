"""What an end writes into a batch of the gem sidekiq-batch, compared with recordings of the gem."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.wire.dialect import Dialect
from tests.support.sidekiq_batch import compare

RECORDED = Path(__file__).parents[3] / "ruby_fixtures" / "sidekiq_batch"
HISTORIES = [
    (file.stem, name, history)
    for file in sorted(RECORDED.glob("*.json"))
    for name, history in json.loads(file.read_text())["histories"].items()
]


@pytest.mark.parametrize(
    ("release", "history"),
    [(release, history) for release, _, history in HISTORIES],
    ids=[f"{release}: {name}" for release, name, _ in HISTORIES],
)
def test_a_history_leaves_the_same_keys(
    redis_client: redis.Redis, redis_url: str, release: str, history: dict[str, Any]
) -> None:
    """After each end of a job or of a callback: counters, sets, callbacks and their bytes."""
    program.reset()
    sidekiq.configure(redis_url=redis_url, sidekiq_version=release)
    program.extensions.load_installed()

    compare(redis_client, sync_client.current().pool, history, Dialect.pinned(release))

    sync_client.current().close()
    program.reset()
