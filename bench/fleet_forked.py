"""
Many workers, each a process of its own, forked from one that has imported all they need.

    python -m bench.fleet_forked 20 sidekiq_py.cli.worker:worker -r bench.jobs -c 5
    python -m bench.fleet_forked 20 celery.__main__:main -A bench.celery_program worker -n fleet{number}

Twenty interpreters that start one after the other take half a minute of a core. What is forked here has no thread and
no connection yet: each child reads its arguments and starts as from a shell. TERM stops them all.
"""

import ctypes
import gc
import os
import signal
import sys
import traceback
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

# A worker imports these when it starts; and so for each program, by the module that it starts in.
_ALSO = {
    "sidekiq_py": (
        "sidekiq_py.cli.boot",
        "sidekiq_py.engine.launcher",
        "sidekiq_py.engine.main_thread",
        "sidekiq_py.engine.prefork.memory",
        "sidekiq_py.engine.prefork.supervisor",
        "sidekiq_py.engine.report.log_files",
        "sidekiq_py.engine.run.thread_dump",
        "sidekiq_py.extensions.batches.ruby_runs",
        "sidekiq_py.extensions.batches.telling",
        "bench.jobs",
    ),
    "sidekiq_celery": ("sidekiq_celery.bin.worker", "sidekiq_py.engine.prefork.supervisor"),
    "celery": ("celery.bin.celery", "celery.apps.worker", "celery.concurrency.prefork", "kombu.transport.redis"),
}
_PR_SET_PDEATHSIG = 1


def main(count: int, program: str, arguments: list[str]) -> None:
    """Fork, and wait until all have ended."""
    module_name, _, name = program.partition(":")
    start = getattr(import_module(module_name), name)
    for module in _ALSO.get(module_name.partition(".")[0], ()):
        import_module(module)
    if "sidekiq_py" in sys.modules:
        # As the parent of --processes does.
        import_module("sidekiq_py.engine.prefork.preload").prepare_to_fork()
    gc.collect()
    # A collection in a child would write to, and so copy, every page it shares.
    gc.freeze()
    children = []
    for number in range(count):
        pid = os.fork()
        if not pid:
            _be_child(start, [argument.replace("{number}", str(number)) for argument in arguments])
        children.append(pid)

    def stop(number: int, _frame: FrameType | None) -> None:
        for child in children:
            try:
                os.kill(child, number)
            except ProcessLookupError:
                pass

    signal.signal(signal.SIGTERM, stop)
    for child in children:
        os.waitpid(child, 0)


def _be_child(start: Any, arguments: list[str]) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.argv = [sys.argv[0], *arguments]
    code = 1
    try:
        start()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # whatever it is, the child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
