"""What a client of the real Celery revokes."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery.exceptions import TaskRevokedError

from tests.compat.revokes.test_control import WAIT_SECONDS, listening
from tests.support.celery_program import noted
from tests.support.real_celery import python_with_celery
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess


def celery(redis_url: str, *arguments: str) -> Any:
    """What the real Celery's client was told by the one worker."""
    command = [python_with_celery(), str(Path(__file__).with_name("celery_side.py")), redis_url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    reply = json.loads(done.stdout)
    [answer] = reply.values() if isinstance(reply, dict) else reply[0].values()
    return answer


def test_a_client_of_celerys_revokes_and_terminates(
    project: ModuleType, start: Callable[..., SidekiqProcess], redis_client: redis.Redis, redis_url: str
) -> None:
    """The worker writes it down for all others; what runs is ended, what waits does not start."""
    start("-c", "1")
    listening(project)
    running = project.sleep_long.delay()
    eventually(lambda: noted(redis_client, "slow"))
    waiting = project.sleep_long.delay("waiting")

    assert celery(redis_url, "revoke", waiting.id) == {"ok": f"tasks {{'{waiting.id}'}} flagged as revoked"}
    assert celery(redis_url, "revoked", "-") == [waiting.id]
    assert celery(redis_url, "terminate", running.id) == {"ok": f"terminate: {running.id}"}

    for result in (running, waiting):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=WAIT_SECONDS)
    assert noted(redis_client, "waiting") == []
