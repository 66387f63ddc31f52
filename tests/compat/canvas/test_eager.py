"""Workflows in the caller's process: `.apply()`, and `apply_async` where `task_always_eager` is set."""

from types import SimpleNamespace

import pytest
import redis
from sidekiq_celery import Celery, chain, chord, group

from tests.compat.canvas.test_workflows import CANVASES

# A chord that grows needs a worker.
_OTHERWISE = {"a part that is added while the chord runs"}


@pytest.fixture
def eager(app: Celery, tasks: SimpleNamespace) -> SimpleNamespace:
    """The tasks of an app that is eager."""
    app.conf.task_always_eager = True
    return tasks


@pytest.mark.parametrize("name", [name for name in CANVASES if name not in _OTHERWISE])
def test_a_canvas_returns_the_same_at_once(eager: SimpleNamespace, redis_client: redis.Redis, name: str) -> None:
    """And nothing is sent."""
    make, expected = CANVASES[name]

    result = make(eager).apply_async()

    assert result.get() == expected
    assert redis_client.keys() == []


def test_apply_runs_a_canvas_of_an_app_that_is_not_eager(tasks: SimpleNamespace) -> None:
    """Here and now."""
    assert chain(tasks.add.s(1, 1), tasks.add.s(2)).apply().get() == 4
    assert group(tasks.add.s(1, 1), tasks.add.s(2, 2)).apply().get() == [2, 4]
    assert chord([tasks.add.s(1, 1)], tasks.total.s()).apply().get() == 2


def test_an_error_ends_a_chain(eager: SimpleNamespace) -> None:
    """The step behind it does not run."""
    with pytest.raises(ValueError, match="boom"):
        chain(eager.boom.s(), eager.add.s(1)).apply_async().get()


def test_a_link_of_a_chain_that_ends_in_a_chord_is_called_after_the_body(app: Celery, eager: SimpleNamespace) -> None:
    """Its result is that of the chain."""
    seen: list[object] = []

    @app.task
    def note(result: object) -> None:
        seen.append(result)

    ending = chord([eager.add.s(10), eager.add.s(20)], eager.total.s())

    chain(eager.add.s(1, 2), ending).apply(link=note.s())

    assert seen == [36]


def test_a_chain_leaves_out_a_group_whose_generator_is_empty(tasks: SimpleNamespace) -> None:
    """As it leaves out `group([])`."""
    nothing = group(tasks.add.s(number, 1) for number in ())

    assert chain(tasks.add.s(1, 1), nothing, tasks.add.s(2)).apply().get() == 4
