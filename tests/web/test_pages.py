"""What each page shows."""

import asyncio
import base64
import json
import re
import shlex
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import AuditLog, Deploy, OverviewScope
from sidekiq_py.clock import monotonic, now_seconds
from sidekiq_py.doctor.finding import ok
from sidekiq_py.errors import RedisError
from sidekiq_py.extension import DoctorCheck, Extension, Pool, RedisSettings
from sidekiq_py.web import JobLink, Page, Redaction, asgi_app, places, site, text
from sidekiq_py.wire import metrics_keys
from tests.support.redis_server import LOADS_SLOWLY
from tests.support.waiting import eventually
from tests.support.web_server import HttpClient, WebServer
from tests.support.worker_process import REPOSITORY
from tests.web.browsing import Visitor


def enter_process(redis_client, identity, *, labels=(), queues=("default",), running=(), **info):
    """Register a process as its heartbeat would; *running* holds payloads."""
    about = {
        "hostname": identity.split(":")[0],
        "pid": 7,
        "tag": "shop",
        "concurrency": 5,
        "queues": list(queues),
        "labels": list(labels),
        "identity": identity,
        "started_at": now_seconds() - 60,
        "version": "8.1.7",
        **info,
    }
    beat = {"info": json.dumps(about), "busy": len(running), "beat": now_seconds(), "quiet": "false", "rss": 204800}
    redis_client.sadd("processes", identity)
    redis_client.hset(identity, mapping={**beat, "concurrency": 5, "rtt_us": 90})
    for number, raw in enumerate(running):
        work = {"queue": "default", "run_at": int(now_seconds()) - 30, "payload": raw.decode()}
        redis_client.hset(f"{identity}:work", f"t{number}", json.dumps(work))


def fill(redis_client, payload, count, queue="default", *, seconds_ago=90):
    """Push *count* jobs; the first one runs next."""
    redis_client.sadd("queues", queue)
    for number in range(count):
        redis_client.lpush(
            f"queue:{queue}", payload(f"{number:024}", args=[number], enqueued_at=now_seconds() - seconds_ago)
        )


@pytest.mark.parametrize(
    "path",
    ["/", "/busy", "/queues", "/queue?name=x", "/retries", "/scheduled", "/dead", "/metrics", "/bulk", "/audit"],
)
def test_a_page_of_an_empty_redis_says_so(operator, path):
    """Nothing is missing, and nothing fails."""
    assert operator.get(path).status == 200


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/queue?name=x", "No job is waiting here."),
        ("/retries", "A job that fails comes here until its next try."),
        ("/scheduled", "A job pushed with perform_in or perform_at comes here until its time."),
        ("/dead", "A job that has failed for the last time, or that someone kills, comes here."),
    ],
)
def test_a_list_without_jobs_says_when_jobs_come_and_offers_nothing_to_do_with_them(operator, path, told):
    """Unlike a page behind the last one, which others may have emptied."""
    page = operator.get(path)

    assert told in page.shown
    assert "Act on all" not in page.shown


@pytest.mark.usefixtures("still_clock")
def test_the_overview_counts_what_there_is(viewer, redis_client, payload, failed):
    """Queues, sets and processes by language."""
    fill(redis_client, payload, 3, "low")
    failed()
    enter_process(redis_client, "rb:1:aaa", running=[payload()])
    enter_process(redis_client, "py:2:bbb", labels=["sidekiq_py"])
    redis_client.mset({"stat:processed": 1234567, "stat:failed": 12})

    shown = viewer.get("/").shown

    assert "Processed 1,234,567" in shown
    assert "Enqueued 3 Retries 1 Scheduled 0 Dead 0" in shown
    assert "low 3 1 m 30 s 0" in shown
    assert "Python 1 0 5 Ruby 1 1 5" in shown


@pytest.mark.parametrize("base", ["", "/sidekiq"])
@pytest.mark.parametrize("part", ["/", "/?live=1"])
def test_each_number_of_the_overview_leads_to_its_jobs(visitor, failed, part, base):
    """On the page, and in the part of it that is sent again; the link says what it counts."""
    failed()

    page = visitor("viewer", base=base).get(part).text

    links = re.findall(r'<dd><a href="([^"]*)" aria-label="([^"]*)">', page)
    assert [(address.removeprefix(base), label) for address, label in links] == [
        ("/busy", "Running: 0"),
        ("/queues", "Enqueued: 0"),
        ("/retries", "Retries: 1"),
        ("/scheduled", "Scheduled: 0"),
        ("/dead", "Dead: 0"),
    ]


def test_the_overview_shows_what_was_done_in_the_last_hour_day_and_week(viewer, redis_client):
    """From the counts that Sidekiq itself keeps."""
    now = datetime.now(UTC)
    redis_client.hset(metrics_keys.minute(now.timestamp(), 8), mapping={"A|p": 5, "A|f": 2, "A|ms": 90})
    redis_client.hset(metrics_keys.ten_minutes(now.timestamp()), mapping={"A|p": 50, "A|f": 20, "A|ms": 900})
    redis_client.mset({f"stat:processed:{now:%Y-%m-%d}": 500, f"stat:failed:{now:%Y-%m-%d}": 200})

    assert "3 succeeded, 2 failed" in viewer.get("/").shown
    assert "30 succeeded, 20 failed" in viewer.get("/?period=day").shown
    assert "300 succeeded, 200 failed" in viewer.get("/?period=week").shown


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize(
    ("period", "days", "told"),
    [("week", 7, "week"), ("month", 30, "month"), ("3-months", 90, "3 months"), ("6-months", 180, "6 months")],
)
def test_the_overview_shows_as_many_days_as_ruby_s_web_ui(viewer, redis_client, period, days, told):
    """From the counters of each day, which every release of Sidekiq writes."""
    today = datetime.fromtimestamp(now_seconds(), UTC).date()
    first, before = (today - timedelta(days=days - 1), today - timedelta(days=days))
    for day, processed in ((first, 70), (before, 90)):
        redis_client.mset({f"stat:processed:{day}": processed, f"stat:failed:{day}": 20})

    shown = viewer.get(f"/?period={period}").shown

    assert f"Jobs in the last {told} Hour Day Week Month 3 months 6 months" in shown
    assert f"{first}: 50 succeeded, 20 failed" in shown
    assert str(before) not in shown


def test_a_period_by_day_without_jobs_promises_no_count_by_the_minute(viewer):
    """Every release counts by day."""
    assert "Nothing was recorded. Sidekiq 7 and later" in viewer.get("/?period=day").shown
    assert "Nothing was recorded. Queues" in viewer.get("/?period=month").shown


def test_the_overview_shows_how_redis_is_doing(viewer, redis_client):
    """As Redis tells it; a policy that deletes keys leads to what the doctor says about it."""
    shown, info = viewer.get("/").shown, redis_client.info()
    product = "Valkey" if "valkey_version" in info else "Redis"
    version = info[f"{product.lower()}_version"]

    assert re.search(
        rf"{product} Version {re.escape(version)} Uptime [\d.hms ]+ Connections \d+ Memory used [\d,.]+ [kM]B "
        r"Peak memory [\d,.]+ [kM]B sidekiq_py",
        shown,
    )
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        page = viewer.get("/")
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert "maxmemory-policy allkeys-lru sidekiq_py" in page.shown
    assert '<a href="#doctor">allkeys-lru</a>' in page.text


def test_the_overview_shows_how_much_memory_redis_may_use(viewer, redis_client):
    """Without a limit, there is nothing to compare with."""
    unlimited = viewer.get("/").shown
    redis_client.config_set("maxmemory", "900mb")
    try:
        limited = viewer.get("/").shown
    finally:
        redis_client.config_set("maxmemory", "0")

    assert "(maxmemory)" not in unlimited
    assert re.search(r"Memory used [\d,.]+ [kM]B of 900\.0 MB \(maxmemory\) Peak memory", limited)


def test_the_overview_does_without_info(visitor, redis_client, redis_url):
    """As for the user of docs/dashboard.md; the page says which right is missing."""
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-info")
    try:
        page = visitor("viewer", pool=redis_url.replace("redis://", "redis://half:pw@")).get("/")
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert page.status == 200
    assert "this user may not use INFO. Let it do so: ACL SETUSER <user> +info sidekiq_py" in page.shown


def test_the_doctor_s_findings_stand_below_the_numbers_of_the_overview(viewer, redis_client, payload):
    """
    Problems come first, each with advice; the page does not wait for the doctor. The numbers stay where they are when
    the findings come.
    """
    fill(redis_client, payload, 1)
    viewer.get("/")

    assert eventually(lambda: "What needs attention Problem:" in viewer.get("/?live=1").shown)
    assert viewer.get("/?live=1").shown.startswith("Jobs per second")


def test_the_overview_says_what_the_doctor_could_not_check(visitor, redis_client, redis_url):
    """That it found no problems is only half of the truth then. With the rights that are missing, nothing is said."""
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-sscan", "-info")
    try:
        half = visitor("viewer", pool=redis_url.replace("redis://", "redis://half:pw@"))
        half.get("/")
        shown = eventually(lambda: (page := half.get("/").shown).count("no warnings in what it could check.") and page)
        redis_client.execute_command("ACL", "SETUSER", "half", "+sscan", "+info")
        whole = visitor("viewer", pool=redis_url.replace("redis://", "redis://half:pw@"))
        whole.get("/")
        assert eventually(lambda: "no warnings. " in (page := whole.get("/").shown) and "not check" not in page)
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    assert "What the doctor could not check Unseen: Memory could not be looked at" in shown
    assert "Let this user run that command" in shown


def test_the_overview_says_when_its_findings_are_old(visitor, redis_client, payload, monkeypatch):
    """If the doctor fails from now on, what it found before may have been mended, and what is wrong now is missing."""
    monkeypatch.setattr(site, "_EXAMINED_SECONDS", 0.0)
    is_cut_off = threading.Event()

    def look(pool):
        if is_cut_off.is_set():
            raise RedisError("Timeout reading from socket")
        yield ok("All is well.")

    class Slow(Extension):
        name = "slow"

        def checks(self):
            return [DoctorCheck("slow", "Slow", "what takes long", look)]

    program.configure(extensions=[Slow()])
    fill(redis_client, payload, 1)
    viewer = visitor("viewer")
    assert eventually(lambda: "What needs attention Problem:" in viewer.get("/").shown)

    is_cut_off.set()

    said = "could not check this Redis: Timeout reading from socket What follows is from its last check, "
    shown = eventually(lambda: said in (page := viewer.get("/").shown) and page)
    assert "Problem: 1 job waits" in shown
    is_cut_off.clear()
    assert eventually(lambda: "What needs attention Problem:" in viewer.get("/").shown)


def test_the_overview_shows_the_first_findings_of_each_kind(viewer, redis_client, payload):
    """Any program may push to thousands of queues, or to one with a name of a megabyte."""
    for name in ["a" * 1_000_000, *(f"q{number:02}" for number in range(49))]:
        redis_client.sadd("queues", name)
        redis_client.lpush(f"queue:{name}", payload())
    enter_process(redis_client, "app:1:aaa")
    viewer.get("/")

    assert eventually(lambda: "Problem:" in viewer.get("/").shown)
    page = viewer.get("/")
    assert page.shown.count("1 job waits in `") == 20
    assert "… and 30 more like this (sidekiq-py doctor --json lists all)." in page.shown
    assert len(page.text) < 100_000


def test_findings_of_one_kind_leave_room_for_others(viewer, redis_client, payload):
    """Three of a kind are seen at once; the others are a click away, which needs no script."""
    for number in range(30):
        redis_client.sadd("queues", f"q{number:02}")
        redis_client.lpush(f"queue:q{number:02}", payload())
    enter_process(redis_client, "app:1:aaa")
    viewer.get("/")

    assert eventually(lambda: "Problem:" in viewer.get("/").shown)
    seen, folded = viewer.get("/?live=1").shown.split("More like these")
    assert seen.count("1 job waits in `") == 3
    assert folded.count("1 job waits in `") == 17
    assert "… and 10 more like this" in folded


def test_busy_shows_processes_and_what_they_run(viewer, redis_client, payload):
    """Language, version, load, memory and elapsed time."""
    enter_process(redis_client, "rb:1:aaa", queues=["low", "high"], running=[payload("j1", args=["bob", 5])])

    shown = viewer.get("/busy").shown

    assert "1 process, 1 of 5 threads busy" in shown
    assert "rb:1:aaa shop Ruby, Sidekiq 8.1.7 low, high 1 of 5" in shown
    assert "200 MB" in shown
    assert re.search(r'HardJob "bob", 5 default [34]\d\.\d s rb:1:aaa t0', shown)


def test_busy_adds_up_threads_and_memory(viewer, redis_client, payload):
    """As Ruby's Busy page does."""
    enter_process(redis_client, "rb:1:aaa", running=[payload(f"j{number}") for number in range(3)])
    enter_process(redis_client, "rb:2:bbb")

    assert "2 processes, 3 of 10 threads busy Utilization 30 %, memory 400 MB" in viewer.get("/busy").shown


def test_busy_shows_labels_and_the_queues_of_each_capsule(viewer, redis_client):
    """A queue that a capsule of one thread serves runs one job at a time, however idle the process is."""
    capsules = {
        "default": {"concurrency": 4, "mode": "strict", "weights": {"high": 0, "low": 0}},
        "video": {"concurrency": 1, "mode": "strict", "weights": {f"v{number}": 0 for number in range(10)}},
    }
    queues = [name for capsule in capsules.values() for name in capsule["weights"]]
    enter_process(redis_client, "rb:1:aaa", labels=["eu-1", "spot"], capsules=capsules, queues=queues)
    enter_process(redis_client, "py:2:bbb", labels=["sidekiq_py"], weights=[{"a": 0}, {"b": 0}], queues=["a", "b"])

    shown = viewer.get("/busy").shown

    assert "rb:1:aaa shop eu-1 spot Ruby" in shown
    assert "default, 4 threads: high, low video, 1 thread: v0, v1, v2, v3, v4, v5, v6, v7 and 2 more v8, v9" in shown
    assert "py:2:bbb shop Python, as Sidekiq 8.1.7 default: a b 0 of 5" in shown


@pytest.mark.usefixtures("still_clock")
def test_a_process_that_has_stopped_beating_is_silent_and_comes_first(viewer, redis_client):
    """As in `top`: it looks busy until its entry expires, and among a hundred others nobody would find it."""
    enter_process(redis_client, "rb:1:aaa")
    enter_process(redis_client, "rb:2:bbb")
    assert "2 processes, 0 of 10 threads busy" in viewer.get("/busy").shown
    redis_client.hset("rb:2:bbb", "beat", now_seconds() - 30)

    shown = viewer.get("/busy").shown

    assert "2 processes, 1 silent, 0 of 10 threads busy" in shown
    assert re.search(r"rb:2:bbb .* 30 s ago silent rb:1:aaa", shown)
    assert shown.count("silent") == 2


def test_processes_are_in_the_order_of_their_numbers(viewer, redis_client):
    """As on Ruby's Busy page; as texts, `web-10` would be before `web-2`."""
    for host in ("web-10", "web-2", "192.168.0.10", "192.168.0.9"):
        enter_process(redis_client, f"{host}:1:aaa")

    shown = viewer.get("/busy").shown

    assert re.findall(r"(\S+):1:aaa", shown) == ["192.168.0.9", "192.168.0.10", "web-2", "web-10"]


def test_a_process_with_a_wrong_clock_was_heard_from_when_redis_says(viewer, redis_client):
    """By its own clock that was an hour ago, or is yet to come."""
    enter_process(redis_client, "rb:1:aaa")
    redis_client.expire("rb:1:aaa", 57)
    for seconds in (-3600, 3600):
        redis_client.hset("rb:1:aaa", "beat", now_seconds() + seconds)

        least = 60 - redis_client.pttl("rb:1:aaa") / 1000
        [shown] = re.findall(r"rb:1:aaa .* (\d+) s ago", viewer.get("/busy").shown)
        most = 60 - redis_client.pttl("rb:1:aaa") / 1000

        assert round(least) - 1 <= int(shown) <= round(most) + 1


def test_many_processes_have_a_link_to_the_running_jobs_below_them(viewer, redis_client, payload):
    """So that it takes no scrolling to see what runs; with a few processes it is in sight."""
    link = '<a href="#running">'
    enter_process(redis_client, "rb:0:aaa", running=[payload("j1")])
    assert link not in viewer.get("/busy").text

    for number in range(1, 9):
        enter_process(redis_client, f"rb:{number}:aaa")

    assert link in viewer.get("/busy").text


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (16.4, "in 16 s"),
        (-7.7, "8 s ago"),
        (0.4, "now"),
        (-259_210, "3 d ago"),
        (3_600 + 59, "in 1 h"),
        (5_000, "in 1 h 23 m"),
    ],
)
def test_a_time_is_told_in_whole_seconds_and_in_at_most_two_neighbouring_units(seconds, told):
    """`3 d 10 s ago` reads like a mistake, and tenths of seconds flicker while a page updates."""
    now = datetime.now(UTC)

    assert text.relative(now + timedelta(seconds=seconds), now) == told


def test_an_iterable_job_shows_where_it_goes_on_and_for_how_long_it_has_run(viewer, redis_client, payload, failed):
    """As in Ruby's Web UI, wherever the job is."""
    failed("j1")
    enter_process(redis_client, "rb:1:aaa", running=[payload("j2")])
    state = {"ex": 2, "c": '["file.csv",1200]', "rt": "95", "cancelled": int(now_seconds()) - 7200}
    redis_client.hset("it-j1", mapping=state)
    redis_client.hset("it-j2", mapping={"ex": 1, "c": "null", "rt": "0.25"})

    assert re.search(
        r'Next item \["file.csv", 1200\] Run so far 1 m 35 s in 2 runs Cancelled 2 h ago',
        viewer.get("/job?jid=j1").shown,
    )
    assert "Next item null Run so far 250 ms in 1 run" in viewer.get("/job?jid=j2").shown


def test_the_page_of_a_job_that_does_not_iterate_shows_no_position(viewer, failed):
    """Most do not."""
    failed("j1")

    assert "Next item" not in viewer.get("/job?jid=j1").shown


def test_a_position_that_cannot_be_read_is_shown_as_such(visitor, redis_client, redis_url, failed):
    """A right is missing, or another program uses the key; the rest of the page is there."""
    failed("j1")
    redis_client.set("it-j1", "x")
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~retry", "~it-*", "+@all", "-hgetall")
    try:
        wrong = visitor("viewer").get("/job?jid=j1")
        [key] = re.findall(r"key=([^&\"]+)", visitor("viewer").get("/retries").text)
        refused = visitor("viewer", pool=redis_url.replace("redis://", "redis://half:pw@")).get(
            f"/job?at=/retries&key={key}"
        )
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    for page, reason in ((wrong, "WRONGTYPE"), (refused, "hgetall")):
        assert page.status == 200
        assert re.search(f"Iteration cannot be read: [^.]*{reason}", page.shown)


def test_the_page_of_a_listed_job_takes_two_round_trips(viewer, failed, round_trips):
    """One for the job, and one for where it goes on: the payload does not say whether a job is iterable."""
    failed("j1")
    [key] = re.findall(r"key=([^&\"]+)", viewer.get("/retries").text)

    with round_trips() as made:
        assert viewer.get(f"/job?at=/retries&key={key}").status == 200

    assert (made.count, made.commands) == (2, 2)


def test_a_hidden_position_is_not_shown(visitor, redis_client, failed):
    """By a rule for the class, or because the key of a value looks like a secret."""
    failed("j1")
    redis_client.hset("it-j1", mapping={"ex": 2, "c": '{"token":"anna","at":5}', "rt": "1"})

    assert 'Next item {"token": "[redacted]", "at": 5}' in visitor("viewer").get("/job?jid=j1").shown
    hiding = visitor("viewer", redaction=Redaction(jobs={"HardJob": ["cursor"]})).get("/job?jid=j1").shown
    assert 'Next item "[redacted]"' in hiding


def test_a_running_job_without_an_id_has_no_link(viewer, redis_client, payload):
    """It would lead to "Not found": only an id finds a job that runs. Other programs may push one without it."""
    enter_process(redis_client, "rb:1:aaa", running=[payload("j1"), payload(None, args=["bob"])])

    page = viewer.get("/busy")

    assert 'HardJob "bob"' in page.shown
    assert re.findall(r'href="(/job[^"]*)"', page.text) == ["/job?jid=j1"]


def test_a_queue_names_the_first_few_processes_that_serve_it(viewer, redis_client, payload):
    """In full, and says how many more there are; one that nobody serves is in trouble as long as jobs wait in it."""
    told = "No running process serves this queue"
    assert f"{told}." in viewer.get("/queue?name=default").shown
    assert 'class="trouble">No running' not in viewer.get("/queue?name=default").text
    fill(redis_client, payload, 1)
    assert f'class="trouble">{told}, so its jobs wait until one does.' in viewer.get("/queue?name=default").text

    for number in range(7):
        enter_process(redis_client, f"rb:{number}:aaa")

    names = ", ".join(f"rb:{number}:aaa" for number in range(5))
    assert f"Served by 7 processes : {names} and 2 more" in viewer.get("/queue?name=default").shown


def test_a_queue_shows_what_runs_next_first(viewer, redis_client, payload):
    """Or the newest first, if requested; fifty on a page."""
    fill(redis_client, payload, 60)

    page = viewer.get("/queue?name=default")
    assert page.shown.index("HardJob 0 ") < page.shown.index("HardJob 1 ")
    assert "HardJob 59 " not in page.shown
    assert "HardJob 59 " in viewer.get("/queue?name=default&from=50").shown

    newest = viewer.get("/queue?name=default&order=latest").shown
    assert newest.index("HardJob 59 ") < newest.index("HardJob 58 ")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("class=Other", {"b"}),
        ("queue=low", {"b"}),
        ("tag=vip", {"a"}),
        ("tag=vip&queue=low", set()),
        ("argument=needle", {"c"}),
        ("error=TIMEOUT", {"a"}),
        ("class=HardJob&error=broke", {"c"}),
        ("class=Nobody", set()),
    ],
)
def test_retries_are_filtered(viewer, failed, query, expected):
    """By class, queue, tag, argument and error; a job has to match all of them."""
    failed("a", tags=["vip"], error_class="Net::TimeoutError", error_message="late", args=["job-a"])
    failed("b", klass="Other", queue="low", args=["job-b"])
    failed("c", args=["job-c", {"x": ["needle"]}])

    assert _listed(viewer.get(f"/retries?{query}")) == expected


@pytest.mark.parametrize("path", ["/retries", "/dead", "/scheduled", "/queue?name=default"])
def test_a_tag_leads_to_the_jobs_in_the_list_that_have_it(viewer, redis_client, payload, failed, path):
    """In Ruby's Web UI, too. What else the list is filtered by stays."""
    jobs = {"a": ["vip", "käse & co"], "b": ["käse & co"], "c": []}
    for jid, tags in jobs.items():
        raw = payload(jid, args=[f"job-{jid}"], tags=tags)
        redis_client.zadd({"/dead": "dead", "/scheduled": "schedule"}.get(path, "retry"), {raw: now_seconds()})
        redis_client.lpush("queue:default", raw)

    start = viewer.get(f"{path}{'&' if '?' in path else '?'}class=HardJob&order=latest").text
    links = dict(re.findall(r'<a class="label" href="([^"]+)" aria-label="Jobs with the tag ([^"]+)"', start))
    by_tag = {unescape(tag): unescape(link) for link, tag in links.items()}

    assert by_tag.keys() == {"vip", "käse & co"}
    assert _listed(viewer.get(by_tag["vip"])) == {"a"}
    page = viewer.get(by_tag["käse & co"])
    assert _listed(page) == {"a", "b"}
    assert all(part in by_tag["vip"] for part in ("class=HardJob", "order=latest"))


def test_a_tag_that_no_filter_can_hold_is_no_link(viewer, failed):
    """Ruby sets tags of any kind; a job with very many shows the first."""
    tags = [" vip", "", 5, {"a": 1}, "x" * 501, "a\u202eb", *(f"t{number:02}" for number in range(20))]
    failed("a", tags=tags)
    failed("b", tags="none")

    page = viewer.get("/retries")

    assert re.findall(r"Jobs with the tag (\w+)", page.text) == ["t00", "t01", "t02", "t03"]
    assert '5 {"a": 1}' in page.shown
    assert "and 16 more tags" in page.shown
    assert re.findall(r"t\d\d", viewer.get("/job?jid=a").shown)[:20] == tags[6:]


def test_running_jobs_show_their_tags(viewer, redis_client, payload):
    """There is no filter on that page."""
    enter_process(redis_client, "rb:1:aaa", running=[payload("j1", tags=["vip"])])

    assert "HardJob vip default" in viewer.get("/busy").shown
    assert "Tags vip" in viewer.get("/job?jid=j1").shown


def test_hidden_tags_are_not_shown_and_found_by_no_one(visitor, failed):
    """The policy may name them."""
    failed("a", tags=["anna@x"], args=["job-a"])
    viewer = visitor("viewer", redaction=Redaction(jobs={"HardJob": ["tags"]}))

    for path in ("/retries", "/job?jid=a"):
        page = viewer.get(path)
        assert "anna" not in page.text
        assert "[redacted]" in page.shown
    assert _listed(viewer.get("/retries?tag=anna@x")) == set()


def _listed(page):
    return set(re.findall(r'"job-(\w+)"', page.shown))


def test_retries_are_filtered_by_time(viewer, failed):
    """By when they are due: after one time, before another."""
    now = datetime.now(UTC)
    failed("a", at=-3600, args=["job-a"])
    failed("b", at=60, args=["job-b"])
    failed("c", at=7200, args=["job-c"])

    since = (now - timedelta(minutes=5)).strftime("%Y-%m-%d %H:%M").replace(" ", "+")
    until = (now + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")

    for order in ("first", "latest"):
        assert _listed(viewer.get(f"/retries?after={since}&order={order}")) == {"b", "c"}
        assert _listed(viewer.get(f"/retries?before={until}&order={order}")) == {"a", "b"}
        assert _listed(viewer.get(f"/retries?after={since}&before={until}&order={order}")) == {"b"}


def test_retries_are_filtered_by_their_last_failure(operator, failed):
    """Which is when it broke, unlike the time of the next try; a job that has not failed has none."""
    day = datetime(2026, 2, 14, tzinfo=UTC).timestamp()
    failed("a", args=["job-a"], failed_at=day + 2.5 * 3600)
    failed("b", args=["job-b"], failed_at=day, retried_at=day + 2 * 3600, retry_count=1)
    failed("c", args=["job-c"], failed_at=day + 2.5 * 3600, retried_at=day + 3 * 3600, retry_count=1)
    failed("d", args=["job-d"], failed_at=None)
    times = "failed-after=2026-02-14+02:00&failed-before=2026-02-14+03:00"

    assert _listed(operator.get(f"/retries?{times}")) == {"a", "b"}
    assert _listed(operator.get("/retries?failed-after=2026-02-14+03:00")) == {"c"}
    assert "2 jobs match." in operator.get(f"/retries/all?{times}").shown
    assert "last failure is not before 2026-02-14 02:00" in operator.get(f"/retries/all?{times}").shown


def test_the_classes_on_a_page_lead_to_their_jobs(viewer, failed, redis_client):
    """What has no class leads nowhere."""
    failed("a", klass="Mail", args=["job-a"])
    failed("b", klass="Shop::Bill", args=["job-b"])
    redis_client.zadd("retry", {b"[1]": now_seconds()})

    links = re.findall(r'href="(/retries\?class=[^"]+)"', viewer.get("/retries").text)

    assert sorted(map(unescape, links)) == ["/retries?class=Mail", "/retries?class=Shop%3A%3ABill"]
    assert _listed(viewer.get(unescape(links[0]))) in ({"a"}, {"b"})


@pytest.mark.parametrize(
    ("query", "field", "told"),
    [
        ("after=tomorrow", "after", "“tomorrow” is not a time. Write it as 2026-02-14 09:30, in UTC."),
        ("before=25:00", "before", "“25:00” is not a time."),
        ("after=2026-02-14&before=2026-02-13", "before", "this must be later than the time before it"),
        ("after=2026-02-14&before=2026-02-14", "before", "this must be later than the time before it"),
    ],
)
@pytest.mark.parametrize("path", ["/retries", "/queue?name=default"])
def test_a_filter_that_is_wrong_says_so_at_its_field_and_shows_no_jobs(operator, failed, path, query, field, told):
    """Without the wrong part it would match more jobs than are meant, and all of them could be acted on."""
    failed("a", args=["job-a"])

    page = operator.get(f"{path}{'&' if '?' in path else '?'}{query}")

    assert (page.status, _listed(page)) == (422, set())
    assert f'aria-invalid="true" aria-describedby="f-{field}-trouble"' in page.text
    assert told in page.shown
    assert "Act on all" not in page.shown


@pytest.mark.parametrize("path", ["/scheduled", "/queue?name=default"])
def test_a_field_that_the_page_does_not_offer_is_shown_if_it_is_given(operator, failed, path):
    """An address from another page: otherwise nothing would say what is wrong or why no job is listed."""
    page = operator.get(f"{path}{'&' if '?' in path else '?'}failed-after=x")

    assert page.status == 422
    assert "Failed after (UTC) “x” is not a time." in page.shown
    assert "Failed after" not in operator.get(path).shown


def test_a_long_search_goes_on_where_it_stopped(viewer, redis_client, payload, monkeypatch):
    """Each page looks at a limited number of jobs; a link leads on, and the page's script follows it."""
    monkeypatch.setattr(places, "_LOOKED_AT", 1000)
    rows = {payload(f"{n:024}", args=["job-needle" if n == 2500 else "hay"]): 1000 + n for n in range(3000)}
    redis_client.zadd("schedule", rows)

    page, looks = viewer.get("/scheduled?argument=needle"), 1
    while found := re.search(r'id="more" href="([^"]+)"', page.text):
        page, looks = viewer.get(unescape(found[1])), looks + 1

    assert _listed(page) == {"needle"}
    assert looks == 3
    assert "Looked at 3,000 jobs" in page.shown


def test_jobs_of_a_queue_are_filtered(viewer, redis_client, payload):
    """By class and argument."""
    redis_client.lpush("queue:low", payload("a", args=["job-a"]), payload("b", klass="Other", args=["job-b"]))

    assert _listed(viewer.get("/queue?name=low&class=Other")) == {"b"}
    assert _listed(viewer.get("/queue?name=low&argument=job-a")) == {"a"}


def test_a_list_of_jobs_has_pages(viewer, redis_client, payload):
    """Fifty per page; every job appears once."""
    redis_client.zadd("dead", {payload(f"{n:024}", args=[f"job-{n}"]): 1000 + n for n in range(120)})
    seen, path = [], "/dead"

    while path:
        page = viewer.get(path)
        seen += re.findall(r'"job-(\d+)"', page.shown)
        following = re.search(r'href="([^"]+)" rel="next"', page.text)
        path = unescape(following[1]) if following else None

    assert seen == [str(n) for n in reversed(range(120))]


def test_a_job_shows_its_payload_its_failure_and_where_it_waits(viewer, redis_client, failed):
    """Both bytes and tree, with the backtrace, and every digit of a large integer."""
    backtrace = base64.b64encode(zlib.compress(json.dumps(["app/job.rb:5:in 'perform'"]).encode())).decode()
    raw = failed("j1", args=[12345678901234567890123, {"deep": [True, None]}], error_backtrace=backtrace, retry_count=2)

    page = viewer.get("/job?jid=j1")

    assert "HardJob Where it is Retries Job id j1 Queue default" in page.shown
    assert "Failures 3" in page.shown
    assert "Boom: it broke" in page.shown
    assert "app/job.rb:5:in 'perform'" in page.shown
    assert "1 line, as shown above" in page.shown
    assert "12345678901234567890123" in page.shown
    assert raw.decode() in unescape(page.text)


def test_the_arguments_of_a_job_stand_above_its_backtrace(viewer, failed):
    """A backtrace has a hundred lines, and the question is which customer it was."""
    failed("j1", args=["alice", {"password": "hunter2"}], error_backtrace=["app/job.rb:5:in 'perform'"] * 120)

    shown = viewer.get("/job?jid=j1").shown

    assert shown.index('Arguments: "alice", {"password": "[redacted]"}') < shown.index("Backtrace, 120 lines")


def test_a_job_leads_to_its_queue_to_the_runs_of_its_class_and_to_busy(viewer, redis_client, payload, failed):
    """Metrics count a job of Active Job under the class that it wraps; a name too long for a page has no link."""
    mail = payload("j1", klass="ActiveJob::Wrapper", wrapped="Mail::Job")
    enter_process(redis_client, "rb:1:aaa", running=[mail])
    failed("j2", klass="A" * 501, queue="mailers & more")

    page, other = viewer.get("/job?jid=j1"), viewer.get("/job?jid=j2")

    assert '<a href="/metrics/job?class=Mail%3A%3AJob">Runs of this class</a>' in page.text
    assert '<a href="/busy">Running</a> in rb:1:aaa' in page.text
    assert '<dt>Queue</dt><dd><a href="/queue?name=mailers+%26+more">' in other.text
    assert "/metrics/job" not in other.text


@pytest.mark.parametrize(("path", "into"), [("/retries", "retry"), ("/scheduled", "schedule"), ("/dead", "dead")])
def test_the_queue_of_each_listed_job_leads_to_its_page(viewer, failed, path, into):
    """Also one whose name needs an address of its own; a job without a queue has no link."""
    failed("j1", into=into, queue="mailers & more")
    failed("j2", into=into, queue=None)

    assert re.findall(r'<td><a href="(/queue[^"]*)">([^<]*)</a></td>', viewer.get(path).text) == [
        ("/queue?name=mailers+%26+more", "mailers &amp; more")
    ]


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize(("path", "into"), [("/retries", "retry"), ("/scheduled", "schedule")])
def test_a_job_whose_time_has_come_is_due(viewer, failed, path, into):
    """No process has enqueued it. "Next try: 10 m ago" would read as if it had been tried."""
    failed("j1", at=-600, into=into)
    failed("j2", at=610, into=into)
    failed("j3", at=-600, into="dead")

    assert re.search(r"due 10 m ago .* in 10 m", viewer.get(path).shown)
    assert re.search(r"(Next try|Runs) due 10 m ago \(20", viewer.get("/job?jid=j1").shown)
    assert "due" not in viewer.get("/dead").shown + viewer.get("/job?jid=j3").shown


def test_a_job_is_found_wherever_it_is(viewer, redis_client, payload, failed):
    """Running, in a set or in a queue; a job that is nowhere has left Redis."""
    enter_process(redis_client, "rb:1:aaa", running=[payload("running")])
    fill(redis_client, payload, 3)
    failed("dead", into="dead")

    assert "Running in rb:1:aaa" in viewer.get("/job?jid=running").shown
    assert "Where it is Dead" in viewer.get("/job?jid=dead").shown
    assert "Where it is Queue default" in viewer.get(f"/job?jid={2:024}").shown
    assert viewer.get("/job?jid=nowhere").status == 404


def test_a_job_is_found_behind_a_queue_that_cannot_be_read(viewer, redis_client, payload):
    """What the search has not seen is named if it finds nothing."""
    redis_client.sadd("queues", "broken")
    redis_client.set("queue:broken", "x")
    fill(redis_client, payload, 1)

    assert "Where it is Queue default" in viewer.get(f"/job?jid={0:024}").shown
    nowhere = viewer.get("/job?jid=nowhere")
    assert (nowhere.status, "queues, which could not be read: broken." in nowhere.shown) == (404, True)


def test_a_job_that_runs_and_waits_is_shown_with_both(viewer, redis_client, payload, failed):
    """A process that was cut off may run it while it already waits to be run again."""
    raw = failed("j1")
    enter_process(redis_client, "rb:1:aaa", running=[raw])

    page = viewer.get("/job?jid=j1")

    assert "Running in rb:1:aaa, thread t0" in page.shown
    assert "Retries" in re.findall(r"<li>.*?</li>", page.text)[-1]


def test_an_id_that_no_job_has_can_be_looked_for_elsewhere(viewer, failed):
    """People know the number of the order and not the id of its job."""
    failed("a", args=["job-a", 4711])

    page = viewer.get("/job?jid=4711")

    assert page.status == 404
    assert _listed(viewer.get(unescape(re.findall(r'href="(/retries\?[^"]+)"', page.text)[0]))) == {"a"}
    assert 'href="/audit?text=4711"' in page.text


def test_the_audit_log_is_searched_to_its_end(operator, redis_client, monkeypatch):
    """Who deleted that? In any case of letters, a page at a time."""
    monkeypatch.setattr("sidekiq_py.web.pages.audit._READ_AT_ONCE", 4)
    monkeypatch.setattr("sidekiq_py.web.pages.audit._SHOWN", 3)
    log = AuditLog()
    for number in range(10):
        log.record("bob" if number % 2 else "ada", "delete", f"job {number}", f"Mail to C{number}")

    page = operator.get("/audit?text=BOB")
    assert re.findall(r"job (\d)<", page.text) == ["9", "7", "5"]
    [older] = re.findall(r'href="([^"]+)" rel="next"', page.text)
    assert re.findall(r"job (\d)<", operator.get(unescape(older)).text) == ["3", "1"]
    assert re.findall(r"job (\d)<", operator.get("/audit?text=c4").text) == ["4"]
    assert "No entry contains this." in operator.get("/audit?text=eve").shown


def test_metrics_show_each_class_with_deploys(viewer, redis_client):
    """As on Sidekiq's page: counts, times, histogram, marks."""
    now = now_seconds()
    redis_client.hset(metrics_keys.minute(now, 8), mapping={"Slow|p": 2, "Slow|ms": 9000, "Fast|p": 5, "Fast|f": 1})
    redis_client.execute_command("BITFIELD", metrics_keys.histogram("Slow", now, 8), "SET", "u16", "#14", 2)
    Deploy().mark("v42")

    shown = viewer.get("/metrics").shown
    assert shown.index("Slow 2 0 4.5 s 9.0 s 100 %") < shown.index("Fast 4 1")
    assert "v42" in shown

    job = viewer.get("/metrics/job?class=Slow")
    assert "Succeeded 2 Failed 0 Average 4.5 s" in job.shown
    assert "5.8 s: 2" in job.shown
    assert "Deploy: v42" in job.shown


@pytest.mark.parametrize(
    ("period", "hours", "key"),
    [("2h", 1.5, lambda at: metrics_keys.minute(at, 8)), ("48h", 47, metrics_keys.ten_minutes)],
)
def test_metrics_have_the_periods_of_ruby_s_web_ui(viewer, redis_client, period, hours, key):
    """The shorter ones by the minute, those of a day or more by ten minutes."""
    at = now_seconds() - hours * 3600
    redis_client.hset(key(at), mapping={"Slow|p": 3, "Slow|f": 1, "Slow|ms": 900})

    assert "Slow 2 1" in viewer.get(f"/metrics?period={period}").shown
    assert "Succeeded 2 Failed 1" in viewer.get(f"/metrics/job?class=Slow&period={period}").shown


@pytest.mark.parametrize(
    ("order", "names"), [("", "ABC"), ("failed", "BCA"), ("succeeded", "CAB"), ("average", "BAC"), ("nonsense", "ABC")]
)
def test_metrics_are_sorted_by_what_one_asks_for(viewer, redis_client, order, names):
    """Who looks for what fails since the deploy begins with the failures."""
    counts = {"A": (5, 0, 9000), "B": (5, 4, 2000), "C": (9, 1, 1000)}
    for name, (attempts, failures, ms) in counts.items():
        fields = {f"{name}|p": attempts, f"{name}|f": failures, f"{name}|ms": ms}
        redis_client.hset(metrics_keys.minute(now_seconds(), 8), mapping=fields)

    page = viewer.get(f"/metrics?order={order}&period=4h")

    assert "".join(re.findall(r'/metrics/job\?period=4h&amp;class=(\w)"', page.text)) == names
    assert page.text.count('aria-sort="descending"') == 1


def test_the_metrics_of_a_class_lead_to_its_jobs(viewer, failed):
    """To those that failed, and to those that died."""
    failed("a", klass="Shop::Bill", args=["job-a"])
    failed("b", klass="Mail", args=["job-b"])

    text = viewer.get("/metrics/job?class=Shop::Bill").text

    assert _listed(viewer.get(unescape(re.findall(r'href="(/retries\?[^"]+)"', text)[0]))) == {"a"}
    assert 'href="/dead?class=Shop%3A%3ABill"' in text


def test_metrics_show_the_latest_hundred_deploys(viewer, redis_client):
    """A program may mark each minute; a label may have a megabyte."""
    now = datetime.now(UTC)
    for ago in range(150):
        at = now - timedelta(seconds=ago)
        redis_client.hset(f"{at:%Y%m%d}-marks", f"{at:%Y-%m-%dT%H:%M:%SZ}", f"v{ago:03} {'x' * 9000}")

    for path in ("/metrics", "/metrics/job?class=A"):
        page = viewer.get(path)
        assert set(re.findall(r"v\d{3}", page.text)) == {f"v{ago:03}" for ago in range(100)}
        assert len(page.text) < 100_000


def test_prometheus_gets_text(viewer, redis_client):
    """The metrics of the whole fleet; a browser gets the page."""
    redis_client.set("stat:processed", 42)

    reply = viewer.get("/metrics", accept="text/plain;version=0.0.4")

    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "sidekiq_processed_jobs_total 42" in reply.text


def test_several_servers_are_shown_in_one_dashboard(visitor, redis_client, new_redis_server, redis_url, payload):
    """Each has its own address; actions apply to the one that is shown."""
    with new_redis_server() as other:
        client = other.client()
        client.sadd("queues", "abroad")
        operator = visitor("operator", servers={"home": redis_url, "abroad": other.url})

        assert "abroad" not in operator.get("/queues").shown.replace("home abroad", "")
        page = operator.get("/at/abroad/queues")
        assert 'href="/at/abroad/queue?name=abroad"' in page.text
        operator.post("/at/abroad/queue/pause", {"name": "abroad", "action": "pause"})

        assert client.smembers("paused") == {b"abroad"}
        assert redis_client.keys("*") == []
        assert operator.get("/at/nowhere/").status == 404


def test_one_of_several_servers_may_have_a_namespace(visitor, redis_client, redis_url):
    """The same server without one can stand beside it."""
    redis_client.sadd("queues", "bare")
    redis_client.sadd("shop:queues", "mails")
    sidekiq.configure(sidekiq_version="6.4")
    shop = Pool(RedisSettings(redis_url, namespace="shop"))
    operator = visitor("operator", servers={"all": redis_url, "shop": shop})

    for path in ("/", "/busy", "/queues", "/retries", "/metrics", "/batches", "/cron", "/celery"):
        assert operator.get(f"/at/shop{path}").status == 200
    assert "mails" in operator.get("/at/shop/queues").shown
    assert "mails" not in operator.get("/at/all/queues").shown
    operator.post("/at/shop/queue/pause", {"name": "mails", "action": "pause"})

    assert redis_client.smembers("shop:paused") == {b"mails"}
    assert redis_client.keys("paused") == []


def test_a_server_that_hangs_holds_up_no_other(redis_url, new_redis_server, tmp_path):
    """However many people look at it, its pages and streams do not use the threads of another server."""
    other = new_redis_server()
    config = tmp_path / "dashboard.yml"
    config.write_text(
        f"tokens: {{a-token-of-17-letters: viewer}}\nservers: {{home: '{redis_url}', abroad: '{other.url}'}}"
    )
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}", "--config", str(config)]
    with WebServer(command) as server, ThreadPoolExecutor(60) as many, other.paused():
        viewer = HttpClient(server, {"Authorization": "Bearer a-token-of-17-letters"})
        waiting = [many.submit(viewer.get, "/at/abroad/") for _ in range(60)]
        eventually(lambda: all(look.running() for look in waiting))
        started = monotonic()

        assert [viewer.get(path)[0] for path in ("/", "/queues", "/retries")] == [200, 200, 200]

        assert monotonic() - started < 5
        assert not any(look.done() for look in waiting)
        other.resume()
        assert {look.result()[0] for look in waiting} == {200}


def test_visitors_in_one_event_loop_hold_up_none_in_another(redis_url):
    """A program may serve the dashboard in several, each in a thread of its own."""
    server = site.Server("", redis_url)
    go_on = threading.Event()
    waiting = []

    def wait():
        waiting.append(True)
        return go_on.wait()

    async def look(count, work):
        return await asyncio.wait_for(asyncio.gather(*[server.run(work) for _ in range(count)]), 30)

    with ThreadPoolExecutor(2) as loops:
        many = loops.submit(asyncio.run, look(60, wait))
        eventually(lambda: len(waiting) >= 20)
        try:
            assert loops.submit(asyncio.run, look(1, lambda: "seen")).result() == ["seen"]
        finally:
            go_on.set()
        assert many.result() == [True] * 60


def test_a_server_is_looked_at_in_a_loop_of_trio(redis_url):
    """Hypercorn can run the dashboard there: Starlette and anyio know both."""
    trio = pytest.importorskip("trio")
    server = site.Server("", redis_url)

    assert trio.run(server.run, lambda: "seen") == "seen"


def test_the_menu_says_which_server_is_out_of_reach(redis_url, visitor):
    """According to the last page of that server; the title of each page names its server."""
    operator = visitor("operator", servers={"home": redis_url, "abroad": "redis://127.0.0.1:1/0"})
    assert "out of reach" not in operator.get("/").text

    lost = operator.get("/at/abroad/queues")
    home = operator.get("/queues")

    assert lost.status == 503
    assert "<title>Redis cannot be reached · abroad · Sidekiq</title>" in lost.text
    assert ".." not in re.search(r"<h1>Redis cannot.*?</p>", lost.text, re.DOTALL)[0]
    assert "<title>Queues · home · Sidekiq</title>" in home.text
    assert re.findall(r">(\w+ \(out of reach\))</a>", home.text) == ["abroad (out of reach)"]
    # The sign-in form does not use Redis.
    operator.get("/at/abroad/sign-in")
    assert "abroad (out of reach)" in operator.get("/queues").text


def test_who_waits_for_a_server_that_hangs_waits_once(new_redis_server):
    """A visitor does not wait for the timeouts of all earlier visitors, one after the other."""
    other = new_redis_server()
    watch = site.Watch(other.url)

    def seconds_until_it_fails():
        started = monotonic()
        with pytest.raises(RedisError):
            watch.look("/", OverviewScope(), is_live=False)
        return monotonic() - started

    with ThreadPoolExecutor(4) as many, other.paused():
        seconds = [look.result() for look in [many.submit(seconds_until_it_fails) for _ in range(4)]]

    assert max(seconds) < 2 * min(seconds)
    watch.look("/", OverviewScope(), is_live=False)


def test_links_bear_the_prefix_of_the_place_where_it_is_mounted(visitor, failed):
    """So do links to files."""
    failed()

    page = visitor("operator", base="/ops/jobs").get("/retries").text

    links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
    assert len(links) > 10
    assert all(link.startswith(("/ops/jobs/", "#")) for link in links)


def test_an_extension_adds_a_page(visitor):
    """It is in the navigation, with the same access rules and the same layout."""
    template = (
        '{% extends "base.html" %}{% block title %}Tides{% endblock %}'
        "{% block content %}<p>{{ word }}</p>{% endblock %}"
    )
    page = Page("Tides", "/tides", lambda visit: visit.page("tides.html", word="<tick>"), {"tides.html": template})

    reply = visitor("viewer", pages=[page]).get("/tides")

    assert "<p>&lt;tick&gt;</p>" in reply.text
    assert re.search(r'href="/tides" aria-current="page">Tides', reply.text)
    assert Visitor(asgi_app(pages=[page])).get("/tides").status == 403


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_job_links_to_its_trace(visitor, failed):
    """If the dashboard knows an address for traces."""
    failed("j1", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")

    page = visitor("viewer", trace_url="https://traces.example/t/{trace_id}?tab=1").get("/job?jid=j1")

    assert f'href="https://traces.example/t/{TRACE}?tab=1" rel="noreferrer noopener"' in page.text
    assert "traces.example" not in visitor("viewer").get("/job?jid=j1").text


@pytest.mark.parametrize(
    "traceparent",
    [f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE.upper()}-00f067aa0ba902b7-01", "00-javascript:-1-01", ["x"], ""],
)
def test_a_trace_id_that_is_none_is_no_link(visitor, failed, traceparent):
    """Any program that pushes jobs may write it."""
    failed("j1", traceparent=traceparent)

    page = visitor("viewer", trace_url="https://traces.example/{trace_id}").get("/job?jid=j1")

    assert page.status == 200
    assert "traces.example" not in page.text


def test_an_extension_s_page_adds_links_to_the_page_of_a_job(visitor, failed):
    """With the prefix of the dashboard and of the server that is shown."""
    failed("j1", order=7)
    page = Page(
        "Orders",
        "/orders",
        lambda visit: visit.page("orders.html"),
        job_links=lambda payload: [JobLink("Order", f"no. {payload['order']}", "/orders", {"id": "<7>"})],
    )

    text = visitor("viewer", pages=[page], base="/ops").get("/job?jid=j1").text

    assert '<dt>Order</dt><dd><a href="/ops/orders?id=%3C7%3E">no. 7</a></dd>' in text


@pytest.mark.parametrize("order", [42, 1.5, None, True, ["x"]])
def test_a_link_s_text_may_be_any_value_of_a_payload(visitor, failed, order):
    """As in the example of docs/dashboard.md, where an order's id may be a number."""
    failed("j1", order=order)
    page = Page(
        "Orders",
        "/orders",
        lambda visit: visit.page("orders.html"),
        job_links=lambda payload: [JobLink("Order", payload["order"], "/orders", {"id": payload["order"]})],
    )

    reply = visitor("viewer", pages=[page]).get("/job?jid=j1")

    assert (reply.status, f"Order {order}" in reply.shown) == (200, True)


def test_a_member_of_a_batch_links_to_its_batch(viewer, failed):
    """A malformed membership becomes no link."""
    failed("j1", sidekiq_py_batch=["B-1", 3])
    failed("j2", sidekiq_py_batch=["<b>", 3])

    assert '<dt>Batch</dt><dd><a href="/batches/one?bid=B-1">B-1</a></dd>' in viewer.get("/job?jid=j1").text
    assert "/batches/one" not in viewer.get("/job?jid=j2").text


def test_redacted_values_are_nowhere_on_a_page(visitor, failed):
    """They are not in lists, the tree, the text or the error, and searches do not find them."""
    failed("j1", klass="Mail", args=["anna@example.com", {"password": "hunter2", "n": 1}], error_message="no anna!")
    policy = Redaction(jobs={"Mail": ["args[0]", "error_message"]})
    operator = visitor("operator", may_edit=True, redaction=policy)

    for path in ("/retries", "/job?jid=j1"):
        text = operator.get(path).text
        assert "[redacted]" in text
        for secret in ("anna", "hunter2"):
            assert secret not in text
    assert "Nothing" not in operator.get("/retries?argument=redacted").shown
    for query in ("argument=anna", "argument=hunter", "error=anna"):
        assert "No job matches." in operator.get(f"/retries?{query}").shown


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/", 3),
        ("/?period=day", 3),
        ("/?period=week", 3),
        ("/?period=6-months", 3),
        ("/busy", 3),
        ("/queues", 3),
        ("/queue?name=default", 3),
        ("/queue?name=default&order=latest", 3),
        ("/queue?name=default&order=latest&from=50", 3),
        ("/retries", 1),
        ("/scheduled", 1),
        ("/dead", 1),
        ("/metrics", 3),
        ("/metrics?period=72h", 3),
        ("/metrics/job?class=HardJob", 3),
        ("/bulk", 2),
        ("/audit", 1),
        ("/?live=1", 1),
        ("/?period=6-months&live=1", 1),
        ("/busy?live=1", 1),
    ],
)
def test_a_page_takes_three_round_trips_at_most(viewer, redis_client, payload, failed, path, most, round_trips):
    """Whatever Redis contains. The doctor runs in the background, and is not counted."""
    fill(redis_client, payload, 60)
    failed()
    enter_process(redis_client, "rb:1:aaa", running=[payload()])
    viewer.get(path)

    with round_trips() as made:
        viewer.get(path)

    assert made.count <= most


@pytest.mark.parametrize(
    ("path", "shown_at_once"),
    [
        ("/busy", 0),
        ("/queue?name=q000", 1),
        ("/queue?name=nowhere", 1),
        ("/queues", 100),
        ("/queues?from=100", 100),
        ("/retries", 0),
        ("/scheduled", 0),
        ("/dead", 0),
        ("/metrics", 0),
        ("/bulk", 0),
        ("/audit", 0),
    ],
)
def test_a_page_asks_nothing_about_queues_that_it_does_not_show(
    visitor, redis_client, payload, path, shown_at_once, round_trips
):
    """Programs with a queue per customer have thousands. Only the Overview adds up and ranks all of them."""
    served = [f"q{number:03}" for number in range(400)]
    redis_client.hset("sidekiq_py:owners", "app:2:bb:0", json.dumps({"queues": served[:5]}))
    enter_process(redis_client, "app:2:bb", labels=["sidekiq_py"], queues=served[:5])
    asked = []
    for names in (served[: 2 * shown_at_once or 5], served):
        for name in names:
            fill(redis_client, payload, 1, name)
        viewer = visitor("viewer")
        viewer.get(path)

        with round_trips() as made:
            viewer.get(path)
        asked.append(made.commands)

    assert asked[0] == asked[1]


@pytest.mark.parametrize("path", ["/retries?class=Nope", "/queue?name=default&class=Nope"])
def test_a_search_looks_at_ten_thousand_jobs_in_a_dozen_round_trips(viewer, redis_client, payload, path, round_trips):
    """With a hundred jobs in each, one search would take 21 s on a link with 200 ms."""
    jobs = [payload(str(number)) for number in range(10_000)]
    redis_client.zadd("retry", {job: number for number, job in enumerate(jobs)})
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", *jobs)

    with round_trips() as made:
        shown = viewer.get(path).shown

    assert "10,000" in shown
    assert made.count <= 14


def test_the_list_of_queues_asks_nothing_about_processes(visitor, redis_client, payload, round_trips):
    """It shows none."""
    fill(redis_client, payload, 1)
    asked = []
    for processes in (2, 20):
        for number in range(processes):
            enter_process(redis_client, f"rb:{number}:aaa", running=[payload()])
        with round_trips() as made:
            visitor("viewer").get("/queues")
        asked.append(made.commands)

    assert asked[0] == asked[1]


def test_a_page_of_queues_shows_its_hundred_and_how_many_there_are(viewer, redis_client, payload):
    """Jobs are counted only in those that it shows."""
    for number in range(150):
        fill(redis_client, payload, 1, f"q{number:03}")

    first, second = (viewer.get(path).shown for path in ("/queues", "/queues?from=100"))

    assert "150 queues, 100 jobs waiting in those on this page" in first
    assert "150 queues, 50 jobs waiting in those on this page" in second
    assert ("q099" in first, "q100" in first, "q100" in second, "q149" in second) == (True, False, True, True)


def test_a_queue_is_found_by_a_part_of_its_name(viewer, redis_client, payload):
    """Among hundreds, nobody wants to turn pages; the pages and the updates of what matches match, too."""
    for number in range(150):
        fill(redis_client, payload, 1, f"q{number:03}")

    found = viewer.get("/queues?name=Q14")
    many = viewer.get("/queues?name=q&from=0").text

    assert "10 queues, 10 jobs waiting Queue" in found.shown
    assert ("q140" in found.shown, "q139" in found.shown) == (True, False)
    assert "10 queues, 10 jobs waiting Queue" in viewer.get("/queues?name=Q14&live=1").shown
    assert 'href="/queues?name=q&amp;from=100"' in many
    assert "There are no queues with such a name." in viewer.get("/queues?name=zzz").shown
    assert 'value="&lt;b&gt;"' in viewer.get("/queues?name=<b>").text
    assert 'name="name"' in viewer.get("/queues").text


def test_a_queue_that_was_cleared_while_its_jobs_were_in_flight_is_listed_last(viewer, redis_client, payload):
    """Its name is in no set any more, until a job comes back to it."""
    fill(redis_client, payload, 2)
    redis_client.hset("sidekiq_py:owners", "app:2:bb:0", '{"queues":["cleared"]}')
    redis_client.hset("sidekiq_py:inflight:app:2:bb:0", "1.0:cleared", payload("p"))

    assert "2 queues, 2 jobs waiting Queue" in viewer.get("/queues").shown
    assert "cleared 0 0 s 1" in viewer.get("/queues").shown
    assert "Waiting 0 Latency 0 s In flight 1" in viewer.get("/queue?name=cleared").shown


@pytest.mark.parametrize("path", ["/", "/busy", "/queues"])
def test_a_page_that_is_refreshed_asks_once_a_second(viewer, redis_client, payload, path, round_trips, monkeypatch):
    """However many people look."""
    fill(redis_client, payload, 1)
    viewer.get(path)
    now = site.monotonic()
    monkeypatch.setattr(site, "monotonic", lambda: now + 1.5)

    with round_trips() as made:
        for _ in range(10):
            viewer.get(f"{path}?live=1")

    assert made.count == 1


@pytest.mark.usefixtures("still_clock")
@pytest.mark.parametrize("path", ["/", "/queues", "/queue?name=low"])
def test_the_trend_of_a_queue_reaches_back_to_before_anybody_looked(visitor, redis_client, payload, path):
    """Even a new dashboard shows size and latency, with a gap while no worker was running."""
    fill(redis_client, payload, 3, "low", seconds_ago=30)
    minute = int(now_seconds()) // 60 * 60
    samples = [f"{minute - 60 * ago}:{ago}:{ago}.5" for ago in (90, 89, 88, 3, 2, 1)]
    redis_client.rpush("sidekiq_py:trend:low", *samples)

    text = visitor("viewer").get(path).text

    for name in ("Size in the last two hours: 1 to 90", "Latency in the last two hours: 1.5 s to 1 m 30 s"):
        [chart] = re.findall(rf'<svg [^>]*aria-label="{name}"><title>{name}</title>(.*?)</svg>', text)
        assert [len(line.split()) for line in re.findall(r'points="([^"]*)"', chart)] == [3, 4]


def test_trends_are_read_with_what_is_shown_and_not_at_each_look(visitor, redis_client, payload, round_trips):
    """They need no round trip of their own, and are read every ten seconds, as there is a new point once a minute."""
    fill(redis_client, payload, 1, "low")
    viewer = visitor("viewer")
    viewer.get("/queues")
    redis_client.config_resetstat()

    with round_trips() as made:
        viewer.get("/queues")
        viewer.get("/queues")

    assert made.count == 4
    assert redis_client.info("commandstats").get("cmdstat_lrange", {"calls": 0})["calls"] == 0


def test_a_key_of_a_foreign_type_breaks_no_page(viewer, redis_client):
    """It counts as empty if it is one of many; a page about that key names it."""
    for key in ("queue:low", "retry", "schedule", "dead", "processes", "stat:processed", "paused"):
        redis_client.hset(key, "a", "b")
    redis_client.sadd("queues", "low")
    redis_client.set("sidekiq_py:trend:low", "x")

    for path in ("/", "/busy", "/queues"):
        assert viewer.get(path).status == 200
    for path in ("/retries", "/queue?name=low"):
        reply = viewer.get(path)
        assert reply.status == 502
        assert "WRONGTYPE" in reply.shown


def test_a_queue_that_cannot_be_read_is_shown_as_such(visitor, redis_client):
    """With the reason, and without a size. It can still be paused, which stops workers from tripping over it."""
    redis_client.sadd("queues", "wrong")
    redis_client.set("queue:wrong", "x")
    operator = visitor("operator", may_edit=True)

    for path in ("/", "/queues"):
        row = re.search(r'<tr data-key="wrong">(.*?)</tr>', operator.get(path).text)[1]
        assert row.count('<td class="n">\u2013</td>') == 2
        assert "cannot be read: WRONGTYPE" in row
    assert "its key queue:wrong is a string and not a list" in operator.get("/queue?name=wrong").shown
    operator.post("/queue/pause", {"name": "wrong", "action": "pause"})
    assert redis_client.smembers("paused") == {b"wrong"}


def test_each_page_says_which_redis_it_shows_and_when_it_was_opened(visitor, redis_url):
    """With the release of this library, as in the footer of Ruby's dashboard; also if Redis is out of reach."""
    home, away = Pool(RedisSettings(redis_url, namespace="shop")), "redis://ada:a-secret@127.0.0.1:1/3?password=another"
    viewer = visitor("viewer", servers={"home": home, "away": away})
    url = urlsplit(redis_url)

    for path in ("/", "/busy", "/dead", "/nowhere"):
        shown = viewer.get(path).shown
        assert f"sidekiq_py {sidekiq.__version__} Redis: localhost:{url.port}/0, namespace shop Opened 20" in shown
    page = viewer.get("/at/away/bulk")
    assert page.status == 503
    assert "Redis: localhost:1/3" in page.shown
    assert not any(part in page.text for part in ("ada:", "a-secret", "another"))


def test_who_is_not_signed_in_does_not_learn_which_redis_it_is():
    """Nor which release this is."""
    stranger = Visitor(asgi_app(tokens={"a-token-of-16-letters": "viewer"}))

    assert "<footer" not in stranger.get("/sign-in").text
    assert "<footer" not in stranger.get("/").text


def test_a_redis_that_is_away_is_told(visitor):
    """The page says so, and works again as soon as Redis is back."""
    reply = visitor("viewer", pool="redis://127.0.0.1:1/0").get("/")

    assert reply.status == 503
    assert "Redis cannot be reached" in reply.shown


def test_a_redis_that_loads_its_data_is_told(visitor, new_redis_server):
    """There is nothing to do but wait."""
    server = new_redis_server(config=LOADS_SLOWLY)
    with server.loading():
        reply = visitor("viewer", pool=server.url).get("/queues")

    assert reply.status == 503
    assert "Redis is starting" in reply.shown


def test_a_user_of_redis_with_read_rights_sees_every_page(visitor, redis_client, redis_url, payload, failed):
    """The user of docs/dashboard.md needs no more, whatever the database; an action is refused with a reason."""
    failed()
    fill(redis_client, payload, 3)
    redis_client.swapdb(0, 1)
    page = (REPOSITORY / "docs" / "dashboard.md").read_text()
    [rules] = re.findall(r"^redis-cli ACL SETUSER viewer (.*)$", page, re.MULTILINE)
    if redis_client.info("server")["redis_version"].startswith("6."):
        # As the page says: Redis has rights to read certain keys since 7.0.
        rules = rules.replace("%R~*", "~*")
    redis_client.execute_command("ACL", "SETUSER", "viewer", "reset", *shlex.split(rules))
    try:
        url = redis_url.replace("redis://", "redis://viewer:a-password@").replace("/0", "/1")
        operator = visitor("operator", may_edit=True, pool=url)
        for path in (
            *("/", "/busy", "/queues", "/queue?name=default", "/retries", "/scheduled", "/dead", "/metrics"),
            *("/bulk", "/audit", "/metrics/job?class=A", "/retries/all", f"/job?jid={'a' * 24}"),
        ):
            assert operator.get(path).status == 200, path
        refused = operator.post("/queue/pause", {"name": "default", "action": "pause"})
        assert refused.status == 403
        assert "lacks a permission" in refused.shown
        assert "docs/dashboard.md says which rights a dashboard needs." in refused.shown
    finally:
        redis_client.execute_command("ACL", "DELUSER", "viewer")
