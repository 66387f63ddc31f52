"""What an import costs: kombu is loaded by those who need it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("kombu", "amqp", "vine", "celery", "billiard", "click", "multiprocessing", "uuid", "asyncio")


def loaded_by(code: str) -> set[str]:
    """Which of the heavy modules a program of those lines has imported."""
    program = f"import sys\n{code}\nprint(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}"},
        timeout=60,
    )
    return set(done.stdout.split())


def test_the_package_loads_nothing():
    """Its names are found when they are asked for."""
    assert loaded_by("import sidekiq_celery") == set()


def test_a_worker_without_tasks_loads_no_more_of_it_than_its_extension():
    """Every worker looks up the entry points; what this one names must cost it nothing."""
    program = (
        "from importlib.metadata import entry_points\n"
        "[point] = entry_points(group='sidekiq_py.extensions', name='celery')\n"
        "assert point.load()().name == 'celery'\n"
        "assert not {'sidekiq_celery.app', 'sidekiq_celery.canvas', 'sidekiq_celery._workflow'} & set(sys.modules)"
    )

    assert loaded_by(program) & {"kombu", "celery", "billiard", "click"} == set()


@pytest.mark.parametrize(
    "code",
    [
        "from sidekiq_celery import Celery, shared_task, current_app",
        "from sidekiq_celery.exceptions import Retry, SoftTimeLimitExceeded",
        "from sidekiq_celery.signals import task_prerun",
        "from sidekiq_celery import Celery\n"
        "app = Celery('x', broker='redis://h/0', task_routes={'a.*': 'b'})\n"
        "app.task(name='a.b')(lambda: None)\n"
        "app.amqp.destinations.find({}, 'a.b')",
    ],
    ids=["app", "errors", "signals", "routes"],
)
def test_apps_tasks_and_routes_need_no_kombu(code):
    """Nor click, nor multiprocessing."""
    assert loaded_by(code) & {"kombu", "amqp", "vine", "celery", "billiard", "click", "multiprocessing"} == set()


def test_the_first_result_waits_for_no_import_of_kombu(redis_url):
    """Its registry of serializers takes as long to import as many a task runs; json is read without it."""
    program = (
        "from sidekiq_celery import Celery\n"
        f"app = Celery('x', broker={redis_url!r}, backend={redis_url!r})\n"
        "app.backend.store_result('7', {'a': [1]}, 'SUCCESS')\n"
        "app.backend._cache.clear()\n"
        "assert app.AsyncResult('7').get(timeout=60) == {'a': [1]}"
    )

    assert "kombu" not in loaded_by(program)


@pytest.mark.parametrize("again", range(8))
def test_threads_that_use_kombu_for_the_first_time_at_once_all_get_it(again):
    """kombu puts another module in its own place during its import. Few tries meet that moment, so there are eight."""
    program = (
        "from sidekiq_celery import Celery\n"
        "from tests.support.threads_at_once import at_once\n"
        "app = Celery('proj', broker='redis://h/0')\n"
        "amqp, _ = app.amqp, app.conf.task_queues\n"
        "at_once(*[lambda: amqp.Queues(None)] * 8)"
    )

    assert "kombu" in loaded_by(program)
