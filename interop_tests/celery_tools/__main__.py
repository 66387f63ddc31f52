"""
Run tools for Celery with Celery and under the alias, and compare what they report.

    python -m interop_tests.celery_tools [ddtrace | newrelic | structlog | airflow ...]

Each has its own virtual environment with the real package, Celery and this tree, in
`~/.cache/sidekiq_py/celery_tools`. The output of both sides is printed. The exit code is 1 if they differ in anything
but ids, times and what `DIFFERS` lists. `python -m interop_tests.celery_tools.canvases` compares random canvases.
"""

import argparse
import os
import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
SIDES = ("celery", "alias")

DIFFERS = (
    # Celery puts the rpc:// mailbox into every message; a payload here has it only within a workflow.
    r', "celery\.reply_to": "[^"]*"',
    # Events about a task that does not start come from the process that would have run it. There, django-structlog
    # still has what it bound for the previous task.
    r"(?<=event='task_not_found') parent_task_id='[^']*'",
    r"(?<=event='task_revoked' expired=True) parent_task_id='[^']*'",
)
_READY_SECONDS = 90
_DONE_SECONDS = 120
_NOT_FOR_COMPARISON = (
    *DIFFERS,
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    r"gen\d+@[\w.-]+",
    r"duration_ms=\d+",
)


@dataclass(frozen=True)
class Tool:
    """
    Args:
        packages: The packages to install.
        program: A module in `programs`, whose `app` the worker serves and whose `main` sends tasks.
        start: The prefix for the commands of the worker and the client.
        worker: The worker's command; by default that of Celery, or of sidekiq-celery, for the program.
        environment: The environment for both.
        needs_celery: The release of the real Celery that the tool needs.
    """

    packages: tuple[str, ...]
    program: str
    start: tuple[str, ...] = ()
    worker: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_celery: str = "celery>=5.7"


TOOLS = {
    "ddtrace": Tool(
        ("ddtrace",),
        "ddtrace_program",
        start=("ddtrace-run",),
        environment={
            "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
            "DD_REMOTE_CONFIGURATION_ENABLED": "0",
            "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "0",
            "DD_CRASHTRACKING_ENABLED": "0",
            # The two sides may send different commands to Redis.
            "DD_TRACE_REDIS_ENABLED": "0",
            "DD_TRACE_KOMBU_ENABLED": "0",
        },
    ),
    "newrelic": Tool(
        ("newrelic",),
        "newrelic_program",
        start=("newrelic-admin", "run-program"),
        environment={
            "NEW_RELIC_DEVELOPER_MODE": "true",
            "NEW_RELIC_LICENSE_KEY": "0" * 40,
            "NEW_RELIC_APP_NAME": "tools",
        },
    ),
    "structlog": Tool(("django-structlog[celery]", "django"), "structlog_program"),
    "airflow": Tool(
        ("apache-airflow", "apache-airflow-providers-celery"),
        "airflow_program",
        worker={
            "celery": ("airflow", "celery", "worker", "--skip-serve-logs"),
            "alias": ("sidekiq-celery", "run", "-m", "airflow", "celery", "worker", "--skip-serve-logs"),
        },
        environment={
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "1",
        },
        # Its provider imports a name that Celery 5.7 no longer has.
        needs_celery="celery<5.7",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the tools that *arguments* name. Returns 0 if both sides report the same for each."""
    parser = argparse.ArgumentParser(prog="python -m interop_tests.celery_tools", description=__doc__)
    parser.add_argument("tools", nargs="*", choices=[[], *TOOLS], metavar="tool", help=", ".join(TOOLS))
    differing = []
    for name in parser.parse_args(arguments).tools or TOOLS:
        folder = _cache() / name
        _install(folder, TOOLS[name])
        reports = {side: _reported(folder, TOOLS[name], side) for side in SIDES}
        for side, lines in reports.items():
            print(f"\n== {name}, {side}: {len(lines)} lines", *lines, sep="\n", flush=True)
        if Counter(map(_comparable, reports["celery"])) != Counter(map(_comparable, reports["alias"])):
            differing.append(name)
    print("\nreported differently:" if differing else "\nboth sides report the same", *differing)
    return 1 if differing else 0


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "sidekiq_py" / "celery_tools"


def _install(folder: Path, tool: Tool) -> None:
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *tool.packages, tool.needs_celery, "kombu[redis]", "-e", str(ROOT)], check=True)


def _reported(folder: Path, tool: Tool, side: str) -> list[str]:
    """The lines that the tool has written about the program's tasks, sorted."""
    seen = folder / f"seen_{side}"
    seen.write_text("")
    log = folder / f"worker_{side}.log"
    python = str(folder / "bin" / "python")
    own = {"celery": ("celery",), "alias": ("sidekiq-celery",)}[side]
    command = tool.worker.get(side) or (*own, "-A", tool.program, "worker", "-c", "1")
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        environment = {
            **os.environ,
            **tool.environment,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(PROGRAMS),
            "REDIS_URL": server.url,
            "SIDE": side,
            # ddtrace writes two fields of a request into one tag, in the order of a set.
            "PYTHONHASHSEED": "0",
            "SEEN": str(seen),
            "FOLDER": str(folder),
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CELERY__BROKER_URL": server.url,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+sqlite:///{folder}/results_{side}.db",
        }
        (folder / f"results_{side}.db").unlink(missing_ok=True)
        with log.open("wb") as output:
            words = [*tool.start, *command]
            worker = subprocess.Popen(words, cwd=PROGRAMS, env=environment, stdout=output, stderr=output)
        stack.callback(_stop, worker)
        client = [*tool.start, python, "-c", f"import {tool.program} as program; program.wait(); program.main()"]
        done = subprocess.run(
            client, cwd=PROGRAMS, env=environment, timeout=_READY_SECONDS + _DONE_SECONDS, check=False
        )
        _stop(worker)
    if done.returncode:
        raise SystemExit(f"the client failed with {tool.program} and {side}; the worker's log is {log}")
    return sorted(seen.read_text().splitlines())


def _stop(worker: "subprocess.Popen[bytes]") -> None:
    if worker.poll() is None:
        worker.terminate()
        try:
            worker.wait(_DONE_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()


def _comparable(line: str) -> str:
    for pattern in _NOT_FOR_COMPARISON:
        line = re.sub(pattern, "", line)
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
