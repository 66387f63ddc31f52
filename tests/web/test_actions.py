"""What the buttons do, to the chosen jobs or to all matching jobs."""

import json
import re
from html import unescape
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette")

from sidekiq_py import program
from sidekiq_py.api import AuditLog, BulkRuns, BulkStatus, DeadSet, Queue, RetrySet
from sidekiq_py.clock import now_seconds
from sidekiq_py.web import Redaction
from tests.support.waiting import eventually
from tests.web.test_pages import enter_process, fill


def keys_on(page):
    """The values of a list's check boxes."""
    return [unescape(key) for key in re.findall(r'type="checkbox" name="key" value="([^"]+)"', page.text)]


def finished(run_id=None):
    """The last run, after it has ended."""
    [run, *_] = BulkRuns().latest()
    return eventually(lambda: state if (state := BulkRuns().find(run.id)).status is not BulkStatus.RUNNING else None)


def test_chosen_jobs_are_retried(operator, redis_client, failed):
    """They go to their queues; the others stay."""
    for jid in "abc":
        failed(jid)
    keys = keys_on(operator.get("/retries"))

    reply = operator.post("/retries/act", {"action": "retry", "key": keys[:2]})

    assert "2 jobs were enqueued again." in reply.shown
    assert [json.loads(raw)["jid"] for raw in redis_client.lrange("queue:default", 0, -1)] == ["b", "a"]
    assert [entry.jid for entry in RetrySet()] == ["c"]


def test_chosen_jobs_are_killed(operator, failed):
    """They are in the dead set afterwards."""
    failed("a")

    reply = operator.post("/retries/act", {"action": "kill", "key": keys_on(operator.get("/retries"))})

    assert "1 job was moved to the dead set." in reply.shown
    assert [entry.jid for entry in DeadSet()] == ["a"]


def test_a_scheduled_job_is_run_now(operator, redis_client, payload):
    """Only the time when it was enqueued changes."""
    redis_client.zadd("schedule", {payload("a"): now_seconds() + 3600})

    operator.post("/scheduled/act", {"action": "run", "key": keys_on(operator.get("/scheduled"))})

    assert redis_client.llen("queue:default") == 1


def test_deleting_asks_before(operator, failed):
    """Nothing is deleted before the user confirms."""
    failed("a", into="dead")
    keys = keys_on(operator.get("/dead"))

    question = operator.post("/dead/act", {"action": "delete", "key": keys})
    assert "Delete 1 job? This cannot be undone." in question.shown
    assert DeadSet().size == 1

    assert "1 job was deleted." in operator.post("/dead/act", {"action": "delete", "key": keys, "sure": "yes"}).shown
    assert DeadSet().size == 0


def test_a_job_that_has_left_is_told(operator, redis_client, failed):
    """Someone else was faster."""
    failed("a")
    keys = keys_on(operator.get("/retries"))
    redis_client.delete("retry")

    assert "1 job had already left." in operator.post("/retries/act", {"action": "retry", "key": keys}).shown


def test_what_is_no_job_cannot_be_retried_and_stays(operator, redis_client):
    """The page says why."""
    redis_client.zadd("dead", {b"\xffjunk": 1})

    reply = operator.post("/dead/act", {"action": "retry", "key": keys_on(operator.get("/dead"))})

    assert "1 job could not be changed: not UTF-8" in reply.shown
    assert redis_client.zrange("dead", 0, -1) == [b"\xffjunk"]


@pytest.mark.parametrize(
    "key", ["", "x", "1", "nan-abc", "1e999-abc", "(1-abc", "1 2-abc", "1\n-abc", "-inf-x", "9" * 500]
)
def test_a_made_up_key_chooses_nothing(operator, redis_client, failed, key):
    """Whatever it contains."""
    failed("a")

    reply = operator.post("/retries/act", {"action": "delete", "sure": "yes", "key": key})

    assert reply.status == 200
    assert redis_client.zcard("retry") == 1


def test_jobs_that_share_their_time_are_told_apart(operator, redis_client, payload):
    """A bulk push schedules thousands of jobs for the same time; exactly the chosen one is affected."""
    rows = {payload(f"{n:024}"): 2_000_000_000 for n in range(2500)}
    redis_client.zadd("schedule", rows)
    keys = keys_on(operator.get("/scheduled?from=2400"))

    operator.post("/scheduled/act", {"action": "delete", "sure": "yes", "key": [keys[3]]})

    assert redis_client.zcard("schedule") == 2499
    assert redis_client.zscore("schedule", payload(f"{2403:024}")) is None


def test_all_that_fit_are_retried_in_the_background(operator, redis_client, failed):
    """With a count before, and a page that shows the progress."""
    for n in range(30):
        failed(f"{n:024}", klass="Mail" if n % 3 else "Other")

    before = operator.get("/retries/all?class=Mail")
    assert "20 jobs match." in before.shown
    assert ">Retry all now</button>" in before.text
    assert "30 jobs." in operator.get("/retries/all").shown

    page = operator.post("/retries/all", {"action": "retry", "class": "Mail", "counted": "20"})
    state = finished()

    assert "Retry now: Retries" in page.shown
    assert (state.status, state.moved, state.total, state.user) == (BulkStatus.FINISHED, 20, 20, "ada")
    assert redis_client.llen("queue:default") == 20
    assert redis_client.zcard("retry") == 10
    assert "Finished. 20 of 20 jobs processed." in operator.get(f"/bulk/run?id={state.id}").shown
    assert "class is Mail" in operator.get("/bulk").shown


def test_all_that_failed_within_an_hour_are_retried(operator, redis_client, failed):
    """Though they are due at other times, and others have the same error."""
    failed("a", error_class="TimeoutError", failed_at=1771034400.5)
    failed("b", error_class="TimeoutError", failed_at=1771038000.5)
    failed("c", failed_at=1771034400.5)
    window = {"error": "TimeoutError", "failed-after": "2026-02-14 02:00", "failed-before": "2026-02-14 03:00"}

    operator.post("/retries/all", {"action": "retry", **window})

    assert eventually(lambda: RetrySet().size == 2)
    assert {entry.jid for entry in RetrySet()} == {"b", "c"}
    assert [json.loads(raw)["jid"] for raw in redis_client.lrange("queue:default", 0, -1)] == ["a"]
    assert (
        AuditLog().page()[0].details.startswith("error has TimeoutError, last failure is not before 2026-02-14 02:00")
    )


def test_a_bulk_action_keeps_its_pace_and_is_stopped(operator, failed):
    """Jobs that were not processed yet stay."""
    for n in range(100):
        failed(f"{n:024}")
    operator.post("/retries/all", {"action": "delete", "all": "1", "per_second": "10", "counted": "100"})
    [run] = BulkRuns().latest()

    assert "It is stopping" in operator.post("/bulk/stop", {"id": run.id}).shown

    state = finished()
    assert state.status is BulkStatus.STOPPED
    assert state.moved < 30
    assert RetrySet().size == 100 - state.moved


def test_what_fails_again_at_once_is_not_retried_for_ever(operator, redis_client, failed):
    """It stops after as many jobs as there were. Jobs move in slices of 100, so those of the first slice come back."""
    for n in range(250):
        failed(f"{n:024}", at=60 + n)
    number = iter(range(1000))

    def come_back(_job, payload, _queue, call_next):
        again = json.dumps({**payload, "again": next(number)})
        redis_client.zadd("retry", {again: now_seconds() + 3600})
        return call_next()

    program.client_middleware.add(come_back)
    operator.post("/retries/all", {"action": "retry", "all": "1"})

    assert finished().moved == 250


def test_counting_a_large_set_goes_on_page_by_page(operator, redis_client, payload):
    """Each page counts a few thousand jobs; the page's script requests the next one."""
    redis_client.zadd("dead", {payload(f"{n:024}", args=["x" if n % 2 else "y"]): n for n in range(12_000)})

    page = operator.get("/dead/all?argument=x")
    assert "5,000 jobs match so far." in page.shown
    [link] = re.findall(r'id="count-on" href="([^"]+)"', page.text)

    assert "6,000 jobs match." in operator.get(unescape(link)).shown


@pytest.mark.parametrize("pace", ["0", "-1", "x", "1.5", "9" * 30])
def test_a_pace_that_is_none_starts_nothing(operator, failed, pace):
    """The page says so."""
    failed("a")

    reply = operator.post("/retries/all", {"action": "delete", "all": "1", "per_second": pace})

    assert "whole number" in reply.shown
    assert RetrySet().size == 1


def test_an_action_goes_by_what_is_shown(visitor, failed):
    """An action does not help anyone to find out hidden values."""
    failed("a", klass="Mail", args=["anna"])
    operator = visitor("operator", redaction=Redaction(jobs={"Mail": ["args"]}))

    operator.post("/retries/all", {"action": "delete", "argument": "anna"})

    assert finished().moved == 0
    assert RetrySet().size == 1


def test_a_queue_is_paused_and_goes_on(operator, redis_client, payload):
    """Pausing names the Ruby processes that ignore the pause."""
    fill(redis_client, payload, 1, "low")
    enter_process(redis_client, "rb:1:aaa", queues=["low"])
    enter_process(redis_client, "py:1:bbb", queues=["low"], labels=["sidekiq_py"])

    reply = operator.post("/queue/pause", {"name": "low", "action": "pause"})
    assert "low is paused." in reply.shown
    assert "keep fetching: rb:1:aaa." in reply.shown
    assert "py:1:bbb" not in reply.shown
    assert Queue("low").paused

    for number in range(6):
        enter_process(redis_client, f"rb:1:more{number}", queues=["low"])
    assert " and 2 more." in operator.post("/queue/pause", {"name": "low", "action": "pause"}).shown

    operator.post("/queue/pause", {"name": "low", "action": "unpause"})
    assert not Queue("low").paused


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://localhost:4567/jobs/queues?from=100&name=a+b", "/jobs/queues?from=100&name=a+b"),
        ("http://localhost:4567/jobs/queue?name=low", "/jobs/queue?name=low"),
        ("http://localhost:4567/jobs/busy", "/jobs/queues"),
        ("http://localhost:4567/queue?name=low", "/jobs/queues"),
        ("http://localhost:4567/jobs//evil.example/queue", "/jobs/queues"),
        ("http://[", "/jobs/queues"),
        ("", "/jobs/queues"),
        (f"http://localhost:4567/jobs/queues?name={'x' * 3000}", "/jobs/queues"),
    ],
)
def test_an_action_leads_back_to_the_page_with_its_button(visitor, redis_client, payload, referer, back):
    """Among hundreds of queues nobody wants to turn the pages again."""
    fill(redis_client, payload, 1, "low")
    operator = visitor(base="/jobs")
    form = urlencode({"form_token": operator.form_token, "name": "low", "action": "pause"}).encode()

    sent = {"origin": "http://localhost:4567", "sec-fetch-site": "same-origin", "referer": referer}
    reply = operator.send("POST", "/queue/pause", form, headers=sent)

    assert (reply.status, reply.headers["location"]) == (303, back)
    assert redis_client.sismember("paused", "low")


def test_a_queue_is_cleared_after_a_count(operator, redis_client, payload):
    """The question says how many jobs there are."""
    fill(redis_client, payload, 7, "low")

    assert "7 jobs wait in this queue" in operator.get("/queue/clear?name=low").shown
    assert "7 jobs were deleted from low." in operator.post("/queue/clear", {"name": "low"}).shown
    assert redis_client.exists("queue:low") == 0


def test_a_single_job_that_was_cleared_is_one_job(operator, redis_client, payload):
    """The notice says "1 job was deleted"."""
    fill(redis_client, payload, 1, "low")

    assert "1 job was deleted from low." in operator.post("/queue/clear", {"name": "low"}).shown


def test_chosen_jobs_of_a_queue_are_deleted_or_moved(operator, redis_client, payload):
    """Even if workers have taken other jobs in the meantime."""
    fill(redis_client, payload, 10)
    keys = keys_on(operator.get("/queue?name=default"))
    redis_client.rpop("queue:default", 2)

    operator.post("/queue/act", {"name": "default", "action": "delete", "sure": "yes", "key": [keys[3]]})
    moved = operator.post(
        "/queue/act", {"name": "default", "action": "move", "target": "low", "key": [keys[1], keys[5]]}
    )

    assert "1 job was moved. 1 job had already left." in moved.shown
    left = [json.loads(raw)["args"][0] for raw in redis_client.lrange("queue:default", 0, -1)]
    assert sorted(left) == [2, 4, 6, 7, 8, 9]
    assert [json.loads(raw)["args"][0] for raw in redis_client.lrange("queue:low", 0, -1)] == [5]


@pytest.mark.parametrize("target", ["low priority", "low\x00"])
def test_no_job_goes_to_a_queue_that_no_worker_can_be_told_to_serve(operator, redis_client, payload, failed, target):
    """A queue of Ruby's that has such a name may still get jobs."""
    failed()
    fill(redis_client, payload, 2)
    [key, _] = keys_on(operator.get("/queue?name=default"))
    [copied] = keys_on(operator.get("/retries"))
    move = {"name": "default", "action": "move", "target": target}
    copy = {"at": "/retries", "key": copied, "queue": target}

    for reply in (
        operator.post("/queue/act", {**move, "key": key}),
        operator.post("/queue/all", {**move, "all": "1"}),
        operator.post("/job/copy", copy),
    ):
        assert "queue names must not have whitespace or control characters" in reply.shown
    assert redis_client.keys("queue:*") == [b"queue:default"]

    redis_client.sadd("queues", target)
    assert "1 job was moved." in operator.post("/queue/act", {**move, "key": key}).shown
    assert "The copy was enqueued" in operator.post("/job/copy", copy).shown
    assert redis_client.llen(f"queue:{target}") == 2


def test_spaces_around_the_name_of_a_queue_are_a_slip_unless_a_queue_has_them(operator, redis_client, payload, failed):
    """A copy of a job of Ruby's queue " low" stays in that queue."""
    failed(queue=" low")
    fill(redis_client, payload, 3)
    first, second, _ = keys_on(operator.get("/queue?name=default"))
    [copied] = keys_on(operator.get("/retries"))
    move = {"name": "default", "action": "move", "target": " low"}
    copy = {"at": "/retries", "key": copied, "queue": " low"}

    operator.post("/queue/act", {**move, "key": first})
    operator.post("/job/copy", copy)
    assert redis_client.llen("queue:low") == 2

    redis_client.sadd("queues", " low")
    operator.post("/queue/act", {**move, "key": second})
    operator.post("/job/copy", copy)
    assert redis_client.llen("queue: low") == 2


def test_all_jobs_of_a_queue_that_fit_are_moved(operator, redis_client, payload):
    """In the background, too."""
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", *[payload(f"{n:024}", klass="AB"[n % 2]) for n in range(20)])

    operator.post("/queue/all", {"name": "default", "action": "move", "target": "low", "class": "A"})

    assert finished().moved == 10
    assert (redis_client.llen("queue:default"), redis_client.llen("queue:low")) == (10, 10)


def test_processes_are_quieted_stopped_and_dumped(operator, redis_client):
    """One process, or all except those that are embedded in other programs."""
    for identity in ("rb:1:aaa", "py:1:bbb"):
        enter_process(redis_client, identity)
    enter_process(redis_client, "app:1:ccc", embedded=True)

    operator.post("/busy/signal", {"action": "quiet", "identity": "rb:1:aaa"})
    reply = operator.post("/busy/signal", {"action": "stop", "all": "1", "sure": "yes"})

    assert redis_client.lrange("rb:1:aaa-signals", 0, -1) == [b"TERM", b"TSTP"]
    assert redis_client.lrange("py:1:bbb-signals", 0, -1) == [b"TERM"]
    assert redis_client.exists("app:1:ccc-signals") == 0
    assert "2 processes will finish running jobs and exit" in reply.shown
    assert "1 cannot be controlled" in reply.shown


@pytest.mark.parametrize(
    ("fields", "question"),
    [
        (
            {"action": "stop", "identity": "rb:1:aaa"},
            "Stop rb:1:aaa? No more jobs are fetched. Running jobs may finish",
        ),
        ({"action": "stop", "all": "1"}, "Stop all processes? No more jobs are fetched."),
        ({"action": "quiet", "all": "1"}, "Quiet all processes? Running jobs finish, and no others"),
    ],
)
def test_stopping_asks_before(operator, redis_client, fields, question):
    """Without JavaScript, a page does; its form sends the same again, with the answer."""
    enter_process(redis_client, "rb:1:aaa")

    asked = operator.post("/busy/signal", fields)

    assert question in asked.shown
    assert redis_client.exists("rb:1:aaa-signals") == 0
    assert AuditLog().page() == []
    sent = dict(re.findall(r'type="hidden" name="(?!form_token)(\w+)" value="([^"]*)"', asked.text))
    assert sent == {**fields, "sure": "yes"}


@pytest.mark.parametrize(
    "fields", [{}, {"identity": ""}, {"identity": "", "all": ""}, {"identity": "rb:1:aaa", "all": "1"}]
)
def test_a_signal_without_a_clear_receiver_reaches_no_process(operator, redis_client, fields):
    """A script whose variable is empty must not stop the fleet."""
    enter_process(redis_client, "rb:1:aaa")

    reply = operator.post("/busy/signal", {"action": "stop", **fields})

    assert reply.status == 400
    assert "all=1 for all processes. Nothing was done." in reply.shown
    assert redis_client.exists("rb:1:aaa-signals") == 0
    assert AuditLog().page() == []


def test_the_buttons_for_all_processes_say_so(operator, redis_client):
    """They send all=1; those of one process send its identity."""
    enter_process(redis_client, "rb:1:aaa")

    page = operator.get("/busy").text

    assert page.count('name="all" value="1"') == 3
    assert page.count('name="identity" value="rb:1:aaa"') == 3


@pytest.mark.parametrize("fields", [{}, {"klass": "Mail"}, {"class": " "}])
def test_all_jobs_are_only_meant_if_the_form_says_so(operator, failed, fields):
    """A misspelled or lost filter must not delete the whole set."""
    failed("a")

    reply = operator.post("/retries/all", {"action": "delete", **fields})

    assert reply.status == 400
    assert "all=1 for all jobs. Nothing was done." in reply.shown
    assert BulkRuns().latest() == []
    assert RetrySet().size == 1


def test_a_filter_that_is_wrong_acts_on_nothing(operator, failed):
    """Its valid part, or no filter at all, would match more jobs than are meant."""
    failed("a")

    asked = operator.get("/retries/all?after=tomorrow")
    sent = operator.post("/retries/all", {"action": "delete", "after": "tomorrow"})

    assert asked.status == sent.status == 422
    assert "“tomorrow” is not a time" in asked.shown
    assert "Correct the filter; nothing was done." in sent.shown
    assert BulkRuns().latest() == []
    assert RetrySet().size == 1


def test_the_form_for_all_jobs_says_so_without_a_filter(operator, failed):
    """With a filter, the form sends that."""
    failed("a")

    assert 'name="all" value="1"' in operator.get("/retries/all").text
    assert 'name="all"' not in operator.get("/retries/all?class=HardJob").text


@pytest.mark.parametrize("action", ["pause", "unpause"])
def test_a_queue_that_does_not_exist_is_not_paused(operator, redis_client, payload, action):
    """A misspelled name is reported with the closest match, as on the command line."""
    fill(redis_client, payload, 1, "mailers")

    reply = operator.post("/queue/pause", {"name": "mailer", "action": action})

    assert reply.status == 404
    assert "There is no queue mailer Nothing was done. Did you mean mailers?" in reply.shown
    assert redis_client.exists("paused") == 0
    assert AuditLog().page() == []


def test_a_queue_that_a_process_serves_can_be_paused_while_it_is_empty(operator, redis_client):
    """Redis forgets empty queues, but the process would fetch the next job."""
    enter_process(redis_client, "py:1:bbb", queues=["low"], labels=["sidekiq_py"])

    operator.post("/queue/pause", {"name": "low", "action": "pause"})

    assert Queue("low").paused


def test_clearing_needs_a_name(operator):
    """Without one nothing is recorded either."""
    assert operator.post("/queue/clear", {}).status == 400
    assert AuditLog().page() == []


def test_a_job_that_cannot_be_read_has_no_link_to_a_copy(operator, redis_client):
    """The page of a copy could only answer that the job is not JSON."""
    redis_client.zadd("retry", {b"{not JSON": 1, b'{"class":"HardJob","args":[]}': 2})
    unreadable, job = keys_on(operator.get("/retries"))

    assert "Edit and enqueue a copy" in operator.get(f"/job?at=/retries&key={job}").shown
    page = operator.get(f"/job?at=/retries&key={unreadable}")
    assert page.status == 200
    assert "Edit and enqueue a copy" not in page.shown


def test_a_copy_has_changed_arguments_and_every_other_byte_as_it_was(operator, redis_client):
    """Large integers, float texts, escapes and foreign keys are kept; the failure is not copied."""
    raw = (
        b'{"class":"HardJob","args":[12345678901234567890123, 1.0e3,"caf\\u00e9",{"a" : 1}],"queue":"default",'
        b'"jid":"old","retry":true,"x-y":{"k": 1.50},"created_at":1.5,"error_class":"E","error_message":"m",'
        b'"retry_count":3,"failed_at":2}'
    )
    redis_client.zadd("retry", {raw: 1})
    [key] = keys_on(operator.get("/retries"))
    where = {"at": "/retries", "key": key}

    form = operator.get(f"/job/copy?at=/retries&key={key}")
    assert "12345678901234567890123</textarea>" in form.text
    reply = operator.post(
        "/job/copy",
        {
            **where,
            "queue": "low",
            "argument-0": "12345678901234567890123",
            "argument-1": "1.0e3",
            "argument-2": '"caf\\u00e9"',
            "argument-3": '{"a" : 2}\r\n',
            "more": "[]",
        },
    )

    [copy] = redis_client.lrange("queue:low", 0, -1)
    jid = json.loads(copy)["jid"]
    assert f"Job id {jid}" in reply.shown
    pattern = (
        rb'{"class":"HardJob","args":[12345678901234567890123, 1.0e3,"caf\u00e9",{"a" : 2},[]],"queue":"low",'
        rb'"jid":"%s","retry":true,"x-y":{"k": 1.50},"created_at":NOW,"enqueued_at":NOW}' % jid.encode()
    )
    assert re.sub(rb"_at\":\d+", rb'_at":NOW', copy) == pattern
    assert redis_client.zrange("retry", 0, -1) == [raw]
    assert redis_client.smembers("queues") == {b"low"}


def test_a_copy_without_changes_keeps_the_bytes_of_its_arguments(operator, redis_client):
    """Line endings that a browser adds do not count as a change."""
    raw = b'{"class":"A","args":[ "one\\ntwo" ,{"x":\n1}],"queue":"default","jid":"old"}'
    redis_client.zadd("dead", {raw: 1})
    [key] = keys_on(operator.get("/dead"))

    operator.post(
        "/job/copy",
        {"at": "/dead", "key": key, "queue": "default", "argument-0": '"one\\ntwo"', "argument-1": '{"x":\r\n1}'},
    )

    [copy] = redis_client.lrange("queue:default", 0, -1)
    assert b'"args":[ "one\\ntwo" ,{"x":\n1}]' in copy


def test_a_copy_can_wait(operator, redis_client, failed):
    """It goes to the schedule."""
    failed("a", args=[1])
    [key] = keys_on(operator.get("/retries"))

    operator.post("/job/copy", {"at": "/retries", "key": key, "queue": "default", "in": "3600", "argument-0": "2"})

    [(copy, score)] = redis_client.zrange("schedule", 0, -1, withscores=True)
    assert json.loads(copy)["args"] == [2]
    assert 3500 < score - now_seconds() <= 3600


def test_a_copy_that_is_no_json_is_not_enqueued(operator, redis_client, failed):
    """The form still shows what the user typed."""
    failed("a", args=[1])
    [key] = keys_on(operator.get("/retries"))

    reply = operator.post("/job/copy", {"at": "/retries", "key": key, "queue": "default", "argument-0": "<oops"})

    assert reply.status == 422
    assert "argument 1 is not JSON" in reply.shown
    assert "&lt;oops</textarea>" in reply.text
    assert redis_client.exists("queue:default") == 0


def test_a_hidden_argument_is_copied_unseen(visitor, redis_client, failed):
    """The form neither shows it nor lets the user change it."""
    failed("a", args=[{"password": "hunter2"}, 1])
    operator = visitor("operator", may_edit=True)
    [key] = keys_on(operator.get("/retries"))

    form = operator.get(f"/job/copy?at=/retries&key={key}")
    assert "hunter2" not in form.text
    operator.post(
        "/job/copy",
        {"at": "/retries", "key": key, "queue": "default", "argument-0": '"stolen"', "argument-1": "2"},
    )

    [copy] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(copy)["args"] == [{"password": "hunter2"}, 2]


@pytest.mark.parametrize("change", [{"argument-0": ""}, {"more": "3"}])
def test_a_copy_does_not_move_a_hidden_argument_to_another_place(visitor, redis_client, failed, change):
    """The policy hides it by its position, so in a different position it could be read."""
    failed("a", args=["shown", "hunter2"])
    operator = visitor("operator", may_edit=True, redaction=Redaction(jobs={"HardJob": ["args[1]"]}))
    [key] = keys_on(operator.get("/retries"))

    reply = operator.post("/job/copy", {"at": "/retries", "key": key, "queue": "default", **change})

    assert reply.status == 422
    assert "none can be added or removed" in reply.shown
    assert "hunter2" not in reply.text
    assert redis_client.exists("queue:default") == 0


def test_a_member_of_a_batch_is_not_copied(operator, failed, redis_client):
    """Its batch would take the copy for the job itself."""
    failed("a", sidekiq_py_batch=["b", 1])
    [key] = keys_on(operator.get("/retries"))

    reply = operator.get(f"/job/copy?at=/retries&key={key}")

    assert reply.status == 422
    assert "belongs to a batch" in reply.shown


def test_what_was_done_stands_in_the_audit_log(operator, failed, redis_client):
    """Who did what to which jobs, recorded before it happens."""
    failed("job-1")
    redis_client.sadd("queues", "low")
    operator.post("/retries/act", {"action": "kill", "key": keys_on(operator.get("/retries"))})
    operator.post("/queue/pause", {"name": "low", "action": "pause"})

    paused, killed = AuditLog().page()
    assert (paused.user, paused.action, paused.subject) == ("ada", "pause", "queue low")
    assert (killed.action, killed.subject, killed.details) == ("kill", "Retries", "1 chosen: job-1")
    assert "job-1" in operator.get("/audit").shown


def test_jobs_that_have_left_stand_in_the_audit_log_with_their_keys(operator, failed, redis_client):
    """Whoever looks into it later sees what was asked for, and not only that nothing was found."""
    failed("job-1", into="dead")
    raw = failed("job-2", into="dead")
    keys = keys_on(operator.get("/dead"))
    redis_client.zrem("dead", raw)

    for _ in range(2):
        operator.post("/dead/act", {"action": "retry", "key": keys})

    second, first = AuditLog().page()
    [left] = [key for key in keys if key in first.details]
    assert first.details == f"2 chosen: job-1; 1 had already left: {left}"
    assert second.details == f"2 chosen: 2 had already left: {keys[0]}, {keys[1]}"


def test_what_cannot_be_noted_is_not_done(operator, redis_client, failed):
    """An action that cannot be traced must not happen."""
    failed("a")
    redis_client.set("sidekiq_py:audit", "in the way")

    reply = operator.post("/retries/act", {"action": "retry", "key": keys_on(operator.get("/retries"))})

    assert reply.status == 502
    assert RetrySet().size == 1


def test_chosen_jobs_that_have_left_their_queue_are_looked_for_together(visitor, redis_client, payload):
    """Workers are faster than a click. For each such job alone, all around its place would be redacted again."""

    class Counting(Redaction):
        count = 0

        def apply(self, *args):
            type(self).count += 1
            return super().apply(*args)

    redis_client.lpush("queue:default", *(payload(f"{number:024}") for number in range(300)))
    redis_client.sadd("queues", "default")
    operator = visitor("operator", redaction=Counting())
    gone = [f"{number:020x}-{number}" for number in range(200, 220)]

    page = operator.post("/queue/act", {"name": "default", "action": "delete", "key": gone, "sure": "yes"})

    assert "20 jobs had already left." in page.shown
    assert Counting.count < 2 * 300
