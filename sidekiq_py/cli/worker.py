"""`sidekiq-py worker`: takes Ruby's flags, and those that only a Python worker has."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import click

from sidekiq_py.cli.connection import complete_queue
from sidekiq_py.cli.log_setup import remove_line_handlers, start_logging
from sidekiq_py.cli.program_files import working_directory
from sidekiq_py.cli.settings import FETCHERS, Options, make_config, read_all
from sidekiq_py.cli.version import show_version
from sidekiq_py.config import Config
from sidekiq_py.engine.prefork.memory import collect_less_often
from sidekiq_py.engine.upkeep.thread_limits import explaining_thread_limits
from sidekiq_py.errors import ConfigError, SidekiqError
from sidekiq_py.logs import FORMAT_NAMES

_GONE = {
    "daemon": "-d was removed in Sidekiq 6: run the worker under systemd, in a container or under another supervisor",
    "logfile": "-L was removed in Sidekiq 6: the worker logs to standard output; redirect that",
    "pidfile": "-P was removed in Sidekiq 6: systemd and containers know the process id",
    "index": "-i was removed in Sidekiq 6: leave it out",
}


@click.command()
@click.option(
    "-c", "--concurrency", type=int, metavar="INT", help="Number of threads that run jobs (5; 10 for Sidekiq 6)."
)
@click.option("-e", "--environment", metavar="ENV", help="Environment (default: APP_ENV, RAILS_ENV or RACK_ENV).")
@click.option("-g", "--tag", metavar="TAG", help="Label for the process in the Web UI.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="QUEUE[,WEIGHT]",
    shell_complete=complete_queue,
    help="Queue to serve, in strict order or by weight; repeat for more.",
)
@click.option(
    "-r",
    "--require",
    multiple=True,
    metavar="MODULE|PATH",
    help="Module, .py file or package that declares jobs; repeat for more.",
)
@click.option(
    "-t", "--timeout", type=float, metavar="SECONDS", help="How long busy jobs may take to finish at shutdown (25)."
)
@click.option("-v", "--verbose", is_flag=True, default=None, help="Log at debug level.")
@click.option("-C", "--config", "config_file", metavar="PATH", help="YAML file (config/sidekiq.yml).")
@click.option("-u", "--redis-url", metavar="URL", help="URL of Redis (default: REDIS_PROVIDER or REDIS_URL).")
@click.option("--namespace", metavar="NAME", help="Prefix of every key (default: SIDEKIQ_NAMESPACE).")
@click.option("--processes", type=int, metavar="N", help="Run N child processes.")
@click.option("--max-memory-mb", type=int, metavar="MB", help="Replace a child that uses more memory than this.")
@click.option("--probe-port", type=int, metavar="PORT", help="Serve /live, /ready and /metrics on this port.")
@click.option(
    "--async-concurrency", type=int, metavar="N", help="How many `async def` jobs a process runs at once (100)."
)
@click.option(
    "--fetcher",
    type=click.Choice(FETCHERS),
    help="reliable (default) keeps jobs in Redis while they run; basic does not.",
)
@click.option(
    "--lease-seconds", type=float, metavar="SECONDS", help="A process not heard from for longer counts as dead (30)."
)
@click.option(
    "--sidekiq-version", metavar="VERSION", help="Sidekiq release of the Ruby side, such as 7.3.2 (default: detected)."
)
@click.option(
    "--float-text",
    type=click.Choice(("ruby", "json3")),
    help="How the Ruby side's json gem writes floats (default: follows from the release).",
)
@click.option(
    "--extension-key",
    "extension_keys",
    multiple=True,
    metavar="KEY=POLICY",
    help="What to do with jobs that have this key of Pro, Enterprise, a gem or an extension that is not loaded: "
    "refuse, run or bury; repeat for more.",
)
@click.option("--schedule", metavar="FILE", help="Periodic jobs in sidekiq-cron's format (config/schedule.yml).")
@click.option(
    "--no-job-log", "skip_default_job_logging", is_flag=True, default=None, help="Do not log when jobs start and end."
)
@click.option("--log-level", metavar="LEVEL", help="debug, info (default), warn, error or fatal.")
@click.option("--log-format", type=click.Choice(FORMAT_NAMES), help="Format of log lines, as Ruby's of this name.")
@click.option("--watch", is_flag=True, help="Restart when code changes, for development; needs the extra `watch`.")
@click.argument("stray", nargs=-1, metavar="")
@click.option("-d", "--daemon", is_flag=True, default=None, hidden=True)
@click.option("-L", "--logfile", hidden=True)
@click.option("-P", "--pidfile", hidden=True)
@click.option("-i", "--index", hidden=True)
@click.option(
    *("-V", "--version"),
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the version.",
)
def worker(**given: Any) -> NoReturn:
    """
    Run a worker process.

    Flags override the YAML file, and the file overrides the defaults, as in Ruby. Signals: TERM and INT stop the
    worker, TSTP makes it fetch no more jobs, TTIN logs what its threads are doing, USR2 reopens log files. HUP
    stops it, too; with --processes it restarts the children one by one.
    """
    if stray := given.pop("stray"):
        import shlex  # for this advice alone

        first = shlex.quote(stray[0])
        advice = f"name the modules that declare jobs with -r: sidekiq-py worker -r {first}"
        if given["require"]:
            advice = f"give each queue its own -q, and each module its own -r: -q {first}"
        raise click.UsageError(f"{shlex.join(stray)}: a worker takes no arguments; {advice}")
    is_watched = given.pop("watch")
    flags = {name: value for name, value in given.items() if value not in (None, ())}
    for name, advice in _GONE.items():
        if name in flags:
            raise click.UsageError(advice)
    options = read_all(flags, variables=os.environ, directory=working_directory())
    sys.exit(_watch(flags, options) if is_watched else run(options))


def _watch(flags: dict[str, Any], options: Options) -> int:
    from sidekiq_py.cli import watch

    # Report invalid settings before starting anything.
    make_config(options)
    named = [Path(name) for name in (*flags.get("require", ()), flags.get("config_file")) if name]
    # Run the same interpreter with the same program and flags.
    command = [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--watch")]
    return watch.run(command, [working_directory(), *(path.resolve() for path in named if path.exists())])


def run(options: Options) -> int:
    """Work until a signal stops it; returns the exit code."""
    collect_less_often()
    # Report invalid settings before importing the program.
    config = make_config(options)
    if isinstance(sys.stdout, TextIOWrapper):
        # Show what a job prints at once, not kilobytes later.
        sys.stdout.reconfigure(line_buffering=True)
    if config.processes is None:
        _work(options, config)
    return _supervise(options, config)


def _work(options: Options, config: Config) -> NoReturn:
    from sidekiq_py.cli.boot import make_launcher
    from sidekiq_py.engine.main_thread import run_worker
    from sidekiq_py.engine.prefork.memory import settle_memory
    from sidekiq_py.engine.upkeep.process_end import end_process

    probes = None
    if config.probe_port is not None:
        from sidekiq_py.probes.worker import answer_probes  # imports an HTTP server, which most workers do not need

        probes = answer_probes(config.probe_port)
    launcher = make_launcher(options)
    if probes is not None:
        probes.launcher = launcher
    settle_memory()
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        # HUP means that the terminal was closed. nohup sets it to be ignored, so that a program outlives its terminal.
        launcher.signals.call_at("HUP", lambda: launcher.signals.put("TERM"))
    with explaining_thread_limits():
        code = run_worker(launcher)
    end_process(code)


def _supervise(options: Options, config: Config) -> int:
    from sidekiq_py.engine.prefork.child import run_child
    from sidekiq_py.engine.prefork.pipes import Parent
    from sidekiq_py.engine.prefork.supervisor import Supervisor

    is_first = _first_of_forked()
    sidecar = None
    if config.probe_port is not None:
        from sidekiq_py.probes import prefork
        from sidekiq_py.probes.server import check_port

        check_port(config.probe_port)
        sidecar = prefork.role(config.probe_port)

    def be_child(parent: Parent) -> int:
        # Remove the parent's handlers, so that the program can set up logging itself, as in a worker without a parent.
        remove_line_handlers()
        try:
            from sidekiq_py.cli.boot import make_launcher

            make = partial(make_launcher, options, is_first=is_first)
            with explaining_thread_limits():
                return run_child(parent, make) if sidecar is None else run_child(parent, make, prefork.in_child(parent))
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except SidekiqError as error:
            click.echo(f"Error: {error}", err=True)
            return 2 if isinstance(error, ConfigError) else 1

    start_logging(options, config.sidekiq_version)
    limit_kb = None if config.max_memory_mb is None else config.max_memory_mb * 1024
    return Supervisor(config, config.processes or 1, be_child, limit_kb, sidecar=sidecar).run()


def _first_of_forked() -> Callable[[], bool]:
    """A function that returns True once: in whichever of the processes forked from here calls it first."""
    readable, writable = os.pipe()
    os.write(writable, b"1")
    # Close the writing end, so that later readers get the end of the pipe at once instead of blocking.
    os.close(writable)
    return lambda: os.read(readable, 1) == b"1"
