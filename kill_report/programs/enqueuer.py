"""
Pushes jobs in every way until it is killed. It writes down which jobs it tries to push, and which were confirmed.

    python -m kill_report.programs.enqueuer <redis url> <file> sync|async <first number>
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import sidekiq_py as sidekiq

BULK = 20


def main(url: str, path: str, mode: str, first: int) -> None:
    """Push jobs forever."""
    report_file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(word: str, numbers: Iterable[int]) -> None:
        os.write(report_file, "".join(f"{word} {number}\n" for number in numbers).encode())

    if mode == "async":
        asyncio.run(_push_awaited(sidekiq.AsyncClient(url, sidekiq_version="7"), first, write))
        return
    client = sidekiq.Client(url, sidekiq_version="7")
    for turn in itertools.count():
        numbers, item, is_bulk = _next(first, turn)
        write("tries", numbers)
        client.push_bulk(item) if is_bulk else client.push(item)
        write("knows", numbers)


async def _push_awaited(client: sidekiq.AsyncClient, first: int, write: Callable[[str, Iterable[int]], None]) -> None:
    for turn in itertools.count():
        numbers, item, is_bulk = _next(first, turn)
        write("tries", numbers)
        await (client.push_bulk(item) if is_bulk else client.push(item))
        write("knows", numbers)


def _next(first: int, turn: int) -> tuple[list[int], dict[str, Any], bool]:
    """In turn: one job, one scheduled job, and many jobs."""
    at = first + turn * BULK
    kind = turn % 3
    if kind == 2:
        numbers = list(range(at, at + BULK))
        return numbers, {"class": "tick", "args": [[number] for number in numbers], "queue": "low"}, True
    later = {"at": time.time() + 0.3} if kind else {}
    return [at], {"class": "tick", "args": [at], "queue": "default", **later}, False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
