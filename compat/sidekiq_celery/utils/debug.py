"""The memory of this process, sampled between tasks: `sample_mem` in each, `memdump` at the end."""

import gc
import os
from typing import Any

from sidekiq_py.worker import rss_kb_of

__all__ = ("mem_rss", "memdump", "sample_mem")

_samples: list[str] = []


def mem_rss() -> str:
    """The memory that this process uses, as text."""
    return f"{rss_kb_of(os.getpid()) / 1024:.2f}MB"


def sample_mem() -> str:
    """Measure the memory of this process, and remember it for `memdump`."""
    _samples.append(mem_rss())
    return _samples[-1]


def memdump(samples: int = 10, file: Any = None) -> None:
    """
    Print what `sample_mem` has measured since the last call, and what is used after a garbage collection.

    Args:
        samples: How many to print, taken at equal distances.
        file: Where to; standard output by default.
    """
    step = max(len(_samples) // samples, 1)
    for text in _samples[::step][:samples]:
        print(f"- rss (sample): {text}", file=file)
    _samples.clear()
    gc.collect()
    print(f"- rss (end): {mem_rss()}.", file=file)
