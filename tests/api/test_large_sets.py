"""Large sets cost neither memory nor patience."""

from sidekiq_py.api import RetrySet
from sidekiq_py.redis_access.processes.beats import rss_kb

# As objects they would take 100 MB.
COUNT = 250_000
CHUNK = 10_000
EQUAL_FROM = COUNT // 2


def fill(redis_client):
    """Jobs, the second half due at one instant."""
    body = '{{"retry":true,"queue":"default","class":"J","args":[],"jid":"{:024x}"}}'
    for start in range(0, COUNT, CHUNK):
        redis_client.zadd("retry", {body.format(n): min(n, EQUAL_FROM) + 0.5 for n in range(start, start + CHUNK)})


def test_many_entries_are_walked_scanned_and_thinned_out(pool, redis_client):
    """A walk that deletes every thousandth entry sees all of them, in bounded memory."""
    fill(redis_client)
    retries = RetrySet()
    assert retries.find_job(f"{COUNT - 1:024x}").score == EQUAL_FROM + 0.5

    seen, before_kb, most_kb = 0, rss_kb(), 0
    for seen, entry in enumerate(retries, 1):
        if seen % 1000 == 0:
            entry.delete()
            most_kb = max(most_kb, rss_kb())

    assert seen == COUNT
    assert retries.size == COUNT - COUNT // 1000
    assert most_kb - before_kb < 8 * 1024


def test_a_search_holds_redis_up_for_a_thousand_entries_at_a_time(pool, redis_client):
    """In a set of a million, 3,000 took it 15 ms, again and again, while all workers waited."""
    redis_client.zadd("retry", {f'{{"class":"J","args":[],"jid":"{n:024x}"}}': n for n in range(4500)})
    redis_client.config_resetstat()

    assert list(RetrySet().scan("NoSuchRecord")) == []

    assert redis_client.info("commandstats")["cmdstat_zscan"]["calls"] >= 4
