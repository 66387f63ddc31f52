"""Redis 6.0, which has no BLMOVE: nothing starts on it."""

from pathlib import Path

from interop_tests import servers
from interop_tests.conftest import PYTHON_JOBS
from interop_tests.support.redis_programs import required_program
from tests.support.redis_server import RedisServer
from tests.support.worker_process import WorkerProcess


def test_a_worker_does_not_start(tmp_path: Path) -> None:
    """It says in a sentence which server that is and what is needed, and writes nothing."""
    with RedisServer(program=required_program(servers.TOO_OLD)) as server:
        worker = WorkerProcess(PYTHON_JOBS, redis_url=server.url, log_path=tmp_path / "log").start()

        assert worker.wait() == 1
        assert f"is {server.program}; Redis 6.2 or later is needed (or Valkey" in worker.log
        assert "Traceback" not in worker.log
        with server.client() as client:
            assert client.dbsize() == 0
