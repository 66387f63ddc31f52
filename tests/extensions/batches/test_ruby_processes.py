"""What a program says about Ruby processes that do not know batches."""

import json

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.clock import now_seconds
from sidekiq_py.extensions.batches import ruby_processes


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (5, "the Ruby process rb:5:aaa does not know batches"),
        (6, "the same goes for 1 more Ruby process; `sidekiq-py doctor --json` names all of them"),
        (300, "the same goes for 295 more Ruby processes; `sidekiq-py doctor --json` names all of them"),
    ],
)
def test_a_large_ruby_fleet_takes_few_lines_in_the_log(redis_client, redis_url, caplog, monkeypatch, count, last):
    """Each program that opens a batch says it, so each of them would log hundreds of lines."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8.1.7")
    monkeypatch.setattr(ruby_processes, "_looked", set())
    for number in range(1, count + 1):
        identity = f"rb:{number}:aaa"
        info = {"hostname": "rb", "pid": number, "queues": ["default"], "labels": [], "identity": identity}
        redis_client.sadd("processes", identity)
        redis_client.hset(identity, mapping={"info": json.dumps(info), "busy": 0, "beat": now_seconds()})

    with sidekiq.Batch().jobs():
        pass

    assert len(caplog.messages) == min(count, 6)
    assert caplog.messages[-1].startswith(last)
