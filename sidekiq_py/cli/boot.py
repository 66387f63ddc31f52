"""
Turns options into a launcher that is ready to start: sets the environment, imports the program, sets up logging.

The order matters. The program is imported before logging is set up, so that we notice and keep the program's own
logging. It is also imported before the settings are final, because its code may say where Redis is.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import click

from sidekiq_py import program, redaction
from sidekiq_py.cli.log_setup import start_logging
from sidekiq_py.cli.program_files import import_all, set_up_django
from sidekiq_py.cli.settings import Options, make_config, unknown_keys
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.jobs.job_class import unfinished
from sidekiq_py.logs import counted, log
from sidekiq_py.options import closest
from sidekiq_py.redis_access.connection.settings import place
from sidekiq_py.registry import JobDefinition, registry

_MOST_SHOWN = 5

_NO_JOBS = (
    "so this worker could not run anything it fetches. Name the modules that declare your jobs: "
    "sidekiq-py worker -r myapp.jobs. A job is a function under @sidekiq.job, or a subclass of sidekiq.Job"
)
_IN_DJANGO = "In this Django project, no app in INSTALLED_APPS has a module jobs that declares one"
_HAS_TASKS = "The tasks of a Celery app run in a worker of their own: sidekiq-celery -A myapp worker"


def load_program(options: Options) -> Config:
    """
    Import the program and build the final settings.

    Raises:
        ConfigError: A setting is invalid or a module is missing.
        click.ClickException: A module raised an exception, or no job is declared.
    """
    for name in ("APP_ENV", "RAILS_ENV", "RACK_ENV"):
        os.environ[name] = options.environment
    _configure(options, only_flags=False)
    import_all(options.requires, options.directory)
    django_settings = os.environ.get("DJANGO_SETTINGS_MODULE")
    if django_settings:
        set_up_django(django_settings)
    _configure(options, only_flags=True)
    if not len(registry):
        in_django = [_IN_DJANGO] if django_settings else []
        has_tasks = [_HAS_TASKS] if "sidekiq_celery" in sys.modules else []
        looked_at = f" in {', '.join(options.requires)}" if options.requires else ""
        no_jobs = f"no job is declared{looked_at}, {_NO_JOBS}"
        raise click.ClickException("\n".join([no_jobs, *in_django, *has_tasks, *_unfinished_jobs()]))
    # Report an unreadable redaction file now, and not at the first log line.
    redaction.current()
    config = make_config(options, program.settings())
    return replace(config, is_single_slot_child=config.processes is not None and config.concurrency == 1)


def make_launcher(
    options: Options,
    on_epoch: Callable[[str], None] = lambda owner: None,
    is_first: Callable[[], bool] = lambda: True,
) -> Launcher:
    """
    Make a launcher that is ready to start.

    Args:
        on_epoch: As for `WorkerParts`.
        is_first: Returns True in one of the processes that start together; that one logs the warnings that concern all
            of them.
    """
    config = load_program(options)
    start_logging(options, config.sidekiq_version)
    log.info("Running in Python %s, %s environment", platform.python_version(), config.environment)
    log.info("%s declared; queues: %s", counted(len(registry.classes()), "job"), ", ".join(config.queue_names))
    for line in _unfinished_jobs():
        log.warning("%s", line)
    if is_first():
        for notice in (unknown_keys(options), unserved_jobs(config, registry)):
            if notice is not None:
                log.warning("%s", notice)
    if sys.stdout.isatty() and config.processes is None:
        click.echo(banner(config))
    return Launcher(WorkerParts(config, on_epoch=on_epoch))


def unserved_jobs(config: Config, declared: Iterable[JobDefinition]) -> str | None:
    """
    The warning about declared jobs whose queues this worker does not serve; None if it serves them all.

    It ignores jobs that are pushed to another Redis, and Active Jobs, whose queues Rails chooses.
    """
    served = set(config.queue_names)
    usual = program.default_job_options.get("queue", "default")
    waiting: dict[str, list[str]] = {}
    unused = set(served)
    takes_default = False
    for definition in declared:
        queue = definition.options.get("queue", usual)
        unused.discard(queue)
        takes_default |= queue == "default" or definition.resolve is not None
        if queue not in served and definition.pool is None and definition.resolve is None:
            waiting.setdefault(queue, []).append(definition.name)
    if not waiting:
        return None
    jobs = [f"{name} ({queue})" for queue, names in waiting.items() for name in names]
    shown = ", ".join(jobs[:_MOST_SHOWN]) + (f" and {len(jobs) - _MOST_SHOWN} more" if len(jobs) > _MOST_SHOWN else "")
    # Queue flags replace those of the capsule `default`, so the suggestion repeats those served now.
    present = next((capsule for capsule in config.capsules if capsule.name == "default"), CapsuleConfig())
    # `default` is served if nobody names a queue. On a Rails application's Redis its jobs are Ruby's.
    flags = [f"-q {_as_flag(queue)}" for queue in present.queues if queue.name != "default" or takes_default]
    flags += [f"-q {queue}" if present.mode == "strict" else f"-q {queue},1" for queue in waiting]
    slips = [name for name in sorted(unused) if closest(name, waiting)]
    return (
        f"{counted(len(jobs), 'declared job')} would wait in {counted(len(waiting), 'queue')} that this worker does "
        f"not serve: {shown}. Unless another worker serves them, start this one with {' '.join(dict.fromkeys(flags))}"
        f"{''.join(f' (is {name} misspelled?)' for name in slips)}"
    )


def banner(config: Config) -> str:
    """The summary that a worker prints when it starts in a terminal."""
    queues = ", ".join(_as_flag(queue) for capsule in config.capsules for queue in capsule.queues)
    lines = [
        click.style("sidekiq-py worker", bold=True) + f" ({config.environment})",
        f"  Redis    {place(config.redis)}",
        f"  queues   {queues}",
        f"  threads  {config.concurrency}, and up to {config.async_concurrency} async jobs",
        f"  jobs     {', '.join(sorted(definition.name for definition in registry))}",
        "Press Ctrl-C to stop, and again after a second or more to stop without waiting for busy jobs.",
    ]
    return "\n".join(lines)


def _configure(options: Options, *, only_flags: bool) -> None:
    """
    Configure the client, which the program may use as soon as it is imported.

    With *only_flags*, apply only the flags: the program's own `configure` overrides the file, but not a flag.
    """
    settings = {
        **{name: options.text(name) for name in ("redis_url", "namespace", "sidekiq_version")},
        "float_text": options.float_text,
        "extension_keys": (options.flagged_extension_keys if only_flags else options.extension_keys) or None,
    }
    given = {
        name: value
        for name, value in settings.items()
        if value is not None and (name in options.flags or not only_flags)
    }
    if given:
        program.configure(**given)  # type: ignore[arg-type]


def _unfinished_jobs() -> list[str]:
    missing = "`perform` (IterableJob: without `each_iteration` or `build_enumerator`)"
    return [f"{name} is a subclass of Job without {missing}, so it is not a job" for name in unfinished()]


def _as_flag(queue: QueueConfig) -> str:
    return f"{queue.name},{queue.weight}" if queue.weight else queue.name
