"""
Many workers, each in a separate process, forked from one that has imported everything they need.

    python -m bench.fleet_forked 20 sidekiq_py.cli.worker:worker -r bench.jobs -c 5
    python -m bench.fleet_forked 20 celery.__main__:main -A bench.celery_program worker -n fleet{number}

Starting twenty interpreters one after another takes half a minute of a core. The process that is forked here has no
threads and no connections yet: each child reads its arguments and starts as it would from a shell. TERM stops them all.
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

# The modules that a worker imports when it starts, by the package that its program starts in.
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
        "sidekiq_py.extensions.batches.lifecycle_events",
        "bench.jobs",
    ),
    "sidekiq_celery": ("sidekiq_celery.bin.worker", "sidekiq_py.engine.prefork.supervisor"),
    "celery": ("celery.bin.celery", "celery.apps.worker", "celery.concurrency.prefork", "kombu.transport.redis"),
}
_PR_SET_PDEATHSIG = 1


def main(count: int, program: str, arguments: list[str]) -> None:
    """Fork the workers, and wait until all have ended."""
    module_name, _, name = program.partition(":")
    start = getattr(import_module(module_name), name)
    for module in _ALSO.get(module_name.partition(".")[0], ()):
        import_module(module)
    if "sidekiq_py" in sys.modules:
        # The parent of --processes does this too.
        import_module("sidekiq_py.engine.prefork.preload").prepare_to_fork()
    gc.collect()
    # A garbage collection in a child would write to every shared page, and so copy it.
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
    except BaseException:  # noqa: BLE001  # whatever it is, the child must not continue as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
