"""`sidekiq-celery run script.py` and `run -m module`: a Python program to which `celery` is this package."""

import os
import runpy
import sys
import warnings

import click

from sidekiq_celery.import_alias import install_as_celery, own_name

__all__ = ("run",)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as with `python -m`.")
@click.argument("program")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, program: str, args: tuple[str, ...]) -> None:
    """
    Run a Python program to which `import celery` gives sidekiq_celery.

    \b
    sidekiq-celery run manage.py migrate
    sidekiq-celery run -m pytest tests
    sidekiq-celery run -m celery -A proj worker
    """
    install_as_celery()
    if is_module:
        sys.path.insert(0, os.getcwd())
        sys.argv = [program, *args]
        # `run -m celery`: the module is loaded, as this very program started from it, and runpy warns of that.
        warnings.filterwarnings("ignore", message=".* found in sys.modules", category=RuntimeWarning, module="runpy")
        runpy.run_module(own_name(program), run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(program):
        raise click.UsageError(f"there is no file {program!r}; name a script, or a module by -m")
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    sys.argv = [program, *args]
    runpy.run_path(program, run_name="__main__")
