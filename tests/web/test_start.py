"""The start of the dashboard."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.web_server import HttpClient, WebServer

pytest.importorskip("starlette")

PROGRAM = "from sidekiq_py.web import asgi_app; asgi_app(authorize=lambda request: None)"


def test_it_starts_where_python_reads_files_as_ascii() -> None:
    """As an old locale tells it to: the templates, also those of the extensions, are UTF-8."""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **ascii_only}, check=True)


def test_it_serves_although_its_output_cannot_be_written(redis_url: str) -> None:
    """A worker runs on with a full disk under its log; the line with the address must not end the dashboard."""
    serve = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}"]
    with WebServer(["sh", "-c", 'exec "$@" > /dev/full', "sh", *serve], environment={"REDIS_URL": redis_url}) as web:
        assert HttpClient(web).get("/")[0] == 200


def test_a_network_of_proxies_is_believed(redis_url: str, tmp_path: Path) -> None:
    """The pods of an ingress have no fixed addresses. A proxy that is not believed leaves cookies without `Secure`."""
    config = tmp_path / "dashboard.yml"
    config.write_text("tokens: {a-token-of-the-tests: viewer}")
    command = [sys.executable, "-m", "sidekiq_py", "web", "--port", "{port}", "--config", str(config)]
    environment = {"REDIS_URL": redis_url, "FORWARDED_ALLOW_IPS": "127.0.0.0/8"}
    with WebServer(command, environment=environment) as web:
        visitor = HttpClient(web, {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"})

        visitor.get("/sign-in")

    assert [cookie.secure for cookie in visitor.cookies] == [True]
