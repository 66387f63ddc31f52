"""`sidekiq-celery run script.py` and `run -m module`: runs a program in which `celery` is this package."""

import os
import runpy
import sys
import warnings
from importlib.util import find_spec

import click

from sidekiq_celery.import_alias import install_as_celery, own_name


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as with `python -m`.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, program: str, args: tuple[str, ...]) -> None:
    """
    Run a Python program with this package as `celery`.

    \b
    sidekiq-celery run manage.py migrate
    sidekiq-celery run -m pytest tests
    sidekiq-celery run -m celery -A proj worker
    """
    install_as_celery()
    if is_module:
        sys.path.insert(0, os.getcwd())
        sys.argv = [program, *args]
        # With `run -m celery`, the module is loaded already, as this program started from it. runpy would warn.
        warnings.filterwarnings("ignore", message=".* found in sys.modules", category=RuntimeWarning, module="runpy")
        name = own_name(program)
        if not _exists(name):
            hint = "; leave out -m to run a file" if program.endswith(".py") else ""
            raise click.UsageError(f"there is no module {program!r}, seen from {os.getcwd()}{hint}")
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(program):
        raise click.UsageError(f"there is no file {program!r}; name a script, or a module with -m")
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    sys.argv = [program, *args]
    runpy.run_path(program, run_name="__main__")


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:
        # There is no such package (with `-m program.py`, it is a module), or it imports something that is missing.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return False
