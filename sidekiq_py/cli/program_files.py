"""
Imports the modules that `-r` names.

A name is the dotted name of a module or package as in `import`, or the path of a .py file, of a package, or of a
directory with a `jobs` module in it. If a package has a `jobs` module, that is imported, too. The current directory is
on the import path, as with `python -m`.
"""

import os
import sys
import traceback
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import click

from sidekiq_py.errors import ConfigError, SidekiqError

_JOBS = "jobs"
_OUR_FOLDER = str(Path(__file__).parent)
_OUR_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def working_directory() -> Path:
    """
    The directory that the command was started in.

    Raises:
        ConfigError: It was deleted, as an old release is after a deploy.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise ConfigError("the working directory was deleted; go to that of your program, and start again") from error


def import_all(names: tuple[str, ...], directory: Path) -> None:
    """
    Import the modules that `-r` names, in order.

    Args:
        directory: The directory in which the command was started.

    Raises:
        ConfigError: A module does not exist, or is Ruby.
        click.ClickException: A module raised an exception, whose traceback was written to standard error.
    """
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    invalidate_caches()
    for name in names:
        module = _module_name(name, directory)
        import_named(module, name)
        if _brings_jobs(module):
            import_named(f"{module}.{_JOBS}", name)


def import_named(module: str, given_as: str) -> None:
    """
    Import *module*.

    Args:
        given_as: The name that the user gave, for messages.
    """
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failure(f"{module} (-r) could not be imported", error) from error
        raise ConfigError(
            f"there is no module {given_as!r} (-r); give a module's dotted name as in 'import', "
            f"seen from {Path.cwd()}, or the path of a .py file or package"
        ) from None
    except Exception as error:
        raise _failure(f"{module} (-r) could not be imported", error) from error


def set_up_django(settings: str) -> None:
    """
    Set up Django and import the jobs of its apps.

    Args:
        settings: The name of the settings module, for messages.

    Raises:
        ConfigError: There is no such module, or Django is not installed.
        click.ClickException: The project's code raised an exception, whose traceback was written to standard error.
    """
    try:
        from sidekiq_py.contrib.django_worker import set_up

        set_up()
    except ModuleNotFoundError as error:
        name = error.name or ""
        if name == "django":
            raise ConfigError(
                f"DJANGO_SETTINGS_MODULE is {settings}, but Django is not installed here: pip install django, "
                "or unset the variable"
            ) from None
        if not f"{settings}.".startswith(f"{name}."):
            raise _django_failure(settings, error) from error
        raise ConfigError(
            f"there is no module {name!r}: DJANGO_SETTINGS_MODULE is {settings}; name the settings as in 'import', "
            f"seen from {Path.cwd()}"
        ) from None
    except Exception as error:
        raise _django_failure(settings, error) from error


def _django_failure(settings: str, error: Exception) -> click.ClickException:
    return _failure(f"Django could not be set up (DJANGO_SETTINGS_MODULE={settings})", error)


def _module_name(name: str, directory: Path) -> str:
    """The dotted name under which *name* can be imported. Adds its folder to the import path if necessary."""
    path = directory / name
    # Unlike `Path`'s, these are False for a name that is too long, and in a directory that this user may not enter.
    is_file, is_directory = os.path.isfile(path), os.path.isdir(path)
    if name.endswith(".rb") or os.path.exists(path / "config" / "application.rb"):
        raise ConfigError(f"{name} (-r) is Ruby; name the Python modules that declare jobs: -r myapp.jobs")
    if is_file and path.suffix == ".py":
        return _dotted(path.resolve().with_suffix(""), directory)
    if is_directory and os.path.exists(path / "__init__.py"):
        return _dotted(path.resolve(), directory)
    if is_directory and ("/" in name or not _exists(name)):
        return _jobs_in(path, name)
    if name.endswith(".py") or "/" in name:
        raise ConfigError(f"there is no {name} (-r) in {directory}")
    return name


def _jobs_in(path: Path, name: str) -> str:
    if not os.path.exists(path / f"{_JOBS}.py") and not os.path.isdir(path / _JOBS):
        raise ConfigError(f"{name} (-r) is not a package and has no {_JOBS}.py; name the modules that declare jobs")
    sys.path.insert(0, str(path.resolve()))
    return _JOBS


def _dotted(path: Path, directory: Path) -> str:
    """
    The dotted name of the module at *path*, relative to the nearest folder on the import path.

    The program imports its modules by that name, too. Under any other name they would be loaded twice. Packages in a
    folder `src` are imported without its name, even if the project was not installed.
    """
    root = path.parent
    while (root / "__init__.py").exists():
        root = root.parent
    known = [Path(entry).resolve() for entry in sys.path if entry]
    source = directory.resolve() / "src"
    is_in_package = path.parent != source or (path / "__init__.py").exists()
    sources = [source] if is_in_package and not (source / "__init__.py").exists() else []
    above = [folder for folder in known + sources if root.is_relative_to(folder)]
    if above:
        root = max(above, key=lambda folder: len(folder.parts))
    if root not in known:
        sys.path.insert(0, str(root))
    parts = path.relative_to(root).parts
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{path}.py cannot be imported (-r): {'.'.join(parts)} is not a module name; rename the file")
    return ".".join(parts)


def _brings_jobs(module: str) -> bool:
    is_package = hasattr(sys.modules[module], "__path__")
    return is_package and module.rpartition(".")[2] != _JOBS and _exists(f"{module}.{_JOBS}")


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _failure(what: str, error: Exception) -> click.ClickException:
    """
    Print the part of the traceback that lies in the program, and return the error for the command line.

    The frames of the import system that lead there are left out, because they tell the user nothing.

    Args:
        what: The beginning of the error message.
    """
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_machinery(trace):
        trace = trace.tb_next
    # A syntax error names its place even if no frame is left.
    if trace is not None or isinstance(error, SyntaxError):
        shown = traceback.TracebackException(type(error), error, trace)
        while isinstance(error, SidekiqError) and shown.stack and shown.stack[-1].filename.startswith(_OUR_PACKAGE):
            # The line of the program that is wrong comes last.
            shown.stack.pop()
        sys.stderr.write("".join(shown.format()))
    return click.ClickException(f"{what}: {type(error).__name__}: {error}")


def _is_machinery(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    if file.startswith((_OUR_FOLDER, "<frozen importlib")) or file == import_module.__code__.co_filename:
        return True
    return trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in ("django", "sidekiq_py")
