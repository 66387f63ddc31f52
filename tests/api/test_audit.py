"""The audit log keeps what people did, and not more than that."""

import pytest

from sidekiq_py.api import AuditLog
from sidekiq_py.api import audit as audit_module


def test_the_latest_entry_comes_first(pool):
    """Page by page."""
    log = AuditLog(pool=pool)
    for number in range(5):
        log.record("ada", "retry", f"job {number}", "from retry")

    first = log.page(2)
    second = log.page(10, before=first[-1].id)

    assert [entry.subject for entry in first] == ["job 4", "job 3"]
    assert [entry.subject for entry in second] == ["job 2", "job 1", "job 0"]
    assert (first[0].user, first[0].action, first[0].details) == ("ada", "retry", "from retry")


def test_the_log_has_a_bound(pool, redis_client, monkeypatch):
    """Redis drops whole nodes of the stream, so it is kept about."""
    monkeypatch.setattr(audit_module, "MOST_ENTRIES", 100)
    log = AuditLog(pool=pool)

    for number in range(1000):
        log.record("ada", "retry", str(number))

    assert 100 <= redis_client.xlen("sidekiq_py:audit") <= 300
    assert log.page(1)[0].subject == "999"


def test_texts_of_any_kind_are_kept(pool):
    """Long ones are cut; half letters of UTF-16 are spelled out."""
    AuditLog(pool=pool).record("\ud800", "é", "x" * 600)

    [entry] = AuditLog(pool=pool).page()

    assert (entry.user, entry.action, len(entry.subject)) == ("\\ud800", "é", 501)


@pytest.mark.parametrize("before", ["", "1", "1-", "-", "(1-1", "1-1 COUNT 5", "é-1"])
def test_an_id_that_is_none_is_an_error(pool, before):
    """It would reach Redis as something else."""
    with pytest.raises(ValueError, match="not an entry's id"):
        AuditLog(pool=pool).page(before=before)
