"""Deploy marks, as a deploy script writes them."""

import time
from datetime import UTC, datetime, timedelta

import redis

from sidekiq_py import deploy
from tests.support.time_to_live import was_given

AT = datetime(2025, 2, 14, 8, 43, 59, tzinfo=UTC)


def test_a_mark_stands_under_its_day_and_minute(redis_url: str, redis_client: redis.Redis) -> None:
    """For ninety days, under the names that Ruby's Metrics page reads."""
    began = time.monotonic()

    assert deploy.mark("v42", at=AT, pool=redis_url)

    assert redis_client.hgetall("20250214-marks") == {b"2025-02-14T08:43:00Z": b"v42"}
    assert was_given(redis_client, "20250214-marks", 90 * 24 * 3600, since=began)
    assert redis_client.get("deploylock-v42") == b"2025-02-14T08:43:00Z"
    assert 0 < redis_client.ttl("deploylock-v42") <= 60


def test_many_machines_of_one_deploy_leave_one_mark(redis_url: str, redis_client: redis.Redis) -> None:
    """For a minute the first one's stands; another label is another deploy."""
    assert deploy.mark("v42", at=AT, pool=redis_url)
    assert not deploy.mark("v42", at=AT + timedelta(minutes=1), pool=redis_url)
    assert deploy.mark("v43", at=AT + timedelta(minutes=1), pool=redis_url)

    assert redis_client.hgetall("20250214-marks") == {b"2025-02-14T08:43:00Z": b"v42", b"2025-02-14T08:44:00Z": b"v43"}
