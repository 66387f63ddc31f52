"""What instruments Celery hooks into the import of its modules, by their names."""

import subprocess

import pytest

from tests.compat.alias.conftest import Run

pytest.importorskip("wrapt")

HOOKED = (
    "celery",
    "celery.app.base",
    "celery.app.task",
    "celery.app.trace",
    "celery.beat",
    "celery.exceptions",
    "celery.local",
    "celery.signals",
)
HOOKS = f"""
import sys
from wrapt import register_post_import_hook
seen = []
def note(module):
    seen.append(module.__name__)
for name in {HOOKED!r}:
    register_post_import_hook(note, name)
"""
INSTALL = "import sidekiq_celery; sidekiq_celery.install_as_celery()"


def printed(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """The lines that a program has printed, which must have ended well."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("order", [(HOOKS, INSTALL), (INSTALL, HOOKS)], ids=["hooks first", "alias first"])
def test_an_import_hook_is_called_once_under_celery_s_name(run: Run, order: tuple[str, str]) -> None:
    """Whether a program or the package itself imports the module, and by which name."""
    program = (
        "\n".join(order)
        + """
import celery
assert seen[-1] == "celery", seen
from celery import Celery
import sidekiq_celery.app.trace, celery.beat
from celery.app.task import Task
app = Celery("proj", broker="redis://nowhere", set_as_current=False)
app.task(lambda: None, name="proj.nothing")
app.finalize()
print(*sorted(seen))
"""
    )

    assert printed(run("-c", program)) == [" ".join(sorted(HOOKED))]


def test_what_a_hook_replaces_in_a_module_is_replaced_for_all(run: Run) -> None:
    """The module that it is handed has Celery's name, and the contents of this package's."""
    program = f"""
{INSTALL}
import sys
from wrapt import register_post_import_hook, wrap_function_wrapper
def patch(module):
    assert module.__name__ == module.__spec__.name == "celery.utils.log", module.__name__
    assert vars(module)["get_logger"] is module.get_logger
    assert "get_logger" in dir(module)
    wrap_function_wrapper(module, "get_logger", lambda wrapped, instance, args, kwargs: ("wrapped", args))
    module.added = 1
    del module.get_task_logger
register_post_import_hook(patch, "celery.utils.log")
import celery.utils.log
import sidekiq_celery.utils.log as own
assert own is celery.utils.log is sys.modules["celery.utils.log"]
assert own.__name__ == own.__spec__.name == own.__loader__.name == "sidekiq_celery.utils.log"
assert not hasattr(own, "get_task_logger")
print(own.get_logger("x"), own.added)
"""

    assert printed(run("-c", program)) == ["('wrapped', ('x',)) 1"]


def test_a_hook_that_imports_more_of_celery_finds_it_whole(run: Run) -> None:
    """No module is half loaded when its hook is called."""
    program = f"""
{INSTALL}
from wrapt import register_post_import_hook
def patch(module):
    from celery import signals, registry
    from celery.app.task import Task
    from celery.beat import Scheduler
    from celery.worker import WorkController
    print(module.Celery.__name__, Scheduler.__name__)
for name in ("celery", "celery.app.base"):
    register_post_import_hook(patch, name)
import celery
celery.Celery
"""

    assert printed(run("-c", program)) == ["Celery Scheduler", "Celery Scheduler"]
