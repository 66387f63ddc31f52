"""The ends of delivered jobs that Redis missed: each is written once it is back, whoever sends them."""

import threading

from sidekiq_py.engine.consumer.ends import Ends
from sidekiq_py.errors import RedisConnectionError


def test_a_session_that_closes_while_its_housekeeper_sends_skips_no_end() -> None:
    """A frozen Redis holds the housekeeper up for longer than the session waits for it, so both try."""
    ends = Ends()
    calls: list[str] = []
    closing = threading.Thread(target=ends.retry)

    def held_up() -> None:
        calls.append("held up")
        if len(calls) == 1:
            raise RedisConnectionError("Redis is away")
        if len(calls) == 2:
            closing.start()
            closing.join(0.2)

    ends.write(held_up)
    ends.write(lambda: calls.append("next"))

    ends.retry()
    closing.join()

    assert calls == ["held up", "held up", "next"]
