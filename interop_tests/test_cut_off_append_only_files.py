"""What docs/delivery.md advises after a crash of Redis that has cut off its append-only file."""

import pytest

from interop_tests import servers
from interop_tests.support.redis_programs import required_program
from tests.support.redis_server import RedisServer


def _packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@pytest.mark.parametrize("name", servers.SUPPORTED)
def test_a_rewrite_removes_the_rest_of_a_transaction_that_a_crash_has_cut_off(name: str) -> None:
    """
    Otherwise most servers run that rest at their next start, though a client has sent the whole transaction again.
    """
    with RedisServer(program=servers.find(name) or required_program(name), appendonly=True) as server:
        with server.client() as client:
            client.incr("counter")
        server.kill()
        [file] = [*server.directory.rglob("*.incr.aof")] or [*server.directory.rglob("*.aof")]
        with file.open("ab") as log:
            log.write(_packed(b"MULTI") + _packed(b"INCR", b"counter") + _packed(b"SET", b"name", b"Ann")[:-5])
        server.start()
        with server.client() as client:
            assert client.get("counter") == b"1"
            client.incr("counter")

        server.rewrite_aof()
        server.restart(kill=True)

        with server.client() as client:
            assert client.get("counter") == b"2"
