"""A failover during 2,000 jobs, with a producer and a worker of each language connected through a sentinel."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop_tests.support.failover import (
    UNREPLICATED,
    Stage,
    crash,
    crash_alone,
    order,
    order_with_enough_replicas,
    play,
)
from interop_tests.support.ruby import RubyRelease
from tests.support.redis_server import RedisServer


@pytest.fixture
def stage(
    ruby_release: RubyRelease,
    new_redis_server: Callable[..., RedisServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """All of it; programs that are started from here find the sentinel and the ledger in the environment."""
    with ExitStack() as exits:
        found = Stage(ruby_release, new_redis_server, tmp_path, exits)
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


PRODUCERS = 2
# So many connections of a worker wait on one queue at most.
MOST_OPEN_MOVES = 3
MORE = (crash_alone, order, order_with_enough_replicas)
# They take up to half a minute each. To Sidekiq 6 they look like the first.
NEWER = pytest.mark.releases(since="7.3")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fail_over", [crash, *(pytest.param(one, marks=NEWER) for one in MORE)])
def test_no_job_is_lost_but_what_redis_itself_dropped(
    stage: Stage, fail_over: Callable[[Stage], None], report: Callable[[object], None]
) -> None:
    """Both workers and both producers switch to the new primary automatically."""
    books, ran_after = play(stage, fail_over)

    report(books)
    assert books.lost_by_python == 0
    assert books.ran + books.dropped + books.lost_by_ruby == books.acknowledged
    assert (stage.ruby.is_running, stage.python.is_running) == (True, True)
    assert {number % 2 for number in ran_after} == {0, 1}
    if fail_over is crash_alone:
        # Some may have gone to the frozen worker, as the answers to moves that waited.
        assert books.dropped >= len(UNREPLICATED) - MOST_OPEN_MOVES
    if fail_over is order_with_enough_replicas:
        # In the turn of its loop in which it learns that the replica has left, it may still answer each producer once.
        assert books.dropped <= PRODUCERS
