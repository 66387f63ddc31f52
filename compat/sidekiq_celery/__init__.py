"""
Celery's API on Sidekiq's queues: `from celery import …` becomes `from sidekiq_celery import …`.

    from sidekiq_celery import Celery

    app = Celery("shop", broker="redis://localhost:6379/0")

    @app.task
    def add(x, y): ...

    add.delay(2, 3)

The modules below have the same names as in Celery (`sidekiq_celery.app.task`, `.result`, `.signals`, …). The public
names are re-exported here, and each is imported on first access. This package may import `sidekiq_py`, which never
imports this package. It never needs Celery, and it needs kombu only when a kombu object is requested.

The distribution contains a pytest plug-in, so pytest would rewrite the asserts of every module in it, and would warn
about modules that are already loaded, as with `sidekiq-celery run -m pytest`. There are no asserts here, so:
PYTEST_DONT_REWRITE
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_celery._submodules import submodule
from sidekiq_celery._version import SERIES as SERIES
from sidekiq_celery._version import VERSION as VERSION
from sidekiq_celery._version import VERSION_BANNER as VERSION_BANNER
from sidekiq_celery._version import __author__ as __author__
from sidekiq_celery._version import __contact__ as __contact__
from sidekiq_celery._version import __docformat__ as __docformat__
from sidekiq_celery._version import __homepage__ as __homepage__
from sidekiq_celery._version import __keywords__ as __keywords__
from sidekiq_celery._version import __version__ as __version__
from sidekiq_celery._version import version_info as version_info
from sidekiq_celery._version import version_info_t as version_info_t

if TYPE_CHECKING:
    from sidekiq_celery.app import shared_task as shared_task
    from sidekiq_celery.app.base import Celery as Celery
    from sidekiq_celery.app.bug_report import bugreport as bugreport
    from sidekiq_celery.app.task import Task as Task
    from sidekiq_celery.canvas import Signature as Signature
    from sidekiq_celery.canvas import chain as chain
    from sidekiq_celery.canvas import chord as chord
    from sidekiq_celery.canvas import chunks as chunks
    from sidekiq_celery.canvas import group as group
    from sidekiq_celery.canvas import maybe_signature as maybe_signature
    from sidekiq_celery.canvas import signature as signature
    from sidekiq_celery.canvas import subtask as subtask
    from sidekiq_celery.canvas import xmap as xmap
    from sidekiq_celery.canvas import xstarmap as xstarmap
    from sidekiq_celery.import_alias import install_as_celery as install_as_celery
    from sidekiq_celery.utils.ids import uuid as uuid

    current_app: Celery
    current_task: Task[..., Any]


# All other names are those of workflows, in `canvas`.
_HOMES = {
    "Celery": "sidekiq_celery.app.base",
    "Task": "sidekiq_celery.app.task",
    "bugreport": "sidekiq_celery.app.bug_report",
    "current_app": "sidekiq_celery._state",
    "current_task": "sidekiq_celery._state",
    "install_as_celery": "sidekiq_celery.import_alias",
    "shared_task": "sidekiq_celery.app",
    "uuid": "sidekiq_celery.utils.ids",
}

__all__ = [
    "Celery",
    "Signature",
    "Task",
    "bugreport",
    "chain",
    "chord",
    "chunks",
    "current_app",
    "current_task",
    "group",
    "install_as_celery",
    "maybe_patch_concurrency",
    "maybe_signature",
    "shared_task",
    "signature",
    "subtask",
    "uuid",
    "xmap",
    "xstarmap",
]


def _make_fallback() -> "Celery":
    """An app without settings, for `_state`, which the apps import."""
    from sidekiq_celery.app.base import Celery

    return Celery("default", fixups=[], set_as_current=False, loader=os.environ.get("CELERY_LOADER") or "default")


def maybe_patch_concurrency(
    argv: Sequence[str] | None = None,
    short_opts: Sequence[str] | None = None,
    long_opts: Sequence[str] | None = None,
    patches: Mapping[str, Any] | None = None,
) -> None:
    """Do nothing. Celery patches Python for greenlets here if the pool uses them; this package has no such pool."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return submodule(__name__, name)
    value = getattr(import_module(_HOMES.get(name, "sidekiq_celery.canvas")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
