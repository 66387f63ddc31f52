"""Walking a sorted set page by page while others change it."""

import pytest

from sidekiq_py.redis_access.reads import job_sets

KEY = "retry"


def walk(pool, *, downward=True, count=3, between_pages=lambda page: None):
    """All members seen, page by page; *between_pages* is called with each page."""
    seen, after = [], None
    while page := job_sets.page(pool, KEY, count, after=after, downward=downward):
        seen += [member for member, _ in page]
        after = page[-1]
        between_pages(page)
    return seen


def test_each_member_comes_once_from_the_highest_score_down(pool, redis_client):
    """Without changes the walk is the set in reverse order."""
    redis_client.zadd(KEY, {f"job{n}": n / 7 for n in range(20)})

    assert walk(pool) == redis_client.zrevrange(KEY, 0, -1)
    assert walk(pool, downward=False) == redis_client.zrange(KEY, 0, -1)


@pytest.mark.parametrize("downward", [True, False])
def test_members_of_one_score_are_not_skipped_when_a_page_is_removed(pool, redis_client, downward):
    """Where the place's own member is gone, its place among equals is found by its bytes."""
    names = {f"job-{n:03}é\x00{n}".encode() for n in range(50)}
    redis_client.zadd(KEY, dict.fromkeys(names, 1700000000.123))

    seen = walk(pool, downward=downward, between_pages=lambda page: redis_client.zrem(KEY, *[m for m, _ in page]))

    assert set(seen) == names
    assert len(seen) == len(names)


@pytest.mark.parametrize("downward", [True, False])
def test_removing_only_the_last_member_of_each_page_skips_nothing(pool, redis_client, downward):
    """The rest of the page still stands before the place, and is neither repeated nor counted twice."""
    redis_client.zadd(KEY, {f"job{n:02}": n // 10 for n in range(40)})
    expected = redis_client.zrange(KEY, 0, -1)

    seen = walk(pool, downward=downward, between_pages=lambda page: redis_client.zrem(KEY, page[-1][0]))

    assert seen == (expected[::-1] if downward else expected)


def test_members_that_arrive_above_the_place_do_not_shift_the_walk_down(pool, redis_client):
    """New retries have later times; a walk by rank would show old ones twice."""
    redis_client.zadd(KEY, {f"job{n}": n for n in range(10)})
    expected = redis_client.zrevrange(KEY, 0, -1)

    seen = walk(pool, between_pages=lambda page: redis_client.zadd(KEY, {f"new{page[0][0]}": 1000}))

    assert seen == expected


def test_a_member_that_was_rescheduled_does_not_lead_the_walk_astray(pool, redis_client):
    """The place is a score and a member: the member alone may stand elsewhere by now."""
    redis_client.zadd(KEY, {f"job{n}": n for n in range(9)})
    expected = redis_client.zrevrange(KEY, 0, -1)

    seen = walk(pool, between_pages=lambda page: redis_client.zadd(KEY, {page[-1][0]: 5000}))

    assert seen == expected


@pytest.mark.parametrize("score", [float("inf"), float("-inf"), 0.1 + 0.2, 1e300, -1e-300])
def test_any_score_can_be_the_place(pool, redis_client, score):
    """Scores are compared as Redis spells them."""
    redis_client.zadd(KEY, {f"job{n}": score for n in range(7)})

    assert len(set(walk(pool))) == 7
    assert walk(pool, between_pages=lambda page: redis_client.zrem(KEY, page[-1][0])) != []


@pytest.mark.parametrize("downward", [True, False])
def test_a_page_of_large_members_is_short(pool, redis_client, downward):
    """Redis answers nobody else while it copies a page, and a reader keeps it in memory."""
    redis_client.zadd(KEY, {f"job{n:02}" + "x" * 300_000: n for n in range(20)})
    sizes = []

    seen = walk(pool, downward=downward, count=200, between_pages=lambda page: sizes.append(len(page)))

    assert max(sizes) == 5
    assert sorted(seen) == redis_client.zrange(KEY, 0, -1)


def test_a_page_of_small_members_before_large_ones_takes_few_commands(pool, redis_client):
    """The size of the first few shows how many to read at once."""
    redis_client.zadd(KEY, {f"job{n:04}": n for n in range(500)})
    redis_client.config_resetstat()

    assert len(job_sets.page(pool, KEY, 400, after=None, downward=False)) == 400

    assert redis_client.info("commandstats")["cmdstat_zrange"]["calls"] == 2
