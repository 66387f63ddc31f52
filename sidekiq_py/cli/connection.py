"""Options that the data commands share: which Redis, which Sidekiq release, which program's middleware."""

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import click

from sidekiq_py import program
from sidekiq_py.cli.program_files import import_all, working_directory
from sidekiq_py.errors import SidekiqError
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import process_set
from sidekiq_py.redis_access.reads import queues

F = TypeVar("F", bound=Callable[..., Any])
Completion = Callable[[click.Context, click.Parameter, str], list[str]]

_COMPLETION_SECONDS = 1.0


def finds_redis(command: F) -> F:
    """Add `--redis-url` and `--namespace`."""

    @click.option("-u", "--redis-url", metavar="URL", help="URL of Redis (default: REDIS_PROVIDER or REDIS_URL).")
    @click.option("--namespace", metavar="NAME", help="Prefix of every key (default: SIDEKIQ_NAMESPACE).")
    @functools.wraps(command)
    def configured(*arguments: Any, redis_url: str | None, namespace: str | None, **options: Any) -> Any:
        if redis_url is not None or namespace is not None:
            program.configure(redis_url=redis_url, namespace=namespace)
        return command(*arguments, **options)

    return configured  # type: ignore[return-value]


def reads_redis(command: F) -> F:
    """Add `--redis-url`, `--namespace` and `--json`; the command receives `as_json`."""
    return finds_redis(click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command))


def imports_program(*, modules: str, release: str) -> Callable[[F], F]:
    """
    Add `--require` and `--sidekiq-version`. The option for the release takes precedence over what the modules set.

    Args:
        modules, release: The help for each option.
    """

    def decorate(command: F) -> F:
        @click.option("--sidekiq-version", metavar="VERSION", help=release)
        @click.option("-r", "--require", metavar="MODULE|PATH", multiple=True, help=modules)
        @functools.wraps(command)
        def prepared(*arguments: Any, sidekiq_version: str | None, require: tuple[str, ...], **options: Any) -> Any:
            if require:
                import_all(require, working_directory())
            if sidekiq_version is not None:
                program.configure(sidekiq_version=sidekiq_version)
            return command(*arguments, **options)

        return prepared  # type: ignore[return-value]

    return decorate


pushes_jobs = imports_program(
    modules="Module with client middleware and death handlers to import first; repeat for more.",
    release="Sidekiq release of the Ruby side, such as 7.3.2 (default: detected).",
)
"""Add the options of commands that push through the client."""


def completes(names_of: Callable[[Pool], list[str]]) -> Completion:
    """Complete names from Redis; offers none if Redis does not answer quickly."""

    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            usual = program.settings().redis
            pool = Pool(replace(usual, socket_timeout_seconds=_COMPLETION_SECONDS, connect_timeout_seconds=1.0))
            with closing(pool):
                # A shell is given text, in which a byte that is not UTF-8 cannot stand.
                return [name for name in names_of(pool) if name.startswith(incomplete) and name.isprintable()]
        except SidekiqError:
            return []

    return complete


complete_queue = completes(queues.names)
complete_process = completes(process_set.identities)
