"""Batches in the dashboard: what it shows, and its buttons."""

import re

import pytest

pytest.importorskip("starlette")

import sidekiq_py as sidekiq
from sidekiq_py.api import AuditLog
from sidekiq_py.extensions.batches import state, steps
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.web import Redaction, User, asgi_app
from tests.support.waiting import eventually
from tests.web.browsing import Visitor
from tests.web.conftest import round_trips

__all__ = ["round_trips"]

SCRIPT = "\"'><script>alert(1)</script>"


@pytest.fixture
def visitor(redis_url):
    """Somebody with a role."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="7.3.2")

    def make(role="operator", **settings):
        return Visitor(asgi_app(authorize=lambda _request: User("ada", role), **settings))

    return make


def batch_of(count, **settings):
    """A batch with so many jobs."""
    row = sidekiq.ruby_job("ImportRow")
    batch = sidekiq.Batch(description="Import 42", **settings)
    with batch.jobs():
        row.perform_bulk([[number] for number in range(count)])
    return batch


def test_batches_are_listed_with_their_progress(visitor, redis_client):
    """The newest first; a filter by state."""
    viewer = visitor("viewer")
    batch_of(3)

    page = viewer.get("/batches")

    assert "Import 42" in page.shown
    assert "running" in page.shown
    assert 'aria-current="page">Batches<' in page.text
    assert "Import 42" not in viewer.get("/batches?state=success").shown
    assert viewer.get("/batches?state=nonsense&from=x").status == 200


def test_a_page_of_batches_reads_none_of_the_pages_before_it(visitor, redis_client, round_trips):
    """Wherever it begins, it takes two round trips and as many reads as it shows."""
    for number in range(350):
        redis_client.zadd("sidekiq_py:batches", {f"b{number:03}": number})
        redis_client.hset(f"sidekiq_py:batch:b{number:03}", mapping={"total": 1, "pending": 1})
    viewer = visitor("viewer")
    viewer.get("/batches")

    with round_trips() as made:
        page = viewer.get("/batches?from=250")

    assert (made.count, made.commands) == (2, 51)
    assert re.findall(r'<tr data-key="(b\d+)"', page.text) == [f"b{number:03}" for number in range(99, 49, -1)]
    assert ('rel="prev"' in page.text, 'rel="next"' in page.text) == (True, True)
    assert 'rel="next"' not in viewer.get("/batches?from=300").text


def test_batches_that_have_not_ended_are_found_without_reading_those_that_have(visitor, redis_client, round_trips):
    """Among 50,000 that are a success, the page once read for longer than a minute on a link with 100 ms."""
    for number in range(3000):
        redis_client.zadd("sidekiq_py:batches", {f"b{number:04}": number})
        redis_client.hset(f"sidekiq_py:batch:b{number:04}", mapping={"total": 1, "pending": 0, "success_at": 1})
    batch_of(3)
    viewer = visitor("viewer")

    with round_trips() as made:
        page = viewer.get("/batches?state=running")

    assert "Import 42" in page.shown
    assert made.commands < 5


@pytest.mark.parametrize(("ends", "begins"), [(1, 0), (0, 1), (0, 2), (1, 1)])
def test_batches_that_end_or_begin_meanwhile_hide_and_repeat_no_others(redis_url, redis_client, ends, begins):
    """As when a program invalidates each of those that run."""
    running = "sidekiq_py:batches:running"
    redis_client.zadd(running, {f"b{number:04}": number // 10 for number in range(3000)})
    pool, seen = Pool(RedisSettings(redis_url)), []

    for bid in state.bids(pool, running=True):
        seen.append(bid)
        if ends:
            redis_client.zrem(running, *seen[-2:])
        if begins:
            redis_client.zadd(running, {f"new{len(seen)}-{number}": 999 for number in range(begins)})

    assert seen == [f"b{number:04}" for number in reversed(range(3000))]


def test_what_another_program_has_damaged_is_named(visitor, redis_client):
    """A total of 0 does not look like one."""
    batch = batch_of(3)
    sound = visitor("viewer").get(f"/batches/one?bid={batch.bid}")
    redis_client.hset(f"sidekiq_py:batch:{batch.bid}", "total", "many")

    damaged = visitor("viewer").get(f"/batches/one?bid={batch.bid}")

    assert "Damaged" not in sound.shown
    assert "Damaged by another program" in damaged.shown
    assert "total; callbacks may never be enqueued" in damaged.shown


@pytest.mark.parametrize("track", [False, True])
def test_one_is_shown_with_its_jobs(track, visitor, redis_client):
    """A tracked one with a row for each job, a page at a time."""
    operator = visitor()
    batch = batch_of(120, track=track)

    page = operator.get(f"/batches/one?bid={batch.bid}")

    assert "0 % of 120 jobs have succeeded" in page.shown
    assert page.text.count('<tr data-key="') == (50 if track else 0)
    assert ("Next page" in page.text) is track
    assert (operator.get(f"/batches/one?bid={batch.bid}&state=dead").text.count('<tr data-key="')) == 0


def test_its_buttons_do_what_they_say(visitor, redis_client):
    """Each is noted; a viewer does none of it."""
    operator = visitor()
    batch = batch_of(2)
    where = {"bid": batch.bid, "sure": "yes"}

    assert visitor("viewer").post("/batches/act", {**where, "action": "invalidate"}).status == 403
    assert "without running" in operator.post("/batches/act", {**where, "action": "invalidate"}).shown
    assert not batch.is_valid
    assert "It was deleted" in operator.post("/batches/act", {**where, "action": "delete"}).shown
    assert "nothing was done" in operator.post("/batches/act", {**where, "action": "explode"}).shown
    assert "Nothing was done" in operator.post("/batches/act", {**where, "action": "retry"}).shown
    assert [entry.action for entry in AuditLog().page()] == ["retry", "delete", "invalidate"]


def test_one_says_what_it_waits_for_and_offers_only_what_can_be_done(visitor, redis_client):
    """A batch without failures has nothing to retry, and one that has succeeded cannot be invalidated."""
    operator = visitor()
    batch = sidekiq.Batch(description="outer")
    with batch.jobs():
        sidekiq.ruby_job("ImportRow").perform_bulk([[number] for number in range(3)])
        with sidekiq.Batch(description="inner").jobs():
            sidekiq.ruby_job("ImportRow").perform_async(4)
    key = steps.key(batch.bid)

    page = operator.get(f"/batches/one?bid={batch.bid}")
    assert "It waits for 3 unfinished jobs, 1 child batch. To find the unfinished jobs: sidekiq-py jobs " in page.shown
    assert "inner : running, 1 of 1 pending" in page.shown
    assert ">Retry failed jobs<" not in page.text
    assert ">Invalidate<" in page.text

    redis_client.set(f"{key}:children", "foreign")
    redis_client.hset(key, mapping={"n:failed": 1, "n:dead": 1})
    page = operator.get(f"/batches/one?bid={batch.bid}")
    assert "1 unfinished job, 1 child batch, the retry of 1 failed job, 1 dead job to be retried." in page.shown
    assert ">Retry failed jobs<" in page.text

    redis_client.hset(key, mapping={"success_at": 1, "n:failed": 0, "n:dead": 0, "kids_pending": 0})
    page = operator.get(f"/batches/one?bid={batch.bid}")
    assert "It waits for" not in page.shown
    assert ">Retry failed jobs<" not in page.text
    assert ">Invalidate<" not in page.text


@pytest.mark.parametrize(
    ("action", "question"),
    [
        ("invalidate", "Invalidate this batch? Its remaining jobs end without running."),
        ("delete", "Delete this batch? Its jobs still run, but its callbacks do not."),
    ],
)
def test_each_button_asks_before(visitor, redis_client, action, question):
    """With a question that says what will happen, and also without JavaScript."""
    operator = visitor()
    batch = batch_of(2)

    asked = operator.post("/batches/act", {"bid": batch.bid, "action": action})

    assert question in asked.shown
    assert batch.is_valid
    assert AuditLog().page() == []
    assert f'data-ask="{question}"' in operator.get(f"/batches/one?bid={batch.bid}").text


def test_one_that_has_gone_is_told(visitor, redis_client):
    """It has expired, or somebody deleted it."""
    assert visitor().get("/batches/one?bid=gone").status == 404


def test_what_stands_in_a_batch_stays_text(visitor, redis_client):
    """Descriptions and arguments."""
    operator = visitor(redaction=Redaction.none())
    batch = sidekiq.Batch(description=SCRIPT, track=True)
    with batch.jobs():
        sidekiq.ruby_job("ImportRow").perform_async(SCRIPT)

    for path in ("/batches", f"/batches/one?bid={batch.bid}"):
        page = operator.get(path)
        assert page.status == 200
        assert "<script>alert" not in page.text


@pytest.mark.parametrize("track", [False, True])
def test_the_dashboard_s_policy_holds_for_members_of_a_batch(track, app, worker):
    """Their arguments, and their errors where a rule names them."""

    def refuse():
        raise ValueError("no anna@example.com")

    app.deeds["anna"] = refuse
    batch = sidekiq.Batch(track=track)
    with batch.jobs():
        app.deed.perform_async("anna")
    address = f"/batches/one?bid={batch.bid}"
    plain = Visitor(asgi_app(authorize=lambda _request: "viewer"))
    rule = Redaction(jobs={"*": ["args[0]", "error_message"]})

    eventually(lambda: "no anna@example.com" in plain.get(address).text)
    hidden = Visitor(asgi_app(authorize=lambda _request: "viewer", redaction=rule)).get(address).text

    assert "anna" not in hidden
    assert "[redacted]" in hidden


def test_a_tracked_batch_of_any_size_is_shown_in_three_round_trips(visitor, redis_client, round_trips):
    """And no more rows are read than are shown."""
    operator = visitor()
    batch = batch_of(2000, track=True)
    operator.get(f"/batches/one?bid={batch.bid}")

    for query, shown in (("", 50), ("&after=1000", 50), ("&state=enqueued", 50), ("&state=dead", 0)):
        with round_trips() as made:
            page = operator.get(f"/batches/one?bid={batch.bid}{query}")
        assert made.count <= 3
        assert page.text.count('<tr data-key="') == shown
        assert "enqueued: 2,000" in page.shown


def test_the_arguments_of_a_tracked_job_can_be_read(visitor, redis_client):
    """Letters and quotes are themselves, as in lists of jobs."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        sidekiq.ruby_job("ImportRow").perform_async("Zoë's <b>")

    page = visitor("viewer").get(f"/batches/one?bid={batch.bid}")

    assert """ImportRow ["Zoë's <b>"]""" in page.shown
    assert "<b>" not in page.text


@pytest.mark.parametrize(("count", "is_cut"), [(49, False), (50, True)])
def test_a_list_that_is_cut_says_so(visitor, redis_client, count, is_cut):
    """Errors look as in other lists."""
    batch = batch_of(1200)
    key = f"sidekiq_py:batch:{batch.bid}"
    redis_client.hset(f"{key}:members", mapping={str(number): f"error:j{number}" for number in range(count)})
    error = '{"class":"ImportRow","error_class":"Boom","error_message":"it broke"}'
    redis_client.hset(f"{key}:errors", mapping={str(number): error for number in range(count)})

    shown = visitor("viewer").get(f"/batches/one?bid={batch.bid}").shown

    assert shown.count("Boom: it broke") == count
    assert "0 % of 1,200 jobs have succeeded." in shown
    assert ("No more than 50 are shown." in shown) is is_cut
