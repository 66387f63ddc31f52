"""An app in a Django project; each test is a program of its own, as Django is set up once in a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("django")

ROOT = Path(__file__).parents[3]
FILES = {
    "shop/__init__.py": "",
    "shop/settings.py": """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["orders.apps.OrdersConfig", "pages"]
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
CELERY_BROKER_URL = "redis://django/0"
CELERY_TASK_DEFAULT_QUEUE = "web"
""",
    "shop/celery.py": """
from sidekiq_celery import Celery
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
""",
    "orders/__init__.py": "",
    "orders/apps.py": """
from django.apps import AppConfig
class OrdersConfig(AppConfig):
    name = "orders"
""",
    "orders/models.py": """
from django.db import models
class Order(models.Model):
    pass
""",
    "orders/tasks.py": """
from sidekiq_celery import shared_task
from orders.models import Order
@shared_task
def ship(number):
    return Order.__name__, number
""",
    "pages/__init__.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's folder."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def run(project):
    """Runs lines in the project; returns what they print."""

    def run_lines(code: str, **environment: str) -> list[str]:
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}",
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            **environment,
        }
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", f"from shop.celery import app\n{code}"],
            capture_output=True,
            text=True,
            cwd=project,
            env=env,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run_lines


def test_tasks_of_djangos_apps_are_discovered(run):
    """With Django set up before, as they import models; an app without tasks is none the worse."""
    code = """
app.loader.import_default_modules()
print("orders.tasks.ship" in app.tasks, *app.tasks["orders.tasks.ship"](3))
"""
    assert run(code) == ["True", "Order", "3"]


def test_settings_are_djangos(run):
    """With the prefix; the time zone without it."""
    assert run("print(app.conf.broker_url, app.conf.task_default_queue, app.timezone)") == [
        "redis://django/0",
        "web",
        "Europe/Berlin",
    ]


def test_settings_that_a_test_overrides_hold_at_once_and_for_as_long(run):
    """Tests of Django projects run tasks eagerly by `override_settings(CELERY_TASK_ALWAYS_EAGER=True)`."""
    code = """
app.loader.import_default_modules()
from django.conf import settings
from django.test import override_settings
from orders.tasks import ship
print(app.conf.task_always_eager, app.conf.task_default_queue)
with override_settings(CELERY_TASK_ALWAYS_EAGER=True, CELERY_TASK_DEFAULT_QUEUE="tests"):
    print(app.conf.task_always_eager, app.conf.task_default_queue)
    print(*ship.delay(3).get(), *ship.apply_async((4,)).get())
print(app.conf.task_always_eager, app.conf.task_default_queue)
settings.CELERY_TASK_ALWAYS_EAGER = True
print(*ship.delay(5).get())
"""
    assert run(code) == ["False", "web", "True", "tests", "Order", "3", "Order", "4", "False", "web", "Order", "5"]


def test_the_app_is_that_of_every_thread(run):
    """So that a request finds it."""
    code = """
import threading
from sidekiq_celery import current_app
thread = threading.Thread(target=lambda: print(current_app.main))
thread.start()
thread.join()
"""
    assert run(code) == ["shop"]


def test_a_task_is_sent_after_the_commit(run):
    """By `delay_on_commit`."""
    code = """
app.loader.import_default_modules()
from django.db import transaction
from orders.tasks import ship
sent = []
type(ship._get_current_object()).delay = lambda self, *args: sent.append(args)
with transaction.atomic():
    ship.delay_on_commit(1)
    print(len(sent))
print(len(sent))
"""
    assert run(code) == ["0", "1"]


def test_a_batch_waits_for_what_is_sent_after_the_commit(run):
    """The tasks are members although they are sent later, so the batch does not succeed before the commit."""
    code = """
app.loader.import_default_modules()
from django.db import transaction
from orders.tasks import ship
from sidekiq_py import Batch, configure
from sidekiq_py.testing import fake
configure(redis_url=app.conf.broker_url)
with fake():
    batch = Batch()
    with transaction.atomic():
        with batch.jobs():
            ship.delay_on_commit(1)
            ship.apply_async_on_commit((2,))
        print(batch.status().state, batch.status().total)
    print(batch.status().state, batch.status().total)
"""
    assert run(code) == ["open", "0", "running", "2"]


def test_what_is_sent_after_the_commit_goes_to_the_redis_of_the_call(run, redis_url):
    """As `delay` and workflows do. On another Redis, the push would fail after the commit and leave a batch open."""
    code = f"""
app.loader.import_default_modules()
from django.db import transaction
from orders.tasks import ship
from sidekiq_py import Batch, Client
shard = Client({redis_url!r})
with transaction.atomic():
    with Client.via(shard):
        batch = Batch()
        with batch.jobs():
            ship.delay_on_commit(1)
with Client.via(shard):
    print(batch.status().total)
"""
    assert run(code) == ["1"]


def test_a_task_works_on_fresh_connections(run):
    """By the engine's own middleware, once."""
    code = """
app.loader.import_default_modules()
app.loader.import_default_modules()
from sidekiq_py import program
print(len([m for m in program.server_middleware]))
"""
    assert run(code) == ["1"]


def test_a_test_suite_may_leave_connections_open(run):
    """As suites do whose worker runs in their own process, within a test's transaction."""
    code = """
from sidekiq_celery.fixups.django import DjangoWorkerFixup
DjangoWorkerFixup.install = lambda self: None
app.loader.import_default_modules()
from sidekiq_py import program
print(len([m for m in program.server_middleware]))
"""
    assert run(code) == ["0"]


@pytest.mark.parametrize("beside_manage_py", [True, False], ids=["beside manage.py", "--workdir"])
def test_an_installed_command_finds_the_apps_of_the_project(
    beside_manage_py: bool, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As a script of an environment's `bin` does not have the working directory in its path."""
    script = tmp_path_factory.mktemp("bin") / "sidekiq-celery"
    script.write_text("from sidekiq_celery.__main__ import main\nmain()\n")
    where = [] if beside_manage_py else ["--workdir", str(project)]
    variables = {"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}", "DJANGO_SETTINGS_MODULE": "shop.settings"}

    done = subprocess.run(
        [sys.executable, str(script), *where, "-A", "shop", "report"],
        capture_output=True,
        text=True,
        cwd=project if beside_manage_py else script.parent,
        env={"PATH": os.environ["PATH"], **variables},
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "software -> " in done.stdout
