"""Celery's guide "Application", walked through with the import changed."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from sidekiq_celery import Celery, Task, current_app
from sidekiq_celery.app import app_or_default
from sidekiq_celery.local import PromiseProxy


@pytest.fixture
def celeryconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of settings."""
    (tmp_path / "celeryconfig_guide.py").write_text(
        'enable_utc = True\ntimezone = "Europe/London"\n\n\nclass Config:\n    timezone = "Europe/Paris"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("celeryconfig_guide")
    sys.modules.pop("celeryconfig_guide", None)


def test_an_app_has_a_name_and_a_text() -> None:
    """Section "Main Name": tasks of the main module bear it."""
    app = Celery("tasks", set_as_current=False)

    def add(x: int, y: int) -> int:
        return x + y

    add.__module__ = "__main__"
    task = app.task(add)

    assert repr(app).startswith("<Celery tasks")
    assert (app.main, task.name) == ("tasks", "tasks.add")
    assert repr(app.tasks["tasks.add"]).startswith("<@task: tasks.add")


def test_settings_come_from_anything(celeryconfig: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section "Configuration": a name, a module, a class, or the name of one in a variable."""
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "celeryconfig_guide")
    zones = []
    for source in ("celeryconfig_guide", celeryconfig, celeryconfig.Config, "celeryconfig_guide:Config"):
        app = Celery(set_as_current=False)
        app.config_from_object(source)
        zones.append(app.conf.timezone)
    by_variable = Celery(set_as_current=False)
    by_variable.config_from_envvar("CELERY_CONFIG_MODULE")

    assert zones == ["Europe/London", "Europe/London", "Europe/Paris", "Europe/Paris"]
    assert by_variable.conf.timezone == "Europe/London"
    assert os.environ["CELERY_CONFIG_MODULE"] == "celeryconfig_guide"


def test_settings_can_be_shown_without_secrets() -> None:
    """Section "Censored configuration"."""
    app = Celery(broker="redis://:hidden@host/0", set_as_current=False)

    shown = app.conf.humanize(with_defaults=False, censored=True)

    assert "hidden" not in shown
    assert "broker_url" in shown
    assert app.conf.table(with_defaults=False, censored=True)["broker_url"] != "redis://:hidden@host/0"


def test_tasks_are_made_when_they_are_used() -> None:
    """Section "Laziness"."""
    app = Celery("lazy", set_as_current=False)

    @app.task
    def add(x: int, y: int) -> int:
        return x + y

    assert type(add) is PromiseProxy
    assert not add.__evaluated__()
    assert repr(add).startswith("<@task: ")
    assert add.__evaluated__()


def test_an_app_is_passed_along_or_taken() -> None:
    """Section "Breaking the chain"."""
    app = Celery("own")

    assert app_or_default(app) is app
    assert app_or_default(None) is app
    assert current_app.main == "own"


def test_tasks_have_a_base_class() -> None:
    """Section "Abstract Tasks": of one task, or of all of an app."""
    app = Celery("tasks", set_as_current=False)
    started: list[str] = []

    class DebugTask(Task):
        def __call__(self, *args: object, **kwargs: object) -> object:
            started.append(self.name)
            return self.run(*args, **kwargs)

    class MyBaseTask(Task):
        queue = "hipri"

    @app.task(base=DebugTask, name="add")
    def add(x: int, y: int) -> int:
        return x + y

    app.Task = MyBaseTask

    @app.task
    def other() -> None: ...

    assert add(1, 2) == 3
    assert started == ["add"]
    assert other.queue == "hipri"
    assert MyBaseTask in other.__class__.mro()
