"""A job that forks: its child is no second worker."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from sidekiq_py.client.sync_client import Client
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

StartWorker = Callable[..., WorkerProcess]

JOBS = """
import multiprocessing, os, socket, sys, time
import redis
import sidekiq_py as sidekiq

def tell(key, value):
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.rpush(key, value)
    client.close()

def fork(how):
    pid = os.fork()
    if pid:
        tell("codes", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    elif how == "exit":
        sys.exit(7)
    elif how == "raise":
        raise ValueError("in the child")

@sidekiq.job(name="Fork", retry=False)
def fork_here(how):
    fork(how)

@sidekiq.job(name="AsyncFork", retry=False)
async def fork_on_the_loop(how):
    fork(how)

@sidekiq.job(name="Terminate", retry=False)
def terminate():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(5)
    tell("codes", str(child.exitcode))
    child.kill()

def connections():
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                found += isinstance(one.getpeername(), tuple)
        except OSError:
            pass
    return found

@sidekiq.job(name="Connections", retry=False)
def count_connections():
    here = connections()
    pid = os.fork()
    if pid == 0:
        tell("codes", f"{here > 1} {connections()}")
        os._exit(0)
    os.waitpid(pid, 0)

@sidekiq.job(name="Who")
def who():
    tell("workers", os.getpid())
"""


@pytest.fixture
def worker(start_worker: StartWorker, tmp_path: Path) -> WorkerProcess:
    """Runs jobs that fork."""
    (tmp_path / "forking_jobs.py").write_text(JOBS)
    return start_worker("forking_jobs", arguments=["-c", "2", "-t", "1"])


@pytest.fixture
def push(redis_url: str) -> Callable[..., object]:
    """`push(name, *args)`."""
    client = Client(redis_url, sidekiq_version="7")
    return lambda name, *args: client.push({"class": name, "args": list(args)})


def noted(redis_client: redis.Redis, key: str, count: int) -> list[bytes]:
    """What jobs told, once there is so much of it."""
    eventually(lambda: redis_client.llen(key) == count)
    return redis_client.lrange(key, 0, -1)  # type: ignore[return-value]


@pytest.mark.parametrize("job", ["Fork", "AsyncFork"])
@pytest.mark.parametrize(("how", "code"), [("exit", b"7"), ("raise", b"1"), ("return", b"0")])
def test_a_forked_process_ends_where_its_job_function_ends(
    worker: WorkerProcess, push: Callable[..., object], redis_client: redis.Redis, job: str, how: str, code: bytes
) -> None:
    """It settles nothing and fetches nothing over its parent's sockets."""
    push(job, how)
    assert noted(redis_client, "codes", 1) == [code]

    for _ in range(30):
        push("Who")

    assert set(noted(redis_client, "workers", 30)) == {str(worker.pid).encode()}
    eventually(lambda: redis_client.get("stat:processed") == b"31")
    assert redis_client.get("stat:failed") in (None, b"0")


def test_what_a_job_has_forked_can_be_terminated(
    worker: WorkerProcess, push: Callable[..., object], redis_client: redis.Redis
) -> None:
    """The worker's own handling of TERM is not for its jobs' children."""
    push("Terminate")

    assert noted(redis_client, "codes", 1) == [str(-signal.SIGTERM).encode()]


def test_a_forked_process_holds_none_of_the_workers_connections(
    worker: WorkerProcess, push: Callable[..., object], redis_client: redis.Redis
) -> None:
    """One that lives on would keep them open after the worker's death."""

    def told() -> list[bytes]:
        redis_client.delete("codes")
        push("Connections")
        return noted(redis_client, "codes", 1)

    # While the worker starts, a thread may be in the middle of opening one.
    eventually(lambda: told() == [b"True 0"])
    push("Who")
    assert noted(redis_client, "workers", 1) == [str(worker.pid).encode()]
