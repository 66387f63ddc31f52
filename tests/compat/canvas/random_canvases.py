"""Composes random canvases, the same for each seed, with our classes or with Celery's: both have one interface."""

import importlib
import json
import sys
import warnings
from random import Random
from typing import Any

SEEDS = range(150)


def canvas(library: Any, app: Any, draw: Random) -> Any:
    """A canvas of tasks, chains, groups, chords and operators, some with callbacks."""
    numbers = iter(range(1000))

    def task() -> Any:
        return app.signature("proj.task", args=(next(numbers),), immutable=draw.random() < 0.2)

    def part(depth: int) -> Any:
        kind = draw.choice(["task", "task", "chain", "group", "chord", "or", "or", "or"]) if depth else "task"
        if kind == "task":
            return task()
        if kind == "or":
            composed = part(depth - 1)
            for _ in range(draw.randint(1, 3)):
                composed = composed | part(depth - 1)
            return composed
        count = draw.choice([0, 1, 1, 2, 3]) if kind == "group" else draw.randint(1, 3)
        members = [part(depth - 1) for _ in range(count)]
        if kind == "group":
            return library.group(members)
        composed = library.chain(*members) if kind == "chain" else library.chord(members, part(depth - 1))
        if draw.random() < 0.2:
            draw.choice([composed.link, composed.link_error])(task())
        return composed

    return part(3)


def shapes(library: Any, app: Any) -> list[str]:
    """The canvas of each seed as JSON."""
    with warnings.catch_warnings():
        # Both warn about the errbacks of chords.
        warnings.simplefilter("ignore")
        return [json.dumps(canvas(library, app, Random(seed)), sort_keys=True) for seed in SEEDS]


if __name__ == "__main__":
    chosen = importlib.import_module(sys.argv[1])
    print(json.dumps(shapes(chosen, chosen.Celery("proj"))))
