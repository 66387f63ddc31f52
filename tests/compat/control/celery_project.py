"""A program of the real Celery, whose worker is asked by ours. Imported by Celery's Python alone."""

import os

from celery import Celery  # type: ignore[import-not-found, unused-ignore]

URL = os.environ["REDIS_URL"]

app = Celery("real", broker=URL, backend=URL)


@app.task(name="real.add")
def add(a: int, b: int) -> int:
    """A sum."""
    return a + b
