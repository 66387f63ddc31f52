"""The order of a chain's middleware. Source: Sidekiq 8.1.7, middleware/chain.rb."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sidekiq_py.middleware.chain import Chain
from tests.support.threads_at_once import at_once


def named(name: str) -> Callable[..., Any]:
    """A middleware."""

    def middleware(job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        return call_next()

    middleware.__name__ = name
    return middleware


A, B, C, D = map(named, "ABCD")


def test_threads_that_add_at_once_add_all_of_theirs() -> None:
    """As modules do that are imported side by side."""
    for _ in range(100):
        chain: Chain[Any] = Chain()
        added = [named(str(number)) for number in range(16)]

        at_once(*(partial(chain.add, one) for one in added))

        assert set(chain) == set(added)


@pytest.mark.parametrize(
    ("change", "order"),
    [
        (lambda chain: chain.add(D), "ABCD"),
        (lambda chain: chain.add(A), "BCA"),
        (lambda chain: chain.prepend(D), "DABC"),
        (lambda chain: chain.prepend(C), "CAB"),
        (lambda chain: chain.insert_before(B, D), "ADBC"),
        (lambda chain: chain.insert_before(A, C), "CAB"),
        (lambda chain: chain.insert_before(D, C), "CAB"),
        (lambda chain: chain.insert_after(B, D), "ABDC"),
        (lambda chain: chain.insert_after(C, A), "BCA"),
        (lambda chain: chain.insert_after(D, A), "BCA"),
        (lambda chain: chain.remove(B), "AC"),
        (lambda chain: chain.remove(D), "ABC"),
    ],
)
def test_the_order_of_a_chain(change: Callable[[Chain[Any]], object], order: str) -> None:
    """A middleware is in a chain once: one that is there moves. Before a missing one it is first, after it last."""
    chain: Chain[Any] = Chain()
    for middleware in (A, B, C):
        chain.add(middleware)

    change(chain)

    assert [middleware.__name__ for middleware in chain] == [*order]


class Named:
    """A middleware that is made for each job, with the arguments of its entry."""

    def __init__(self, word: str = "", *, unit: str = "") -> None:
        self.given = (word, unit)

    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        return call_next()


@pytest.mark.parametrize(
    ("change", "given"),
    [
        (lambda chain: chain.add(Named, "new"), ("new", "")),
        (lambda chain: chain.prepend(Named, unit="ms"), ("", "ms")),
        (lambda chain: chain.insert_before(A, Named, "new"), ("old", "s")),
        (lambda chain: chain.insert_after(A, Named, unit="ms"), ("old", "s")),
    ],
)
def test_a_middleware_that_is_inserted_where_it_is_already_keeps_its_arguments(
    change: Callable[[Chain[Any]], object], given: tuple[str, ...]
) -> None:
    """As in Ruby: `add` and `prepend` replace it, `insert_before` and `insert_after` only move it."""
    chain: Chain[Any] = Chain()
    chain.add(A)
    chain.add(Named, "old", unit="s")

    change(chain)

    [made] = [middleware for middleware in chain.make() if isinstance(middleware, Named)]
    assert made.given == given
