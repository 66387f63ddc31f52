"""Access to the servers of `interop_tests.servers` for tests."""

from interop_tests import servers
from interop_tests.servers import RedisProgram
from tests.support.missing_tools import skip_or_fail

SWITCH = "SIDEKIQ_PY_REQUIRE_REDIS"


def required_program(name: str) -> RedisProgram:
    """The server with that name. If it is missing, the test is skipped, or fails in CI."""
    found = servers.find(name)
    if found is None:
        skip_or_fail(servers.why_missing(name), switch=SWITCH)
    return found
