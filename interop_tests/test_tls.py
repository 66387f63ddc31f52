"""Both languages on a server with TLS."""

from pathlib import Path

import pytest

from interop_tests.conftest import PYTHON_JOBS
from interop_tests.support.ledger import LEDGER, lines
from interop_tests.support.ruby import RubyRelease, RubySidekiq, run_ruby
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess
from tests.tls.conftest import TlsServer, certificates, shared_tls_server, tls_server

__all__ = ["certificates", "shared_tls_server", "tls_server"]


def test_both_languages_by_tls(
    ruby_release: RubyRelease, tls_server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One URL and one authority in SSL_CERT_FILE for both; each runs what either has pushed, immediately and
    scheduled.
    """
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_server.certificates.authority))
    # Nobody is called localhost in a Debian root.
    url = tls_server.url(host="127.0.0.1")
    theirs = RubySidekiq(
        ruby_release,
        redis_url=tls_server.plain.url,
        environment={"REDIS_URL": url},
        concurrency=2,
        log_path=tmp_path / "ruby.log",
    )
    ours = WorkerProcess(
        PYTHON_JOBS,
        redis_url=tls_server.plain.url,
        arguments=["-c", "2", "-q", "default", "-q", "python"],
        environment={"REDIS_URL": url, "FIXTURE_SIDEKIQ_VERSION": ruby_release.sidekiq_version},
        log_path=tmp_path / "python.log",
    )
    with theirs, ours, tls_server.plain.client() as client:
        run_ruby(
            ruby_release,
            """
            100.times { |number| FixtureJob.perform_async("ledger_and_sleep", key, number, 0.01) }
            FixtureJob.perform_in(0.1, "enqueue", "PythonJob", ["ledger", key, 100], "python")
            """,
            url,
            key=LEDGER,
        )
        eventually(lambda: {line["entry"] for line in lines(client)} == set(range(101)))

        assert {line["by"] for line in lines(client)} == {"ruby", "python"}
        assert client.scard("processes") == 2
