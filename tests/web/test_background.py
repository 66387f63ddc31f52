"""`BackgroundValue`: what pages show of readings that take long."""

from collections.abc import Iterator
from itertools import count

import pytest

pytest.importorskip("starlette")

from sidekiq_py.web import BackgroundValue, background
from tests.support.no_more_threads import without_more_threads
from tests.support.waiting import eventually


@pytest.fixture
def numbers() -> Iterator[int]:
    """What is read: another number each time."""
    return count(1)


def test_a_value_is_read_again_only_once_it_is_old_or_forgotten(numbers: Iterator[int]) -> None:
    """However many look at the page; after an action, they see what it has changed."""
    value = BackgroundValue("sidekiq.web/test", lambda before: next(numbers), 3600.0)
    assert value.look() is None
    eventually(lambda: value.look() == 1)
    assert [value.look() for _ in range(3)] == [1, 1, 1]

    value.forget()

    eventually(lambda: value.look() == 2)


def test_a_value_that_nobody_has_looked_at_for_long_is_not_shown(
    numbers: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first visitor after a quiet day would read on the Overview that all was well, as of yesterday."""
    value = BackgroundValue("sidekiq.web/test", lambda before: next(numbers), 60.0)
    value.look()
    eventually(lambda: value.look() == 1)
    now = background.monotonic()

    monkeypatch.setattr(background, "monotonic", lambda: now + 61)
    assert value.look() == 1
    eventually(lambda: value.look() == 2)
    monkeypatch.setattr(background, "monotonic", lambda: now + 61 + 86_400)
    assert value.look() is None

    eventually(lambda: value.look() == 3)


def test_a_value_that_no_thread_could_read_is_read_at_the_next_look(numbers: Iterator[int]) -> None:
    """Otherwise the page would show nothing for ever, although threads were lacking only for a moment."""
    value = BackgroundValue("sidekiq.web/test", lambda before: next(numbers), 3600.0)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        without_more_threads(value.look)

    eventually(lambda: value.look() == 1)
