"""Celery's pages of the dashboard: what they show, and their buttons."""

import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

pytest.importorskip("starlette")

import redis
from sidekiq_celery import Celery, chain, chord, group, stored_results
from sidekiq_celery._dashboard.side import side_of
from sidekiq_celery._dashboard.workers import _DETAILS, Answer, Worker, _answer
from sidekiq_celery.app.control import Control

from sidekiq_py import program
from sidekiq_py.api import AuditLog
from sidekiq_py.web import Redaction
from tests.compat.dashboard.conftest import NODE, answering
from tests.support.celery_program import StartWorker
from tests.support.waiting import eventually
from tests.web.browsing import Visitor

LONG = 60


def store(client: redis.Redis, task_id: str, **about: Any) -> None:
    """What Celery stores of a task."""
    meta: dict[str, Any] = {"status": "SUCCESS", "result": None, "traceback": None, "children": [], "date_done": None}
    meta |= {"task_id": task_id, **about}
    client.set(f"celery-task-meta-{task_id}", json.dumps(meta))


def task_tuple(task_id: str) -> list[Any]:
    """As `AsyncResult.as_tuple`."""
    return [[task_id, None], None]


def test_tasks_run_by_a_worker_are_shown_with_results_errors_and_workflows(
    operator: Visitor, app: Celery, start_worker: StartWorker
) -> None:
    """From the list to the error of one, and down a tree."""
    start_worker()
    failed = app.send_task("shop.refuse", ("no stock",), {"password": "hunter2"})
    parent = app.send_task("shop.fan_out", (60,))
    eventually(lambda: len(operator.get("/celery?name=shop.add").text.split("<tr>")) >= 52, LONG)
    eventually(failed.ready, LONG)

    assert f"{failed.id} shop.refuse FAILURE ValueError: no stock" in operator.get("/celery?state=FAILURE").shown
    page = operator.get(f"/celery/task?id={failed.id}")
    assert "ValueError: no stock Traceback (most recent call last):" in page.shown
    assert '["no stock", {"password": "[redacted]"}]' in page.shown
    assert "hunter2" not in page.text
    eventually(parent.ready, LONG)
    tree = operator.get(f"/celery/workflow?id={parent.id}")
    assert "1 Group of 60" in tree.shown
    [link] = re.findall(r'href="(/celery/workflow\?[^"]*group=[^"]*)"', tree.text)
    second = unescape(link) + "&from=50"
    # The list above shows fifty: the sixtieth may still wait.
    eventually(lambda: re.search(r"60 shop\.add [0-9a-f-]+ SUCCESS 118", operator.get(second).shown), LONG)


def test_workers_are_asked_and_steered(
    operator: Visitor, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots, queues and limits; each is noted before it is done."""
    # On a busy machine, the reply may take longer than the second for which the dashboard waits.
    broadcast = Control.broadcast
    patient = {"timeout": LONG, "limit": 1}
    monkeypatch.setattr(Control, "broadcast", lambda *words, **options: broadcast(*words, **{**patient, **options}))
    start_worker()
    eventually(lambda: NODE in operator.get("/celery/workers").shown, LONG)

    more = operator.post("/celery/worker/act", {"name": NODE, "action": "grow", "count": "1"}).shown
    queue = operator.post("/celery/worker/act", {"name": NODE, "action": "add", "queue": "parcels"}).shown
    limit = operator.post("/celery/limit", {"task": "shop.add", "limit": "5/m"}).shown
    times = operator.post("/celery/time-limit", {"task": "shop.add", "soft": "7.5", "hard": ""}).shown

    assert f"{NODE}: pool will grow" in more
    assert f"{NODE}: add consumer parcels" in queue
    assert "shop.add: new rate limit set successfully" in limit
    assert "shop.add: time limits set successfully" in times
    eventually(lambda: "shop.add 5/m 7.5 none 1" in operator.get("/celery/limits").shown, LONG)
    # The pool grows after the answer.
    eventually(lambda: "Slots 3" in operator.get(f"/celery/worker?name={NODE}").shown, LONG)
    assert "celery, parcels" in operator.get(f"/celery/worker?name={NODE}").shown
    assert [entry.action for entry in AuditLog().page()] == ["time limits", "rate limit", "add", "grow"]
    operator.post("/celery/worker/act", {"name": NODE, "action": "shutdown", "sure": "yes"})
    eventually(lambda: "No worker of Celery tasks has answered" in operator.get("/celery/workers").shown, LONG)


def test_the_page_of_a_worker_shows_what_waits_for_it_what_is_revoked_and_its_settings(
    operator: Visitor, app: Celery, start_worker: StartWorker
) -> None:
    """As Flower's. Secrets are hidden, here and in the worker's own answer."""
    start_worker("--autoscale", "4,2")
    later = app.send_task("shop.add", (1, 2), {"password": "hunter4"}, countdown=3600)
    gone = app.send_task("shop.add", (3, 4), countdown=3600)
    gone.revoke()

    path = f"/celery/worker?name={NODE}"
    # Both readings, each of which may be that of a worker of the same name before.
    told = ("Autoscale 2 to 4 slots", f"Revoked tasks {gone.id}", later.id)
    shown = eventually(lambda: (text := operator.get(path).shown) and all(one in text for one in told) and text, LONG)

    assert re.search(r"Uptime \d", shown)
    assert "Reserved tasks None." in shown
    assert re.search(rf'shop.add {later.id} \[1, 2, {{"password": "\[redacted\]"}}\] in (5\d m|1 h)', shown)
    assert "result_extended true" in shown
    assert 'shop_cache {"url": "redis://:********@cache:6379/1", "token": "[redacted]", "seconds": 60}' in shown
    assert "hunter" not in operator.get(path).text


@pytest.mark.parametrize(
    "settings",
    [
        {"shop_hosts": [{"aws_key": "hunter2"}, [{"db_pass": "hunter2"}]]},
        {"shop_basic_auth": ["ada:hunter2"]},
        {"shop_urls": "redis://:hunter2@a/0,redis://:hunter2@b/0 https://c/?token=hunter2"},
        {"shop_database": {"url": "postgresql://ada:hunt/er2@a/b", "mysql://ada:hunter2@a/b": 1}},
        {"redis://:hunter2@a/0": 1},
        {"shop_dsn": "host=a password=hunter2", "shop_pool": "<Pool(host=a, password='hunter2', port=1)>"},
    ],
)
def test_secrets_are_masked_wherever_they_are_in_a_worker_s_settings(
    operator: Visitor, settings: dict[str, Any]
) -> None:
    """Workers mask those that are named at the top, as Celery does. A viewer sees the page, too."""
    details = {name: Answer(settings if kind is dict else []) for name, kind in _DETAILS.items()}
    with answering(side_of(None), Worker(NODE, {}, (), (), {}), details):
        page = operator.get(f"/celery/worker?name={NODE}")

    assert page.status == 200
    assert "********" in page.shown
    assert not re.search("hunt|er2@", page.text)


def test_names_of_tasks_hide_no_route(operator: Visitor) -> None:
    """They may look like that of a secret."""
    settings = {"task_routes": {"shop.api.add": {"queue": "fast"}}, "broker_url": "redis://ada@a:1/0"}
    details = {name: Answer(settings if kind is dict else []) for name, kind in _DETAILS.items()}
    with answering(side_of(None), Worker(NODE, {}, (), (), {}), details):
        shown = operator.get(f"/celery/worker?name={NODE}").shown

    assert 'task_routes {"shop.api.add": {"queue": "fast"}}' in shown
    assert 'broker_url "redis://ada@a:1/0"' in shown


def test_a_worker_that_cannot_say_something_shows_why(operator: Visitor) -> None:
    """Nothing would look as if there was none. Real workers do so when they are busy, or of another release."""
    side = side_of(None)
    replies = [None, {"error": "unknown command"}, "rubbish", {"shop_url": "a"}]
    details = {name: _answer(reply, kind) for (name, kind), reply in zip(_DETAILS.items(), replies, strict=True)}
    with answering(side, Worker(NODE, {}, (), (), {}), details):
        shown = operator.get(f"/celery/worker?name={NODE}").shown

    assert "Reserved tasks It has not answered. It is too busy, or has stopped." in shown
    assert "Scheduled tasks It cannot say: unknown command" in shown
    assert "Revoked tasks Its answer cannot be read." in shown
    assert 'shop_url "a"' in shown


def test_only_the_page_of_a_worker_asks_it_for_more(operator: Visitor, start_worker: StartWorker) -> None:
    """The lists of its tasks may be long. Whoever names a worker that has not answered makes no one ask for it."""
    watched = side_of(None).details._watched
    watched.clear()
    start_worker()
    eventually(lambda: NODE in operator.get("/celery/workers").shown, LONG)
    operator.get("/celery/limits")
    operator.get("/celery/worker?name=another@here")
    assert not watched

    eventually(lambda: operator.get(f"/celery/worker?name={NODE}") and watched, LONG)
    assert list(watched) == [NODE]


def test_tasks_lead_to_their_worker_and_a_worker_to_its_tasks(operator: Visitor, redis_client: redis.Redis) -> None:
    """As far as results are stored with `result_extended`; a search that goes on keeps the worker."""
    for number in range(60):
        store(redis_client, f"t{number}", worker=NODE if number else "w2@there", name="shop.add")
    store(redis_client, "nameless")

    with answering(side_of(None), Worker(NODE, {}, (), (), {}), dict.fromkeys(_DETAILS, Answer([]))):
        [link] = re.findall(r'href="(/celery\?[^"]*)">Tasks', operator.get(f"/celery/worker?name={NODE}").text)
    found = operator.get(unescape(link))
    others = operator.get("/celery?worker=there")

    assert "w2@there" not in found.text
    assert "nameless" not in found.text
    assert found.text.count(f'href="/celery/worker?name={quote(NODE)}"') >= 50
    assert f'href="/celery/worker?name={quote("w2@there")}"' in others.text
    assert NODE not in others.text
    assert f'href="/celery/worker?name={quote(NODE)}"' in operator.get("/celery/task?id=t1").text


def test_workflows_that_have_ended_are_listed_by_their_first_task(operator: Visitor, redis_client: redis.Redis) -> None:
    """Neither tasks that called no other, nor those that were called."""
    store(redis_client, "first", name="shop.first", children=[task_tuple("second")])
    store(redis_client, "second", children=[task_tuple("third")], parent_id="first")
    store(redis_client, "third", parent_id="second")
    store(redis_client, "running", status="STARTED", children=[task_tuple("part")])
    store(redis_client, "alone")

    page = operator.get("/celery/workflows?ended=1")

    assert "Ended first shop.first SUCCESS 1" in page.shown
    assert re.findall(r"/celery/workflow\?id=(\w+)", page.text) == ["first"]
    assert "/celery/workflows?ended=1" in operator.get("/celery/workflows").text


def test_the_workflow_of_very_many_tasks_is_listed_among_those_that_have_ended(
    operator: Visitor, redis_client: redis.Redis
) -> None:
    """The result of its first task is too large to be read, so how many tasks that has called is not shown."""
    store(redis_client, "first", children=[task_tuple("x" * 36)] * 180_000)
    store(redis_client, "second", parent_id="first")

    page = operator.get("/celery/workflows?ended=1")

    assert re.findall(r"/celery/workflow\?id=(\w+)", page.text) == ["first"]
    assert re.search(r"first \W SUCCESS \W ", page.shown)


def test_large_results_are_listed_but_not_read(operator: Visitor, app: Celery, redis_client: redis.Redis) -> None:
    """By their state and size; thirty of 20 MB were one reply of 600 MB, and more than a gigabyte in the dashboard."""
    for number in range(4):
        store(redis_client, f"large-{number}", result="x" * 9_000_000)
    store(redis_client, "small", name="shop.add", result="a few bytes")
    redis_client.config_resetstat()

    page = operator.get("/celery?state=SUCCESS").shown

    assert redis_client.info("stats")["total_net_output_bytes"] < 100_000
    assert 'small shop.add SUCCESS "a few bytes"' in page
    assert re.search(r"large-3 \W SUCCESS It has 9,000,\d+ bytes, which is too much for a page", page)
    assert "large" not in operator.get("/celery?state=FAILURE").shown
    assert "It has 9,000," in operator.get("/celery/task?id=large-1").shown
    assert redis_client.info("stats")["total_net_output_bytes"] < 200_000
    store(redis_client, "parent", children=[task_tuple("large-0"), task_tuple("small")])
    assert "large-0 SUCCESS It has 9,000," in operator.get("/celery/workflow?id=parent").shown
    assert len(stored_results.read(app, ["large-0"])["large-0"].result) == 9_000_000


def test_a_page_of_results_keeps_no_more_than_fits(app: Celery, redis_client: redis.Redis) -> None:
    """They are read a few megabytes at a time, and of those beyond 32 MB the state is left."""
    for number in range(15):
        store(redis_client, f"medium-{number}", result="x" * 3_000_000)
    redis_client.config_resetstat()

    results = stored_results.page(app).results

    assert redis_client.info("commandstats")["cmdstat_mget"]["calls"] == 15
    assert sorted(len(one.result or "") for one in results) == [0] * 4 + [3_000_000] * 11
    assert {one.state for one in results} == {"SUCCESS"}


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e3", "nan", "99999999"])
def test_time_limits_that_are_no_seconds_are_refused(operator: Visitor, seconds: str) -> None:
    """Before anybody is asked; nothing is noted either."""
    shown = operator.post("/celery/time-limit", {"task": "shop.add", "soft": "", "hard": seconds}).shown

    assert "Nothing was done." in shown
    assert AuditLog().page() == []


@pytest.mark.parametrize(
    ("path", "fields", "question"),
    [
        ("/celery/revoke", {"id": "a", "action": "revoke"}, "Revoke this task? It will not start."),
        ("/celery/revoke", {"id": "a", "action": "terminate"}, "Revoke this task, and end it if it runs?"),
        ("/celery/worker/act", {"name": NODE, "action": "shutdown"}, f"Stop {NODE}?"),
    ],
)
def test_revoking_and_stopping_ask_before(operator: Visitor, path: str, fields: dict[str, str], question: str) -> None:
    """Without JavaScript, on a page; nothing is noted or done until the answer."""
    asked = operator.post(path, fields)

    assert question in asked.shown
    assert AuditLog().page() == []


def test_a_revoked_task_does_not_run_and_one_that_runs_is_shown(
    operator: Visitor, app: Celery, start_worker: StartWorker, redis_client: redis.Redis
) -> None:
    """With its arguments, but for those that are hidden."""
    revoked = app.send_task("shop.add", (1, 2))

    told = operator.post("/celery/revoke", {"id": revoked.id, "action": "revoke", "sure": "yes"}).shown
    start_worker()
    running = app.send_task("shop.hold", ("k",), {"token": "hunter2"})

    assert "The task is revoked: it will not start." in told
    eventually(lambda: "REVOKED" in operator.get(f"/celery/task?id={revoked.id}").shown, LONG)
    assert "/celery/revoke" not in operator.get(f"/celery/task?id={revoked.id}").text
    assert "/celery/revoke" in operator.get(f"/celery/task?id={running.id}").text
    eventually(lambda: running.id in operator.get(f"/celery/worker?name={NODE}").text, LONG)
    page = operator.get(f"/celery/worker?name={NODE}")
    assert '"k", {"token": "[redacted]"}' in page.shown
    assert "hunter2" not in page.text
    redis_client.rpush("release:k", "now")


def test_a_revoked_task_that_waits_ends_at_once(
    operator: Visitor, app: Celery, start_worker: StartWorker, redis_client: redis.Redis
) -> None:
    """Not only when it is due, as its workflow waits for it. A job for Ruby stays where it is: Ruby would run it."""
    start_worker()
    eventually(lambda: redis_client.keys("sidekiq_py:declared:*"), LONG)
    task, of_ruby = (app.send_task(name, (1, 2), countdown=3600) for name in ("shop.add", "HardWorker"))

    for result in (task, of_ruby):
        operator.post("/celery/revoke", {"id": result.id, "action": "revoke", "sure": "yes"})

    eventually(lambda: task.state == "REVOKED", LONG)
    [left] = redis_client.zrange("schedule", 0, -1)
    assert of_ruby.id in left.decode()


def test_of_ten_thousand_called_tasks_a_page_reads_those_that_it_shows(
    operator: Visitor, app: Celery, redis_client: redis.Redis
) -> None:
    """The page of the task that has called them, none."""
    members = [task_tuple(str(UUID(int=number, version=4))) for number in range(10_000)]
    store(redis_client, "parent", children=[[["g", None], members]])

    assert repr(stored_results.read(app, ["parent"])["parent"].children[0][1]) == "<ManyTasks 10000>"
    assert "What it has called: 1" in operator.get("/celery/task?id=parent").shown
    group_page = operator.get("/celery/workflow?id=parent&group=g&from=9950").shown
    assert "10,000 below it" in group_page
    assert f"10,000 {members[-1][0][0]} PENDING" in group_page


def test_a_workflow_of_ten_thousand_is_read_a_page_at_a_time(
    operator: Visitor, redis_client: redis.Redis, round_trips: Callable[..., Any]
) -> None:
    """In three round trips, whatever its size."""
    members = [task_tuple(f"t{number}") for number in range(10_000)]
    store(redis_client, "parent", children=[[["g", None], members], task_tuple("t1")])
    store(redis_client, "t9999", result="the last", parent_id="parent", group_id="g")

    with round_trips() as made:
        page = operator.get("/celery/workflow?id=parent&group=g&from=9950")

    assert made.count <= 3
    assert "10,000 below it" in page.shown
    assert '10,000 t9999 SUCCESS "the last"' in page.shown
    assert len(page.text) < 60_000
    assert "Previous page" in page.text
    assert "Next page" not in page.text


def test_members_of_a_workflow_are_shown_whatever_their_size_and_to_whoever_may_read_them(
    operator: Visitor, visitor: Callable[..., Visitor], redis_client: redis.Redis, redis_url: str
) -> None:
    """Small results are read with their sizes, larger ones afterwards; a user may have MGET alone."""
    store(redis_client, "parent", children=[task_tuple(one) for one in ("small", "larger", "none")])
    store(redis_client, "small", result="a few bytes")
    store(redis_client, "larger", result=f"{'x' * 100_000}y")
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "&*", "+@all", "-getrange", "-strlen")
    try:
        half = visitor("viewer", pool=redis_url.replace("://", "://half:pw@"))
        pages = [one.get("/celery/workflow?id=parent").shown for one in (operator, half)]
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    for page in pages:
        assert '1 small SUCCESS "a few bytes"' in page
        assert "2 larger SUCCESS" in page
        assert "3 none PENDING" in page


def test_a_chain_shows_its_steps_and_a_chord_its_parts(
    operator: Visitor, app: Celery, redis_client: redis.Redis
) -> None:
    """Before anything has ended there is no result, and what is kept for later tells."""
    add = app.signature("shop.add")
    chained = chain(add.clone((1, 2)), add.clone((3,)), app.signature("shop.hold")).apply_async()
    waiting = chord(group(add.clone((n, n)) for n in range(60)), app.signature("shop.fan_out")).apply_async()
    redis_client.hset(f"sidekiq_py:chord:{waiting.parent.id}", mapping={"0": "0", "59": "118"})

    listed = operator.get("/celery/workflows").shown
    steps = operator.get(f"/celery/workflow?id={chained.parent.parent.id}").shown
    parts = operator.get(f"/celery/workflow?id={waiting.parent.id}&from=50").shown

    assert "chain 2 steps to come" in listed
    assert "chord 2 of 60 have ended" in listed
    assert "Steps to come shop.add shop.hold" in steps
    assert "Header 2 of 60 have ended 60 below it" in parts
    assert "60 part of the header SUCCESS" in parts
    assert "59 part of the header PENDING" in parts


def test_workers_that_this_user_may_not_ask_are_shown_with_where_the_rights_are_listed(
    visitor: Callable[..., Visitor], redis_client: redis.Redis, redis_url: str
) -> None:
    """As on every other page."""
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "+@all")
    half = redis_url.replace("://", "://half:pw@")
    program.configure(redis_url=half)
    try:
        operator = visitor("operator", pool=half)
        operator.get("/celery/workers")
        shown = eventually(lambda: (page := operator.get("/celery/workers").shown).count("could not be asked") and page)
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert "docs/redis.md lists the rights that each program needs" in shown


@pytest.mark.parametrize("right", ["hlen", "hmget"])
def test_a_user_who_may_not_read_workflows_is_told_so(
    visitor: Callable[..., Visitor], app: Celery, redis_client: redis.Redis, redis_url: str, right: str
) -> None:
    """Without a word, it would look as if there was none."""
    chord(group(app.signature("shop.add", (n, n)) for n in range(2)), app.signature("shop.fan_out")).apply_async()
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "&*", "+@all", f"-{right}")
    half = redis_url.replace("://", "://half:pw@")
    program.configure(redis_url=half)
    try:
        page = visitor("operator", pool=half).get("/celery/workflows")
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert page.status == 403
    assert f"'{right}'" in page.shown


def test_a_task_s_job_links_to_its_result_and_workflow(operator: Visitor, app: Celery) -> None:
    """Members of a group to the group as well; jobs of Ruby's do not."""
    sent = group(app.signature("shop.add", (n, n)) for n in range(2)).apply_async(countdown=600)
    single = sent.results[0]

    page = operator.get(f"/job?jid={single.id}").text

    assert f'href="/celery/task?id={single.id}"' in page
    assert f'href="/celery/workflow?id={sent.id}"' in page


def test_a_long_search_goes_on_where_it_stopped(operator: Visitor, redis_client: redis.Redis) -> None:
    """Ten thousand keys at a time, whatever else is in Redis."""
    redis_client.mset({f"other:{number}": "x" for number in range(30_000)})
    store(redis_client, "found", status="FAILURE", result={"exc_type": "Boom", "exc_message": ["it broke"]})

    path: str | None = "/celery?state=FAILURE"
    pages = 0
    while path is not None:
        page = operator.get(path)
        pages += 1
        following = re.search(r'id="more" href="([^"]+)"', page.text)
        path = unescape(following[1]) if following and "Boom: it broke" not in page.shown else None

    assert "FAILURE Boom: it broke" in page.shown
    assert pages <= 4


def test_a_pickled_result_is_not_loaded(operator: Visitor, redis_client: redis.Redis) -> None:
    """Whoever can write to Redis would run code where operators look."""
    redis_client.set("celery-task-meta-a", b"\x80\x04cos\nsystem\n(S'touch /tmp/loaded'\ntR.")

    assert "cannot be read here" in operator.get("/celery/task?id=a").shown
    assert "cannot be read here" in operator.get("/celery").shown


def test_hidden_errors_are_not_shown_at_the_end_of_tracebacks(
    visitor: Callable[..., Visitor], redis_client: redis.Redis
) -> None:
    """Python repeats an error's text there; Ruby's backtraces have none."""
    failure = {"exc_type": "PaymentError", "exc_message": ["card 4111"], "exc_module": "shop"}
    meta = {
        "status": "FAILURE",
        "result": failure,
        "traceback": "Traceback\nPaymentError: card 4111",
        "name": "shop.pay",
    }
    redis_client.set("celery-task-meta-a", json.dumps(meta))

    def page(*hidden: str) -> str:
        policy = Redaction(jobs={"shop.pay": hidden})
        return visitor("viewer", redaction=policy).get("/celery/task?id=a").text

    assert "4111" not in page("error_message")
    assert "PaymentError: card 4111" in page("args")


def test_rules_for_a_class_hide_its_results_and_all_that_do_not_say_whose_they_are(
    visitor: Callable[..., Visitor], redis_client: redis.Redis
) -> None:
    """As with the text of a job that names no class."""
    store(redis_client, "mail", name="shop.mail", args=["anna@x"], kwargs={}, result="sent to anna")
    store(redis_client, "other", name="shop.other", args=["bert@x"], kwargs={}, result="sent to bert")
    store(redis_client, "old", result="sent to carl", traceback="carl")
    operator = visitor(redaction=Redaction(jobs={"shop.mail": ["args[0]", "result"]}))

    texts = {name: operator.get(f"/celery/task?id={name}").text for name in ("mail", "other", "old")}
    listed = operator.get("/celery").text

    assert "anna" not in texts["mail"] + listed
    assert "carl" not in texts["old"] + listed
    assert "sent to bert" in texts["other"]


def test_a_running_task_that_is_shown_under_another_name_is_hidden_by_the_rules_for_its_own(
    visitor: Callable[..., Visitor], app: Celery, start_worker: StartWorker, redis_client: redis.Redis
) -> None:
    """Each caller may choose a `shadow`."""
    operator = visitor(redaction=Redaction(jobs={"shop.hold": ["args"]}))
    start_worker()
    app.send_task("shop.hold", ("k",), {"pin": "4111"}, shadow="holding")

    page = eventually(
        lambda: (shown := operator.get(f"/celery/worker?name={NODE}").shown) and "holding" in shown and shown, LONG
    )

    redis_client.rpush("release:k", "1")
    assert "4111" not in page
    assert "[redacted]" in page


def test_each_of_several_servers_has_tasks_and_workflows_of_its_own(
    visitor: Callable[..., Visitor], redis_client: redis.Redis, redis_url: str, new_redis_server: Callable[..., Any]
) -> None:
    """What is done on a page goes to the server that it shows."""
    store(redis_client, "here", result="at home")
    with new_redis_server() as other, other.client() as abroad:
        store(abroad, "there", result="abroad")
        abroad.hset("sidekiq_py:flow:f", mapping={"s": '{"s": {"task": "shop.ship"}, "n": null}'})
        operator = visitor(servers={"home": redis_url, "abroad": other.url})

        home, away = (operator.get(f"{base}/celery").shown for base in ("", "/at/abroad"))
        tree = operator.get("/at/abroad/celery/workflow?id=f")
        operator.post("/at/abroad/celery/revoke", {"id": "there", "action": "revoke", "sure": "yes"})

        assert ('"at home"' in home, '"abroad"' in home) == (True, False)
        assert ('"at home"' in away, '"abroad"' in away) == (False, True)
        assert "Steps to come shop.ship" in tree.shown
        assert 'href="/at/abroad/celery/workflows"' in tree.text
        assert abroad.zscore("sidekiq_py:revoked", "there") is not None
        assert not redis_client.exists("sidekiq_py:revoked")


def test_a_dashboard_over_a_client_of_redis_py_says_what_to_give_instead(
    visitor: Callable[..., Visitor], redis_client: redis.Redis
) -> None:
    """Workers are spoken to by another library, which needs an address."""
    reply = visitor(pool=redis_client).get("/celery")

    assert reply.status == 409
    assert "pass the URL to asgi_app" in reply.shown


def test_results_that_the_program_s_app_keeps_elsewhere_are_found_there(
    operator: Visitor, redis_client: redis.Redis, redis_url: str
) -> None:
    """The app whose tasks are in this Redis knows."""
    app = Celery("shop", broker=redis_url, backend=redis_url, fixups=[])
    app.conf.result_backend_transport_options = {"global_keyprefix": "shop:"}
    redis_client.set("shop:_celery-task-meta-a", json.dumps({"status": "SUCCESS", "result": "elsewhere"}))
    redis_client.rename("shop:_celery-task-meta-a", app.backend.get_key_for_task("a").decode())

    assert '"elsewhere"' in operator.get("/celery/task?id=a").shown


@pytest.mark.parametrize(
    "fields",
    [
        {"name": NODE, "action": "grow", "count": "0"},
        {"name": NODE, "action": "grow", "count": "1e9"},
        {"name": NODE, "action": "add", "queue": " "},
        {"name": NODE, "action": "add", "queue": "a\nb"},
        {"name": NODE, "action": "format"},
        {"name": "", "action": "shutdown"},
    ],
)
def test_what_cannot_be_meant_is_not_sent(operator: Visitor, fields: dict[str, str]) -> None:
    """Nothing is done, and nothing noted."""
    assert "nothing was done" in operator.post("/celery/worker/act", fields).shown
    assert list(AuditLog().page()) == []


@pytest.mark.parametrize("key", ["sidekiq_py:flow:odd", "sidekiq_py:chord:odd"])
def test_a_key_of_another_type_hides_no_workflow(operator: Visitor, redis_client: redis.Redis, key: str) -> None:
    """The list shows all others."""
    redis_client.hset("sidekiq_py:flow:good", "1", "{}")
    redis_client.set(key, "a string")

    page = operator.get("/celery/workflows")

    assert page.status == 200
    assert re.findall(r"/celery/workflow\?id=(\w+)", page.text) == ["good"]
