"""A server reached by TLS: clients, workers, commands, and what is said of certificates that do not do."""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import ConfigError, RedisConnectionError
from tests.support.in_flight import jobs_in_flight
from tests.support.ports import free_port
from tests.support.sentinel import Sentinel
from tests.support.waiting import eventually
from tests.support.worker_process import SOURCE_ROOTS, WorkerProcess
from tests.tls.conftest import TlsServer

Push = Callable[[str], Any]


def by_client(url: str) -> None:
    """The client that blocks."""
    client = sidekiq.Client(url, sidekiq_version="7")
    try:
        client.push({"class": "A", "args": [1]})
    finally:
        client.close()


def by_async_client(url: str) -> None:
    """The client that is awaited."""

    async def push() -> None:
        async with sidekiq.AsyncClient(url, sidekiq_version="7") as client:
            await client.push({"class": "A", "args": [1]})

    asyncio.run(push())


BOTH = pytest.mark.parametrize("push", [by_client, by_async_client])


def queued(server: TlsServer) -> int:
    """How many jobs have arrived."""
    with server.plain.client() as client:
        return int(client.llen("queue:default"))


@BOTH
def test_a_push_to_a_server_whose_authority_is_named(push: Push, tls_server: TlsServer) -> None:
    """By `ssl_ca_certs`."""
    push(tls_server.trusted_url)

    assert queued(tls_server) == 1


@BOTH
@pytest.mark.parametrize("query", ["ssl_cert_reqs=none", "ssl_cert_reqs=none&ssl_check_hostname=false"])
def test_a_push_that_asks_for_no_proof(push: Push, query: str, tls_server: TlsServer) -> None:
    """As Ruby's VERIFY_NONE."""
    push(tls_server.url(query))

    assert queued(tls_server) == 1


@BOTH
def test_a_certificate_of_an_unknown_authority_is_refused(push: Push, tls_server: TlsServer) -> None:
    """With the reason in words, before anything is sent."""
    with pytest.raises(RedisConnectionError, match=r"certificate verify failed.*ssl_ca_certs"):
        push(tls_server.url())

    assert queued(tls_server) == 0


@BOTH
def test_a_certificate_that_has_expired_is_not_taken_for_one_of_an_unknown_authority(
    push: Push, tls_server: TlsServer
) -> None:
    """It has to be renewed; the URL is right. With the next one, pushes work again."""
    with tls_server.plain.client() as client:
        client.config_set("tls-cert-file", str(tls_server.certificates.expired))
        try:
            with pytest.raises(RedisConnectionError, match=r"has expired.*Renew the server's certificate") as raised:
                push(tls_server.trusted_url)
        finally:
            client.config_set("tls-cert-file", str(tls_server.certificates.server))

    assert raised.value.is_advised
    assert "ssl_ca_certs" not in str(raised.value)
    push(tls_server.trusted_url)
    assert queued(tls_server) == 1


@BOTH
def test_a_certificate_for_another_host_is_refused(push: Push, tls_server: TlsServer) -> None:
    """Unless the host's name is not to be looked at, which is the default of redis-py 5."""
    authority = tls_server.certificates.authority
    url = tls_server.url(f"ssl_ca_certs={authority}&ssl_check_hostname=true", host="127.0.0.2")

    with pytest.raises(RedisConnectionError, match=r"127\.0\.0\.2.*or add ssl_check_hostname=false to the URL"):
        push(url)
    assert queued(tls_server) == 0


# redis-py 5 leaves the socket to Python's garbage collector, which is run here so that no other test gets the warning.
@pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")
@BOTH
def test_a_file_that_is_missing_or_holds_no_certificate_is_not_taken_for_a_missing_server(
    push: Push, tls_server: TlsServer, tmp_path: Path
) -> None:
    """The advice names the options to look at."""
    (tmp_path / "empty.pem").touch()
    for name in ("missing.pem", "empty.pem"):
        with pytest.raises(RedisConnectionError, match="Check ssl_ca_certs, ssl_certfile and ssl_keyfile") as raised:
            push(tls_server.url(f"ssl_ca_certs={tmp_path / name}"))
        assert raised.value.is_advised
    del raised
    gc.collect()


@BOTH
def test_a_url_without_tls_for_a_server_that_uses_it(push: Push, tls_server: TlsServer) -> None:
    """The server hangs up, and the advice is to write `rediss://`."""
    with pytest.raises(RedisConnectionError, match="If this server uses TLS, write rediss:// in the URL"):
        push(tls_server.url().replace("rediss://", "redis://"))


@BOTH
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("ssl_ca_cert=ca.pem", "has no option ssl_ca_cert. Those for TLS are ssl_ca_certs, ssl_cert_reqs"),
        ("ssl_cert_reqs=CERT_NONE", "CERT_NONE; ssl_cert_reqs is required, optional or none"),
    ],
)
def test_a_misspelled_option_is_named(push: Push, query: str, message: str, tls_server: TlsServer) -> None:
    """With the names of those that there are."""
    with pytest.raises(ConfigError, match=message):
        push(tls_server.url(query))


@BOTH
def test_a_server_that_asks_for_a_certificate_gets_one(push: Push, strict_tls_server: TlsServer) -> None:
    """By `ssl_certfile` and `ssl_keyfile`; without them it hangs up."""
    push(f"{strict_tls_server.trusted_url}&{strict_tls_server.certificates.as_client}")

    assert queued(strict_tls_server) == 1
    with pytest.raises(RedisConnectionError):
        push(strict_tls_server.trusted_url)


@pytest.mark.parametrize("arguments", [[], ["--fetcher", "basic"], ["--processes", "2"]])
def test_a_worker_by_tls(arguments: list[str], tls_server: TlsServer, tmp_path: Path) -> None:
    """Idle and busy, what runs at once, later and again; its stop is an orderly one."""
    worker = WorkerProcess(
        "tests.namespace.jobs",
        redis_url=tls_server.plain.url,
        arguments=["-u", tls_server.trusted_url, "-c", "2", *arguments],
        environment={"NOTES": str(tmp_path / "notes")},
    )
    with worker, tls_server.plain.client() as client:
        sidekiq.configure(redis_url=tls_server.trusted_url, sidekiq_version="7")
        from tests.namespace import jobs

        for number in range(5):
            jobs.note.perform_async(f"idle {number}")
            eventually(lambda number=number: f"idle {number}" in written(tmp_path))
        jobs.note.perform_bulk([[f"busy {number} {'x' * 30_000}"] for number in range(100)])
        jobs.note.perform_in(0.1, "later")
        jobs.fail.perform_async("again")
        eventually(lambda: len(written(tmp_path)) == 106)
        eventually(lambda: client.zcard("retry") == 1)

        assert worker.stop() == 0
        assert jobs_in_flight(client) == []
    assert "WARN: Could not" not in worker.log


def written(folder: Path) -> list[str]:
    """What jobs have noted."""
    notes = folder / "notes"
    return notes.read_text().split("\n")[:-1] if notes.exists() else []


def test_what_a_worker_killed_in_the_middle_held_comes_back(tls_server: TlsServer, tmp_path: Path) -> None:
    """Recovery goes the same way."""

    def start() -> WorkerProcess:
        return WorkerProcess(
            "tests.namespace.jobs",
            redis_url=tls_server.plain.url,
            arguments=["-u", tls_server.trusted_url, "-c", "1"],
            environment={"NOTES": str(tmp_path / "notes")},
        )

    sidekiq.configure(redis_url=tls_server.trusted_url, sidekiq_version="7")
    sidekiq.Client().push({"class": "Linger", "args": ["lingering"]})
    with start() as killed:
        eventually(lambda: written(tmp_path) == ["lingering"])
        killed.kill()
    with start():
        eventually(lambda: written(tmp_path) == ["lingering", "lingering"])


def test_an_idle_client_pushes_on_the_connection_that_it_has(tls_server: TlsServer) -> None:
    """What TLS itself sends now and then is not taken for the end of the connection."""
    client = sidekiq.Client(tls_server.trusted_url, sidekiq_version="7")
    client.push({"class": "A", "args": []})
    link = client.pool._free[-1]
    generation = link.generation
    link.released_at -= 1

    client.push({"class": "A", "args": []})

    assert (client.pool._free[-1] is link, link.generation) == (True, generation)
    client.close()


def test_the_command_line_takes_the_authority_from_the_environment(tls_server: TlsServer) -> None:
    """SSL_CERT_FILE, as Ruby reads it."""
    by_client(tls_server.trusted_url)

    ran = subprocess.run(
        [sys.executable, "-m", "sidekiq_py", "stats", "--json", "-u", tls_server.url()],
        env={
            **os.environ,
            "SSL_CERT_FILE": str(tls_server.certificates.authority),
            "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["enqueued"] == 1


@BOTH
def test_a_primary_that_a_sentinel_names_is_reached_by_tls(push: Push, tls_server: TlsServer, tmp_path: Path) -> None:
    """With the same options in the URL."""
    # It speaks no TLS to the primary, and would soon take it for dead.
    with Sentinel(tls_server.plain, tmp_path, down_after_ms=600_000, primary_port=tls_server.port) as sentinel:
        url = sentinel.url.replace("redis+", "rediss+")
        push(f"{url}?ssl_ca_certs={tls_server.certificates.authority}")

    assert queued(tls_server) == 1


@BOTH
def test_a_sentinel_is_asked_by_tls(push: Push, tls_server: TlsServer, tmp_path: Path) -> None:
    """With `sentinel_ssl=true`, by the same options, and as a user of its own."""
    port = free_port()
    config = tls_server.certificates.server_settings(port) | {"user": "asker on >hush allcommands allchannels"}
    with Sentinel(tls_server.plain, tmp_path, down_after_ms=600_000, primary_port=tls_server.port, config=config):
        options = f"ssl_ca_certs={tls_server.certificates.authority}&sentinel_ssl=true"
        push(f"rediss+sentinel://localhost:{port}/jobs?{options}&sentinel_username=asker&sentinel_password=hush")

        with pytest.raises(RedisConnectionError, match="no sentinel knows a primary"):
            push(f"rediss+sentinel://localhost:{port}/jobs?{options}&sentinel_username=asker&sentinel_password=wrong")
    assert queued(tls_server) == 1
