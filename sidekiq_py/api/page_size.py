"""How many jobs a walk over many of them reads in each round trip."""

from collections.abc import Iterable

# Redis needs some milliseconds for this many, during which nobody else gets an answer.
_MOST_JOBS = 2000
_MOST_BYTES = 1_000_000


class PageSize:
    """
    The size of the next page: more jobs while they are small, because a round trip may take long; fewer if they are
    large, because Redis and this process hold a whole page in memory.

    Args:
        first: The number of jobs on the first page.
        most: The most jobs on any page.

    Attributes:
        jobs: The number of jobs to read next.
    """

    def __init__(self, first: int, *, most: int = _MOST_JOBS) -> None:
        self.jobs = first
        self._most = most

    def __repr__(self) -> str:
        return f"<PageSize {self.jobs}>"

    def adapt(self, page: Iterable[bytes]) -> None:
        """Take the sizes of the jobs that were just read into account."""
        sizes = [len(job) for job in page]
        if sizes:
            fitting = _MOST_BYTES * len(sizes) // max(1, sum(sizes))
            self.jobs = max(1, min(2 * self.jobs, self._most, fitting))
