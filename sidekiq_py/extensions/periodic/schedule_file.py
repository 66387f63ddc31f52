"""
`config/schedule.yml` in sidekiq-cron's format: a mapping of names to jobs, or a list of jobs.

    report:
      cron: "*/5 * * * *"
      class: Report
      args: [1]
      queue: low
      tz: Europe/Berlin        # this and overlap, catch_up, jitter are Python's; the gem ignores them

The file may contain ERB, as in the gem. Source: sidekiq-cron 1.8.0 and 2.3.1, schedule_loader.rb, `load_from_hash`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sidekiq_py.errors import ConfigError, SidekiqError
from sidekiq_py.extensions.periodic.declared import Declaration, make
from sidekiq_py.extensions.periodic.layout import arguments_of, is_true
from sidekiq_py.logs import log
from sidekiq_py.options import closest

# Keys whose values are passed on as they are: the gem's, and Python's.
_PASSED_ON = (
    *("cron", "description", "queue", "namespace", "date_as_argument", "status", "retry"),
    *("tz", "overlap", "catch_up", "jitter", "once_on_dst"),
)
_KNOWN = frozenset((*_PASSED_ON, "name", "class", "klass", "args"))
# Keys that need Rails.
_RUBY_ONLY = ("active_job", "symbolize_args", "queue_name_prefix", "queue_name_delimiter")
# The gem's booleans.
_BOOLEAN = ("active_job", "symbolize_args", "date_as_argument")


def find(given: str | None, usual: Iterable[str], directory: Path) -> Path | None:
    """
    Find the schedule file that a worker reads.

    Args:
        given: From `--schedule`, or from `schedule` in `config/sidekiq.yml`.
        usual: Where the gem looks.

    Returns:
        The path; None if none was given and there is none where the gem looks.

    Raises:
        ConfigError: The given file does not exist.
    """
    if given is not None:
        path = directory / given
        if not os.path.isfile(path):
            raise ConfigError(f"there is no file {path}; --schedule names the file with the periodic jobs")
        return path
    return next((path for place in usual if os.path.isfile(path := directory / place)), None)


def _refuse(error: ConfigError) -> None:
    raise error


def read(
    path: Path,
    *,
    environment: Mapping[str, str],
    by: str,
    is_wanted: Callable[[str], bool] = lambda klass: True,
    on_invalid: Callable[[ConfigError], None] = _refuse,
) -> list[Declaration]:
    """
    Read the jobs of a file.

    Args:
        environment: The `ENV` of its ERB.
        by: The name of the file in listings.
        is_wanted: Called with each class; jobs for which it returns False are skipped.
        on_invalid: Called with the error of each invalid job, which is skipped if this returns.

    Raises:
        ConfigError: It cannot be read; the message names the job.
    """
    from sidekiq_py.cli import erb, yaml_file  # neither is loaded by a worker without such a file

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    loaded = yaml_file.parse(erb.render(text, environment, source=str(path)), source=str(path))
    found = []
    for name, fields in _jobs(path, loaded):
        klass = fields.get("class") or fields.get("klass")
        if is_wanted(str(klass or "")):
            try:
                found.append(_job(path, name, klass, fields, by))
            except ConfigError as error:
                on_invalid(error)
    return found


def _jobs(path: Path, loaded: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    named: list[tuple[Any, Any]] = []
    if isinstance(loaded, dict):
        named = list(loaded.items())
    elif isinstance(loaded, list):
        named = [(fields.get("name") if isinstance(fields, dict) else None, fields) for fields in loaded]
    elif loaded is not None:
        raise ConfigError(f"{path} must map names to periodic jobs, or be a list of them")
    seen: set[str] = set()
    for name, fields in named:
        if not isinstance(name, str) or not name or not isinstance(fields, dict):
            raise ConfigError(f"{path}: each job needs a name, and under it cron and class; see {name!r}")
        if name in seen:
            raise ConfigError(f"{path}: two periodic jobs are called {name!r}; give one of them another name")
        seen.add(name)
        yield name, fields


def _job(path: Path, name: str, klass: Any, fields: Mapping[str, Any], by: str) -> Declaration:
    place = f"{path}: {name}"
    fields = {**fields, **{key: is_true(fields[key]) for key in _BOOLEAN if key in fields}}
    for key in fields:
        if fields[key] and key in _RUBY_ONLY:
            raise ConfigError(f"{place}: {key} needs Rails; leave this job to the gem's own file")
        if key not in _KNOWN and key not in _RUBY_ONLY:
            near = closest(str(key), _KNOWN)
            log.warning(
                "%s has the key %s, which means nothing%s", place, key, f"; did you mean {near}?" if near else ""
            )
    missing = [key for key, value in (("cron", fields.get("cron")), ("class", klass)) if not value]
    if missing:
        raise ConfigError(f"{place} has no {' and no '.join(missing)}")
    given = {key: fields[key] for key in _PASSED_ON if fields.get(key) is not None}
    cron = given.pop("cron")
    try:
        return make(cron, klass, name=name, args=_args(fields.get("args")), by=by, **given)
    except SidekiqError as error:
        raise ConfigError(f"{place}: {error}") from error


def _args(given: Any) -> list[Any]:
    """The arguments by the gem's rules: a mapping is one argument, a text may be JSON."""
    if given is None:
        return []
    if isinstance(given, list):
        return given
    return arguments_of(given) if isinstance(given, str) else [given]
