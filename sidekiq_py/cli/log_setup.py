"""
Sets up a worker's logging, unless the program has set up its own.

A program that has put handlers on the root logger (`basicConfig`, `dictConfig`, Django's `LOGGING`) keeps them. Our
handler replaces its terminal handlers only if a format is requested by name.

A `dictConfig` without `"disable_existing_loggers": False` switches off every logger that it does not name. Ours are
switched on again: a worker that hides the errors of its jobs is of no use.
"""

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from sidekiq_py.cli.settings import Options
from sidekiq_py.engine.report.job_log_level import JOB_LOGGER_NAME, LevelGate
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import FORMATTERS, LOGGED_ATTRIBUTES
from sidekiq_py.wire.dialect import Dialect


def start_logging(options: Options, sidekiq_version: str | None) -> None:
    """Set up logging as the command line says, in the format of the pinned Sidekiq release, or of most releases."""
    set_up_logging(
        format_name=options.log_format,
        level=options.log_level,
        generation=(Dialect.pinned(sidekiq_version) if sidekiq_version else Dialect.unknown()).version[0],
        environment=options.variables,
        attributes=options.logged_attributes,
    )


def set_up_logging(
    *,
    format_name: str | None,
    level: int,
    generation: int,
    environment: Mapping[str, str],
    attributes: Iterable[str] = LOGGED_ATTRIBUTES,
    stream: TextIO | None = None,
) -> LineHandler | None:
    """
    Write log lines to standard output.

    Args:
        format_name: One of `logs.FORMAT_NAMES`; None picks one to suit the terminal and the environment.
        level: A level number of the standard library.
        generation: The major version of Sidekiq whose log format to use.

    Returns:
        Our handler, or None if the program's own handlers stay.
    """
    root = logging.getLogger()
    ours = logging.getLogger("sidekiq")
    ours.setLevel(level)
    ours.disabled = logging.getLogger(JOB_LOGGER_NAME).disabled = False
    if root.handlers and format_name is None:
        return None
    out = stream or sys.stdout
    name = format_name or pick_format(environment, generation, is_terminal=out.isatty())
    handler = LineHandler(FORMATTERS[name](generation, attributes), out)
    handler.addFilter(LevelGate([root, ours]))
    for existing in [own for own in root.handlers if _writes_to_terminal(own)]:
        root.removeHandler(existing)
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def pick_format(environment: Mapping[str, str], generation: int, *, is_terminal: bool) -> str:
    """
    The format to use if none is requested.

    Heroku, which sets `DYNO`, adds timestamps itself. Sidekiq 8 always colours its lines. We colour them only on a
    terminal, because escape codes are useless in a file. Source: Sidekiq 8.1.7, config.rb, `logger`.
    """
    if environment.get("DYNO"):
        return "without-timestamp"
    if generation >= 8 and (not is_terminal or environment.get("NO_COLOR")):
        return "plain"
    return "pretty"


def remove_line_handlers() -> None:
    """Remove the handlers that `set_up_logging` added. A forked child inherits those of its parent."""
    root = logging.getLogger()
    for handler in [own for own in root.handlers if isinstance(own, LineHandler)]:
        root.removeHandler(handler)


def _writes_to_terminal(handler: logging.Handler) -> bool:
    if isinstance(handler, LineHandler):
        return True
    return type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr)
