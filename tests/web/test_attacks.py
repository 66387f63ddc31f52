"""What an attacker who can write to Redis or send requests may try: nothing executes and no page breaks."""

import asyncio
import json
import random
import re
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser

import pytest

pytest.importorskip("starlette")

from sidekiq_py.clock import now_seconds
from sidekiq_py.web import asgi_app
from tests.web.browsing import HOST
from tests.web.test_pages import enter_process

SCRIPT = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}${7*7}</textarea></title><svg/onload=1>"
# Elements and attributes that execute something or lead to other sites.
_FORBIDDEN = ("iframe", "object", "embed", "base", "style", "math", "template", "img")
_PAGES = ("/", "/busy", "/queues", "/retries", "/scheduled", "/dead", "/metrics", "/audit", "/bulk")


class Checker(HTMLParser):
    """Looks at every tag of a page, and records what no page of ours has."""

    def __init__(self):
        super().__init__()
        self.faults = []

    def handle_starttag(self, tag, attrs):
        """Check one tag."""
        if tag in _FORBIDDEN:
            self.faults.append(tag)
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.faults.append(f"{tag} {name}")
            if name in ("href", "src", "action") and not (value or "").startswith(("/", "#")):
                self.faults.append(f"{tag} {name}={value}")
        if tag == "script" and not dict(attrs).get("src", "").startswith("/assets/"):
            self.faults.append("script")


def check(reply):
    """Check that the page rendered and contains nothing that it should not."""
    assert reply.status < 500, reply.shown
    checker = Checker()
    checker.feed(reply.text)
    assert checker.faults == []
    assert "\\x3cscript" not in reply.text
    reply.text.encode()


def links_of(reply):
    """The links of a page that depend on the contents of Redis."""
    return [
        unescape(link) for link in re.findall(r'href="([^"]+)"', reply.text) if "?" in link and "/assets/" not in link
    ]


def test_scripts_in_every_field_of_a_payload_stay_text(operator, redis_client):
    """In keys and values, in payloads of valid and invalid structure."""
    plain = {
        **dict.fromkeys(("class", "queue", "jid", "error_class", "error_message", "display_class", "bid"), SCRIPT),
        **dict.fromkeys(("wrapped", "traceparent", "cattr", "locale", SCRIPT), SCRIPT),
        "args": [SCRIPT, {SCRIPT: [SCRIPT]}],
        "tags": [SCRIPT],
        "retry": SCRIPT,
        "error_backtrace": [SCRIPT],
        "retry_count": 1,
        "created_at": SCRIPT,
        "enqueued_at": SCRIPT,
        "failed_at": SCRIPT,
    }
    crooked = {**plain, "args": {SCRIPT: SCRIPT}, "tags": SCRIPT, "retry_count": SCRIPT, "error_backtrace": SCRIPT}
    active = {**plain, "class": "Sidekiq::ActiveJob::Wrapper", "args": [{"job_class": SCRIPT, "arguments": [SCRIPT]}]}
    rows = [json.dumps(job).encode() for job in (plain, crooked, active)]
    for key in ("retry", "schedule", "dead"):
        redis_client.zadd(key, dict.fromkeys(rows, now_seconds()))
    redis_client.sadd("queues", SCRIPT, "low")
    redis_client.lpush(f"queue:{SCRIPT}", *rows)
    redis_client.sadd("paused", SCRIPT)
    enter_process(redis_client, SCRIPT, queues=[SCRIPT], labels=[SCRIPT], tag=SCRIPT, version=SCRIPT, running=rows)
    capsules = {SCRIPT: {"concurrency": SCRIPT, "weights": {SCRIPT: SCRIPT}}, "x" * 5000: {}, "": {}}
    enter_process(redis_client, "rb:1:aaa", capsules=capsules, labels=[SCRIPT, *map(str, range(1000))])
    redis_client.hset(f"{now_minute()}", mapping={f"{SCRIPT}|p": 1, f"{SCRIPT}|ms": 5})
    redis_client.hset(f"it-{SCRIPT}", mapping={"ex": SCRIPT, "rt": SCRIPT, "c": json.dumps({SCRIPT: [SCRIPT]})})
    operator.post("/queue/pause", {"name": SCRIPT, "action": "pause"})
    operator.post("/retries/all", {"action": "kill", "class": SCRIPT, "argument": SCRIPT})

    seen = set()
    waiting = [*_PAGES]
    while waiting:
        path = waiting.pop()
        reply = operator.get(path)
        check(reply)
        seen.add(path)
        waiting += [link for link in links_of(reply) if link not in seen and link not in waiting][:30]
    assert len(seen) > 40


def now_minute():
    """The key of this minute's metrics."""
    from sidekiq_py.wire import metrics_keys

    return metrics_keys.minute(now_seconds(), 8)


@pytest.mark.parametrize(
    "name",
    [
        "class",
        "queue",
        "tag",
        "argument",
        "error",
        "after",
        "failed-after",
        "before",
        "order",
        "from",
        "period",
        "text",
    ],
)
def test_scripts_in_an_address_stay_text(operator, failed, name):
    """In every parameter of every page."""
    from urllib.parse import quote

    failed()
    for path in (*_PAGES, "/queue", "/queue/clear", "/retries/all", "/job", "/job/copy", "/metrics/job", "/bulk/run"):
        for field in (name, "name", "jid", "id", "key", "at"):
            check(operator.get(f"{path}?{field}={quote(SCRIPT)}&name=x&class=x"))


@pytest.mark.parametrize("page", ["/retries", "/queue?name=default"])
def test_addresses_do_not_tell_whether_a_hidden_value_was_guessed(visitor, redis_client, payload, page):
    """A digest of the whole payload would: a viewer could try out every PIN, having all the rest of the payload."""

    def addresses_with(**secrets):
        job = payload(klass="Pay", args=[7, secrets])
        redis_client.flushall()
        redis_client.zadd("retry", {job: 1_800_000_000})
        redis_client.lpush("queue:default", job)
        redis_client.sadd("queues", "default")
        return [link for link in links_of(viewer.get(page)) if link.startswith("/job?")]

    viewer = visitor("viewer")
    hidden, other, visible = (addresses_with(**more) for more in ({"pin_token": 1}, {"pin_token": 2}, {"pin": 1}))

    assert hidden == other != visible
    assert "[redacted]" not in viewer.get(unescape(visible[0])).shown


def test_the_page_of_a_job_does_not_tell_how_long_a_hidden_value_is(viewer, redis_client, payload, monkeypatch):
    """The size of the payload would, as everything else in it is on the page."""
    monkeypatch.setattr("sidekiq_py.web.visit.now_seconds", lambda: 1_790_000_000.0)
    pages = []
    for secret in ("short", "a longer secret"):
        redis_client.zadd("retry", {payload(klass="Pay", args=[{"password": secret}]): 1_800_000_000})
        pages.append(viewer.get(unescape(next(at for at in links_of(viewer.get("/retries")) if "/job?" in at))).shown)
        redis_client.flushall()

    assert pages[0] == pages[1]
    assert "[redacted]" in pages[0]


@pytest.mark.parametrize(("page", "fields"), [("/retries", {}), ("/queue", {"name": "default"})], ids=["set", "queue"])
def test_a_job_with_hidden_values_is_found_by_its_address(visitor, redis_client, payload, page, fields):
    """Its page opens, and a button acts on this job and not on its neighbours."""
    secret = [payload(str(number) * 24, klass="Pay", args=[{"token": number}]) for number in range(3)]
    redis_client.zadd("retry", dict.fromkeys(secret, 1_800_000_000))
    redis_client.rpush("queue:default", *secret)
    redis_client.sadd("queues", "default")
    operator = visitor("operator")
    address = f"{page}?name=default"
    links = [link for link in links_of(operator.get(address)) if link.startswith("/job?")]
    [link] = {link for link in links if "1" * 24 in operator.get(link).shown}

    key = re.search(r"key=([^&]+)", link)[1]
    operator.post(f"{page}/act", {**fields, "action": "delete", "key": key, "sure": "yes"})

    left = redis_client.zrange("retry", 0, -1) if page == "/retries" else redis_client.lrange("queue:default", 0, -1)
    assert sorted(left) == sorted([secret[0], secret[2]])


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/",
        "/\\evil.example",
        "/..",
        "/../../etc/passwd",
        "/assets/../application.py",
        "/assets/..%2fapplication.py",
        "/assets/",
        "/assets//etc/passwd",
        "/at//",
        "/at/..//",
        "/at/x\n/",
        "/\x00",
        "/%00",
        "/retries/",
        "/RETRIES",
        "/%2e%2e/",
        "/\ud800".encode(errors="surrogatepass").decode("latin-1"),
    ],
)
def test_a_crooked_path_leads_nowhere(operator, path):
    """No file, no other site, and no server error."""
    for method in ("GET", "HEAD", "POST", "DELETE", "PATCH", "OPTIONS"):
        reply = operator.send(method, path, headers={"origin": "http://localhost:4567"})

        assert reply.status in (403, 404, 405, 415), (method, reply.status)
        assert "location" not in reply.headers
        assert "import" not in reply.text


@pytest.mark.parametrize("host", ["evil.example", "a b", '"><script>', "localhost@evil.example", "x" * 5000])
def test_a_crooked_host_stands_in_no_link(operator, host):
    """Links begin with a slash, so a forged Host header redirects no one, and no cache keeps the page."""
    for path in ("/", "/job?jid=x", "/sign-in"):
        reply = operator.get(path, host=host)

        check(reply)
        assert host not in reply.text


def test_a_redirect_stays_in_the_dashboard(operator, failed):
    """Whatever a form contains."""
    failed()
    for field in ("next", "at", "name", "order", "class", "id"):
        body = f"form_token={operator.form_token}&action=none&{field}=%2F%2Fevil.example%0d%0aX:y".encode()
        for path in ("/retries/act", "/queue/act", "/queue/pause", "/bulk/stop", "/busy/signal"):
            reply = operator.send(
                "POST", path, body, headers={"origin": "http://localhost:4567", "sec-fetch-site": "same-origin"}
            )
            location = reply.headers.get("location", "/")
            assert location.startswith("/")
            assert not location.startswith("//")
            assert "\r" not in location
            assert "\n" not in location


def test_a_form_is_read_within_bounds(operator):
    """A form that is too large, has too many fields, or is not UTF-8 is rejected."""
    for body, status in ((b"a=" + b"x" * 5_000_000, 413), (b"a&" * 6000, 400), (b"a=%ff&form_token=x", 400)):
        reply = operator.send("POST", "/retries/act", body, headers={"origin": "http://localhost:4567"})
        assert reply.status == status


def _value(draw, depth=0):
    kind = draw.randrange(12 if depth < 5 else 9)
    if kind == 0:
        return draw.choice([10**25, -(10**400), 0, 2**63])
    if kind == 1:
        return draw.choice([1.5, 1e300, -0.0])
    if kind == 2:
        return draw.choice([None, True, False])
    if kind < 9:
        alphabet = "a\"'<>&{}%$\\/\x00\x1b\u202e\u2066\ufeff\u0000\U0001f600é\n\r\t"
        return "".join(draw.choices(alphabet, k=draw.randrange(20)))
    if kind < 11:
        return [_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {str(_value(draw, 9)): _value(draw, depth + 1) for _ in range(draw.randrange(4))}


_KEYS = (
    *("class", "args", "jid", "queue", "retry", "created_at", "enqueued_at", "failed_at", "retried_at", "tags"),
    *("error_class", "error_message", "error_backtrace", "retry_count", "wrapped", "display_class", "bid", "encrypt"),
)


def _hostile(draw):
    kind = draw.randrange(10)
    if kind == 0:
        return draw.randbytes(draw.randrange(60))
    if kind == 1:
        return b"[" * draw.randrange(300) + b"]" * draw.randrange(300)
    if kind == 2:
        return b'{"class":"A","args":["\\ud800","\\udc00x"],"jid":"\\ud800"}'
    if kind == 3:
        return b'{"class":"A","args":[' + b'{"a":' * 120 + b"1" + b"}" * 120 + b"]}"
    if kind == 4:
        return b'{"class":"A","args":[1e999,-1E400,NaN],"class":"B"}'
    job = {key: _value(draw) for key in draw.sample(_KEYS, draw.randrange(len(_KEYS)))}
    if kind > 5:
        job |= {"class": "HardJob", "args": [_value(draw) for _ in range(3)]}
    return json.dumps(job, ensure_ascii=draw.random() < 0.5).encode(errors="surrogatepass")


@pytest.fixture
def hostile_payloads(redis_client):
    """Ten thousand: bytes, wrong types, depth, unpaired surrogates, control and direction marks, unbounded numbers."""
    draw = random.Random(4567)
    rows = [_hostile(draw) for _ in range(10_000)]
    redis_client.zadd("dead", {raw: draw.choice([1.0, 1e18, -5.0, now_seconds()]) for raw in rows})
    redis_client.zadd("retry", dict.fromkeys(rows[:300], float("inf")))
    redis_client.sadd("queues", "low")
    redis_client.lpush("queue:low", *rows[:2000])
    enter_process(redis_client, "rb:1:aaa")
    for number, raw in enumerate(rows[:100]):
        redis_client.hset("rb:1:aaa:work", f"t{number}", raw)
        redis_client.hset("rb:1:aaa:work", f"u{number}", json.dumps({"queue": "q", "payload": raw.decode("latin-1")}))


@pytest.mark.usefixtures("hostile_payloads")
def test_hostile_payloads_break_no_list(operator):
    for start in range(0, 10_000, 50):
        check(operator.get(f"/dead?from={start}"))
    for path in ("/retries", "/queue?name=low", "/busy", "/dead?argument=a", "/dead?error=a", "/dead/all?class=A"):
        check(operator.get(path))


@pytest.mark.usefixtures("hostile_payloads")
def test_hostile_payloads_break_no_page_of_a_job(operator):
    for start in (0, 1000, 2000, 4000):
        for link in [link for link in links_of(operator.get(f"/dead?from={start}")) if "key=" in link]:
            check(operator.get(link))
            check(operator.get(link.replace("/job?", "/job/copy?")))


def test_one_huge_payload_makes_no_huge_page(operator, redis_client):
    """Ten megabytes, a hundred thousand elements, an integer of a hundred thousand digits."""
    rows = [
        json.dumps({"class": "A", "args": ["x" * 10_000_000]}),
        json.dumps({"class": "A", "args": list(range(100_000)), "error_message": "m" * 1_000_000, "error_class": "E"}),
        '{"class":"A","args":[' + "7" * 100_000 + "]}",
        json.dumps({"class": "B" * 1_000_000, "jid": "j" * 100_000, "queue": "q" * 100_000, "args": []}),
        json.dumps({"class": "A", "args": [], "error_class": "E", "error_backtrace": ["line " * 1000] * 5000}),
    ]
    redis_client.zadd("dead", dict.fromkeys(rows, 5))
    page = operator.get("/dead")
    check(page)
    assert len(page.text) < 400_000

    for link in [link for link in links_of(page) if "key=" in link]:
        reply = operator.get(link)
        check(reply)
        assert len(reply.text) < 2_000_000


@pytest.mark.parametrize("digits", [30, 4300, 100_000])
def test_a_count_of_failures_of_any_length_breaks_no_page(operator, redis_client, digits):
    """Python prints no integer of more than 4,300 digits."""
    job = '{"class":"A","args":[],"jid":"j","error_class":"E","error_message":"m","retry_count":' + "9" * digits + "}"
    redis_client.zadd("retry", {job: 5})
    page = operator.get("/retries")
    check(page)
    [link] = [link for link in links_of(page) if "key=" in link]

    check(operator.get(link))
    assert len(page.text) < 20_000


def test_what_cannot_be_seen_is_spelled_out(operator, redis_client):
    """Text that changes the direction of writing could pass for a different class."""
    redis_client.zadd("dead", {json.dumps({"class": "Pay\u202egnihton", "args": ["\u0000\ufeff"]}): 5})

    page = operator.get("/dead")

    assert "\u202e" not in page.text
    assert "Pay\\u202egnihton" in page.shown


def test_a_notice_is_text(operator):
    """Even in a forged cookie."""
    import base64

    operator.cookies["sidekiq_py_notice"] = base64.urlsafe_b64encode(SCRIPT.encode()).decode()
    check(operator.get("/bulk"))
    for junk in ("%%%", "a", "////", "é".encode().decode("latin-1")):
        operator.cookies["sidekiq_py_notice"] = junk
        check(operator.get("/bulk"))


@pytest.mark.parametrize("crooked", ["http://[", "http://[x]:y", "[", "http://localhost:abc", f"app://{HOST}"])
def test_a_crooked_origin_is_not_our_own(operator, redis_client, crooked):
    """A value that is not an address is rejected like any other, and causes no server error."""
    body = f"form_token={operator.form_token}&name=low&action=pause".encode()

    for name in ("origin", "referer"):
        assert operator.send("POST", "/queue/pause", body, headers={name: crooked}).status == 403
    assert redis_client.keys("*") == []


@pytest.mark.parametrize("digits", [16, 30, 5000])
def test_a_place_that_no_queue_has_is_a_job_that_is_gone(operator, digits):
    """The key of a job in a queue ends with the job's position."""
    key = f"x-{'9' * digits}"

    assert operator.get(f"/job?at=/queue&name=low&key={key}").status == 404
    reply = operator.post("/queue/act", {"name": "low", "action": "delete", "key": key, "sure": "yes"})
    assert "1 job had already left" in reply.shown


@pytest.mark.parametrize("before", ["0-0", "99999999999999999999-0", "1-99999999999999999999"])
def test_an_id_that_no_audit_entry_has_shows_the_latest(operator, before):
    """Redis rejects ids out of its range."""
    assert operator.get(f"/audit?before={before}").status == 200


@pytest.mark.parametrize(
    ("base", "shown"),
    [
        ("/задачи", "/%D0%B7%D0%B0%D0%B4%D0%B0%D1%87%D0%B8"),
        ("/a b;c", "/a%20b%3Bc"),
        ("//evil.example", "/evil.example"),
    ],
)
def test_the_path_where_it_is_mounted_is_written_as_addresses_write_it(visitor, base, shown):
    """Headers are ASCII only, and a link that begins with two slashes leads to a different site."""
    reply = visitor(base=base).send("GET", "/queues")

    assert reply.status == 200
    assert f'href="{shown}/queues"' in reply.text
    assert 'href="//' not in reply.text


def test_very_many_tags_cost_no_more_than_other_values(viewer, redis_client, payload):
    """A list shows ten of each job."""
    many = [f"t{number}" for number in range(50_000)]

    def seconds(**more):
        redis_client.delete("retry")
        redis_client.zadd("retry", {payload(f"j{number}", **more): number for number in range(4)})
        taken = []
        for _ in range(3):
            began = time.process_time()
            assert viewer.get("/retries").status == 200
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(tags=many) < 1.8 * seconds(others=many)


def test_names_of_megabytes_make_no_page_of_megabytes(operator, redis_client, payload):
    """Names of queues, processes, threads and classes, tags and releases; many capsules of many queues."""
    huge = "x" * 1_000_000
    redis_client.sadd("queues", huge)
    redis_client.lpush(f"queue:{huge}", payload())
    enter_process(redis_client, "h:1:a", queues=[huge], labels=[huge], tag=huge, version=huge, running=[payload()])
    work = {"queue": huge, "run_at": 5, "payload": payload(jid=huge).decode()}
    redis_client.hset("h:1:a:work", huge, json.dumps(work))
    enter_process(redis_client, huge)
    capsules = {f"c{one}": {"weights": {f"{one}-{other}": 0 for other in range(1000)}} for one in range(40)}
    for number in range(2):
        enter_process(redis_client, f"h:{number}:b", capsules=capsules)
    # Workers of both languages record what a payload names as the class that is wrapped.
    redis_client.hset(now_minute(), mapping={f"{huge}|p": 1, f"{huge}|ms": 5})

    for path in ("/", "/busy", "/queues", "/metrics"):
        reply = operator.get(path)

        check(reply)
        assert len(reply.text) < 200_000, path


@pytest.mark.parametrize(
    ("name", "shown", "is_linked"),
    [(b"", "(no name)", True), (b"caf\xe9", "caf\\xe9", False), ("\u202egnp".encode(), "\\u202egnp", True)],
)
def test_a_queue_that_no_form_can_name_has_no_buttons(operator, redis_client, payload, name, shown, is_linked):
    """They would do nothing, or lead to another queue: `caf?`."""
    redis_client.sadd("queues", name)
    redis_client.lpush(b"queue:" + name, payload())

    page = operator.get("/queues")

    assert f"{shown} 1 " in page.shown
    assert "/queue/clear" not in page.text
    assert 'action="/queue/pause"' not in page.text
    linked = re.findall(r'href="(/queue(?:\?[^"]*)?)"', page.text)
    assert len(linked) == is_linked
    assert all("/queue/clear" not in operator.get(unescape(link)).text for link in linked)


def test_a_copy_of_a_job_with_many_or_long_arguments_has_a_small_form(operator, redis_client, failed):
    """A form can have only so many fields; what it does not show stays unchanged."""
    failed("a", args=["x" * 200_000, *range(20_000)])
    [key] = [link.rpartition("key=")[2] for link in links_of(operator.get("/retries")) if "key=" in link]

    form = operator.get(f"/job/copy?at=/retries&key={key}")
    assert len(form.text) < 50_000
    assert "19,901 more arguments stay unchanged" in form.shown

    operator.post("/job/copy", {"at": "/retries", "key": key, "queue": "low", "argument-1": '"changed"'})
    [copy] = redis_client.lrange("queue:low", 0, -1)
    assert json.loads(copy)["args"] == ["x" * 200_000, "changed", *range(1, 20_000)]


@pytest.mark.parametrize("count", ["9" * 400, "-" + "9" * 400, "9" * 5000])
def test_a_count_of_any_length_breaks_no_page(operator, redis_client, count):
    """Counters are text. A float holds 308 digits, and Python prints no integer of more than 4,300."""
    today, yesterday = (f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%d}" for days in (0, 1))
    numbers = ("1", count, "1")
    for value, other in zip(numbers, ("1", "1", count), strict=True):
        redis_client.mset({"stat:processed": value, "stat:failed": other})
        redis_client.mset({f"stat:processed:{today}": value, f"stat:failed:{today}": other})
        redis_client.mset({f"stat:processed:{yesterday}": 5, f"stat:failed:{yesterday}": count})
        names = (("A|p", value), ("A|f", other), ("A|ms", other), ("B|p", other), ("B|ms", value), ("B|f", count))
        redis_client.hset(now_minute(), mapping=dict(names))

        for path in ("/", "/?period=day", "/?period=week", "/busy", "/queues", "/metrics", "/metrics/job?class=A"):
            check(operator.get(path))
        check(operator.get("/metrics", accept="text/plain"))


@pytest.mark.parametrize("path", ["/dead?class=B", "/queue?name=low&class=B", "/dead/all?error=x", "/job?jid=nowhere"])
def test_a_search_holds_few_jobs_in_memory_at_a_time(operator, redis_client, payload, path):
    """A thousand payloads of a megabyte would take 1.6 GB, where the dashboard's container may have 256 MB."""
    for number in range(500):
        job = payload(f"{number:024}", args=["x" * 100_000], error_class="E")
        redis_client.zadd("dead", {job: number})
        redis_client.lpush("queue:low", job)
    redis_client.sadd("queues", "low")
    operator.get("/bulk")

    tracemalloc.start()
    reply = operator.get(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    check(reply)
    assert peak < 60_000_000


@pytest.mark.parametrize(
    ("path", "methods"), [("/retries", "GET"), ("/queue/pause", "POST"), ("/dead/all", "GET, POST")]
)
def test_a_method_that_a_page_does_not_take_is_answered_with_those_that_it_takes(operator, path, methods):
    """As RFC 9110 demands."""
    reply = operator.send("DELETE", path)

    assert (reply.status, reply.headers["allow"]) == (405, methods)


def test_a_websocket_is_refused():
    """Without an answer, uvicorn would respond with 500 and log an error for anyone on the network."""
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    asyncio.run(asgi_app()({"type": "websocket", "path": "/", "headers": []}, receive, send))

    assert sent == [{"type": "websocket.close"}]
