"""What a worker leaves behind when it stops."""

import pytest
import redis

from tests.engine.embedded_worker import Worker
from tests.support.ledger import job_text, push_jobs
from tests.support.waiting import eventually


@pytest.mark.parametrize("command", ["hincrby", "bitfield"])
def test_a_worker_that_may_not_write_its_last_counts_leaves_all_the_same(
    redis_client: redis.Redis, worker: Worker, caplog: pytest.LogCaptureFixture, command: str
) -> None:
    """Otherwise its jobs would wait until others notice that it is gone. The log says which right it lacks."""
    worker.start(sidekiq_version="8")
    redis_client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        push_jobs(redis_client, [job_text(1, "run")])
        eventually(lambda: worker.ran == [1])
        worker.stop()
    finally:
        redis_client.execute_command("ACL", "SETUSER", "default", f"+{command}")

    assert redis_client.hlen("sidekiq_py:owners") == 0
    last = "The last counts of this process could not be written: NOPERM"
    [said] = [record.getMessage() for record in caplog.records if record.getMessage().startswith(last)]
    assert said.endswith(f"'{command}' command. docs/redis.md lists the rights that each program needs")
