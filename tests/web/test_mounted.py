"""The dashboard in programs of each framework, as in the examples, and as its own command."""

import os
import socket
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("starlette")

from sidekiq_py.web import User, asgi_app
from sidekiq_py.web.passwords import is_password
from tests.support.web_server import HttpClient, WebServer
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS

TOKEN = "tokens: {a-token-of-the-tests: viewer}\n"
EXAMPLES = REPOSITORY / "examples"


@pytest.fixture
def environment(redis_url, tmp_path):
    """The environment: which Redis, this tree's code, and the test's own database."""
    return {
        "REDIS_URL": redis_url,
        "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)),
        "DATABASE": str(tmp_path / "shop.sqlite3"),
    }


def pause_low(client, base):
    """Press the button that pauses the queue `low`."""
    client.get(f"{base}/queues")
    return client.post(
        f"{base}/queue/pause",
        {"name": "low", "action": "pause", "form_token": client.cookie("sidekiq_py_form")},
    )


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("dashboard_fastapi", [sys.executable, "-m", "uvicorn", "main:app", "--port", "{port}"]),
        ("dashboard_flask", [sys.executable, "-m", "flask", "--app", "main", "run", "--port", "{port}"]),
    ],
)
def test_a_program_behind_a_sign_on_proxy_shows_it(folder, command, environment, redis_client):
    """No one without a name has access, all users may view, operators may act."""
    redis_client.sadd("queues", "low")
    with WebServer(command, environment=environment, folder=EXAMPLES / folder) as server:
        nobody, bob, ada = (
            HttpClient(server, {"X-Forwarded-User": name} if name else None)
            for name in ("", "bob@example.com", "ada@example.com")
        )
        assert nobody.get("/sidekiq/")[0] == 403
        assert nobody.get("/")[0] == 200

        status, page = bob.get("/sidekiq/")
        assert (status, "bob@example.com (viewer)" in page) == (200, True)
        assert 'href="/sidekiq/retries"' in page
        assert bob.get("/sidekiq/assets/app.js")[0] == 200
        assert pause_low(bob, "/sidekiq")[0] == 403

        status, page = pause_low(ada, "/sidekiq")
        assert (status, "low is paused." in page) == (200, True)
    assert redis_client.smembers("paused") == {b"low"}


@pytest.mark.parametrize("how", ["wsgi", "asgi"])
def test_django_shows_it_to_superusers(how, environment, redis_client):
    """They sign in at Django's admin; under WSGI and ASGI, with Django's session in its database."""
    redis_client.sadd("queues", "low")
    folder = EXAMPLES / "dashboard_django"
    environment |= {
        "DJANGO_SUPERUSER_PASSWORD": "secret",
        "DJANGO_SUPERUSER_EMAIL": "ada@example.com",
        "DJANGO_SUPERUSER_USERNAME": "ada",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
    }
    for arguments in (["migrate", "--verbosity", "0"], ["createsuperuser", "--noinput"]):
        command = [sys.executable, "manage.py", *arguments]
        subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True)
    served = {
        "wsgi": [sys.executable, "manage.py", "runserver", "--noreload", "{port}"],
        "asgi": [
            *(sys.executable, "-m", "uvicorn", "--factory", "django.core.asgi:get_asgi_application"),
            *("--app-dir", str(folder), "--port", "{port}"),
        ],
    }
    with WebServer(served[how], environment=environment, folder=folder) as server:
        client = HttpClient(server)
        assert client.get("/sidekiq/")[0] == 403

        client.get("/admin/login/")
        fields = {"username": "ada", "password": "secret", "csrfmiddlewaretoken": client.cookie("csrftoken")}
        client.post("/admin/login/?next=/sidekiq/", fields)

        status, page = client.get("/sidekiq/retries")
        assert (status, "ada (operator)" in page, "The shop&#39;s jobs" in page) == (200, True, True)
        assert 'data-live-by="polling"' in page
        assert 'href="/sidekiq/dead"' in page
        status, page = pause_low(client, "/sidekiq")
        assert (status, "low is paused." in page) == (200, True)
    assert redis_client.smembers("paused") == {b"low"}


@pytest.fixture
def web(environment):
    """Starts `sidekiq-py web` with arguments."""
    return lambda *arguments: WebServer(
        [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}", *arguments], environment=environment
    )


def test_the_command_serves_this_machine(web):
    """It prints the address."""
    with web() as server:
        status, page = HttpClient(server).get("/")

        assert (status, "local (operator)" in page) == (200, True)
        assert f"The dashboard is at http://127.0.0.1:{server.port}/" in server.log
        assert HttpClient(server, {"Host": "evil.example"}).get("/")[0] == 403
        assert HttpClient(server, {"X-Forwarded-For": "127.0.0.1"}).get("/")[0] == 403
        assert server.stop() in (0, -15)


def test_the_command_reads_accounts_from_a_file(web, tmp_path, environment):
    """With the hash that it prints."""
    hashed = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "web", "--hash-password"],
        input="pa55\npa55\n",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    config = tmp_path / "dashboard.yml"
    config.write_text(f"accounts:\n  ada: {{password_hash: '{hashed}', role: operator, may_edit: true}}\n")

    with web("--config", str(config)) as server:
        client = HttpClient(server)
        assert "Password or token" in client.get("/retries")[1]
        fields = {"name": "ada", "secret": "pa55", "form_token": client.cookie("sidekiq_py_form")}
        assert "ada (operator)" in client.post("/sign-in", fields)[1]


def hash_without_terminal(environment, given):
    """Runs `--hash-password` with this standard input, and no terminal at all."""
    return subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "web", "--hash-password"],
        input=given,
        env={**os.environ, **environment},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("given", ["pa55\n", "pa55", "pa55\npa55\n"])
def test_a_password_from_a_pipe_is_hashed(environment, given):
    """Without a word about echoing."""
    ran = hash_without_terminal(environment, given)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert is_password("pa55", ran.stdout.strip())


@pytest.mark.parametrize(
    ("given", "told"), [("", "there is no terminal to ask on"), ("\n", "no terminal"), ("a\nb\n", "the lines differ")]
)
def test_without_a_password_and_a_terminal_it_says_what_to_do(environment, given, told):
    """As other questions do; exit code 2."""
    ran = hash_without_terminal(environment, given)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert "Warning" not in ran.stderr


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (None, "without knowing whom to let in"),
        ("accounts: [1]", "accounts in the configuration must be a mapping"),
        ("acounts: {}", "unknown settings: acounts; the settings are"),
        (f"{'x' * 99}: 1\nb: 2\nc: 3\nd: 4\ne: 5", f"unknown settings: {'x' * 40}…, b, c and 2 more; the settings"),
        ("accounts: {ada: {password_hash: x}}", "the account ada: password_hash is not a hash"),
        ("accounts: {ada: {password: x}}", "must have password_hash"),
        ("tokens: {short: viewer}", "at least 16"),
        (f"{TOKEN}servers: {{main: redis-1:6379}}", "the server main: redis_url is 'redis-1:6379'; it must start with"),
        (f"{TOKEN}servers: {{main: [redis://redis-1]}}", "servers in the configuration must map names to Redis URLs"),
        (f"{TOKEN}servers: {{main: }}", "servers in the configuration must map names to Redis URLs"),
        ("tokens: [a-token-of-the-tests", "cannot be read as YAML: line 1: "),
        ("tokens:\n  *a-token-of-the-tests: viewer", "line 2: found undefined alias; put quotes around what begins"),
        ("tokens: {!a-token-of-the-tests : viewer}", "for the tag; put quotes around what begins with * or !"),
        ("tokens: {!!int a-token-of-the-tests: viewer}", "cannot be read as YAML: a value does not fit its tag"),
        ("title: 2026-99-99", "or looks like a date and is none; put quotes around it"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_at_the_start(config, told, tmp_path, environment):
    """In one sentence that says what to do."""
    arguments = ["--bind", "0.0.0.0", "--port", "0"]
    if config is not None:
        path = tmp_path / "dashboard.yml"
        path.write_text(config)
        arguments += ["--config", str(path)]

    ran = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "web", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == 2
    assert told in " ".join(ran.stderr.split())
    assert "a-token-of-the-tests" not in ran.stderr


@pytest.mark.parametrize(
    ("bind", "host"), [("127.0.0.1:8000", "127.0.0.1"), ("[::1]:8000", "::1"), (":8000", "0.0.0.0")]
)
def test_an_address_with_a_port_is_told_how_to_be_written(environment, bind, host):
    """As in other programs; `::1` is an address without one."""
    ran = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "web", "--bind", bind],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ran.returncode == 2
    assert f"--bind takes no port; give --bind {host} --port 8000" in ran.stderr


def test_a_port_in_use_is_told_at_the_start(environment):
    """With the port, and with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        ran = subprocess.run(
            [sys.executable, "-m", "sidekiq_py", "web", "--port", port],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert (ran.returncode, ran.stdout) == (2, "")
    said = " ".join(ran.stderr.split())
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use; give a free port" in said


def test_a_page_is_sent_again_when_it_has_changed(web, redis_client):
    """As server-sent events, over one connection."""
    with (
        web() as server,
        urllib.request.urlopen(server.url("/queues?live=stream"), timeout=30) as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.readline() == b"event: page\n"
        redis_client.sadd("queues", "a-new-one")
        for line in stream:
            if b"a-new-one" in line:
                break


def test_a_live_page_is_sent_again_and_ends_in_a_loop_of_trio(redis_client):
    """Hypercorn can run the dashboard there."""
    trio = pytest.importorskip("trio")
    dashboard = asgi_app(authorize=lambda _request: User("ada", "viewer"))
    about = {"method": "GET", "path": "/queues", "query_string": b"live=stream", "headers": [(b"host", b"localhost")]}
    bodies = []

    async def receive():
        await trio.sleep_forever()

    async def send(message):
        bodies.append(message.get("body", b""))
        if b"a-new-one" in bodies[-1]:
            dashboard.end_streams()
        elif bodies[-1].startswith(b"event: page"):
            redis_client.sadd("queues", "a-new-one")

    async def look():
        with trio.fail_after(60):
            await dashboard({"type": "http", "asgi": {"spec_version": "2.0"}, **about}, receive, send)

    trio.run(look)

    assert b"a-new-one" in bodies[-2]
    assert bodies[-1] == b""


def test_a_proxy_is_asked_to_pass_the_changes_of_a_live_page_on_at_once(web):
    """By default, nginx keeps a response back until it fills a buffer, and live pages would stand still behind it."""
    with web() as server, urllib.request.urlopen(server.url("/queues?live=stream"), timeout=30) as stream:
        assert stream.headers["x-accel-buffering"] == "no"


def test_the_command_stops_at_once_while_a_page_is_open(web):
    """The stream of a live page ends by itself, so it need not be cut off, with an error in the log."""
    with web() as server, urllib.request.urlopen(server.url("/queues?live=stream"), timeout=30) as stream:
        assert stream.readline() == b"event: page\n"

        assert server.stop() in (0, -15)

        assert "Cancel" not in server.log


def test_a_missing_package_is_named_with_its_extra():
    """In a program whose framework brings Starlette along, but not what renders the pages."""
    code = "import sys; sys.modules['jinja2'] = None; import sidekiq_py.web"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "needs jinja2, which is not installed; install it with: pip install 'sidekiq-py[web]'" in done.stderr
