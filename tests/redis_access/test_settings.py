"""URLs of Redis: what is refused before anything connects."""

import pytest

from sidekiq_py.errors import ConfigError
from sidekiq_py.redis_access.connection.settings import RedisSettings


@pytest.mark.parametrize("path", ["", "/", "/0", "/15", "/0/", "/0\n", "/3 ", "/0?db=1", "?db=2", "/0#note"])
@pytest.mark.parametrize("host", ["localhost:6379", "user:pass%2Fword@redis", "[::1]:6379"])
def test_a_database_is_a_number(path, host):
    """Or absent; environment variables may have a newline at their end."""
    RedisSettings(f"redis://{host}{path}")


@pytest.mark.parametrize("path", ["/O", "/production", "/0x", "/:0"])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_database_that_is_not_a_number_is_refused(path, scheme):
    """The client would take database 0 instead, where no worker looks for the jobs."""
    with pytest.raises(ConfigError, match="must be the number of a database"):
        RedisSettings(f"{scheme}://localhost:6379{path}")


def test_a_password_with_a_slash_is_not_printed():
    """The part behind the slash looks like a database."""
    with pytest.raises(ConfigError, match="%2F for /") as refused:
        RedisSettings("redis://user:hush/hush@localhost:6379/0")

    assert "hush" not in str(refused.value)
