"""How many jobs a walk reads at once."""

import pytest

from sidekiq_py.api.page_size import PageSize


@pytest.mark.parametrize(
    ("bytes_of_a_job", "sizes"),
    [
        (400, [200, 400, 800, 1600, 2000, 2000]),
        (10_000, [200, 100, 100, 100, 100, 100]),
        (3_000_000, [200, 1, 1, 1, 1, 1]),
    ],
)
def test_pages_grow_until_they_hold_a_megabyte(bytes_of_a_job: int, sizes: list[int]) -> None:
    """A round trip may take 200 ms; and both sides hold a whole page in memory."""
    size, seen = PageSize(200), []
    for _ in sizes:
        seen.append(size.jobs)
        size.adapt([b"x" * bytes_of_a_job] * min(2, size.jobs))

    assert seen == sizes


def test_nothing_is_learned_from_an_empty_page() -> None:
    """A page of a queue may have only jobs that were seen before."""
    size = PageSize(200)

    size.adapt([])

    assert size.jobs == 200
