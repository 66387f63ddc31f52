"""Canvases that are composed here have the shape that Celery gives them."""

import json
import subprocess

import sidekiq_celery
from sidekiq_celery import Celery

from tests.compat.canvas import random_canvases
from tests.support.real_celery import python_with_celery


def test_what_is_composed_at_random_looks_as_in_celery(app: Celery) -> None:
    """Programs read, store and compare signatures; and its shape decides what a workflow waits for."""
    run = subprocess.run(
        [python_with_celery(), random_canvases.__file__, "celery"], capture_output=True, text=True, check=True
    )

    ours = random_canvases.shapes(sidekiq_celery, app)

    assert ours == json.loads(run.stdout)
