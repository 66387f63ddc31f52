"""
From options to a launcher that can run: environment, program, logging.

The order matters. The program is imported before logging is set up, so that its own set-up is seen and kept, and before
the settings are settled, as its code may say where Redis is.
"""

import logging
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

import click

from sidekiq_py import program, redaction
from sidekiq_py.cli.log_setup import log_generation, set_up_logging
from sidekiq_py.cli.program_files import import_all, set_up_django
from sidekiq_py.cli.settings import Options, make_config, unknown_keys
from sidekiq_py.client import sync_client
from sidekiq_py.config import Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.jobs.job_class import unfinished
from sidekiq_py.logs import counted
from sidekiq_py.redis_access.connection.settings import place
from sidekiq_py.registry import JobDefinition, registry

_log = logging.getLogger("sidekiq")

_MOST_SHOWN = 5

NO_JOBS = (
    "no job is declared, so whatever this worker fetches it could not run. Name the modules that declare your jobs: "
    "sidekiq-py worker -r myapp.jobs. A job is a function under @sidekiq.job, or a subclass of sidekiq.Job"
)


def load_program(options: Options) -> Config:
    """
    Import the program and settle its settings.

    Raises:
        ConfigError: A setting is unusable or a module is missing.
        click.ClickException: A module raised, or declares no job.
    """
    for name in ("APP_ENV", "RAILS_ENV", "RACK_ENV"):
        os.environ[name] = options.environment
    _configure(options, only_flags=False)
    import_all(options.requires, options.directory)
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        set_up_django(os.environ["DJANGO_SETTINGS_MODULE"])
    _configure(options, only_flags=True)
    if not len(registry):
        raise click.ClickException("\n".join([NO_JOBS, *_unfinished_jobs()]))
    # A file that cannot be read is found here, and not at the first log line.
    redaction.current()
    settings = program.settings()
    config = make_config(
        options,
        redis=settings.redis,
        sidekiq_version=settings.sidekiq_version,
        float_text=settings.float_text,
        extension_keys=settings.extension_keys,
    )
    return replace(config, is_single_slot_child=config.processes is not None and config.concurrency == 1)


def start_logging(options: Options, sidekiq_version: str | None) -> None:
    """Let log lines come out, in the form of the release that is pinned."""
    set_up_logging(
        format_name=options.log_format,
        level=options.log_level,
        generation=log_generation(sidekiq_version),
        environment=options.variables,
        attributes=options.logged_attributes,
    )


def make_launcher(
    options: Options,
    on_epoch: Callable[[str], None] = lambda owner: None,
    is_first: Callable[[], bool] = lambda: True,
) -> Launcher:
    """
    A launcher that is ready to start.

    Args:
        on_epoch: As for `WorkerParts`.
        is_first: Of the processes that are started together; the first one says what is true of all.
    """
    config = load_program(options)
    start_logging(options, config.sidekiq_version)
    _log.info("Running in Python %s, %s environment", platform.python_version(), config.environment)
    _log.info("%s declared; queues: %s", counted(len(registry.classes()), "job"), ", ".join(_queue_names(config)))
    for line in _unfinished_jobs():
        _log.warning("%s", line)
    if is_first():
        for notice in (unknown_keys(options), unserved_jobs(config, registry)):
            if notice is not None:
                _log.warning("%s", notice)
    if sys.stdout.isatty() and config.processes is None:
        click.echo(banner(config))
    return Launcher(
        WorkerParts(
            config,
            registry=registry,
            hooks=program.hooks,
            server_middleware=program.server_middleware,
            client=sync_client.current(),
            on_epoch=on_epoch,
        )
    )


def unserved_jobs(config: Config, declared: Iterable[JobDefinition]) -> str | None:
    """
    What to say of declared jobs whose queues this worker does not serve; None if it serves them all.

    Jobs that are pushed to another Redis are left out, and Active Jobs, whose queues Rails decides.
    """
    served = set(_queue_names(config))
    usual = program.default_job_options.get("queue", "default")
    waiting: dict[str, list[str]] = {}
    for definition in declared:
        queue = definition.options.get("queue", usual)
        if queue not in served and definition.pool is None and definition.resolve is None:
            waiting.setdefault(queue, []).append(definition.name)
    if not waiting:
        return None
    jobs = [f"{name} ({queue})" for queue, names in waiting.items() for name in names]
    shown = ", ".join(jobs[:_MOST_SHOWN]) + (f" and {len(jobs) - _MOST_SHOWN} more" if len(jobs) > _MOST_SHOWN else "")
    # Flags replace the queues of the file and the default, so those that are served now have to be named as well.
    present = config.capsules[0]
    flags = [f"-q {_as_flag(queue)}" for queue in present.queues]
    flags += [f"-q {queue}" if present.mode == "strict" else f"-q {queue},1" for queue in waiting]
    return (
        f"{counted(len(jobs), 'declared job')} would wait in {counted(len(waiting), 'queue')} that this worker does "
        f"not serve: {shown}. Unless another worker does, start this one with {' '.join(flags)}"
    )


def banner(config: Config) -> str:
    """What a person at the terminal wants to know first."""
    queues = ", ".join(_as_flag(queue) for capsule in config.capsules for queue in capsule.queues)
    lines = [
        click.style("sidekiq-py worker", bold=True) + f" ({config.environment})",
        f"  Redis    {place(config.redis)}",
        f"  queues   {queues}",
        f"  threads  {config.concurrency}, and up to {config.async_concurrency} async jobs",
        f"  jobs     {', '.join(sorted(definition.name for definition in registry))}",
        "Ctrl-C stops it; another one a second or more later does not wait for busy jobs.",
    ]
    return "\n".join(lines)


def _configure(options: Options, *, only_flags: bool) -> None:
    """Tell the client side, which the program may use as soon as it is imported; its own code goes over the file."""
    settings = {
        "redis_url": options.redis_url,
        "namespace": options.namespace,
        "sidekiq_version": options.sidekiq_version,
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
    what = "is a subclass of Job without `perform` (IterableJob: without `each_iteration`), so it is no job"
    return [f"{name} {what}" for name in unfinished()]


def _as_flag(queue: QueueConfig) -> str:
    return f"{queue.name},{queue.weight}" if queue.weight else queue.name


def _queue_names(config: Config) -> list[str]:
    return list(dict.fromkeys(name for capsule in config.capsules for name in capsule.queue_names))
