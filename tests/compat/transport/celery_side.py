"""Processes of the real Celery whose broker is our transport."""

import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.child_process import tail, tied_to_this_process
from tests.support.real_celery import python_with_celery
from tests.support.worker_process import REPOSITORY

HERE = Path(__file__).parent


def environment(redis_url: str, **more: str) -> dict[str, str]:
    """Of a process on that Redis: where it finds the program, and what ours needs."""
    folders = [HERE, REPOSITORY, REPOSITORY / "compat", sysconfig.get_path("purelib")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "BROKER": redis_url.replace("redis://", "sidekiq://"),
        "BACKEND": redis_url,
        "C_FORCE_ROOT": "1",
        **more,
    }


def run_client(redis_url: str, script: str, **more: str) -> str:
    """Run a script of this folder to its end; what it printed."""
    done = subprocess.run(
        [python_with_celery(), str(HERE / script)],
        env=environment(redis_url, **more),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class CeleryWorker:
    """
    A worker of the real Celery on `project`; it and its children are gone after the block.

    Args:
        arguments: Of `celery worker`.
        more: Of its environment.
    """

    def __init__(self, redis_url: str, log: Path, arguments: list[str], more: Mapping[str, str]) -> None:
        self.log = log
        command = [python_with_celery(), "-m", "celery", "-A", "project", "worker", "-l", "INFO", *arguments]
        with log.open("w") as output:
            self.process = subprocess.Popen(
                tied_to_this_process(command),
                env=environment(redis_url, **more),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill_all(self) -> None:
        """Kill it and its children, as a machine that goes down does."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@contextmanager
def celery_worker(redis_url: str, log: Path, *arguments: str, **more: str) -> Iterator[CeleryWorker]:
    """Start a worker; the end of its log is shown where the block fails."""
    worker = CeleryWorker(redis_url, log, list(arguments), more)
    try:
        yield worker
    except BaseException:
        print(tail(log, 60))
        raise
    finally:
        worker.kill_all()
