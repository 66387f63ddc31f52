"""The garbage collector of a process that is about to work."""

import gc


def settle_memory() -> None:
    """
    Put what was loaded so far out of the garbage collector's sight: none of it will ever be garbage.

    A process that forks calls it before, so that its children need not copy what they only look through. Ruby does as
    much before it starts to work (`Process.warmup`).
    """
    gc.collect()
    gc.freeze()
