"""
A worker's logging: ours, unless the program has set up its own.

A program that has put handlers on the root logger (`basicConfig`, `dictConfig`, Django's `LOGGING`) keeps them. It gets
ours instead of its terminal handlers only if a format is asked for by name.
"""

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from sidekiq_py.engine.report.job_log_level import LevelGate
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import LOGGED_ATTRIBUTES, make_formatter
from sidekiq_py.wire.dialect import Dialect


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
    Let log lines come out on standard output.

    Args:
        format_name: One of `logs.FORMAT_NAMES`; None picks one by terminal and environment.
        level: The standard library's number.
        generation: The major version of Sidekiq whose format is written.

    Returns:
        Our handler, or None where the program's own handlers stay.
    """
    root = logging.getLogger()
    logging.getLogger("sidekiq").setLevel(level)
    if root.handlers and format_name is None:
        return None
    out = stream or sys.stdout
    name = format_name or pick_format(environment, generation, is_terminal=out.isatty())
    handler = LineHandler(make_formatter(name, generation=generation, attributes=attributes), out)
    handler.addFilter(LevelGate([root, logging.getLogger("sidekiq")]))
    for existing in [own for own in root.handlers if _writes_to_terminal(own)]:
        root.removeHandler(existing)
    root.addHandler(handler)
    root.setLevel(level)
    return handler


def pick_format(environment: Mapping[str, str], generation: int, *, is_terminal: bool) -> str:
    """
    The format where none is asked for.

    Heroku, known by `DYNO`, stamps lines itself. Sidekiq 8 colours its lines wherever they go; here only a terminal
    gets colour, as escape codes in a file help nobody. Source: Sidekiq 8.1.7, config.rb, `logger`.
    """
    if environment.get("DYNO"):
        return "without-timestamp"
    if generation >= 8 and (not is_terminal or environment.get("NO_COLOR")):
        return "plain"
    return "pretty"


def log_generation(sidekiq_version: str | None) -> int:
    """The major version whose log format fits a pinned release; where none is pinned, that of most releases."""
    return (Dialect.pinned(sidekiq_version) if sidekiq_version else Dialect.unknown()).version[0]


def remove_line_handlers() -> None:
    """Take away what `set_up_logging` has put up, in a child whose parent had set it up for itself."""
    root = logging.getLogger()
    for handler in [own for own in root.handlers if isinstance(own, LineHandler)]:
        root.removeHandler(handler)


def _writes_to_terminal(handler: logging.Handler) -> bool:
    if isinstance(handler, LineHandler):
        return True
    return type(handler) is logging.StreamHandler and handler.stream in (sys.stdout, sys.stderr)
