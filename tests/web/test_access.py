"""Only named visitors get access, and nothing happens that a page of the dashboard did not request."""

import contextlib
import hashlib
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette")

from sidekiq_py.errors import ConfigError
from sidekiq_py.web import Account, User, asgi_app, hash_password, passwords
from sidekiq_py.web import access as access_module
from sidekiq_py.web.access import Access
from sidekiq_py.web.application import Dashboard
from sidekiq_py.web.site import Site
from sidekiq_py.web.throttle import Throttle
from tests.support.threads_at_once import at_once
from tests.web.browsing import Visitor

SECRET = "correct horse battery staple"
TOKEN = "a-token-of-some-length-0123"
NOBODY = "redis://127.0.0.1:1"


@pytest.fixture(scope="module")
def password_hash():
    """A hash, made once, because hashing is slow on purpose."""
    return hash_password(SECRET)


def sign_in(visitor, name, secret):
    """Fill in the form."""
    return visitor.post("/sign-in", {"name": name, "secret": secret}, token=_form_token(visitor))


def _form_token(visitor):
    visitor.send("GET", "/sign-in")
    return visitor.cookies["sidekiq_py_form"]


@pytest.mark.parametrize("path", ["/", "/retries", "/nowhere", "/sign-in", "/metrics", "/at/eu/"])
def test_without_rules_every_page_is_refused_and_says_what_to_set(path):
    """A dashboard mounted without authorization is closed, also for this machine."""
    reply = Visitor(asgi_app()).get(path)

    assert reply.status == 403
    assert "accounts=" in reply.shown
    assert "authorize=" in reply.shown


def test_at_this_machine_everybody_is_an_operator():
    """With `sidekiq-py web` on a loopback address."""
    visitor = Visitor(Dashboard(Site(Access(is_local=True))))

    assert visitor.get("/").status == 200
    assert "local (operator)" in visitor.get("/").shown


@pytest.mark.parametrize(
    "header", ["x-forwarded-for", "forwarded", "x-forwarded-host", "x-real-ip", "via", "x-forwarded-proto"]
)
def test_what_comes_through_a_proxy_is_not_from_this_machine(header):
    """Otherwise a proxy on this machine would give the whole world access."""
    visitor = Visitor(Dashboard(Site(Access(is_local=True))), headers={header: "192.0.2.1"})

    reply = visitor.get("/")

    assert reply.status == 403
    assert f"It has the header {header.title()}, which proxies add. Without accounts or tokens" in reply.shown
    assert "sidekiq-py web --config" in reply.shown


def test_another_address_is_not_this_machine():
    """Even if a port is forwarded to the loopback address."""
    reply = Visitor(Dashboard(Site(Access(is_local=True))), client="192.0.2.7").get("/")

    assert reply.status == 403
    assert "This request came from another machine Without accounts or tokens" in reply.shown


def test_a_proxy_is_named_before_the_host_that_it_passes_on():
    """Allowing the host would not help."""
    headers = {"host": "ops.example", "x-forwarded-for": "192.0.2.1"}

    assert "X-Forwarded-For" in Visitor(Dashboard(Site(Access(is_local=True))), headers=headers).get("/").shown


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:4567", "localhost.evil.example", "", "127.0.0.1.evil"),
        *("127.0.0.1:4567@evil.example", "[::1]evil.example", "localhost:4567.evil.example"),
    ],
)
def test_a_host_that_is_not_this_machine_s_is_refused(host):
    """A page on evil.example, whose name resolves to 127.0.0.1, must not read the dashboard."""
    visitor = Visitor(Dashboard(Site(Access(is_local=True))), headers={"host": host})

    assert visitor.get("/").status == 403


@pytest.mark.parametrize("host", ["localhost:4567", "127.0.0.1:80", "[::1]:4567", "LOCALHOST"])
def test_the_names_of_this_machine_are_allowed(host):
    """With any port."""
    assert Visitor(Dashboard(Site(Access(is_local=True))), headers={"host": host}).get("/").status == 200


def test_allowed_hosts_are_further_names_of_a_dashboard_for_this_machine():
    """A host that is refused is told under which name the dashboard answers."""
    dashboard = Dashboard(Site(Access(is_local=True, allowed_hosts=["ops.example"])))

    for host in ("ops.example", "localhost:4567"):
        assert Visitor(dashboard, headers={"host": host}).get("/").status == 200
    refused = Visitor(dashboard, headers={"host": "other.example"}).get("/")
    assert refused.status == 403
    assert "Open it under the name localhost, or allow this one" in refused.shown


def test_allowed_hosts_hold_with_accounts_too(password_hash):
    """A program that names hosts wants only those."""
    dashboard = asgi_app(accounts={"ada": Account(password_hash)}, allowed_hosts=["ops.example"])

    assert Visitor(dashboard, headers={"host": "ops.example"}).get("/").status == 200
    for host in ("other.example", "localhost"):
        refused = Visitor(dashboard, headers={"host": host}).get("/")
        assert refused.status == 403
        assert "Open it under an allowed name, or allow this one" in refused.shown


def test_an_account_signs_in_and_out(password_hash):
    """The session is a cookie; without it the form is shown again."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash, "operator")}))
    assert "Sign in" in visitor.get("/retries").shown

    assert "ada (operator)" in sign_in(visitor, "ada", SECRET).shown
    assert visitor.get("/retries").status == 200

    assert "Password or token" in visitor.post("/sign-out", {}).shown
    assert "Password or token" in visitor.get("/retries").shown


def _sent_on_to(visitor, to, path="/sign-in"):
    fields = {"name": "ada", "secret": SECRET, "to": to, "form_token": _form_token(visitor)}
    body, headers = urlencode(fields).encode(), {"origin": f"http://{visitor.headers['host']}"}
    return visitor.send("POST", path, body, headers=headers).headers["location"]


@pytest.mark.parametrize("base", ["", "/jobs"])
def test_signing_in_leads_to_the_page_that_was_asked_for(password_hash, base):
    """Even after a failed attempt: a link in a chat leads to its job, and not to the overview."""
    dashboard = asgi_app(accounts={"ada": Account(password_hash)}, servers={"eu": NOBODY, "us": NOBODY})
    visitor = Visitor(dashboard, base=base)

    at_the_form = visitor.send("GET", "/at/us/job?jid=a%26b&set=retry").headers["location"]
    form = visitor.send("GET", at_the_form.removeprefix(base)).text
    [to] = re.findall('name="to" value="([^"]*)"', form)
    refused = visitor.post("/at/us/sign-in", {"name": "ada", "secret": "wrong", "to": unescape(to)})
    [again] = re.findall('name="to" value="([^"]*)"', refused.text)
    went_to = _sent_on_to(visitor, unescape(again), "/at/us/sign-in")

    assert went_to == f"{base}/at/us/job?jid=a%26b&set=retry"


@pytest.mark.parametrize(
    "to",
    [
        *("//evil.example", "/\\evil.example", "\\\\evil.example", "/%2fevil.example", "/ /evil.example"),
        *("https://evil.example/", "javascript:alert(1)", "evil.example", "", "/", "?q=1"),
        *("/retries/../../admin", "/retries\r\nset-cookie: a=b", "/retries?q=" + "x" * 5000),
    ],
)
def test_signing_in_leads_to_no_other_place(password_hash, to):
    """Whatever a forged link to the form asks for."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))

    assert _sent_on_to(visitor, to) == "/"


def test_what_an_address_asks_for_gets_into_no_header(password_hash):
    """Parameters are encoded again, so a line break in one stays inside it, and none becomes a notice."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))

    assert _sent_on_to(visitor, "/retries?q=a\r\nb: c&notice=n&path=p") == "/retries?q=a%0D%0Ab%3A+c&notice=n&path=p"
    assert "sidekiq_py_notice" not in visitor.cookies


@pytest.mark.parametrize(("name", "secret"), [("ada", "wrong"), ("eve", SECRET), ("ada", ""), ("", SECRET)])
def test_a_wrong_name_or_password_opens_nothing(password_hash, name, secret):
    """The page does not say which of the two was wrong."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))

    reply = sign_in(visitor, name, secret)

    assert reply.status == 401
    assert "Sign-in failed" in reply.shown
    assert "sidekiq_py_session" not in visitor.cookies


def test_a_refused_sign_in_is_logged(password_hash, caplog):
    """On one line, whatever the name contains, and without the password."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}), client="192.0.2.7")

    sign_in(visitor, "eve\nroot signed in", "hunter2")

    assert "name 'eve\\nroot signed in', from 192.0.2.7" in caplog.text
    assert "hunter2" not in caplog.text


def test_guessing_is_slowed_down(password_hash, monkeypatch):
    """After five failures even the right password has to wait."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))
    monkeypatch.setattr(access_module, "is_password", lambda given, _hash: given == SECRET)
    for _ in range(5):
        assert sign_in(visitor, "ada", "wrong").status == 401

    reply = sign_in(visitor, "ada", SECRET)

    assert reply.status == 429
    assert "too many failed attempts" in reply.shown


def test_a_new_password_ends_all_sessions(password_hash):
    """A session is signed with the account's hash."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))
    sign_in(visitor, "ada", SECRET)

    later = Visitor(asgi_app(accounts={"ada": Account(hash_password("another"))}))
    later.cookies = visitor.cookies

    assert "Password or token" in later.get("/").shown


def test_a_session_ends_after_twelve_hours(password_hash, monkeypatch):
    """Whatever the browser does with its cookie."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))
    sign_in(visitor, "ada", SECRET)
    now = access_module.now_seconds()

    monkeypatch.setattr(access_module, "now_seconds", lambda: now + 12 * 3600 + 1)

    assert "Password or token" in visitor.get("/").shown


@pytest.mark.parametrize("cookie", ["", "x", "x.y", "W10.W10", "e30.e30", "bnVsbA.AAAA", "WzEsMiwzLDRd.AAAA", "é.é"])
def test_a_made_up_session_opens_nothing(password_hash, cookie):
    """Whatever it contains."""
    visitor = Visitor(asgi_app(accounts={"ada": Account(password_hash)}))
    visitor.cookies["sidekiq_py_session"] = cookie

    assert "Password or token" in visitor.get("/").shown


def test_a_session_of_one_account_is_none_of_another(password_hash):
    """The signature covers the name."""
    accounts = {"ada": Account(password_hash), "bob": Account(hash_password("b"), "operator")}
    visitor = Visitor(asgi_app(accounts=accounts))
    sign_in(visitor, "ada", SECRET)
    facts, _, signature = visitor.cookies["sidekiq_py_session"].partition(".")
    forged = access_module._encode(access_module._decode(facts).replace(b"ada", b"bob"))

    visitor.cookies["sidekiq_py_session"] = f"{forged}.{signature}"

    assert "Password or token" in visitor.get("/").shown


def test_a_program_shows_its_token(redis_client):
    """It needs no form token, because no browser sends this header by itself, and is not asked whether it is sure."""
    dashboard = asgi_app(tokens={TOKEN: "operator"})
    program = Visitor(dashboard, headers={"authorization": f"Bearer {TOKEN}"})

    redis_client.sadd("queues", "low")
    assert program.get("/retries").status == 200
    assert program.send("POST", "/queue/pause", b"name=low&action=pause").status == 303
    assert "process has exited" in program.post("/busy/signal", {"action": "stop", "identity": "rb:1:aaa"}).shown
    assert Visitor(dashboard, headers={"authorization": "Bearer wrong"}).send("GET", "/retries").status in (303, 401)


@pytest.mark.parametrize("header", [f"Basic {TOKEN}", TOKEN, f"Bearer{TOKEN}"])
def test_a_token_counts_only_as_a_bearer_token(header):
    """Browsers send what they know of other schemes by themselves, so a page could forge a form with it."""
    visitor = Visitor(asgi_app(tokens={TOKEN: "operator"}), headers={"authorization": header})

    assert visitor.send("GET", "/retries").status in (303, 401)


def test_a_session_that_begins_in_the_future_opens_nothing():
    """It would last longer than twelve hours."""
    visitor = Visitor(asgi_app(tokens={TOKEN: "viewer"}))
    name = hashlib.sha256(TOKEN.encode()).hexdigest()
    facts = json.dumps(["", name, int(access_module.now_seconds()) + 3600, ""]).encode()
    encode = access_module._encode
    visitor.cookies["sidekiq_py_session"] = f"{encode(facts)}.{encode(access_module._signature(facts, TOKEN))}"

    assert "Password or token" in visitor.get("/").shown


def test_one_can_sign_in_with_a_token():
    """The name is left empty."""
    visitor = Visitor(asgi_app(tokens={TOKEN: User("on-call", "operator")}))

    assert "on-call (operator)" in sign_in(visitor, "", TOKEN).shown


def test_the_host_program_s_callable_decides(visitor):
    """It gets the request, and returning None or False denies access."""
    seen = []

    def authorize(request):
        seen.append(request.headers["x-user"])
        return {"ada": "viewer", "bob": User("bob", "operator"), "tom": False}.get(request.headers["x-user"])

    dashboard = asgi_app(authorize=authorize)

    assert "(viewer)" in Visitor(dashboard, headers={"x-user": "ada"}).get("/").shown
    assert "bob (operator)" in Visitor(dashboard, headers={"x-user": "bob"}).get("/").shown
    for denied in ("eve", "tom"):
        assert Visitor(dashboard, headers={"x-user": denied}).get("/").status == 403
    assert set(seen) == {"ada", "bob", "eve", "tom"}


ACTIONS = [
    ("/busy/signal", {"action": "stop", "all": "1", "sure": "yes"}),
    ("/queue/pause", {"name": "low", "action": "pause"}),
    ("/queue/clear", {"name": "low"}),
    ("/retries/act", {"action": "delete", "key": "1", "sure": "yes"}),
    ("/retries/all", {"action": "delete", "all": "1"}),
    ("/scheduled/act", {"action": "run"}),
    ("/scheduled/all", {"action": "run", "all": "1"}),
    ("/dead/act", {"action": "retry"}),
    ("/dead/all", {"action": "retry", "all": "1"}),
    ("/queue/act", {"action": "delete", "name": "low"}),
    ("/queue/all", {"action": "delete", "name": "low", "all": "1"}),
    ("/bulk/stop", {"id": "1"}),
    ("/job/copy", {"at": "/retries"}),
    ("/cron/act", {"name": "report", "action": "remove", "sure": "yes"}),
    ("/batches/act", {"bid": "b", "action": "delete", "sure": "yes"}),
    ("/celery/revoke", {"id": "a", "action": "terminate"}),
    ("/celery/worker/act", {"name": "w1@here", "action": "shutdown"}),
    ("/celery/limit", {"task": "shop.add", "limit": "1/h"}),
    ("/celery/time-limit", {"task": "shop.add", "soft": "30"}),
]


def test_every_action_is_in_the_table_above(operator):
    """The tests below also cover a new action, for example of a bundled extension."""
    from sidekiq_py.web.pages import HANDLERS

    site = asgi_app(authorize=lambda _request: "operator").site
    posts = {handler.path for handler in HANDLERS if handler.method == "POST"}
    posts |= {action.path for page in site.pages for action in page.actions}

    assert posts - {"/sign-in", "/sign-out"} == {path for path, _ in ACTIONS}


@pytest.mark.parametrize(("path", "fields"), ACTIONS)
def test_a_viewer_does_nothing(viewer, redis_client, failed, path, fields):
    """Even with a form that is otherwise right."""
    failed()
    before = redis_client.dump("retry")

    reply = viewer.post(path, fields)

    assert reply.status == 403
    assert redis_client.dump("retry") == before
    assert redis_client.keys("*") == [b"retry"]


def test_an_operator_without_the_permission_edits_nothing(visitor, failed):
    """A user who edits jobs can run any declared job with any arguments."""
    failed()

    assert visitor("operator").post("/job/copy", {"at": "/retries"}).status == 403


@pytest.mark.parametrize(("path", "fields"), ACTIONS)
@pytest.mark.parametrize(
    "forgery",
    [
        {"token": "0" * 43},
        {"token": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:4567.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "", "sec_fetch_site": ""},
        {"content_type": "text/plain"},
        {"content_type": "multipart/form-data"},
    ],
)
def test_a_forged_form_does_nothing(operator, redis_client, failed, path, fields, forgery):
    """A different site makes the browser send a form with the operator's cookies."""
    failed()

    reply = operator.post(path, fields, **forgery)

    assert reply.status in (403, 415)
    assert redis_client.keys("*") == [b"retry"]


def test_a_page_does_nothing(operator, redis_client, failed):
    """No action responds to GET."""
    failed()
    before = redis_client.dump("retry")

    for path, _ in ACTIONS:
        operator.get(f"{path}?action=delete&sure=yes&name=low")

    assert redis_client.dump("retry") == before


@pytest.mark.parametrize("origin", ["https://ops.example", "HTTPS://OPS.EXAMPLE"])
def test_a_proxy_s_own_address_can_be_named(origin, visitor, redis_client):
    """For a proxy that changes the Host header."""
    operator = visitor("operator", origins=["https://ops.example/"])
    redis_client.sadd("queues", "low")

    assert operator.post("/queue/pause", {"name": "low", "action": "pause"}, origin=origin).status == 200
    assert redis_client.smembers("paused") == {b"low"}


def test_every_response_bears_the_headers_that_keep_it_in_its_place(operator):
    """No scripts and styles except our own files, no frames, no guessing of types, no copies in caches."""
    for path in ("/", "/nowhere", "/assets/app.js", "/retries?live=1"):
        headers = operator.get(path).headers

        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert operator.get("/").headers["cache-control"] == "no-store"


def test_cookies_are_for_the_dashboard_alone(password_hash):
    """Scripts cannot read them, and other paths and other sites do not get them."""
    from sidekiq_py.web.gateway import answer

    dashboard = asgi_app(accounts={"ada": Account(password_hash)})
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "https",
        "path": "/jobs/sign-in",
        "root_path": "/jobs",
        "query_string": b"",
        "headers": [(b"host", b"x")],
        "client": None,
        "server": ("x", 443),
    }

    [cookie] = [text for name, text in answer(dashboard, scope, b"").headers if name == "set-cookie"]

    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/jobs/"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    "settings",
    [
        {"accounts": lambda h: {"ada": Account(h, "admin")}},
        {"accounts": lambda _h: {"ada": Account("plain password")}},
        {"tokens": lambda _h: {"short": "viewer"}},
        {"tokens": lambda _h: {TOKEN: "admin"}},
        {"servers": lambda _h: {}},
        {"servers": lambda _h: {"a/b": "redis://localhost"}},
        {"servers": lambda _h: {"main": "redis-1:6379"}},
        {"pool": lambda _h: "redis-1:6379"},
        {"pool": lambda _h: 6379},
        {"redaction": lambda _h: {}},
        {"authorize": lambda _h: "viewer"},
        {"accounts": lambda h: {"ada": h}},
        {"trace_url": lambda _h: "https://traces.example/"},
        {"trace_url": lambda _h: "javascript:alert('{trace_id}')"},
    ],
)
def test_a_setting_that_cannot_be_meant_is_an_error(settings, password_hash):
    """It is raised at the start, not at the first request."""
    with pytest.raises(ConfigError):
        asgi_app(**{name: make(password_hash) for name, make in settings.items()})


def test_a_made_up_session_of_a_token_opens_nothing():
    """Its name is a digest; a name with other characters causes no error on the page."""
    visitor = Visitor(asgi_app(tokens={TOKEN: "viewer"}))
    facts = access_module._encode(json.dumps(["", "é", int(access_module.now_seconds()), ""]).encode())
    visitor.cookies["sidekiq_py_session"] = f"{facts}.AAAA"

    assert "Password or token" in visitor.get("/").shown


def test_no_more_than_two_passwords_are_hashed_at_a_time(monkeypatch):
    """Also at the first sign-ins of a process, with names that it does not know: each takes 16 MB and a core."""
    digest, running, most = passwords._digest, [], []

    def counted(*args):
        running.append(1)
        most.append(len(running))
        try:
            return digest(*args)
        finally:
            running.pop()

    monkeypatch.setattr(passwords, "_digest", counted)
    passwords._nobody.cache_clear()

    assert not any(at_once(*[lambda: passwords.is_password("guess", None)] * 8))
    assert max(most) <= 2


def test_requests_at_once_try_five_passwords_and_no_more(password_hash, monkeypatch):
    """All of them arrive before the first password has been checked."""
    everybody = threading.Barrier(12)
    looked_at = []
    dashboard = asgi_app(accounts={"ada": Account(password_hash)})
    dashboard.site.throttle = Throttle(lambda: 100.0)
    visitor = Visitor(dashboard)
    token = _form_token(visitor)

    def slow(given, _hash):
        looked_at.append(given)
        with contextlib.suppress(threading.BrokenBarrierError):
            everybody.wait(0.3)
        return False

    monkeypatch.setattr(access_module, "is_password", slow)
    with ThreadPoolExecutor(12) as pool:
        guesses = [
            pool.submit(visitor.post, "/sign-in", {"name": "ada", "secret": str(number)}, token=token)
            for number in range(12)
        ]

    assert sorted(guess.result().status for guess in guesses) == [401] * 5 + [429] * 7
    assert len(looked_at) == 5
