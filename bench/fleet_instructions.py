"""
How many instructions does Redis execute for a job that arrives on its own?

The CPU time of such a job changes by a third from one run to the next, which hides what a command more or less costs.
Valgrind counts the instructions of Redis exactly. It leaves out those of the kernel, but both sides need about the same
system calls. As in `bench.fleet`, pushes are part of the cost, and what the fleet costs at rest is not.

    python -m bench.fleet_instructions [--cells 2x5ms,20x5ms] [--three-queues]    # needs valgrind
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.fleet import THREE_QUEUES, Cell
from bench.fleet_loads import of_jobs, of_trickle, warm_up
from bench.fleet_sides import Shape, fleet, has_ruby, pinned_server

_REST_SECONDS = 10
_JOBS = 2000


def instructions_per_job(side: str, cell: Cell, queues: Sequence[tuple[str, int]]) -> float:
    """The cost of a job and its push, in a fleet of its own."""
    work = of_jobs("Nap" if cell.milliseconds else "NoOp", cell.milliseconds, [name for name, _ in queues])
    with tempfile.TemporaryDirectory() as folder:
        runner = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/counts"]
        with pinned_server(*runner) as server, fleet(side, Shape(cell.processes, 5, tuple(queues)), server):
            pid = server.client.info("server")["process_id"]
            warm_up(work, server, cell.processes)
            _counted(pid, folder)
            time.sleep(_REST_SECONDS)
            per_second = _counted(pid, folder) / _REST_SECONDS
            began = time.monotonic()
            of_trickle(work, server, _JOBS)
            return (_counted(pid, folder) - per_second * (time.monotonic() - began)) / _JOBS


def _counted(pid: int, folder: str) -> int:
    """How many instructions were executed since the last call."""
    subprocess.run(["callgrind_control", "--dump", str(pid)], check=True, capture_output=True)
    [dump] = Path(folder).glob("counts.*")
    [total] = re.findall(r"^totals: (\d+)", dump.read_text(), re.MULTILINE)
    dump.unlink()
    return int(total)


def main(arguments: list[str]) -> None:
    """Print a line for each fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default="2x5ms")
    parser.add_argument("--three-queues", action="store_true")
    options = parser.parse_args(arguments)
    queues = THREE_QUEUES if options.three_queues else (("default", 0),)
    for cell in map(Cell.named, options.cells.split(",")):
        ours, *theirs = (instructions_per_job(side, cell, queues) for side in ("ours", "ruby")[: 1 + has_ruby()])
        print(f"{cell}: ours {ours:,.0f}", *(f"ruby {cost:,.0f}, ratio {ours / cost:.2f}" for cost in theirs), sep=", ")


if __name__ == "__main__":
    main(sys.argv[1:])
