"""Reads very many keys without one reply of a gigabyte: a few megabytes in a round trip, whatever each key holds."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sidekiq_celery.utils.functional import chunks
from sidekiq_py.extension import Pool, slices_by_bytes

KEYS_AT_ONCE = 1000
# So few are read without asking for their sizes first, which is a round trip more.
_FEW = 10


def sizes_of(pool: Pool, keys: Sequence[Any]) -> list[int]:
    """Return how many bytes each key holds; 0 if that is unknown, as for a user who may not use STRLEN."""
    return [size or 0 for size in pool.readable([("STRLEN", key) for key in keys])]


def texts_of(pool: Pool, keys: Iterable[Any]) -> Iterator[bytes | None]:
    """Yield the texts under *keys*, in their order, each part read when it is wanted."""
    for some in chunks(iter(keys), KEYS_AT_ONCE):
        if len(some) <= _FEW:
            yield from pool.command("MGET", *some)
            continue
        for part in slices_by_bytes(zip(some, sizes_of(pool, some), strict=True), lambda sized: sized[1]):
            yield from pool.command("MGET", *(key for key, _ in part))
