"""
A worker of `tests.support.kill_worker` whose system clock is wrong, and may jump.

    python -m kill_report.programs.wrong_clock <file> '<settings as JSON>'

The file contains a double: the seconds by which `time.time` is wrong. Writing another value makes the clock jump. The
monotonic clocks are not affected, just as when a machine's clock is set.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

SIZE = 8


def set_clock(path: Path, seconds: float) -> None:
    """Make the clocks that read *path* wrong by that many seconds."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(struct.pack("d", seconds))


def bend(path: str) -> None:
    """Make this process read a wrong clock."""
    with open(path, "rb") as file:
        wrong_by = mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_READ)
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + struct.unpack("d", wrong_by)[0]
    time.time_ns = lambda: nanoseconds() + int(struct.unpack("d", wrong_by)[0] * 1e9)


if __name__ == "__main__":
    bend(sys.argv.pop(1))
    # Imported only now, so that `from time import time` gets the wrong clock.
    from tests.support import kill_worker

    sys.exit(kill_worker.main())
