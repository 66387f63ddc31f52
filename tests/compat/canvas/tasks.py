"""Tasks to make workflows of."""

from types import SimpleNamespace
from typing import Any

from sidekiq_celery import Celery, chain, chord, group


def declare(app: Celery) -> SimpleNamespace:
    """The tasks, by name."""

    @app.task(name="add")
    def add(x: Any, y: Any) -> Any:
        return x + y

    @app.task(name="total")
    def total(numbers: list[Any]) -> Any:
        return sum(numbers)

    @app.task(name="same")
    def same(*args: Any) -> Any:
        return args[0] if len(args) == 1 else list(args)

    @app.task(name="boom")
    def boom(*args: Any) -> None:
        raise ValueError("boom")

    @app.task(name="unstable", bind=True, default_retry_delay=0)
    def unstable(self: Any, number: int) -> int:
        if self.request.retries == 0:
            raise self.retry()
        return number

    @app.task(name="by_two", bind=True)
    def by_two(self: Any, number: int) -> Any:
        return self.replace(group(add.s(number, 1), add.s(number, 2)))

    @app.task(name="by_chunks", bind=True)
    def by_chunks(self: Any, number: int) -> Any:
        return self.replace(add.chunks([(number, 1), (number, 2), (number, 3)], 2))

    @app.task(name="by_another", bind=True)
    def by_another(self: Any, number: int) -> Any:
        return self.replace(add.s(number, 100))

    @app.task(name="by_a_fork", bind=True)
    def by_a_fork(self: Any, number: int) -> Any:
        return self.replace(chain(add.s(number, 1), group(add.s(1), add.s(2))))

    @app.task(name="by_a_chord", bind=True)
    def by_a_chord(self: Any, number: int) -> Any:
        return self.replace(chord([same.s(number)], group(total.s(), same.s())))

    @app.task(name="joins_another", bind=True)
    def joins_another(self: Any, number: int) -> int:
        self.add_to_chord(add.si(number, 1000))
        return number

    @app.task(name="lineage", bind=True)
    def lineage(self: Any, *args: Any) -> list[Any]:
        return [self.request.id, self.request.parent_id, self.request.root_id]

    return SimpleNamespace(
        add=add,
        total=total,
        same=same,
        boom=boom,
        unstable=unstable,
        by_two=by_two,
        by_chunks=by_chunks,
        by_another=by_another,
        by_a_fork=by_a_fork,
        by_a_chord=by_a_chord,
        joins_another=joins_another,
        lineage=lineage,
    )
